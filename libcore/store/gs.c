/* store: Google Cloud Storage. With OAuth (or none) the JSON interface; with HMAC keys the XML one, which s3.c speaks.
 * Tags are generations. */
#include <errno.h>
#include <unistd.h>
#include "store/gs_int.h"

#define FIELDS "name,size,generation,updated,crc32c,metadata"

/* ---- opening ---- */

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

/* HMAC keys: GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or the boto file of gsutil. 1 when there are some. */
static int hmac_keys(struct sky_creds *k, struct sky_err *err)
{
	const char *access = env("GS_ACCESS_KEY_ID"), *secret = env("GS_SECRET_ACCESS_KEY"), *file = env("BOTO_CONFIG");
	struct sky_buf b = SKY_BUF_INIT(1u << 20);
	struct sky_ini ini = { 0 };
	char path[SKY_MAX_PATH];
	int rc = 0;

	memset(k, 0, sizeof(*k));
	if (!access || !secret) {
		snprintf(path, sizeof(path), "%s%s", file ? file : env("HOME") ? env("HOME") : "", file ? "" : "/.boto");
		if (sky_file_exists(path)) {
			rc = sky_file_read(path, &b, err);
			rc = rc < 0 ? rc : sky_ini_parse(b.ptr ? b.ptr : "", b.n, path, &ini, err);
		}
		access = rc == 0 ? sky_ini_get(&ini, "Credentials", "gs_access_key_id") : NULL;
		secret = rc == 0 ? sky_ini_get(&ini, "Credentials", "gs_secret_access_key") : NULL;
	}
	if (rc == 0 && access && secret && strlen(access) < sizeof(k->access) && strlen(secret) < sizeof(k->secret)) {
		memcpy(k->access, access, strlen(access) + 1);
		memcpy(k->secret, secret, strlen(secret) + 1);
		rc = 1;
	}
	sky_ini_release(&ini);
	sky_buf_release(&b);
	return rc;
}

static int split_url(struct sky_store *s, struct gs *b, const char *rest, struct sky_err *err)
{
	size_t n = strcspn(rest, "/"), n_prefix;
	const char *prefix = rest + n + (rest[n] == '/');

	if (n < 3 || n > 222 || strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789.-_") < n) {
		return sky_fail(err, SKY_E_USAGE, "%s: expected gs://bucket/prefix with a plain bucket name", s->url);
	}
	snprintf(b->bucket, sizeof(b->bucket), "%.*s", (int)n, rest);
	for (n_prefix = strlen(prefix); n_prefix > 0 && prefix[n_prefix - 1] == '/'; n_prefix--) {
		;
	}
	if (asprintf(&b->prefix, "%.*s%s", (int)n_prefix, prefix, n_prefix ? "/" : "") < 0) {
		b->prefix = NULL;
		return sky_fail_mem(err, "store %s", s->url);
	}
	return 0;
}

static void gs_close(struct sky_store *s)
{
	struct gs *b = s->be;

	sky_http_free(b->http);
	sky_gcred_free(b->cred);
	free(b->prefix);
	free(b);
}

static int gs_open(struct sky_store *s, const char *rest, struct sky_err *err)
{
	struct sky_http_opt opt = { s->set.timeout_s, s->set.timeout_s < 30 ? s->set.timeout_s : 30, s->set.n_parallel,
	                            s->set.bw_limit };
	const char *emulator = env("STORAGE_EMULATOR_HOST"), *url = s->set.endpoint_url;
	struct sky_creds keys;
	struct gs *b;
	int rc = s->set.no_sign_request || (emulator && !url) ? 0 : hmac_keys(&keys, err);

	if (rc != 0) {
		s->ops = &sky_store_gs_xml;
		return rc < 0 ? rc : s3_open_with(s, rest, &s3_dialect_goog, &keys, err);
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		return sky_fail_mem(err, "store %s", s->url);
	}
	s->be = b;
	url = url ? url : emulator ? emulator : "https://storage.googleapis.com";
	snprintf(b->base, sizeof(b->base), "%s%s", strstr(url, "://") ? "" : "http://", url);
	b->base[strlen(b->base) - (b->base[strlen(b->base) - 1] == '/')] = '\0';
	rc = split_url(s, b, rest, err);
	if (rc == 0 && !s->set.no_sign_request && (s->set.endpoint_url || !emulator)) {
		rc = sky_gcred_new(&b->cred, err);
	}
	rc = rc < 0 ? rc : sky_http_new(&opt, &b->http, err);
	if (rc < 0) {
		gs_close(s);
	}
	return rc;
}

/* ---- requests ---- */

int gs_add_auth(struct gs *b, struct sky_try *t, const char *refused, char *token, size_t cap, struct sky_err *err)
{
	int rc;

	if (!b->cred) {
		return 0;
	}
	rc = sky_gcred_get(b->cred, refused, token, cap, err);
	return rc < 0 ? rc : sky_heads_add(&t->heads, err, "authorization", "Bearer %s", token);
}

static int gs_build(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct gs_req *r = c->ctx;
	char refused[sizeof(r->token)];
	int rc = 0;

	memcpy(refused, r->token, sizeof(refused));
	t->method = r->method;
	t->url = strdup(r->url);
	t->body = r->body;
	t->n_body = r->n_body;
	t->mem = r->mem;
	t->fd = r->fd;
	t->fd_off = r->fd_off;
	t->n_room = r->n_room;
	if (!t->url) {
		return sky_fail_mem(err, "%s", r->what);
	}
	if (r->range && r->n_expect != UINT64_MAX) {
		rc = sky_heads_add(&t->heads, err, "range", "bytes=%llu-%llu", (unsigned long long)r->off,
		                   (unsigned long long)(r->off + r->n_expect - 1));
	} else if (r->range) {
		rc = sky_heads_add(&t->heads, err, "range", "bytes=%llu-", (unsigned long long)r->off);
	}
	if (rc == 0 && r->type) {
		rc = sky_heads_add(&t->heads, err, "content-type", "%s", r->type);
	}
	rc = rc < 0 ? rc : gs_add_auth(r->gs, t, r->n_refused == 1 ? refused : NULL, r->token, sizeof(r->token), err);
	r->n_refused += r->n_refused == 1;
	return rc;
}

static void read_error(struct gs_req *r, const struct sky_try *t)
{
	struct sky_json *doc = NULL;
	struct sky_err quiet;
	const struct sky_jnode *e;
	const char *text;

	r->reason[0] = r->message[0] = '\0';
	if (t->answer.n == 0 || sky_json_parse(t->answer.ptr, t->answer.n, "answer", 0, &doc, &quiet) < 0) {
		return;
	}
	e = sky_j_get(sky_json_root(doc), "error");
	text = sky_j_str(sky_j_get(e, "message"));
	snprintf(r->message, sizeof(r->message), "%s", text ? text : "");
	text = sky_j_str(sky_j_get(sky_j_at(sky_j_get(e, "errors"), 0), "reason"));
	snprintf(r->reason, sizeof(r->reason), "%s", text ? text : "");
	sky_json_free(doc);
}

int gs_judge_answer(struct gs_req *r, struct sky_try *t, struct sky_err *err)
{
	read_error(r, t);
	switch (t->status) {
	case 401:
		if (r->gs->cred && r->n_refused == 0) {
			r->n_refused = 1;
			sky_fail(err, SKY_E_AGAIN, "the token is not taken (HTTP 401)");
			return SKY_EOF;
		}
		/* fall through */
	case 403:
		return sky_fail(err, SKY_E_SYS, "%s: denied: HTTP %d %s %s", r->what, t->status, r->reason, r->message);
	case 404:
	case 410:
		return sky_fail(err, SKY_E_MISSING, "%s: no such object or bucket: %s", r->what, r->message);
	case 412:
		return sky_fail(err, SKY_E_AGAIN, "%s: the object is not what was expected (conditionNotMet)", r->what);
	case 416:
		return sky_fail(err, SKY_E_DATA, "%s: the object is shorter than expected", r->what);
	default:
		return sky_fail(err, SKY_E_SYS, "%s: HTTP %d %s %s", r->what, t->status, r->reason, r->message);
	}
}

/* CRC32C of the whole object from x-goog-hash: crc32c=…,md5=… */
static int hash_of(const struct sky_try *t, uint32_t *crc_p)
{
	char v[256], *at;
	uint8_t raw[4];
	size_t n;

	if (!sky_try_head(t, "x-goog-hash", v, sizeof(v)) || !(at = strstr(v, "crc32c="))) {
		return -1;
	}
	at += 7;
	at[strcspn(at, ", ")] = '\0';
	if (sky_unbase64(at, raw, sizeof(raw), &n) < 0 || n != 4) {
		return -1;
	}
	*crc_p = (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
	return 0;
}

static int content_range(const struct sky_try *t, uint64_t *first_p, uint64_t *total_p)
{
	char v[128], *dash, *slash;
	struct sky_err quiet;

	if (!sky_try_head(t, "content-range", v, sizeof(v)) || strncmp(v, "bytes ", 6) != 0 || !(dash = strchr(v, '-')) ||
	    !(slash = strchr(dash, '/'))) {
		return -1;
	}
	*dash = '\0';
	return sky_parse_u64(slash + 1, total_p, &quiet) < 0 || sky_parse_u64(v + 6, first_p, &quiet) < 0 ? -1 : 0;
}

static int gs_judge(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct gs_req *r = c->ctx;
	int rc = sky_judge_common(c, t, err);
	uint64_t first = 0, total = UINT64_MAX;
	uint32_t want;

	if (rc != 0 || (t->too_long && r->peek)) {
		return rc;
	}
	if (t->status / 100 != 2) {
		return gs_judge_answer(r, t, err);
	}
	if (t->too_long || (r->off > 0 && (content_range(t, &first, &total) < 0 || first != r->off))) {
		return sky_fail(err, SKY_E_SYS, "%s: the server ignores ranges, or sends more than was asked for", r->what);
	}
	if (r->n_expect != UINT64_MAX && t->n_got != r->n_expect) {
		if (content_range(t, &first, &total) == 0 && total < r->off + r->n_expect) {
			return sky_fail(err, SKY_E_DATA, "%s: the object has %llu bytes, range %llu+%llu wanted", r->what,
			                (unsigned long long)total, (unsigned long long)r->off, (unsigned long long)r->n_expect);
		}
		sky_fail(err, SKY_E_AGAIN, "the body has the wrong length");
		return SKY_EOF;
	}
	if (r->whole && hash_of(t, &want) == 0 && want != t->crc32c) {
		sky_fail(err, SKY_E_AGAIN, "checksum mismatch of the transfer");
		return SKY_EOF;
	}
	return 0;
}

int gs_req_init(struct gs_req *r, struct sky_store *s, const char *method, const char *key, struct sky_err *err)
{
	struct gs *b = s->be;

	memset(r, 0, sizeof(*r));
	r->s = s;
	r->gs = b;
	r->method = method;
	r->fd = -1;
	r->n_expect = UINT64_MAX;
	r->c.ctx = r;
	r->c.build = gs_build;
	r->c.judge = gs_judge;
	sky_try_init(&r->c.t);
	if (asprintf(&r->what, "%s gs://%s/%s%s", method, b->bucket, b->prefix, key ? key : "") < 0) {
		r->what = NULL;
		return sky_fail_mem(err, "request");
	}
	r->c.what = r->what;
	return 0;
}

int gs_req_url(struct gs_req *r, const char *path, const char *const pairs[][2], int n, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(1u << 16);
	int rc = sky_buf_addf(&b, err, "%s%s", r->gs->base, path);

	rc = rc < 0 || n == 0 ? rc : sky_buf_addc(&b, '?', err);
	rc = rc < 0 ? rc : sky_query_build(&b, pairs, n, err);
	if (rc == 0) {
		r->url = sky_buf_take(&b);
	}
	sky_buf_release(&b);
	return rc;
}

/* /storage/v1/b/BUCKET/o/KEY, the key encoded with its slashes; media: "media" for the bytes. */
int gs_object_url(struct gs_req *r, const char *key, const char *media, struct sky_err *err)
{
	const char *const pairs[][2] = { { "alt", media }, { "fields", media ? NULL : FIELDS } };
	struct sky_buf p = SKY_BUF_INIT(1u << 16);
	int rc = sky_buf_addf(&p, err, "/storage/v1/b/%s/o/", r->gs->bucket);

	rc = rc < 0 ? rc : sky_uri_encode(&p, r->gs->prefix, strlen(r->gs->prefix), 0, err);
	rc = rc < 0 ? rc : sky_uri_encode(&p, key, strlen(key), 0, err);
	rc = rc < 0 ? rc : gs_req_url(r, p.ptr, pairs, 2, err);
	sky_buf_release(&p);
	return rc;
}

int gs_req_run(struct gs_req *r, struct sky_err *err)
{
	return sky_call_run(r->gs->http, r->s, &r->c, err);
}

void gs_req_release(struct gs_req *r)
{
	sky_call_release(&r->c);
	free(r->url);
	free(r->what);
	r->url = r->what = NULL;
}

/* ---- head ---- */

/* Google writes 64-bit numbers as strings; emulators sometimes as numbers. */
static int number(const struct sky_jnode *v, uint64_t *out)
{
	struct sky_err quiet;
	const char *text = sky_j_str(v);

	return sky_parse_u64(text ? text : sky_j_raw(v) ? sky_j_raw(v) : "", out, &quiet);
}

int gs_parse_object(const struct sky_jnode *v, struct gs_meta *m, struct sky_err *err)
{
	const char *text;
	uint64_t generation;
	uint8_t raw[4];
	size_t n;

	memset(m, 0, sizeof(*m));
	if (number(sky_j_get(v, "size"), &m->bytes) < 0) {
		return sky_fail(err, SKY_E_DATA, "object resource without a size");
	}
	if (number(sky_j_get(v, "generation"), &generation) == 0) {
		snprintf(m->generation, sizeof(m->generation), "%llu", (unsigned long long)generation);
	}
	text = sky_j_str(sky_j_get(v, "updated"));
	if (!text || sky_iso_time(text, &m->mtime) < 0) {
		m->mtime = 0;
	}
	text = sky_j_str(sky_j_get(v, "crc32c"));
	if (text && sky_unbase64(text, raw, sizeof(raw), &n) == 0 && n == 4) {
		m->crc = (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
		m->has_crc = 1;
	}
	text = sky_j_str(sky_j_get(sky_j_get(v, "metadata"), "skyrl-put"));
	snprintf(m->mark, sizeof(m->mark), "%s", text ? text : "");
	return 0;
}

int gs_stat(struct sky_store *s, const char *key, struct gs_meta *m, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	struct gs_req r;
	int rc = gs_req_init(&r, s, "GET", key, err);

	rc = rc < 0 ? rc : gs_object_url(&r, key, NULL, err);
	rc = rc < 0 ? rc : gs_req_run(&r, err);
	rc = rc < 0 ? rc : sky_json_parse(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, r.what, 0, &doc, err);
	rc = rc < 0 ? rc : gs_parse_object(sky_json_root(doc), m, err);
	sky_json_free(doc);
	gs_req_release(&r);
	return rc;
}

static int gs_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err)
{
	struct gs_meta m;
	int rc = gs_stat(s, key, &m, err);

	if (rc == 0) {
		o->bytes = m.bytes;
		o->mtime = m.mtime;
		snprintf(o->tag, sizeof(o->tag), "%s", m.generation);
	}
	return rc;
}

/* ---- get ---- */

struct range_ctx {
	struct sky_store *s;
	const char *key;
	uint64_t off0;
};

static struct sky_call *make_range(void *ctx, uint64_t off, uint64_t n, uint8_t *mem, int fd, struct sky_err *err)
{
	struct range_ctx *x = ctx;
	struct gs_req *r = malloc(sizeof(*r));
	int rc;

	if (!r) {
		sky_fail_mem(err, "request");
		return NULL;
	}
	rc = gs_req_init(r, x->s, "GET", x->key, err);
	rc = rc < 0 ? rc : gs_object_url(r, x->key, "media", err);
	r->mem = mem;
	r->fd = mem ? -1 : fd;
	r->fd_off = off - x->off0;
	r->range = 1;
	r->off = off;
	r->n_room = r->n_expect = n;
	if (rc < 0) {
		gs_req_release(r);
		free(r);
		return NULL;
	}
	return &r->c;
}

static void range_tag(struct sky_call *c, char *tag, size_t cap)
{
	tag[0] = '\0';
	sky_try_head(&c->t, "x-goog-generation", tag, cap);
}

static void drop_range(struct sky_call *c)
{
	struct gs_req *r = c->ctx;

	gs_req_release(r);
	free(r);
}

static int get_ranges(struct sky_store *s, const char *key, uint64_t off, uint64_t n, uint8_t *mem, int fd, uint32_t *crc_p,
                      struct sky_err *err)
{
	struct range_ctx x = { s, key, off };
	struct sky_ranges g = { s, ((struct gs *)s->be)->http, make_range, range_tag, drop_range, &x };

	return sky_ranges_get(&g, key, off, n, mem, fd, 0, crc_p, err);
}

/* The whole object when it fits one part; otherwise too_long is set and the size comes from its metadata. */
static int first_look(struct gs_req *r, const char *key, int fd, uint64_t *size_p, struct gs_meta *m, struct sky_err *err)
{
	int rc = gs_object_url(r, key, "media", err);

	r->fd = fd;
	r->whole = r->peek = 1;
	r->n_room = r->s->set.part_bytes < SKY_HTTP_ANSWER_MAX ? r->s->set.part_bytes : SKY_HTTP_ANSWER_MAX;
	rc = rc < 0 ? rc : gs_req_run(r, err);
	*size_p = r->c.t.n_got;
	if (rc == 0 && r->c.t.too_long) {
		rc = gs_stat(r->s, key, m, err);
		*size_p = m->bytes;
	}
	return rc;
}

static int same_sum(struct sky_store *s, const char *key, const struct gs_meta *m, uint32_t crc, struct sky_err *err)
{
	return !m->has_crc || m->crc == crc ? 0 : sky_fail(err, SKY_E_AGAIN, "%s: checksum mismatch of the transfer of %s", s->url, key);
}

static int get_from(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, uint32_t *crc_p,
                    struct sky_err *err)
{
	int rc = sky_buf_reserve(out, n, err);

	rc = rc < 0 || n == 0 ? rc : get_ranges(s, key, off, n, (uint8_t *)out->ptr + out->n, -1, crc_p, err);
	if (rc == 0 && n > 0) {
		out->n += n;
		out->ptr[out->n] = '\0';
	}
	return rc;
}

static int gs_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, struct sky_err *err)
{
	struct gs_meta m;
	struct gs_req r;
	uint64_t size = 0;
	uint32_t crc = 0;
	int rc;

	if (n != UINT64_MAX && n > 0) {
		return get_from(s, key, off, n, out, NULL, err);
	}
	if (n == 0 || off > 0) {
		rc = gs_stat(s, key, &m, err);
		if (rc == 0 && off > m.bytes) {
			rc = sky_fail(err, SKY_E_DATA, "%s: %s has %llu bytes, offset %llu wanted", s->url, key,
			              (unsigned long long)m.bytes, (unsigned long long)off);
		}
		return rc < 0 || n == 0 ? rc : get_from(s, key, off, m.bytes - off, out, NULL, err);
	}
	rc = gs_req_init(&r, s, "GET", key, err);
	rc = rc < 0 ? rc : first_look(&r, key, -1, &size, &m, err);
	if (rc == 0 && r.c.t.too_long) {
		rc = get_from(s, key, 0, size, out, &crc, err);
		rc = rc < 0 ? rc : same_sum(s, key, &m, crc, err);
	} else if (rc == 0) {
		rc = sky_buf_add(out, r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, err);
		s->bytes_get += size;
	}
	gs_req_release(&r);
	return rc;
}

static int gs_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
{
	struct gs_meta m;
	struct gs_req r;
	uint64_t size = 0;
	uint32_t crc = 0;
	int rc = gs_req_init(&r, s, "GET", key, err);

	rc = rc < 0 ? rc : first_look(&r, key, fd, &size, &m, err);
	if (rc == 0 && r.c.t.too_long) {
		rc = get_ranges(s, key, 0, size, NULL, fd, &crc, err);
		rc = rc < 0 ? rc : same_sum(s, key, &m, crc, err);
	} else if (rc == 0) {
		s->bytes_get += size;
	}
	if (rc == 0) {
		*bytes_p = size;
	}
	gs_req_release(&r);
	return rc;
}

/* ---- put, delete ---- */

/* multipart/related: the resource with checksum and mark, then the bytes. */
static int related_body(struct sky_buf *b, const char *name, const char *mark, const void *p, uint64_t n, struct sky_err *err)
{
	uint32_t crc = sky_crc32c(0, p, n);
	uint8_t raw[4] = { (uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8), (uint8_t)crc };
	char sum[16];
	struct sky_jw w;
	int rc = sky_buf_addf(b, err, "--%s\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", mark);

	sky_base64(raw, 4, sum, sizeof(sum));
	sky_jw_init(&w, b, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "name", name);
	sky_jw_kstr(&w, "crc32c", sum);
	sky_jw_key(&w, "metadata");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "skyrl-put", mark);
	sky_jw_close_obj(&w);
	sky_jw_close_obj(&w);
	rc = rc < 0 ? rc : sky_jw_end(&w);
	rc = rc < 0 ? rc : sky_buf_addf(b, err, "\r\n--%s\r\nContent-Type: application/octet-stream\r\n\r\n", mark);
	rc = rc < 0 ? rc : sky_buf_add(b, p, n, err);
	return rc < 0 ? rc : sky_buf_addf(b, err, "\r\n--%s--\r\n", mark);
}

/* After a refused condition: was it our own earlier try that did it? */
static int gs_lost(struct sky_store *s, const char *key, const char *mark, struct sky_err *err)
{
	struct gs_meta m;
	int rc = gs_stat(s, key, &m, err);

	if (rc < 0 && rc != SKY_E_MISSING) {
		return rc;
	}
	return rc == 0 && strcmp(m.mark, mark) == 0 ? 0 : sky_lost_race(s, key, err);
}

int gs_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags, const char *tag_expect,
           struct sky_err *err)
{
	struct gs *gs = s->be;
	struct sky_buf body = SKY_BUF_INIT(SIZE_MAX / 2);
	const char *match = flags & SKY_PUT_CREATE ? "0" : tag_expect;
	const char *pairs[][2] = { { "uploadType", "multipart" }, { "name", NULL }, { "ifGenerationMatch", match } };
	char mark[33], type[96], path[600], *name = NULL;
	struct gs_req r;
	int rc = gs_req_init(&r, s, "POST", key, err);

	s3_make_id(mark);
	snprintf(type, sizeof(type), "multipart/related; boundary=%s", mark);
	snprintf(path, sizeof(path), "/upload/storage/v1/b/%s/o", gs->bucket);
	if (rc == 0 && asprintf(&name, "%s%s", gs->prefix, key) < 0) {
		name = NULL;
		rc = sky_fail_mem(err, "put of %s", key);
	}
	pairs[1][1] = name;
	rc = rc < 0 ? rc : gs_req_url(&r, path, pairs, 3, err);
	rc = rc < 0 ? rc : related_body(&body, name, mark, n ? p : "", n, err);
	if (rc == 0) {
		r.type = type;
		r.body = (const uint8_t *)body.ptr;
		r.n_body = body.n;
		rc = gs_req_run(&r, err);
		if ((rc == SKY_E_AGAIN && r.c.t.status == 412) || (rc == SKY_E_MISSING && tag_expect)) {
			rc = gs_lost(s, key, mark, err);
		}
	}
	s->bytes_put += rc == 0 ? n : 0;
	free(name);
	sky_buf_release(&body);
	gs_req_release(&r);
	return rc;
}

int gs_delete_if(struct sky_store *s, const char *key, const char *generation, struct sky_err *err)
{
	struct gs_req r;
	char *url = NULL;
	int rc = gs_req_init(&r, s, "DELETE", key, err);

	rc = rc < 0 ? rc : gs_object_url(&r, key, NULL, err);
	if (rc == 0) {
		r.url[strcspn(r.url, "?")] = '\0';
		if (generation && *generation) {
			if (asprintf(&url, "%s?ifGenerationMatch=%s", r.url, generation) < 0) {
				rc = sky_fail_mem(err, "delete of %s", key);
			} else {
				free(r.url);
				r.url = url;
			}
		}
	}
	rc = rc < 0 ? rc : gs_req_run(&r, err);
	gs_req_release(&r);
	return rc == SKY_E_MISSING ? 0 : rc;
}

static int gs_del(struct sky_store *s, const char *key, struct sky_err *err)
{
	return gs_delete_if(s, key, NULL, err);
}

/* ---- listings ---- */

static int add_page(struct sky_store *s, const struct sky_jnode *root, struct sky_listing *l, struct sky_err *err)
{
	size_t n_prefix = strlen(((struct gs *)s->be)->prefix);
	struct gs_meta m;
	int rc = 0;

	for (const struct sky_jnode *v = sky_j_first(sky_j_get(root, "items")); v && rc == 0; v = sky_j_next(v)) {
		const char *name = sky_j_str(sky_j_get(v, "name"));

		rc = name ? gs_parse_object(v, &m, err) : sky_fail(err, SKY_E_DATA, "%s: a listing names no object", s->url);
		if (rc == 0 && strlen(name) > n_prefix) {
			rc = sky_listing_add(l, name + n_prefix, strlen(name) - n_prefix, m.bytes, m.generation, m.mtime, err);
		}
	}
	for (const struct sky_jnode *v = sky_j_first(sky_j_get(root, "prefixes")); v && rc == 0; v = sky_j_next(v)) {
		const char *name = sky_j_str(v);

		if (name && strlen(name) > n_prefix) {
			rc = sky_listing_add(l, name + n_prefix, strlen(name) - n_prefix, 0, "", 0, err);
		}
	}
	return rc;
}

/* One page; *token is the next page's, "" at the end. */
static int list_page(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, char *token, size_t cap,
                     struct sky_err *err)
{
	const char *const pairs[][2] = { { "prefix", prefix }, { "delimiter", flags & SKY_LIST_SHALLOW ? "/" : NULL },
	                                 { "pageToken", token[0] ? token : NULL }, { "maxResults", "1000" } };
	struct sky_json *doc = NULL;
	struct gs_req r;
	const char *next;
	char path[600];
	int rc = gs_req_init(&r, s, "GET", NULL, err);

	snprintf(path, sizeof(path), "/storage/v1/b/%s/o", ((struct gs *)s->be)->bucket);
	rc = rc < 0 ? rc : gs_req_url(&r, path, pairs, 4, err);
	rc = rc < 0 ? rc : gs_req_run(&r, err);
	rc = rc < 0 ? rc : sky_json_parse(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, r.what, 0, &doc, err);
	rc = rc < 0 ? rc : add_page(s, sky_json_root(doc), l, err);
	rc = rc < 0 ? rc : sky_j_get_str(sky_json_root(doc), "nextPageToken", "", &next, err);
	if (rc == 0 && next[0] && strcmp(next, token) == 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: a listing does not get on", r.what);
	}
	if (rc == 0) {
		snprintf(token, cap, "%s", next);
	}
	sky_json_free(doc);
	gs_req_release(&r);
	return rc;
}

static int gs_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err)
{
	char token[4096] = "", *full = NULL;
	int rc = asprintf(&full, "%s%s", ((struct gs *)s->be)->prefix, prefix) < 0 ? sky_fail_mem(err, "listing") : 0;

	do {
		rc = rc < 0 ? rc : list_page(s, full, flags, l, token, sizeof(token), err);
	} while (rc == 0 && token[0]);
	free(full);
	return rc;
}

/* Sessions of resumable uploads cannot be listed, cost nothing and end after a week. */
static int gs_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p, struct sky_err *err)
{
	(void)s, (void)prefix, (void)age_s, (void)abort, (void)err;
	*n_p = 0;
	return 0;
}

const struct sky_store_ops sky_store_gs = {
	.scheme = "gs",
	.open = gs_open,
	.close = gs_close,
	.head = gs_head,
	.get = gs_get,
	.get_fd = gs_get_fd,
	.put = gs_put,
	.upload_open = gs_upload_open,
	.upload_write = gs_upload_write,
	.upload_commit = gs_upload_commit,
	.upload_abort = gs_upload_abort,
	.list = gs_list,
	.del = gs_del,
	.uploads = gs_uploads,
};
