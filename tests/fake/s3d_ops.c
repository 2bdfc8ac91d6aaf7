/* The fault-injecting object store of the tests: what S3 itself does, and the neighbours that credentials come from. */
#include <strings.h>
#include "store/s3_int.h"
#include "store/xml_int.h"
#include "tests/fake/s3d.h"

struct s3d_object *s3d_find(const char *key)
{
	struct s3d_object *o = s3d.objects;

	while (o && strcmp(o->key, key) != 0) {
		o = o->next;
	}
	return o;
}

static void md5_hex(const char *p, uint64_t n, char *out)
{
	uint8_t d[16];

	sky_md5(p, n, d);
	sky_hex(d, 16, out);
}

/* Takes p (malloc). Old bytes are leaked on purpose when a reader may still be sending them: tests are short. */
static void take_object(const char *key, char *p, uint64_t n, const char *mark, int has_crc, const char *etag)
{
	struct s3d_object *o = s3d_find(key);

	if (!o) {
		struct s3d_object **at = &s3d.objects;

		while (*at && strcmp((*at)->key, key) < 0) {    /* kept in the order of listings */
			at = &(*at)->next;
		}
		o = calloc(1, sizeof(*o));
		o->key = strdup(key);
		o->next = *at;
		*at = o;
	}
	o->p = p;
	o->n = n;
	o->crc = has_crc ? sky_crc32c(0, p, n) : 0;
	o->has_crc = has_crc;
	o->generation = ++s3d.generation;
	o->mtime = sky_wall();
	snprintf(o->etag, sizeof(o->etag), "%s", etag);
	snprintf(o->id, sizeof(o->id), "%s", mark);
}

void s3d_write_object(const char *key, const char *p, uint64_t n, const char *mark, int has_crc)
{
	char *copy = malloc(n + 1), etag[40];

	memcpy(copy, p, n);
	copy[n] = '\0';
	if (s3d.verify) {
		md5_hex(p, n, etag);
	} else {                                /* the fast sink of benchmarks */
		snprintf(etag, sizeof(etag), "%032llx", (unsigned long long)(s3d.generation + 1));
	}
	take_object(key, copy, n, mark, has_crc, etag);
}

/* ---- conditions and checksums of a write ---- */

/* NULL, or the error code of a condition that does not hold. */
static const char *check_condition(const struct s3d_req *r, const char *key)
{
	struct s3d_object *o = s3d_find(key);
	char v[128];

	if (s3d_head(r, "if-none-match", v, sizeof(v)) && strcmp(v, "*") == 0 && o) {
		return "PreconditionFailed";
	}
	if (s3d_head(r, "if-match", v, sizeof(v))) {
		char want[80];

		if (!o) {
			return "NoSuchKey";
		}
		snprintf(want, sizeof(want), "\"%s\"", o->etag);
		if (strcmp(v, want) != 0) {
			return "PreconditionFailed";
		}
	}
	if (s3d_head(r, "x-goog-if-generation-match", v, sizeof(v)) &&
	    strtoull(v, NULL, 10) != (o ? o->generation : 0)) {
		return "PreconditionFailed";
	}
	return NULL;
}

static void condition_error(struct s3d_req *r, const char *code)
{
	s3d_error(r, strcmp(code, "NoSuchKey") == 0 ? 404 : 412, code);
}

/* 1 a right CRC32C, 0 none, -1 wrong. */
static int check_sum(const struct s3d_req *r, const char *p, uint64_t n)
{
	char v[128], *at = v;
	uint32_t crc;
	uint8_t raw[16], md5[16];
	size_t k;

	if (s3d_head(r, "content-md5", v, sizeof(v))) {
		sky_md5(p, n, md5);
		return sky_unbase64(v, raw, sizeof(raw), &k) == 0 && k == 16 && memcmp(raw, md5, 16) == 0 ? 0 : -1;
	}
	if (!s3d_head(r, "x-amz-checksum-crc32c", v, sizeof(v)) &&
	    !(s3d_head(r, "x-goog-hash", v, sizeof(v)) && (at = strstr(v, "crc32c=")) && (at += 7))) {
		return 0;
	}
	crc = s3d.verify ? sky_crc32c(0, p, n) : 0;
	if (sky_unbase64(at, raw, sizeof(raw), &k) < 0 || k != 4) {
		return -1;
	}
	return !s3d.verify || crc == ((uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 |
	                              raw[3]) ?
	               1 :
	               -1;
}

static void mark_of(const struct s3d_req *r, char *out, size_t cap)
{
	out[0] = '\0';
	if (!s3d_head(r, "x-amz-meta-skyrl-put", out, cap)) {
		s3d_head(r, "x-goog-meta-skyrl-put", out, cap);
	}
}

/* ---- objects ---- */

static void put_object(struct s3d_req *r, const char *key)
{
	const char *bad = check_condition(r, key);
	int sum = check_sum(r, r->body, r->n_body);
	char mark[64];

	if (bad) {
		condition_error(r, bad);
	} else if (sum < 0) {
		s3d_error(r, 400, "BadDigest");
	} else {
		mark_of(r, mark, sizeof(mark));
		s3d_write_object(key, r->body, r->n_body, mark, sum);
		s3d_text(r, 200, "%s", "");
		s3d_add_head(r, "ETag: \"%s\"", s3d_find(key)->etag);
		s3d_add_head(r, "x-goog-generation: %llu", (unsigned long long)s3d_find(key)->generation);
	}
}

static void object_heads(struct s3d_req *r, const struct s3d_object *o, int whole)
{
	uint8_t raw[4] = { (uint8_t)(o->crc >> 24), (uint8_t)(o->crc >> 16), (uint8_t)(o->crc >> 8), (uint8_t)o->crc };
	char text[16];

	s3d_add_head(r, "ETag: \"%s\"", o->etag);
	s3d_add_head(r, "x-goog-generation: %llu", (unsigned long long)o->generation);
	s3d_add_head(r, "Accept-Ranges: bytes");
	s3d_add_head(r, "Last-Modified: Fri, 24 May 2013 00:00:00 GMT");
	if (o->id[0]) {
		s3d_add_head(r, "x-amz-meta-skyrl-put: %s", o->id);
		s3d_add_head(r, "x-goog-meta-skyrl-put: %s", o->id);
	}
	if (o->has_crc && whole) {
		sky_base64(raw, 4, text, sizeof(text));
		s3d_add_head(r, "x-amz-checksum-crc32c: %s", text);
		s3d_add_head(r, "x-amz-checksum-type: FULL_OBJECT");
		s3d_add_head(r, "x-goog-hash: crc32c=%s", text);
	}
}

void s3d_send_object(struct s3d_req *r, const char *key)
{
	struct s3d_object *o = s3d_find(key);
	unsigned long long a = 0, b = 0;
	char v[64];
	int k = s3d_head(r, "range", v, sizeof(v)) ? sscanf(v, "bytes=%llu-%llu", &a, &b) : 0;

	if (!o) {
		s3d_error(r, 404, "NoSuchKey");
		return;
	}
	b = k < 2 || b >= o->n ? o->n - 1 : b;
	if (k > 0 && a >= o->n) {
		s3d_error(r, 416, "InvalidRange");
		return;
	}
	r->status = k > 0 ? 206 : 200;
	r->out = o->p + a;
	r->n_out = r->n_length = k > 0 ? b - a + 1 : o->n;
	if (k > 0) {
		s3d_add_head(r, "Content-Range: bytes %llu-%llu/%llu", a, b, (unsigned long long)o->n);
	}
	object_heads(r, o, k == 0);
}

void s3d_delete(const char *key)
{
	for (struct s3d_object **at = &s3d.objects; *at; at = &(*at)->next) {
		if (strcmp((*at)->key, key) == 0) {
			*at = (*at)->next;
			break;
		}
	}
}

static void list_objects(struct s3d_req *r, const char *bucket)
{
	char prefix[1100] = "", delimiter[8] = "", token[1100] = "", last[1100] = "", shown[1100];
	struct sky_buf *b = &r->own;
	size_t n_bucket = strlen(bucket);
	int n = 0, more = 0;

	s3d_arg(r, "prefix", prefix, sizeof(prefix));
	s3d_arg(r, "delimiter", delimiter, sizeof(delimiter));
	s3d_arg(r, "continuation-token", token, sizeof(token));
	token[s3d.loop ? 0 : strlen(token)] = '\0';
	(void)!sky_buf_adds(
		b,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/"
		"2006-03-01/\"><EncodingType>url</EncodingType>",
		NULL);
	for (struct s3d_object *o = s3d.objects; o; o = o->next) {
		const char *key = o->key + n_bucket + 1, *cut;

		if (strncmp(o->key, bucket, n_bucket) != 0 || o->key[n_bucket] != '/' ||
		    strncmp(key, prefix, strlen(prefix)) != 0) {
			continue;
		}
		cut = delimiter[0] ? strstr(key + strlen(prefix), delimiter) : NULL;
		snprintf(shown, sizeof(shown), "%.*s", cut ? (int)(cut + 1 - key) : (int)strlen(key), key);
		if (strcmp(shown, token) <= 0 || (cut && strcmp(shown, last) == 0)) {
			continue;
		}
		if (n == s3d.page) {
			more = 1;
			break;
		}
		n++;
		memcpy(last, shown, sizeof(last));
		(void)!sky_buf_adds(b, cut ? "<CommonPrefixes><Prefix>" : "<Contents><Key>", NULL);
		(void)!sky_uri_encode(b, shown, strlen(shown), 1, NULL);
		if (cut) {
			(void)!sky_buf_adds(b, "</Prefix></CommonPrefixes>", NULL);
		} else {
			(void)!sky_buf_addf(
				b, NULL,
				"</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified><ETag>&quot;%s&quot;"
				"</ETag><Size>%llu</Size><Generation>%llu</Generation></Contents>",
				o->etag, (unsigned long long)o->n, (unsigned long long)o->generation);
		}
	}
	(void)!sky_buf_addf(b, NULL, "<IsTruncated>%s</IsTruncated>", more ? "true" : "false");
	if (more) {
		(void)!sky_buf_adds(b, "<NextContinuationToken>", NULL);
		(void)!sky_xml_escape(b, last, NULL);
		(void)!sky_buf_adds(b, "</NextContinuationToken>", NULL);
	}
	(void)!sky_buf_adds(b, "</ListBucketResult>", NULL);
	r->status = 200;
	r->out = b->ptr;
	r->n_out = r->n_length = b->n;
}

/* ---- uploads in parts ---- */

static struct s3d_upload **find_upload(const char *id)
{
	struct s3d_upload **at = &s3d.uploads;

	while (*at && strcmp((*at)->id, id) != 0) {
		at = &(*at)->next;
	}
	return at;
}

static void create_upload(struct s3d_req *r, const char *key)
{
	struct s3d_upload *u = calloc(1, sizeof(*u));

	u->key = strdup(key);
	u->begun = sky_wall();
	mark_of(r, u->mark, sizeof(u->mark));
	snprintf(u->id, sizeof(u->id), "up-%llu", (unsigned long long)++s3d.generation);
	u->next = s3d.uploads;
	s3d.uploads = u;
	s3d_text(r, 200,
	         "<InitiateMultipartUploadResult><Bucket>b</Bucket><UploadId>%s</UploadId></"
	         "InitiateMultipartUploadResult>",
	         u->id);
}

static void put_part(struct s3d_req *r, const char *id)
{
	struct s3d_upload *u = *find_upload(id);
	char v[32] = "", etag[40];
	long n = s3d_arg(r, "partNumber", v, sizeof(v)) ? strtol(v, NULL, 10) : 0;

	if (!u) {
		s3d_error(r, 404, "NoSuchUpload");
		return;
	}
	if (n < 1 || n > 10000 || check_sum(r, r->body, r->n_body) < 0) {
		s3d_error(r, 400, n < 1 || n > 10000 ? "InvalidArgument" : "BadDigest");
		return;
	}
	if (u->parts[n].have) {
		free(u->parts[n].p);
	}
	u->parts[n].p = r->body;
	u->parts[n].n = r->n_body;
	u->parts[n].have = 1;
	r->body = NULL;
	if (s3d.verify) {
		md5_hex(u->parts[n].p, u->parts[n].n, etag);
	} else {
		snprintf(etag, sizeof(etag), "%032lx", n);
	}
	s3d_text(r, 200, "%s", "");
	s3d_add_head(r, "ETag: \"%s\"", etag);
}

static void drop_upload(struct s3d_upload **at)
{
	struct s3d_upload *u = *at;

	*at = u->next;
	for (int i = 1; i <= 10000; i++) {
		free(u->parts[i].have ? u->parts[i].p : NULL);
	}
	free(u->key);
	free(u);
}

static void complete_upload(struct s3d_req *r, const char *key, const char *id)
{
	struct s3d_upload **at = find_upload(id), *u = *at;
	const char *bad = u ? check_condition(r, key) : NULL;
	uint64_t n = 0;
	char *all, etag[64], mark[64];
	int n_parts = 0, n_told = 0, sum;

	if (!u) {
		s3d_error(r, 404, "NoSuchUpload");
		return;
	}
	if (bad) {
		condition_error(r, bad);
		return;
	}
	for (const char *p = r->body; (p = strstr(p, "<PartNumber>")); p++) {
		n_told++;
	}
	for (int i = 1; i <= 10000 && u->parts[i].have; i++) {
		n += u->parts[i].n;
		n_parts++;
	}
	if (n_told != n_parts) {
		s3d_error(r, 400, "InvalidPart");
		return;
	}
	all = malloc(n + 1);
	n = 0;
	for (int i = 1; i <= n_parts; i++) {
		memcpy(all + n, u->parts[i].p, u->parts[i].n);
		n += u->parts[i].n;
	}
	sum = check_sum(r, all, n);
	if (sum < 0) {
		free(all);
		s3d_error(r, 400, "BadDigest");
		return;
	}
	snprintf(etag, sizeof(etag), "%032llx-%d", (unsigned long long)s3d.generation, n_parts);
	snprintf(mark, sizeof(mark), "%s", u->mark);
	take_object(key, all, n, mark, sum, etag);
	drop_upload(at);
	s3d_text(r, 200,
	         "  <CompleteMultipartUploadResult><ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>",
	         etag);
}

static void list_uploads(struct s3d_req *r, const char *bucket)
{
	char prefix[1100] = "", when[32];
	struct sky_buf *b = &r->own;
	size_t n = strlen(bucket) + 1;

	s3d_arg(r, "prefix", prefix, sizeof(prefix));
	(void)!sky_buf_adds(b, "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>", NULL);
	for (struct s3d_upload *u = s3d.uploads; u; u = u->next) {
		if (strlen(u->key) > n && strncmp(u->key + n, prefix, strlen(prefix)) == 0) {
			(void)!sky_buf_adds(b, "<Upload><Key>", NULL);
			(void)!sky_xml_escape(b, u->key + n, NULL);
			(void)!sky_buf_addf(b, NULL,
			                    "</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", u->id,
			                    sky_utc(when, sizeof(when), u->begun));
		}
	}
	(void)!sky_buf_adds(b, "</ListMultipartUploadsResult>", NULL);
	r->status = 200;
	r->out = b->ptr;
	r->n_out = r->n_length = b->n;
}

static void serve_bucket(struct s3d_req *r, const char *bucket)
{
	char v[64];

	if (s3d_arg(r, "uploads", v, sizeof(v))) {
		list_uploads(r, bucket);
	} else if (strcmp(r->method, "GET") == 0) {
		list_objects(r, bucket);
	} else {
		s3d_text(r, 200, "%s", "");     /* make a bucket: all exist */
	}
}

void s3d_serve(struct s3d_req *r)
{
	struct sky_buf key = SKY_BUF_INIT(8192);
	char id[64], v[64];
	int has_id = s3d_arg(r, "uploadId", id, sizeof(id)) != NULL;
	char *slash;

	if (s3d_is_gs(r)) {
		s3d_serve_gs(r);
		return;
	}
	if (sky_uri_decode(&key, r->path + 1, strlen(r->path + 1), NULL) < 0 || !key.ptr) {
		s3d_error(r, 400, "InvalidURI");
		sky_buf_release(&key);
		return;
	}
	slash = strchr(key.ptr, '/');
	if (!slash || !slash[1]) {
		if (slash) {
			*slash = '\0';
		}
		serve_bucket(r, key.ptr);
	} else if (strcmp(r->method, "PUT") == 0) {
		if (has_id) {
			put_part(r, id);
		} else {
			put_object(r, key.ptr);
		}
	} else if (strcmp(r->method, "POST") == 0) {
		if (s3d_head(r, "x-goog-resumable", v, sizeof(v))) {
			s3d_begin_xml_session(r, key.ptr);
		} else if (s3d_arg(r, "uploads", v, sizeof(v))) {
			create_upload(r, key.ptr);
		} else {
			complete_upload(r, key.ptr, id);
		}
	} else if (strcmp(r->method, "DELETE") == 0) {
		if (has_id && *find_upload(id)) {
			drop_upload(find_upload(id));
			s3d_text(r, 204, "%s", "");
		} else {
			s3d_delete(key.ptr);
			s3d_text(r, 204, "%s", "");
		}
	} else {
		s3d_send_object(r, key.ptr);
	}
	sky_buf_release(&key);
}

/* ---- neighbours ---- */

static void set_fault(struct s3d_req *r)
{
	struct s3d_fault *f = s3d.faults;
	char v[32];

	while (f < s3d.faults + 7 && f->n > 0) {
		f++;
	}
	memset(f, 0, sizeof(*f));
	s3d_arg(r, "mode", f->mode, sizeof(f->mode));
	s3d_arg(r, "method", f->method, sizeof(f->method));
	s3d_arg(r, "on", f->on, sizeof(f->on));
	f->n = s3d_arg(r, "n", v, sizeof(v)) ? (int)strtol(v, NULL, 10) : 1;
	f->skip = s3d_arg(r, "skip", v, sizeof(v)) ? (int)strtol(v, NULL, 10) : 0;
	s3d_text(r, 200, "set\n");
}

static void control(struct s3d_req *r)
{
	char v[64];
	int n = 0;

	if (strcmp(r->path, "/-/fault") == 0) {
		set_fault(r);
	} else if (strcmp(r->path, "/-/reset") == 0) {
		memset(s3d.faults, 0, sizeof(s3d.faults));
		s3d.skew_s = 0;
		s3d.half = 0;
		s3d.loop = 0;
		s3d.n_request = s3d.n_denied = 0;
		s3d_text(r, 200, "reset\n");
	} else if (strcmp(r->path, "/-/set") == 0) {
		s3d.skew_s = s3d_arg(r, "skew", v, sizeof(v)) ? strtod(v, NULL) : s3d.skew_s;
		s3d_arg(r, "token", s3d.token, sizeof(s3d.token));
		s3d_arg(r, "region", s3d.region, sizeof(s3d.region));
		s3d_arg(r, "jwtkey", s3d.jwt_key, sizeof(s3d.jwt_key));
		s3d.loop = s3d_arg(r, "loop", v, sizeof(v)) != NULL;
		s3d.half = s3d_arg(r, "half", v, sizeof(v)) != NULL;
		s3d_text(r, 200, "set\n");
	} else {
		for (struct s3d_upload *u = s3d.uploads; u; u = u->next) {
			n++;
		}
		s3d_text(r, 200, "requests %llu denied %llu uploads %d\n", (unsigned long long)s3d.n_request,
		         (unsigned long long)s3d.n_denied, n);
	}
}

static void give_keys(struct s3d_req *r, const char *token_name)
{
	char when[32];

	s3d_text(r, 200,
	         "{\"Code\":\"Success\",\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"%s\",\"%s\":\"%s\","
	         "\"Expiration\":"
	         "\"%s\"}",
	         s3d.access, s3d.secret, token_name, s3d.token, sky_utc(when, sizeof(when), sky_wall() + 3600));
}

static void token_service(struct s3d_req *r)
{
	char when[32];

	if (!strstr(r->body, "Action=AssumeRole") || !strstr(r->body, "RoleArn=")) {
		s3d_error(r, 400, "InvalidAction");
		return;
	}
	s3d_text(r, 200,
	         "<AssumeRoleResponse "
	         "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>"
	         "<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</"
	         "SessionToken><Expiration>%s"
	         "</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
	         s3d.access, s3d.secret, s3d.token, sky_utc(when, sizeof(when), sky_wall() + 3600));
}

int s3d_side_door(struct s3d_req *r)
{
	char v[256];

	if (strncmp(r->path, "/-/", 3) == 0) {
		control(r);
	} else if (strcmp(r->path, "/latest/api/token") == 0) {
		s3d_text(r, strcmp(r->method, "PUT") == 0 ? 200 : 405, "imds-token");
	} else if (strncmp(r->path, "/latest/", 8) == 0) {
		if (!s3d_head(r, "x-aws-ec2-metadata-token", v, sizeof(v)) || strcmp(v, "imds-token") != 0) {
			s3d_text(r, 401, "no token");
		} else if (strcmp(r->path, "/latest/meta-data/iam/security-credentials/") == 0) {
			s3d_text(r, 200, "a-role\n");
		} else {
			give_keys(r, "Token");
		}
	} else if (strcmp(r->path, "/container") == 0) {
		if (!s3d_head(r, "authorization", v, sizeof(v)) || strcmp(v, "pod") != 0) {
			s3d_text(r, 401, "no token");
		} else {
			give_keys(r, "Token");
		}
	} else if (strcmp(r->path, "/") == 0 && strcmp(r->method, "POST") == 0) {
		token_service(r);
	} else if (strcmp(r->path, "/computeMetadata/v1/instance/service-accounts/default/token") == 0) {
		if (!s3d_head(r, "metadata-flavor", v, sizeof(v)) || strcmp(v, "Google") != 0) {
			s3d_text(r, 403, "no flavor");
		} else {
			s3d_text(r, 200, "{\"access_token\":\"bearer-%s%s\",\"expires_in\":3599}", s3d.access,
			         s3d.token);
		}
	} else if (strcmp(r->path, "/token") == 0) {
		s3d_give_token(r);
	} else {
		return 0;
	}
	return 1;
}
