/* store: Google Cloud Storage. With OAuth (or none) the JSON interface; with HMAC keys the XML one, which s3.c speaks.
 * Tags are generations. */
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
		snprintf(path, sizeof(path), "%s%s",
		         file        ? file :
		         env("HOME") ? env("HOME") :
		                       "",
		         file ? "" : "/.boto");
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
	if (rc == 0 && (r->n_room > 0 || r->range)) {
		rc = sky_heads_add(&t->heads, err, "accept-encoding", "gzip");  /* the bytes as they are stored */
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

	if (!sky_try_head(t, "content-range", v, sizeof(v)) || strncmp(v, "bytes ", 6) != 0 ||
	    !(dash = strchr(v, '-')) || !(slash = strchr(dash, '/'))) {
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
		return sky_fail(err, SKY_E_SYS, "%s: the server ignores ranges, or sends more than was asked for",
		                r->what);
	}
	if (r->n_expect != UINT64_MAX && t->n_got != r->n_expect) {
		if (content_range(t, &first, &total) == 0 && total < r->off + r->n_expect) {
			return sky_fail(err, SKY_E_DATA, "%s: the object has %llu bytes, range %llu+%llu wanted",
			                r->what, (unsigned long long)total, (unsigned long long)r->off,
			                (unsigned long long)r->n_expect);
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
