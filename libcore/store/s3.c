/* store: S3. Requests are signed when they are sent, on every try; what the answer means is judged in one place. Covers
 * the XML interface of Google by a table of the words in which it differs. */
#include <sys/random.h>
#include "store/s3_int.h"
#include "store/xml_int.h"

#define SKEW_S          300.0           /* clocks that differ more are an explanation for 403 */
#define SIGNED_BODY_MAX (256u << 10)    /* over plain http, bodies up to this are hashed into the signature */

const struct s3_dialect s3_dialect_aws = { "s3", &sky_sig_aws, "x-amz-meta-skyrl-put", "x-amz-checksum-crc32c", 0 };
const struct s3_dialect s3_dialect_goog = { "gs", &sky_sig_goog, "x-goog-meta-skyrl-put", NULL, 1 };

/* ---- building a request ---- */

static int add_url(struct s3_req *r, struct sky_try *t, struct sky_buf *path, struct sky_buf *query, char *region,
                   char *host, struct sky_err *err)
{
	struct s3 *b = r->s3;
	struct sky_buf url = SKY_BUF_INIT(1u << 16);
	char scheme[8];
	int rc;

	pthread_mutex_lock(&b->lock);
	memcpy(region, b->region, sizeof(b->region));
	memcpy(host, b->host, sizeof(b->host));
	memcpy(scheme, b->scheme, sizeof(scheme));
	pthread_mutex_unlock(&b->lock);
	rc = sky_buf_addf(path, err, "%s/", b->base);
	if (rc == 0 && b->path_style) {
		rc = sky_buf_addf(path, err, "%s%s", b->bucket, r->key ? "/" : "");
	}
	if (rc == 0 && r->key) {
		rc = sky_uri_encode(path, r->key, strlen(r->key), 1, err);
	}
	rc = rc < 0 ? rc : sky_query_build(query, r->pairs, r->n_pairs, err);
	rc = rc < 0 ? rc : sky_buf_addf(&url, err, "%s://%s%s%s%s", scheme, host, path->ptr, query->n ? "?" : "",
	                                query->n ? query->ptr : "");
	if (rc < 0) {
		sky_buf_release(&url);
		return rc;
	}
	t->url = sky_buf_take(&url);
	return 0;
}

static int add_sums(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	uint8_t raw[16] = { (uint8_t)(r->crc >> 24), (uint8_t)(r->crc >> 16), (uint8_t)(r->crc >> 8), (uint8_t)r->crc };
	char text[32];

	if (!r->with_sum || r->s3->no_sums) {
		return 0;
	}
	if (r->s3->d->checksum_crc32c && r->s3->no_crc) {
		sky_md5(r->body, r->n_body, raw);
		sky_base64(raw, 16, text, sizeof(text));
		return sky_heads_add(&t->heads, err, "content-md5", "%s", text);
	}
	sky_base64(raw, 4, text, sizeof(text));
	if (r->s3->d->checksum_crc32c) {
		return sky_heads_add(&t->heads, err, r->s3->d->checksum_crc32c, "%s", text);
	}
	return sky_heads_add(&t->heads, err, "x-goog-hash", "crc32c=%s", text);
}

static int add_signature(struct s3_req *r, struct sky_try *t, const char *path, const char *query, const char *region,
                         struct sky_err *err)
{
	struct s3 *b = r->s3;
	const struct sky_sig_style *st = b->d->sig;
	int64_t when = (int64_t)sky_wall() + b->clock_off;
	struct sky_buf auth = SKY_BUF_INIT(1u << 16);
	char hash[65] = SKY_UNSIGNED_PAYLOAD, date[17];
	struct sky_sig g = { .style = st, .method = r->method, .path = path, .query = query, .heads = &t->heads,
	                     .hash = hash, .region = region, .service = b->d->generations ? "storage" : "s3", .when = when };
	uint8_t digest[32];
	int rc = sky_cred_get(b->cred, r->n_expired == 1 ? &r->used : NULL, &r->used, err);

	if (rc < 0) {
		return rc;
	}
	r->n_expired += r->n_expired == 1;
	if (r->n_body <= SIGNED_BODY_MAX && (r->n_body == 0 || strncmp(t->url, "http:", 5) == 0)) {
		sky_sha256(r->body ? r->body : (const uint8_t *)"", r->n_body, digest);
		sky_hex(digest, 32, hash);
	}
	sky_sig_date(when, date);
	g.access = r->used.access;
	g.secret = r->used.secret;
	rc = sky_heads_add(&t->heads, err, st->h_date, "%s", date);
	rc = rc < 0 ? rc : sky_heads_add(&t->heads, err, st->h_hash, "%s", hash);
	if (rc == 0 && r->used.token[0] && st->h_token) {
		rc = sky_heads_add(&t->heads, err, st->h_token, "%s", r->used.token);
	}
	rc = rc < 0 ? rc : sky_sig_sign(&g, &auth, NULL, err);
	rc = rc < 0 ? rc : sky_heads_add(&t->heads, err, "authorization", "%s", auth.ptr);
	sky_buf_release(&auth);
	return rc;
}

static int s3_build(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct s3_req *r = c->ctx;
	struct sky_buf path = SKY_BUF_INIT(1u << 16), query = SKY_BUF_INIT(1u << 16);
	char region[64], host[600];
	int rc = add_url(r, t, &path, &query, region, host, err);

	t->method = r->method;
	t->body = r->body;
	t->n_body = r->n_body;
	t->mem = r->mem;
	t->fd = r->fd;
	t->fd_off = r->fd_off;
	t->n_room = r->n_room;
	t->timeout_s = r->timeout_s;
	rc = rc < 0 ? rc : sky_heads_add(&t->heads, err, "host", "%s", host);
	for (int i = 0; rc == 0 && i < r->heads.n; i++) {
		rc = sky_heads_add(&t->heads, err, r->heads.v[i].name, "%s", r->heads.v[i].value);
	}
	if (rc == 0 && r->s3->d->generations && strcmp(r->method, "GET") == 0) {
		rc = sky_heads_add(&t->heads, err, "accept-encoding", "gzip");  /* the bytes as they are stored */
	}
	if (rc == 0 && r->whole && r->s3->d->checksum_crc32c && !r->s3->no_check) {
		rc = sky_heads_add(&t->heads, err, "x-amz-checksum-mode", "ENABLED");
	}
	rc = rc < 0 ? rc : add_sums(r, t, err);
	if (rc == 0 && r->s3->cred) {
		rc = add_signature(r, t, path.ptr, query.ptr ? query.ptr : "", region, err);
	}
	sky_buf_release(&path);
	sky_buf_release(&query);
	return rc;
}

/* ---- judging an answer ---- */

static int error_field(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	struct s3_req *r = ctx;

	(void)err;
	if (strcmp(path, "Error/Code") == 0) {
		snprintf(r->code, sizeof(r->code), "%s", text);
	} else if (strcmp(path, "Error/Message") == 0) {
		snprintf(r->message, sizeof(r->message), "%s", text);
	} else if (strcmp(path, "Error/Region") == 0) {
		snprintf(r->region, sizeof(r->region), "%s", text);
	}
	return 0;
}

static void read_error(struct s3_req *r, struct sky_try *t)
{
	struct sky_err quiet;

	r->code[0] = r->message[0] = r->region[0] = '\0';
	sky_try_head(t, "x-amz-bucket-region", r->region, sizeof(r->region));
	if (t->answer.n > 0 && sky_xml_walk(t->answer.ptr, t->answer.n, error_field, r, &quiet) < 0 && !r->code[0]) {
		snprintf(r->message, sizeof(r->message), "(an answer that is no XML)");
	}
}

static int code_is(const struct s3_req *r, const char *const *list)
{
	for (; *list; list++) {
		if (strcmp(r->code, *list) == 0) {
			return 1;
		}
	}
	return 0;
}

static int again(struct s3_req *r, struct sky_try *t, struct sky_err *err, const char *why)
{
	sky_fail(err, SKY_E_AGAIN, "%s (HTTP %d%s%s)", why, t->status, r->code[0] ? " " : "", r->code);
	return SKY_EOF;
}

/* Another region, or another host for a while. Once. */
static int moved(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	struct s3 *b = r->s3;
	char to[600];
	int rc = 0;

	if (r->n_moved++ > 1) {
		return 0;
	}
	pthread_mutex_lock(&b->lock);
	if (r->region[0] && strcmp(r->region, b->region) != 0 &&
	    strspn(r->region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(r->region)) {
		memcpy(b->region, r->region, sizeof(b->region));
		if (!b->custom) {
			s3_aws_host(b);
		}
		rc = again(r, t, err, "the bucket is in another region");
	} else if (r->region[0] && r->n_moved == 1 && strcmp(r->region, b->region) == 0) {
		rc = again(r, t, err, "the bucket is in another region");       /* a sibling learned it meanwhile */
	} else if (t->status == 307 && !b->custom && sky_try_head(t, "location", to, sizeof(to)) &&
	           strncmp(to, "https://", 8) == 0) {
		to[8 + strcspn(to + 8, "/?")] = '\0';
		if (strlen(to + 8) > 14 && strcmp(to + strlen(to) - 14, ".amazonaws.com") == 0) {
			snprintf(b->host, sizeof(b->host), "%s", to + 8);
			rc = again(r, t, err, "redirected");
		}
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static int clock_skew(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	char date[64];
	double server;

	if (r->n_skew++ > 0 || !sky_try_head(t, "date", date, sizeof(date)) || sky_http_date(date, &server) < 0) {
		return 0;
	}
	r->s3->clock_off = (int64_t)(server - sky_wall());
	return again(r, t, err, "our clock is off");
}

static int refused(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	const char *hint = r->code[0] == '\0' && t->status == 403 && strcmp(r->method, "HEAD") == 0 ?
	                   " (no access, or no such object and no right to list)" : "";

	switch (t->status) {
	case 404:
		if (strcmp(r->code, "NoSuchBucket") == 0) {
			return sky_fail(err, SKY_E_MISSING, "%s: no bucket %s", r->what, r->s3->bucket);
		}
		return sky_fail(err, SKY_E_MISSING, "%s: no such object%s%s", r->what, r->code[0] ? ": " : "", r->code);
	case 412:
		return sky_fail(err, SKY_E_AGAIN, "%s: the object is not what was expected (%s)", r->what,
		                r->code[0] ? r->code : "HTTP 412");
	case 416:
		return sky_fail(err, SKY_E_DATA, "%s: the object is shorter than expected", r->what);
	case 401:
	case 403:
		return sky_fail(err, SKY_E_SYS, "%s: denied: %s %s%s", r->what, r->code[0] ? r->code : "HTTP 403",
		                r->message, hint);
	default:
		return sky_fail(err, SKY_E_SYS, "%s: HTTP %d %s: %s", r->what, t->status, r->code, r->message);
	}
}

/* The answer to a HEAD has no body that would tell the reason; these two are worth another try. */
static void guess_code(struct s3_req *r, struct sky_try *t)
{
	double server, ours = sky_wall() + (double)r->s3->clock_off;
	char date[64];

	if (t->status == 403 && sky_try_head(t, "date", date, sizeof(date)) && sky_http_date(date, &server) == 0 &&
	    (server - ours > SKEW_S || ours - server > SKEW_S)) {
		snprintf(r->code, sizeof(r->code), "RequestTimeTooSkewed");
	} else if (t->status == 400 && r->used.token[0]) {
		snprintf(r->code, sizeof(r->code), "ExpiredToken");
	}
}

static int judge_error(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	static const char *const transient[] = {
		"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "BadDigest", "IncompleteBody",
		"XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "ThrottlingException", "Throttling",
		"ConditionalRequestConflict", "OperationAborted", NULL
	};
	static const char *const expired[] = {
		"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "RequestExpired", NULL
	};
	static const char *const wrong_place[] = {
		"PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect", "Redirect",
		"IllegalLocationConstraintException", NULL
	};
	int rc = 0;

	if (!r->code[0] && strcmp(r->method, "HEAD") == 0) {
		guess_code(r, t);
	}
	if (code_is(r, transient)) {
		return again(r, t, err, "server could not do it now");
	}
	if (strcmp(r->code, "RequestTimeTooSkewed") == 0) {
		rc = clock_skew(r, t, err);
	} else if (code_is(r, expired) && r->s3->cred && r->n_expired == 0) {
		r->n_expired = 1;
		rc = again(r, t, err, "the session token expired");
	} else if (code_is(r, wrong_place) || t->status == 301 || t->status == 307 ||
	           (t->status == 400 && r->region[0])) {
		rc = moved(r, t, err);
	} else if ((t->status == 501 || t->status == 400) && r->with_sum && !r->s3->no_crc && r->n_sum++ == 0 &&
	           (t->status == 501 || strcmp(r->code, "InvalidRequest") == 0 ||
	            strcmp(r->code, "InvalidArgument") == 0)) {
		r->s3->no_crc = 1;              /* an older store: it knows Content-MD5 */
		rc = again(r, t, err, "the store does not take CRC32C");
	}
	return rc != 0 ? rc : refused(r, t, err);
}

/* Some stores answer a range with 200; then Content-Range must say that it is one. */
static int right_range(const struct s3_req *r)
{
	uint64_t first, total;

	return r->off == 0 || (s3_req_range(r, &first, &total) == 0 && first == r->off);
}

static int check_body(struct s3_req *r, struct sky_try *t, struct sky_err *err)
{
	uint64_t first, total;
	uint32_t want;

	if (r->n_expect != UINT64_MAX && t->n_got != r->n_expect) {
		if (s3_req_range(r, &first, &total) == 0 && total < r->off + r->n_expect) {
			return sky_fail(err, SKY_E_DATA, "%s: the object has %llu bytes, range %llu+%llu wanted",
			                r->what, (unsigned long long)total, (unsigned long long)r->off,
			                (unsigned long long)r->n_expect);
		}
		return again(r, t, err, "the body has the wrong length");
	}
	if (r->whole && strcmp(r->method, "GET") == 0 && s3_req_crc(r, &want) == 0 && want != t->crc32c) {
		return again(r, t, err, "checksum mismatch of the transfer");
	}
	return 0;
}

static int s3_judge(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct s3_req *r = c->ctx;
	int rc = sky_judge_common(c, t, err);

	if (rc != 0) {
		read_error(r, t);
		if (rc == SKY_EOF && r->code[0]) {
			again(r, t, err, t->status == 503 || t->status == 429 ? "throttled" : "server error");
		}
		return rc;
	}
	if (t->too_long && r->peek) {
		return 0;                       /* the caller reads the length and goes on in ranges */
	}
	if (t->status / 100 == 2 && (t->too_long || !right_range(r))) {
		return sky_fail(err, SKY_E_SYS, "%s: the server ignores ranges, or sends more than was asked for",
		                r->what);
	}
	if (t->status / 100 != 2) {
		read_error(r, t);
		return judge_error(r, t, err);
	}
	if (r->may_lie) {
		read_error(r, t);
		if (r->code[0]) {
			return judge_error(r, t, err);
		}
	}
	return check_body(r, t, err);
}

/* ---- the request object ---- */

int s3_req_init(struct s3_req *r, struct sky_store *s, const char *method, const char *key, struct sky_err *err)
{
	struct s3 *b = s->be;

	memset(r, 0, sizeof(*r));
	r->s = s;
	r->s3 = b;
	r->method = method;
	r->fd = -1;
	r->n_expect = UINT64_MAX;
	r->c.ctx = r;
	r->c.build = s3_build;
	r->c.judge = s3_judge;
	sky_try_init(&r->c.t);
	if ((key && asprintf(&r->key, "%s%s", b->prefix, key) < 0) ||
	    asprintf(&r->what, "%s %s://%s/%s%s", method, b->d->scheme, b->bucket, b->prefix, key ? key : "") < 0) {
		return sky_fail_mem(err, "request");
	}
	r->c.what = r->what;
	return r->key && strlen(r->key) > SKY_MAX_KEY ?
	       sky_fail(err, SKY_E_USAGE, "%s: key is longer than %d bytes", r->what, SKY_MAX_KEY) : 0;
}

void s3_req_query(struct s3_req *r, const char *name, const char *value)
{
	r->pairs[r->n_pairs][0] = name;
	r->pairs[r->n_pairs++][1] = value;
}

void s3_req_body(struct s3_req *r, const void *p, uint64_t n)
{
	r->body = n ? p : (const uint8_t *)"";
	r->n_body = n;
	r->with_sum = 1;
	r->crc = sky_crc32c(0, r->body, n);
}

int s3_req_run(struct s3_req *r, struct sky_err *err)
{
	return sky_call_run(r->s3->http, r->s, &r->c, err);
}

void s3_req_release(struct s3_req *r)
{
	sky_call_release(&r->c);
	sky_heads_release(&r->heads);
	free(r->key);
	free(r->what);
	r->key = r->what = NULL;
}

void s3_req_tag(const struct s3_req *r, char *tag, size_t cap)
{
	const char *name = r->s3->d->generations ? "x-goog-generation" : "etag";
	char v[128] = "";
	size_t n;

	sky_try_head(&r->c.t, name, v, sizeof(v));
	n = strlen(v);
	if (n >= 2 && v[0] == '"' && v[n - 1] == '"') {
		v[n - 1] = '\0';
		snprintf(tag, cap, "%s", v + 1);
	} else {
		snprintf(tag, cap, "%s", v);
	}
}

int s3_req_range(const struct s3_req *r, uint64_t *first_p, uint64_t *total_p)
{
	char v[128], *dash, *slash;
	struct sky_err quiet;

	if (!sky_try_head(&r->c.t, "content-range", v, sizeof(v)) || strncmp(v, "bytes ", 6) != 0 ||
	    !(dash = strchr(v, '-')) || !(slash = strchr(dash, '/'))) {
		return -1;
	}
	*dash = '\0';
	if (strcmp(slash + 1, "*") == 0) {
		*total_p = UINT64_MAX;
	} else if (sky_parse_u64(slash + 1, total_p, &quiet) < 0) {
		return -1;
	}
	return sky_parse_u64(v + 6, first_p, &quiet) < 0 ? -1 : 0;
}

int s3_req_crc(const struct s3_req *r, uint32_t *crc_p)
{
	char v[256], *at = v;
	uint8_t raw[4];
	size_t n;

	if (r->s3->no_check) {
		return -1;
	}
	if (r->s3->d->checksum_crc32c) {
		char type[32] = "";

		sky_try_head(&r->c.t, "x-amz-checksum-type", type, sizeof(type));
		if (strcmp(type, "COMPOSITE") == 0 || !sky_try_head(&r->c.t, "x-amz-checksum-crc32c", v, sizeof(v)) ||
		    strchr(v, '-')) {
			return -1;
		}
	} else if (!sky_try_head(&r->c.t, "x-goog-hash", v, sizeof(v)) || !(at = strstr(v, "crc32c="))) {
		return -1;
	} else {
		at += 7;
		at[strcspn(at, ", ")] = '\0';
	}
	if (sky_unbase64(at, raw, sizeof(raw), &n) < 0 || n != 4) {
		return -1;
	}
	*crc_p = (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
	return 0;
}

int s3_condition(struct s3_req *r, unsigned flags, const char *tag_expect, struct sky_err *err)
{
	if (r->s3->d->generations) {
		return flags & SKY_PUT_CREATE ? sky_heads_add(&r->heads, err, "x-goog-if-generation-match", "0") :
		       tag_expect ? sky_heads_add(&r->heads, err, "x-goog-if-generation-match", "%s", tag_expect) : 0;
	}
	return flags & SKY_PUT_CREATE ? sky_heads_add(&r->heads, err, "if-none-match", "*") :
	       tag_expect ? sky_heads_add(&r->heads, err, "if-match", "\"%s\"", tag_expect) : 0;
}

void s3_make_id(char id[33])
{
	uint8_t raw[16];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw)) {
		double t = sky_wall() + sky_now();

		memset(raw, 0, sizeof(raw));
		memcpy(raw, &t, sizeof(t));
	}
	sky_hex(raw, sizeof(raw), id);
}
