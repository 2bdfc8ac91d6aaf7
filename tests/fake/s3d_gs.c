/* The fault-injecting object store of the tests: Google's JSON interface and resumable uploads of both interfaces, on
 * the same objects. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include "store/s3_int.h"
#include "tests/fake/s3d.h"

struct session {
	struct session *next;
	char id[40], *key, mark[64];
	struct sky_buf data;
	int64_t expect;         /* generation that must be there; -1: no condition */
	int is_xml;
};
static struct session *sessions;
static uint64_t n_session;

/* ---- who asks ---- */

/* A bearer token, where one is needed: NULL or the problem. */
static int is_bearer(const struct s3d_req *r)
{
	char v[9000], want[256];

	snprintf(want, sizeof(want), "Bearer bearer-%s%s", s3d.access, s3d.token);
	return !s3d.verify || (s3d_head(r, "authorization", v, sizeof(v)) && strcmp(v, want) == 0);
}

static int verify_jwt(const char *jwt)
{
	FILE *f = fopen(s3d.jwt_key, "r");
	EVP_PKEY *key = f ? PEM_read_PUBKEY(f, NULL, NULL, NULL) : NULL;
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	const char *dot = strrchr(jwt, '.'), *first = strchr(jwt, '.');
	uint8_t sig[1024], claims[4096];
	size_t n_sig = 0, n_claims = 0;
	char *middle;
	int ok;

	if (f) {
		fclose(f);
	}
	ok = key && dot && first != dot && sky_unbase64(dot + 1, sig, sizeof(sig), &n_sig) == 0 &&
	     EVP_DigestVerifyInit(md, NULL, EVP_sha256(), NULL, key) == 1 &&
	     EVP_DigestVerify(md, sig, n_sig, (const uint8_t *)jwt, (size_t)(dot - jwt)) == 1;
	middle = ok ? strndup(first + 1, (size_t)(dot - first - 1)) : NULL;
	ok = ok && sky_unbase64(middle, claims, sizeof(claims) - 1, &n_claims) == 0;
	claims[ok ? n_claims : 0] = '\0';
	ok = ok && strstr((char *)claims, "\"iss\":\"robot@example\"") &&
	     strstr((char *)claims, "devstorage.read_write") && strstr((char *)claims, "/token\"");
	free(middle);
	EVP_PKEY_free(key);
	EVP_MD_CTX_free(md);
	return ok;
}

void s3d_give_token(struct s3d_req *r)
{
	const char *at = strstr(r->body, "assertion=");
	int ok = strstr(r->body, "refresh_token=refresh-me") && strstr(r->body, "grant_type=refresh_token");

	if (at && strstr(r->body, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer")) {
		ok = verify_jwt(at + 10);
	}
	if (ok) {
		s3d_text(r, 200, "{\"access_token\":\"bearer-%s%s\",\"expires_in\":3599,\"token_type\":\"Bearer\"}",
		         s3d.access, s3d.token);
	} else {
		s3d_text(r, 400, "{\"error\":\"invalid_grant\",\"error_description\":\"Invalid JWT Signature.\"}");
	}
}

static void gs_error(struct s3d_req *r, int status, const char *reason)
{
	s3d_text(r, status,
	         "{\"error\":{\"code\":%d,\"message\":\"made by the test server\",\"errors\":[{\"reason\":\"%s\"}]}}",
	         status, reason);
}

/* ---- object resources ---- */

static void add_resource(struct sky_buf *b, const struct s3d_object *o)
{
	uint32_t crc = sky_crc32c(0, o->p, o->n);
	uint8_t raw[4] = { (uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8), (uint8_t)crc };
	struct sky_err err;
	struct sky_jw w;
	char text[32];

	sky_base64(raw, 4, text, sizeof(text));
	sky_jw_init(&w, b, &err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "name", strchr(o->key, '/') + 1);
	sky_jw_kstr(&w, "crc32c", text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)o->n);
	sky_jw_kstr(&w, "size", text);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)o->generation);
	sky_jw_kstr(&w, "generation", text);
	sky_jw_kstr(&w, "updated", "2013-05-24T00:00:00.000Z");
	sky_jw_key(&w, "metadata");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "skyrl-put", o->id);
	sky_jw_close_obj(&w);
	sky_jw_close_obj(&w);
	(void)!sky_jw_end(&w);
}

static void send_own(struct s3d_req *r, int status)
{
	r->status = status;
	r->out = r->own.ptr ? r->own.ptr : "";
	r->n_out = r->n_length = r->own.n;
	s3d_add_head(r, "Content-Type: application/json");
}

static int condition_holds(int64_t expect, const char *key)
{
	struct s3d_object *o = s3d_find(key);

	return expect < 0 || (uint64_t)expect == (o ? o->generation : 0);
}

static int64_t condition_of(const struct s3d_req *r)
{
	char v[32];

	return s3d_arg(r, "ifGenerationMatch", v, sizeof(v)) ||
	                       s3d_head(r, "x-goog-if-generation-match", v, sizeof(v)) ?
	               strtoll(v, NULL, 10) :
	               -1;
}

/* Text of a JSON field, good enough for what our client writes. */
static void field(const char *json, const char *name, char *out, size_t cap)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":\"", name);
	at = strstr(json, key);
	snprintf(out, cap, "%.*s", at ? (int)strcspn(at + strlen(key), "\"") : 0, at ? at + strlen(key) : "");
}

/* multipart/related: resource, then the bytes. */
static void put_multipart(struct s3d_req *r, const char *key)
{
	char mark[64], sum[32], type[256] = "", boundary[128], *bytes, *part2;
	uint8_t raw[8];
	uint64_t n;
	uint32_t crc;
	size_t k;

	s3d_head(r, "content-type", type, sizeof(type));
	snprintf(boundary, sizeof(boundary), "\r\n--%s",
	         strstr(type, "boundary=") ? strstr(type, "boundary=") + 9 : "?");
	part2 = strstr(r->body, boundary);
	bytes = part2 ? strstr(part2 + 2, "\r\n\r\n") : NULL;
	if (!bytes || r->n_body < strlen(boundary) + 4) {
		gs_error(r, 400, "badContent");
		return;
	}
	bytes += 4;
	n = r->n_body - (uint64_t)(bytes - r->body) - strlen(boundary) - 4;
	field(r->body, "skyrl-put", mark, sizeof(mark));
	field(r->body, "crc32c", sum, sizeof(sum));
	crc = sky_crc32c(0, bytes, n);
	if (sky_unbase64(sum, raw, sizeof(raw), &k) < 0 || k != 4 ||
	    crc != ((uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3])) {
		gs_error(r, 400, "badChecksum");
	} else if (!condition_holds(condition_of(r), key)) {
		gs_error(r, 412, "conditionNotMet");
	} else {
		s3d_write_object(key, bytes, n, mark, 1);
		add_resource(&r->own, s3d_find(key));
		send_own(r, 200);
	}
}

/* ---- resumable uploads ---- */

static void begin_session(struct s3d_req *r, const char *key, int is_xml)
{
	struct session *u = calloc(1, sizeof(*u));
	char host[64] = "";

	if (!condition_holds(condition_of(r), key)) {
		free(u);
		gs_error(r, 412, "conditionNotMet");
		return;
	}
	u->key = strdup(key);
	u->expect = condition_of(r);
	u->is_xml = is_xml;
	sky_buf_init(&u->data, 1u << 30);
	snprintf(u->id, sizeof(u->id), "s%llu", (unsigned long long)++n_session);
	if (!s3d_head(r, "x-goog-meta-skyrl-put", u->mark, sizeof(u->mark))) {
		field(r->body, "skyrl-put", u->mark, sizeof(u->mark));
	}
	u->next = sessions;
	sessions = u;
	s3d_head(r, "host", host, sizeof(host));
	s3d_text(r, is_xml ? 201 : 200, "%s", "");
	s3d_add_head(r, "Location: http://%s/session/%s?upload_id=%s", host, u->id, u->id);
}

static void kept(struct s3d_req *r, const struct session *u)
{
	s3d_text(r, 308, "%s", "");
	if (u->data.n > 0) {
		s3d_add_head(r, "Range: bytes=0-%zu", u->data.n - 1);
	}
}

static void end_session(struct s3d_req *r, struct session *u)
{
	if (!condition_holds(u->expect, u->key)) {
		gs_error(r, 412, "conditionNotMet");
		return;
	}
	s3d_write_object(u->key, u->data.ptr ? u->data.ptr : "", u->data.n, u->mark, 1);
	if (u->is_xml) {
		s3d_text(r, 200, "%s", "");
	} else {
		add_resource(&r->own, s3d_find(u->key));
		send_own(r, 200);
	}
	u->expect = (int64_t)s3d_find(u->key)->generation;      /* asked again after a lost answer: the same success */
}

static void serve_session(struct s3d_req *r)
{
	struct session **at = &sessions, *u;
	unsigned long long a = 0, b = 0, total = 0;
	char v[128] = "";
	int has_total;

	while (*at && strcmp((*at)->id, r->path + 9) != 0) {
		at = &(*at)->next;
	}
	u = *at;
	if (!u) {
		gs_error(r, 404, "notFound");
		return;
	}
	if (strcmp(r->method, "DELETE") == 0) {
		*at = u->next;
		sky_buf_release(&u->data);
		free(u->key);
		free(u);
		s3d_text(r, 499, "%s", "");
		return;
	}
	s3d_head(r, "content-range", v, sizeof(v));
	has_total = strchr(v, '/') && sscanf(strchr(v, '/'), "/%llu", &total) == 1;
	if (sscanf(v, "bytes %llu-%llu/", &a, &b) == 2 && a == u->data.n && b - a + 1 == r->n_body) {
		uint64_t n = s3d.half ? r->n_body / 2 : r->n_body;

		s3d.half = 0;
		if (!has_total && r->n_body % (256u << 10) != 0) {
			gs_error(r, 400, "badChunk");
			return;
		}
		(void)!sky_buf_add(&u->data, r->body, n, NULL);
	}
	if (has_total && total == u->data.n) {
		end_session(r, u);
	} else {
		kept(r, u);
	}
}

/* ---- listings ---- */

static void list(struct s3d_req *r, const char *bucket)
{
	char prefix[1100] = "", token[1100] = "", delimiter[8] = "", shown[1100], last[1100] = "";
	struct sky_buf items = SKY_BUF_INIT(1u << 24), prefixes = SKY_BUF_INIT(1u << 20);
	size_t n_bucket = strlen(bucket);
	int n = 0, more = 0;

	s3d_arg(r, "prefix", prefix, sizeof(prefix));
	s3d_arg(r, "pageToken", token, sizeof(token));
	s3d_arg(r, "delimiter", delimiter, sizeof(delimiter));
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
		if (n++ == s3d.page) {
			more = 1;
			break;
		}
		memcpy(last, shown, sizeof(last));
		if (cut) {
			(void)!sky_buf_addf(&prefixes, NULL, "%s\"%s\"", prefixes.n ? "," : "", shown);
		} else {
			(void)!sky_buf_adds(&items, items.n ? "," : "", NULL);
			add_resource(&items, o);
		}
	}
	(void)!sky_buf_addf(&r->own, NULL, "{\"kind\":\"storage#objects\",\"items\":[%s],\"prefixes\":[%s]",
	                    items.n ? items.ptr : "", prefixes.n ? prefixes.ptr : "");
	if (more) {
		(void)!sky_buf_addf(&r->own, NULL, ",\"nextPageToken\":\"%s\"", last);
	}
	(void)!sky_buf_adds(&r->own, "}", NULL);
	sky_buf_release(&items);
	sky_buf_release(&prefixes);
	send_own(r, 200);
}

/* ---- the way in ---- */

static void serve_object(struct s3d_req *r, const char *key)
{
	struct s3d_object *o = s3d_find(key);
	char v[16] = "";

	s3d_arg(r, "alt", v, sizeof(v));
	if (strcmp(r->method, "DELETE") == 0) {
		s3d_delete(key);
		s3d_text(r, o ? 204 : 404, "%s", "");
	} else if (!o) {
		gs_error(r, 404, "notFound");
	} else if (strcmp(v, "media") == 0) {
		s3d_send_object(r, key);
	} else {
		add_resource(&r->own, o);
		send_own(r, 200);
	}
}

static void serve_json(struct s3d_req *r)
{
	char *bucket = strstr(r->path, "/b/") + 3, *o = strstr(bucket, "/o"), name[1100], type[16] = "", key[1500];
	struct sky_buf b = SKY_BUF_INIT(4096);

	if (!o) {
		gs_error(r, 404, "notFound");
		return;
	}
	*o = '\0';
	if (strncmp(r->path, "/upload/", 8) == 0) {
		s3d_arg(r, "name", name, sizeof(name));
		s3d_arg(r, "uploadType", type, sizeof(type));
		snprintf(key, sizeof(key), "%.200s/%s", bucket, name);
		if (strcmp(type, "resumable") == 0) {
			begin_session(r, key, 0);
		} else {
			put_multipart(r, key);
		}
	} else if (o[2] == '/') {
		(void)!sky_buf_addf(&b, NULL, "%s/", bucket);
		(void)!sky_uri_decode(&b, o + 3, strlen(o + 3), NULL);
		serve_object(r, b.ptr);
	} else {
		list(r, bucket);
	}
	sky_buf_release(&b);
}

int s3d_is_gs(const struct s3d_req *r)
{
	return strncmp(r->path, "/storage/v1/b/", 14) == 0 || strncmp(r->path, "/upload/storage/v1/b/", 21) == 0 ||
	       strncmp(r->path, "/session/", 9) == 0;
}

void s3d_serve_gs(struct s3d_req *r)
{
	if (strncmp(r->path, "/session/", 9) == 0) {
		serve_session(r);
	} else if (!is_bearer(r)) {
		gs_error(r, 401, "authError");
	} else {
		serve_json(r);
	}
}

void s3d_begin_xml_session(struct s3d_req *r, const char *key)
{
	begin_session(r, key, 1);
}
