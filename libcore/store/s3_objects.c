/* store: the operations on S3 objects, all but uploads in parts. */
#include "store/s3_int.h"
#include "store/xml_int.h"

/* ---- head ---- */

static void read_object(const struct s3_req *r, struct sky_object *o)
{
	char date[64];

	o->bytes = r->c.t.length == UINT64_MAX ? 0 : r->c.t.length;
	s3_req_tag(r, o->tag, sizeof(o->tag));
	if (!sky_try_head(&r->c.t, "last-modified", date, sizeof(date)) || sky_http_date(date, &o->mtime) < 0) {
		o->mtime = 0;
	}
}

int s3_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err)
{
	struct s3_req r;
	int rc = s3_req_init(&r, s, "HEAD", key, err);

	rc = rc < 0 ? rc : s3_req_run(&r, err);
	if (rc == 0) {
		read_object(&r, o);
	}
	s3_req_release(&r);
	return rc;
}

int s3_is_ours(struct sky_store *s, const char *key, const char *id, struct sky_err *err)
{
	struct s3_req r;
	char have[64] = "";
	int rc = s3_req_init(&r, s, "HEAD", key, err);

	rc = rc < 0 ? rc : s3_req_run(&r, err);
	if (rc == 0) {
		sky_try_head(&r.c.t, r.s3->d->meta_id, have, sizeof(have));
	}
	s3_req_release(&r);
	return rc == SKY_E_MISSING ? 0 : rc < 0 ? rc : strcmp(have, id) == 0;
}

/* ---- get ---- */

struct range_ctx {
	struct sky_store *s;
	const char *key;
	uint64_t off0, fd_off;          /* object offset that stands at fd_off */
};

static struct sky_call *make_range(void *ctx, uint64_t off, uint64_t n, uint8_t *mem, int fd, struct sky_err *err)
{
	struct range_ctx *x = ctx;
	struct s3_req *r = malloc(sizeof(*r));
	int rc;

	if (!r) {
		sky_fail_mem(err, "request");
		return NULL;
	}
	rc = s3_req_init(r, x->s, "GET", x->key, err);
	r->mem = mem;
	r->fd = mem ? -1 : fd;
	r->fd_off = x->fd_off + (off - x->off0);
	r->n_room = r->n_expect = n;
	r->off = off;
	rc = rc < 0 ? rc : sky_heads_add(&r->heads, err, "range", "bytes=%llu-%llu", (unsigned long long)off,
	                                 (unsigned long long)(off + n - 1));
	if (rc < 0) {
		s3_req_release(r);
		free(r);
		return NULL;
	}
	return &r->c;
}

static void range_tag(struct sky_call *c, char *tag, size_t cap)
{
	s3_req_tag(c->ctx, tag, cap);
}

static void drop_range(struct sky_call *c)
{
	struct s3_req *r = c->ctx;

	s3_req_release(r);
	free(r);
}

static int get_ranges(struct sky_store *s, const char *key, uint64_t off, uint64_t n, uint8_t *mem, int fd,
                      uint64_t fd_off, uint32_t *crc_p, struct sky_err *err)
{
	struct range_ctx x = { s, key, off, fd_off };
	struct sky_ranges g = { s, ((struct s3 *)s->be)->http, make_range, range_tag, drop_range, &x };

	return sky_ranges_get(&g, key, off, n, mem, fd, fd_off, crc_p, err);
}

/* Length of the object that a range of it came from. */
static uint64_t total_of(const struct s3_req *r, uint64_t off)
{
	uint64_t first, total;

	if (s3_req_range(r, &first, &total) == 0) {
		return total;
	}
	return off == 0 ? r->c.t.length : UINT64_MAX;
}

/* The first look at an object of unknown length: the whole of it when it fits one part, else its length. Sink is fd or,
 * for -1, the request's answer. *size_p is the length of the object. */
static int first_look(struct s3_req *r, uint64_t off, uint64_t *size_p, struct sky_err *err)
{
	struct sky_object o = { 0 };
	int rc;

	r->whole = off == 0;
	r->off = off;
	r->peek = 1;
	r->n_room = r->s->set.part_bytes < SKY_HTTP_ANSWER_MAX ? r->s->set.part_bytes : SKY_HTTP_ANSWER_MAX;
	rc = off > 0 ? sky_heads_add(&r->heads, err, "range", "bytes=%llu-", (unsigned long long)off) : 0;
	rc = rc < 0 ? rc : s3_req_run(r, err);
	if (rc < 0) {
		return rc;
	}
	*size_p = r->c.t.too_long ? total_of(r, off) : off + r->c.t.n_got;
	if (*size_p == UINT64_MAX) {
		rc = s3_head(r->s, r->key + strlen(r->s3->prefix), &o, err);
		*size_p = o.bytes;
	}
	return rc;
}

static int get_rest(struct sky_store *s, const char *key, uint64_t off, struct sky_buf *out, struct sky_err *err)
{
	struct s3_req r;
	struct sky_object o = { 0 };
	uint64_t size = 0;
	uint32_t crc = 0, want;
	int rc = s3_req_init(&r, s, "GET", key, err);

	rc = rc < 0 ? rc : first_look(&r, off, &size, err);
	if (rc == SKY_E_DATA && r.c.t.status == 416) {          /* nothing at off: fine exactly at the end */
		rc = s3_head(s, key, &o, err);
		if (rc == 0 && o.bytes != off) {
			rc = sky_fail(err, SKY_E_DATA, "%s: %s has %llu bytes, offset %llu wanted", s->url, key,
			              (unsigned long long)o.bytes, (unsigned long long)off);
		}
	} else if (rc == 0 && !r.c.t.too_long) {
		rc = sky_buf_add(out, r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, err);
		s->bytes_get += r.c.t.answer.n;
	} else if (rc == 0) {
		rc = sky_buf_reserve(out, size - off, err);
		rc = rc < 0 ? rc : get_ranges(s, key, off, size - off, (uint8_t *)out->ptr + out->n, -1, 0, &crc, err);
		if (rc == 0 && off == 0 && s3_req_crc(&r, &want) == 0 && want != crc) {
			rc = sky_fail(err, SKY_E_AGAIN, "%s: checksum mismatch of the transfer", r.what);
		}
		if (rc == 0) {
			out->n += size - off;
			out->ptr[out->n] = '\0';
		}
	}
	s3_req_release(&r);
	return rc;
}

int s3_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, struct sky_err *err)
{
	struct sky_object o = { 0 };
	int rc;

	if (n == UINT64_MAX) {
		return get_rest(s, key, off, out, err);
	}
	if (n == 0) {
		rc = s3_head(s, key, &o, err);
		return rc < 0 || o.bytes >= off ?
		               rc :
		               sky_fail(err, SKY_E_DATA, "%s: %s has %llu bytes, offset %llu wanted", s->url, key,
		                        (unsigned long long)o.bytes, (unsigned long long)off);
	}
	rc = sky_buf_reserve(out, n, err);
	rc = rc < 0 ? rc : get_ranges(s, key, off, n, (uint8_t *)out->ptr + out->n, -1, 0, NULL, err);
	if (rc == 0) {
		out->n += n;
		out->ptr[out->n] = '\0';
	}
	return rc;
}

int s3_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
{
	struct s3_req r;
	uint64_t size = 0;
	uint32_t crc = 0, want;
	int rc = s3_req_init(&r, s, "GET", key, err);

	r.fd = fd;
	rc = rc < 0 ? rc : first_look(&r, 0, &size, err);
	if (rc == 0 && r.c.t.too_long) {
		rc = get_ranges(s, key, 0, size, NULL, fd, 0, &crc, err);
		if (rc == 0 && s3_req_crc(&r, &want) == 0 && want != crc) {
			rc = sky_fail(err, SKY_E_AGAIN, "%s: checksum mismatch of the transfer", r.what);
		}
	} else if (rc == 0) {
		s->bytes_get += size;
	}
	if (rc == 0) {
		*bytes_p = size;
	}
	s3_req_release(&r);
	return rc;
}

/* ---- put, delete ---- */

/* Stores that do not know conditions overwrite without a word. A look before costs little and makes the plain case
 * right; only a race between two writers then depends on the store. */
static int look_before(struct sky_store *s, const char *key, unsigned flags, const char *tag_expect,
                       struct sky_err *err)
{
	struct sky_object o = { 0 };
	int rc;

	if (!((struct s3 *)s->be)->custom || (!(flags & SKY_PUT_CREATE) && !tag_expect)) {
		return 0;
	}
	rc = s3_head(s, key, &o, err);
	if (rc < 0 && rc != SKY_E_MISSING) {
		return rc;
	}
	return flags & SKY_PUT_CREATE ? (rc == 0 ? sky_lost_race(s, key, err) : 0) :
	       rc < 0 || strcmp(o.tag, tag_expect) != 0 ? sky_lost_race(s, key, err) : 0;
}

int s3_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags, const char *tag_expect,
           struct sky_err *err)
{
	struct s3_req r;
	char id[33];
	int ours, rc = s3_req_init(&r, s, "PUT", key, err);

	if (rc == 0 && n > SKY_PART_MAX) {
		rc = sky_fail(err, SKY_E_LIMIT, "%s: %llu bytes in one request; the stores take at most 5 GiB", r.what,
		              (unsigned long long)n);
	}
	s3_make_id(id);
	if (rc == 0) {
		s3_req_body(&r, p, n);
	}
	rc = rc < 0 ? rc : look_before(s, key, flags, tag_expect, err);
	rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, r.s3->d->meta_id, "%s", id);
	rc = rc < 0 ? rc : s3_condition(&r, flags, tag_expect, err);
	if (rc == 0) {
		rc = s3_req_run(&r, err);
		if (rc == SKY_E_AGAIN && r.c.t.status == 412) {
			/* An earlier try may have done its work and lost its answer; also one that curl repeated
			 * unasked, as it does on a kept connection that dies. */
			ours = s3_is_ours(s, key, id, err);
			rc = ours > 0 ? 0 : ours < 0 ? ours : sky_lost_race(s, key, err);
		} else if (rc == SKY_E_MISSING && tag_expect) {
			rc = sky_lost_race(s, key, err);
		}
	}
	s->bytes_put += rc == 0 ? n : 0;
	s3_req_release(&r);
	return rc;
}

int s3_del(struct sky_store *s, const char *key, struct sky_err *err)
{
	struct s3_req r;
	int rc = s3_req_init(&r, s, "DELETE", key, err);

	rc = rc < 0 ? rc : s3_req_run(&r, err);
	if (rc == SKY_E_MISSING && strcmp(r.code, "NoSuchBucket") != 0) {
		rc = 0;
	}
	s3_req_release(&r);
	return rc;
}

/* ---- listings ---- */

struct page {
	struct sky_store *s;
	struct sky_listing *l;
	size_t n_prefix;                /* of the store, taken off every key */
	int url_encoded, truncated;
	struct sky_buf key, token;
	uint64_t bytes;
	char tag[128];
	double mtime;
	/* listings of uploads */
	struct sky_buf id, next_key, next_id;
	char **keys, **ids;
	int64_t n_upload, cap;
	double before;
};

static int keep(struct sky_buf *b, const char *text, struct sky_err *err)
{
	sky_buf_clear(b);
	return sky_buf_adds(b, text, err);
}

static int keep_key(struct page *g, const char *text, struct sky_err *err)
{
	sky_buf_clear(&g->key);
	return g->url_encoded ? sky_uri_decode(&g->key, text, strlen(text), err) : sky_buf_adds(&g->key, text, err);
}

static int add_entry(struct page *g, int is_prefix, struct sky_err *err)
{
	const char *key = g->key.ptr ? g->key.ptr : "";
	size_t n = g->key.n;

	if (n <= g->n_prefix) {
		return 0;               /* the marker object of the folder itself */
	}
	return sky_listing_add(g->l, key + g->n_prefix, n - g->n_prefix, is_prefix ? 0 : g->bytes,
	                       is_prefix ? "" : g->tag, is_prefix ? 0 : g->mtime, err);
}

static void keep_tag(struct page *g, const char *text)
{
	size_t n = strlen(text), q = n >= 2 && text[0] == '"' && text[n - 1] == '"';

	snprintf(g->tag, sizeof(g->tag), "%.*s", (int)(n - 2 * q), text + q);
}

static int list_field(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	struct page *g = ctx;
	const char *leaf = strchr(path, '/');
	int goog = ((struct s3 *)g->s->be)->d->generations;

	if (!leaf) {
		return strcmp(path, "ListBucketResult") == 0 ?
		               0 :
		               sky_fail(err, SKY_E_DATA, "a listing answers <%s>", path);
	}
	leaf++;
	if (strcmp(leaf, "IsTruncated") == 0) {
		g->truncated = strcmp(text, "true") == 0;
	} else if (strcmp(leaf, "NextContinuationToken") == 0) {
		return keep(&g->token, text, err);
	} else if (strcmp(leaf, "Contents/Key") == 0 || strcmp(leaf, "CommonPrefixes/Prefix") == 0) {
		return keep_key(g, text, err);
	} else if (strcmp(leaf, "Contents/Size") == 0) {
		return sky_parse_u64(text, &g->bytes, err);
	} else if (strcmp(leaf, goog ? "Contents/Generation" : "Contents/ETag") == 0) {
		keep_tag(g, text);
	} else if (strcmp(leaf, "Contents/LastModified") == 0) {
		g->mtime = sky_iso_time(text, &g->mtime) < 0 ? 0 : g->mtime;
	} else if (strcmp(leaf, "Contents") == 0) {
		return add_entry(g, 0, err);
	} else if (strcmp(leaf, "CommonPrefixes") == 0) {
		return add_entry(g, 1, err);
	}
	return 0;
}

static int one_page(struct page *g, const char *prefix, unsigned flags, struct sky_err *err)
{
	struct s3_req r;
	struct sky_buf token = g->token;
	int rc = s3_req_init(&r, g->s, "GET", NULL, err);

	sky_buf_init(&g->token, 1u << 16);
	s3_req_query(&r, "list-type", "2");
	s3_req_query(&r, "prefix", prefix);
	s3_req_query(&r, "encoding-type", "url");
	s3_req_query(&r, "delimiter", flags & SKY_LIST_SHALLOW ? "/" : NULL);
	s3_req_query(&r, "continuation-token", token.n ? token.ptr : NULL);
	rc = rc < 0 ? rc : s3_req_run(&r, err);
	g->truncated = 0;
	/* Known before the keys, wherever the server puts it. */
	g->url_encoded = rc == 0 && r.c.t.answer.n > 0 &&
	                 memmem(r.c.t.answer.ptr, r.c.t.answer.n, "<EncodingType>url<", 18) != NULL;
	rc = rc < 0 ? rc : sky_xml_walk(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, list_field, g, err);
	if (rc == 0 && g->truncated &&
	    (g->token.n == 0 || (token.n == g->token.n && memcmp(token.ptr, g->token.ptr, token.n) == 0))) {
		rc = sky_fail(err, SKY_E_DATA, "%s: a listing does not get on", r.what);
	}
	sky_buf_release(&token);
	s3_req_release(&r);
	return rc;
}

int s3_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err)
{
	struct s3 *b = s->be;
	struct page g = { .s = s, .l = l, .n_prefix = strlen(b->prefix), .token = SKY_BUF_INIT(1u << 16),
	                  .key = SKY_BUF_INIT(1u << 16) };
	char *full = NULL;
	int rc = asprintf(&full, "%s%s", b->prefix, prefix) < 0 ? sky_fail_mem(err, "listing") : 0;

	do {
		rc = rc < 0 ? rc : one_page(&g, full, flags, err);
	} while (rc == 0 && g.truncated);
	free(full);
	sky_buf_release(&g.token);
	sky_buf_release(&g.key);
	return rc == SKY_E_MISSING ? sky_while(err, rc, "listing") : rc;
}

/* ---- uploads that nobody finished ---- */

static int add_upload(struct page *g, struct sky_err *err)
{
	if (g->n_upload == g->cap) {
		int64_t cap = g->cap ? 2 * g->cap : 64;
		char **k = realloc(g->keys, (size_t)cap * sizeof(*k));
		char **d = k ? realloc(g->ids, (size_t)cap * sizeof(*d)) : NULL;

		g->keys = k ? k : g->keys;
		if (!d) {
			return sky_fail_mem(err, "listing of uploads");
		}
		g->ids = d;
		g->cap = cap;
	}
	g->keys[g->n_upload] = strdup(g->key.ptr ? g->key.ptr : "");
	g->ids[g->n_upload] = strdup(g->id.ptr ? g->id.ptr : "");
	g->n_upload++;
	return g->keys[g->n_upload - 1] && g->ids[g->n_upload - 1] ? 0 : sky_fail_mem(err, "listing of uploads");
}

static int upload_field(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	struct page *g = ctx;
	const char *leaf = strchr(path, '/');

	if (!leaf) {
		return 0;
	}
	leaf++;
	if (strcmp(leaf, "IsTruncated") == 0) {
		g->truncated = strcmp(text, "true") == 0;
	} else if (strcmp(leaf, "NextKeyMarker") == 0) {
		return keep(&g->next_key, text, err);
	} else if (strcmp(leaf, "NextUploadIdMarker") == 0) {
		return keep(&g->next_id, text, err);
	} else if (strcmp(leaf, "Upload/Key") == 0) {
		return keep(&g->key, text, err);
	} else if (strcmp(leaf, "Upload/UploadId") == 0) {
		return keep(&g->id, text, err);
	} else if (strcmp(leaf, "Upload/Initiated") == 0) {
		g->mtime = sky_iso_time(text, &g->mtime) < 0 ? 0 : g->mtime;
	} else if (strcmp(leaf, "Upload") == 0) {
		return g->mtime <= g->before && g->key.n > g->n_prefix ? add_upload(g, err) : 0;
	}
	return 0;
}

static int uploads_page(struct page *g, const char *prefix, struct sky_err *err)
{
	struct s3_req r;
	int rc = s3_req_init(&r, g->s, "GET", NULL, err);

	s3_req_query(&r, "uploads", "");
	s3_req_query(&r, "prefix", prefix);
	s3_req_query(&r, "key-marker", g->next_key.n ? g->next_key.ptr : NULL);
	s3_req_query(&r, "upload-id-marker", g->next_id.n ? g->next_id.ptr : NULL);
	rc = rc < 0 ? rc : s3_req_run(&r, err);
	sky_buf_clear(&g->next_key);
	sky_buf_clear(&g->next_id);
	g->truncated = 0;
	rc = rc < 0 ? rc : sky_xml_walk(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, upload_field, g, err);
	if (rc == 0 && g->truncated && g->next_key.n == 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: a listing of uploads does not get on", r.what);
	}
	s3_req_release(&r);
	return rc;
}

static int abort_upload(struct sky_store *s, const char *key, const char *id, struct sky_err *err)
{
	struct s3_req r;
	int rc = s3_req_init(&r, s, "DELETE", key, err);

	s3_req_query(&r, "uploadId", id);
	rc = rc < 0 ? rc : s3_req_run(&r, err);
	s3_req_release(&r);
	return rc == SKY_E_MISSING ? 0 : rc;
}

int s3_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p, struct sky_err *err)
{
	struct s3 *b = s->be;
	struct page g = { .s = s,
		          .n_prefix = strlen(b->prefix),
		          .key = SKY_BUF_INIT(1u << 16),
		          .id = SKY_BUF_INIT(1u << 16),
		          .next_key = SKY_BUF_INIT(1u << 16),
		          .next_id = SKY_BUF_INIT(1u << 16),
		          .before = sky_wall() + (double)b->clock_off - age_s };
	char *full = NULL;
	int rc = asprintf(&full, "%s%s", b->prefix, prefix) < 0 ? sky_fail_mem(err, "listing") : 0;

	do {
		rc = rc < 0 ? rc : uploads_page(&g, full, err);
	} while (rc == 0 && g.truncated);
	for (int64_t i = 0; i < g.n_upload; i++) {
		if (rc == 0 && abort) {
			rc = abort_upload(s, g.keys[i] + g.n_prefix, g.ids[i], err);
		}
		free(g.keys[i]);
		free(g.ids[i]);
	}
	if (rc == 0) {
		*n_p = g.n_upload;
	}
	free(g.keys);
	free(g.ids);
	free(full);
	sky_buf_release(&g.key);
	sky_buf_release(&g.id);
	sky_buf_release(&g.next_key);
	sky_buf_release(&g.next_id);
	return rc;
}

static int s3_open(struct sky_store *s, const char *rest, struct sky_err *err)
{
	return s3_open_with(s, rest, &s3_dialect_aws, NULL, err);
}

const struct sky_store_ops sky_store_s3 = {
	.scheme = "s3",
	.open = s3_open,
	.close = s3_close,
	.head = s3_head,
	.get = s3_get,
	.get_fd = s3_get_fd,
	.put = s3_put,
	.upload_open = s3_upload_open,
	.upload_write = s3_upload_write,
	.upload_fd = s3_upload_fd,
	.upload_commit = s3_upload_commit,
	.upload_abort = s3_upload_abort,
	.list = s3_list,
	.del = s3_del,
	.uploads = s3_uploads,
};
