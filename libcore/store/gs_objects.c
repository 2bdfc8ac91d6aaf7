/* store: the operations on objects of Google Cloud Storage by the JSON interface, all but resumable uploads. */
#include "store/gs_int.h"

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
	rc = rc < 0 ? rc :
	              sky_json_parse(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, r.what, 0, &doc, err);
	rc = rc < 0 ? rc : gs_parse_object(sky_json_root(doc), m, err);
	sky_json_free(doc);
	gs_req_release(&r);
	return rc;
}

int gs_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err)
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

static int get_ranges(struct sky_store *s, const char *key, uint64_t off, uint64_t n, uint8_t *mem, int fd,
                      uint32_t *crc_p, struct sky_err *err)
{
	struct range_ctx x = { s, key, off };
	struct sky_ranges g = { s, ((struct gs *)s->be)->http, make_range, range_tag, drop_range, &x };

	return sky_ranges_get(&g, key, off, n, mem, fd, 0, crc_p, err);
}

/* The whole object when it fits one part; otherwise too_long is set and the size comes from its metadata. */
static int first_look(struct gs_req *r, const char *key, int fd, uint64_t *size_p, struct gs_meta *m,
                      struct sky_err *err)
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
	return !m->has_crc || m->crc == crc ?
	               0 :
	               sky_fail(err, SKY_E_AGAIN, "%s: checksum mismatch of the transfer of %s", s->url, key);
}

static int get_from(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
                    uint32_t *crc_p, struct sky_err *err)
{
	int rc = sky_buf_reserve(out, n, err);

	rc = rc < 0 || n == 0 ? rc : get_ranges(s, key, off, n, (uint8_t *)out->ptr + out->n, -1, crc_p, err);
	if (rc == 0 && n > 0) {
		out->n += n;
		out->ptr[out->n] = '\0';
	}
	return rc;
}

int gs_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, struct sky_err *err)
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

int gs_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
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
static int related_body(struct sky_buf *b, const char *name, const char *mark, const void *p, uint64_t n,
                        struct sky_err *err)
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

int gs_del(struct sky_store *s, const char *key, struct sky_err *err)
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

		rc = name ? gs_parse_object(v, &m, err) :
		            sky_fail(err, SKY_E_DATA, "%s: a listing names no object", s->url);
		if (rc == 0 && strlen(name) > n_prefix) {
			rc = sky_listing_add(l, name + n_prefix, strlen(name) - n_prefix, m.bytes, m.generation,
			                     m.mtime, err);
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
static int list_page(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, char *token,
                     size_t cap, struct sky_err *err)
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
	rc = rc < 0 ? rc :
	              sky_json_parse(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, r.what, 0, &doc, err);
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

int gs_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err)
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
int gs_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p, struct sky_err *err)
{
	(void)s, (void)prefix, (void)age_s, (void)abort, (void)err;
	*n_p = 0;
	return 0;
}
