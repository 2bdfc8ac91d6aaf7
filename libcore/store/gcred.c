/* store: bearer tokens for Google. Sources in order: a token in the environment, a key file (service account: a signed
 * JWT is exchanged; authorized user: a refresh token is), the metadata server of the machine. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include "store/cred_int.h"
#include "store/s3_int.h"

#define SCOPE           "https://www.googleapis.com/auth/devstorage.read_write"
#define TOKEN_URI       "https://oauth2.googleapis.com/token"
#define MARGIN_S        300.0
#define TOKEN_MAX       8192
#define KEY_FILE_MAX    (1u << 20)

struct sky_gcred {
	pthread_mutex_t lock;
	char token[TOKEN_MAX];
	double expires;         /* seconds since 1970; 0 = none yet */
};

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

int sky_gcred_parse(const char *p, size_t n, const char *name, char *out, size_t cap, double *expires_in_p,
                    struct sky_err *err)
{
	const char *token, *why, *more;
	struct sky_json *doc = NULL;
	const struct sky_jnode *v;
	double s = 0;
	int rc = sky_json_parse(p, n, name, 0, &doc, err);

	if (rc < 0) {
		return rc;
	}
	v = sky_json_root(doc);
	if ((rc = sky_j_get_str(v, "access_token", NULL, &token, err)) < 0 ||
	    (rc = sky_j_get_str(v, "error", NULL, &why, err)) < 0 ||
	    (rc = sky_j_get_str(v, "error_description", "", &more, err)) < 0 ||
	    (rc = sky_j_get_f64(v, "expires_in", 3600, &s, err)) < 0) {
		sky_while(err, rc, "%s", name);
	} else if (!token || !*token) {
		rc = sky_fail(err, SKY_E_SYS, "%s: no access_token in the answer%s%.100s %.200s", name,
		              why ? ": " : "", why ? why : "", more);
	} else if (strlen(token) >= cap || strpbrk(token, " \t\r\n") || !(s > 0)) {
		rc = sky_fail(err, SKY_E_DATA, "%s: bad access_token or expires_in", name);
	} else {
		memcpy(out, token, strlen(token) + 1);
		*expires_in_p = s;
	}
	sky_json_free(doc);
	return rc;
}

/* ---- exchange at a token service ---- */

static int form_pair(struct sky_buf *b, const char *name, const char *value, struct sky_err *err)
{
	int rc = sky_buf_addf(b, err, "%s%s=", b->n ? "&" : "", name);

	return rc < 0 ? rc : sky_uri_encode(b, value, strlen(value), 0, err);
}

static int exchange(struct sky_gcred *c, const char *uri, const char *body, struct sky_err *err)
{
	struct sky_ask q = { .what = "Google token service",
		             .method = "POST",
		             .url = uri,
		             .body = body,
		             .timeout_s = 30,
		             .n_tries = 4 };
	struct sky_buf answer = SKY_BUF_INIT(1u << 20);
	double s = 0;
	int status = 0, rc = sky_heads_add(&q.heads, err, "content-type", "application/x-www-form-urlencoded");

	rc = rc < 0 ? rc : sky_ask_run(&q, &status, &answer, err);
	rc = rc < 0 ? rc :
	              sky_gcred_parse(answer.ptr ? answer.ptr : "", answer.n, q.what, c->token, sizeof(c->token), &s,
	                              err);
	if (rc == 0) {
		c->expires = sky_wall() + s;
	}
	sky_buf_release(&answer);
	return rc;
}

/* ---- service account: RS256 ---- */

static int add_base64url(struct sky_buf *b, const void *p, size_t n, struct sky_err *err)
{
	size_t cap = (n + 2) / 3 * 4 + 1, at = b->n;
	int rc = sky_buf_reserve(b, cap, err);

	if (rc < 0 || sky_base64(p, n, b->ptr + at, cap) < 0) {
		return rc < 0 ? rc : SKY_E_LIMIT;
	}
	b->n = at + strcspn(b->ptr + at, "=");
	b->ptr[b->n] = '\0';
	for (char *s = b->ptr + at; *s; s++) {
		*s = (char)(*s == '+' ? '-' : *s == '/' ? '_' : *s);
	}
	return 0;
}

static int sign_rs256(const char *pem, const char *p, size_t n, struct sky_buf *sig, struct sky_err *err)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	size_t n_sig = 0;
	int ok = key && md && EVP_PKEY_base_id(key) == EVP_PKEY_RSA &&
	         EVP_DigestSignInit(md, NULL, EVP_sha256(), NULL, key) == 1 &&
	         EVP_DigestSign(md, NULL, &n_sig, (const unsigned char *)p, n) == 1;
	int rc = ok ? sky_buf_reserve(sig, n_sig, err) :
	              sky_fail(err, SKY_E_DATA, "private_key is no RSA key in PEM form");

	if (rc == 0) {
		if (EVP_DigestSign(md, (unsigned char *)sig->ptr, &n_sig, (const unsigned char *)p, n) == 1) {
			sig->n = n_sig;
		} else {
			rc = sky_fail(err, SKY_E_SYS, "signing with private_key failed");
		}
	}
	EVP_MD_CTX_free(md);
	EVP_PKEY_free(key);
	BIO_free(bio);
	return rc;
}

/* header.claims.signature, each base64url (RFC 7515). */
static int make_jwt(struct sky_buf *jwt, const char *email, const char *kid, const char *pem, const char *uri,
                    struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 16), sig = SKY_BUF_INIT(1u << 16);
	int64_t now = (int64_t)sky_wall();
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &text, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "alg", "RS256");
	sky_jw_kstr(&w, "typ", "JWT");
	if (kid) {
		sky_jw_kstr(&w, "kid", kid);
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc < 0 ? rc : add_base64url(jwt, text.ptr, text.n, err);
	rc = rc < 0 ? rc : sky_buf_addc(jwt, '.', err);
	sky_buf_clear(&text);
	sky_jw_init(&w, &text, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "iss", email);
	sky_jw_kstr(&w, "scope", SCOPE);
	sky_jw_kstr(&w, "aud", uri);
	sky_jw_ki64(&w, "iat", now);
	sky_jw_ki64(&w, "exp", now + 3600);
	sky_jw_close_obj(&w);
	rc = rc < 0 ? rc : sky_jw_end(&w);
	rc = rc < 0 ? rc : add_base64url(jwt, text.ptr, text.n, err);
	rc = rc < 0 ? rc : sign_rs256(pem, jwt->ptr, jwt->n, &sig, err);
	rc = rc < 0 ? rc : sky_buf_addc(jwt, '.', err);
	rc = rc < 0 ? rc : add_base64url(jwt, sig.ptr, sig.n, err);
	sky_buf_release(&text);
	sky_buf_release(&sig);
	return rc;
}

static int service_account(struct sky_gcred *c, const struct sky_jnode *v, struct sky_err *err)
{
	struct sky_buf jwt = SKY_BUF_INIT(1u << 17), body = SKY_BUF_INIT(1u << 18);
	const char *email, *kid, *pem, *uri;
	int rc;

	if ((rc = sky_j_get_str(v, "client_email", NULL, &email, err)) < 0 ||
	    (rc = sky_j_get_str(v, "private_key_id", NULL, &kid, err)) < 0 ||
	    (rc = sky_j_get_str(v, "private_key", NULL, &pem, err)) < 0 ||
	    (rc = sky_j_get_str(v, "token_uri", TOKEN_URI, &uri, err)) < 0) {
		return rc;
	}
	rc = email && pem ? make_jwt(&jwt, email, kid, pem, uri, err) :
	                    sky_fail(err, SKY_E_DATA, "no client_email or private_key");
	rc = rc < 0 ? rc : form_pair(&body, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer", err);
	rc = rc < 0 ? rc : form_pair(&body, "assertion", jwt.ptr, err);
	rc = rc < 0 ? rc : exchange(c, uri, body.ptr, err);
	sky_buf_release(&jwt);
	sky_buf_release(&body);
	return rc;
}

static int authorized_user(struct sky_gcred *c, const struct sky_jnode *v, struct sky_err *err)
{
	struct sky_buf body = SKY_BUF_INIT(1u << 16);
	const char *id, *secret, *refresh, *uri;
	int rc;

	if ((rc = sky_j_get_str(v, "client_id", NULL, &id, err)) < 0 ||
	    (rc = sky_j_get_str(v, "client_secret", NULL, &secret, err)) < 0 ||
	    (rc = sky_j_get_str(v, "refresh_token", NULL, &refresh, err)) < 0 ||
	    (rc = sky_j_get_str(v, "token_uri", TOKEN_URI, &uri, err)) < 0) {
		return rc;
	}
	if (!id || !secret || !refresh) {
		return sky_fail(err, SKY_E_DATA, "no client_id, client_secret or refresh_token");
	}
	rc = form_pair(&body, "grant_type", "refresh_token", err);
	rc = rc < 0 ? rc : form_pair(&body, "client_id", id, err);
	rc = rc < 0 ? rc : form_pair(&body, "client_secret", secret, err);
	rc = rc < 0 ? rc : form_pair(&body, "refresh_token", refresh, err);
	rc = rc < 0 ? rc : exchange(c, uri, body.ptr, err);
	sky_buf_release(&body);
	return rc;
}

static int from_file(struct sky_gcred *c, const char *path, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(KEY_FILE_MAX);
	struct sky_json *doc = NULL;
	const char *type = "";
	int rc = sky_file_read(path, &b, err);

	rc = rc < 0 ? rc : sky_json_parse(b.ptr ? b.ptr : "", b.n, path, 0, &doc, err);
	rc = rc < 0 ? rc : sky_j_get_str(sky_json_root(doc), "type", "", &type, err);
	if (rc == 0) {
		rc = strcmp(type, "service_account") == 0 ?
		             service_account(c, sky_json_root(doc), err) :
		     strcmp(type, "authorized_user") == 0 ?
		             authorized_user(c, sky_json_root(doc), err) :
		             sky_fail(err, SKY_E_USAGE,
		                      "credentials of type '%.60s': service_account and authorized_user are known; "
		                      "`gcloud auth print-access-token` into CLOUDSDK_AUTH_ACCESS_TOKEN serves the "
		                      "others",
		                      type);
		sky_while(err, rc, "%s", path);
	}
	sky_json_free(doc);
	if (b.ptr) {
		memset(b.ptr, 0, b.n);
	}
	sky_buf_release(&b);
	return rc;
}

static int from_metadata(struct sky_gcred *c, struct sky_err *err)
{
	const char *host = env("GCE_METADATA_HOST");
	char url[512];
	struct sky_ask q = {
		.what = "Google metadata server", .method = "GET", .url = url, .timeout_s = 2, .n_tries = 3
	};
	struct sky_buf answer = SKY_BUF_INIT(1u << 20);
	double s = 0;
	int status = 0, rc;

	snprintf(url, sizeof(url), "http://%.300s/computeMetadata/v1/instance/service-accounts/default/token",
	         host ? host : "metadata.google.internal");
	rc = sky_heads_add(&q.heads, err, "Metadata-Flavor", "Google");
	rc = rc < 0 ? rc : sky_ask_run(&q, &status, &answer, err);
	if (rc == 0 && status != 200) {
		rc = sky_fail(err, SKY_E_SYS, "%s: status %d", q.what, status);
	}
	rc = rc < 0 ? rc :
	              sky_gcred_parse(answer.ptr ? answer.ptr : "", answer.n, q.what, c->token, sizeof(c->token), &s,
	                              err);
	if (rc == 0) {
		c->expires = sky_wall() + s;
	}
	sky_buf_release(&answer);
	return rc;
}

static int fetch(struct sky_gcred *c, struct sky_err *err)
{
	const char *file = env("GOOGLE_APPLICATION_CREDENTIALS"), *dir = env("CLOUDSDK_CONFIG"), *home = env("HOME");
	const char *token = env("CLOUDSDK_AUTH_ACCESS_TOKEN");
	char path[SKY_MAX_PATH];
	int rc;

	if (token) {
		snprintf(c->token, sizeof(c->token), "%s", token);
		c->expires = 1e15;
		return 0;
	}
	if (file) {
		return sky_while(err, from_file(c, file, err), "GOOGLE_APPLICATION_CREDENTIALS");
	}
	snprintf(path, sizeof(path), "%s%s/application_default_credentials.json", dir ? dir : home ? home : "",
	         dir ? "" : "/.config/gcloud");
	if (sky_file_exists(path)) {
		return from_file(c, path, err);
	}
	rc = from_metadata(c, err);
	return rc == 0 ? 0 :
	                 sky_fail(err, SKY_E_SYS,
	                          "no Google credentials: no GOOGLE_APPLICATION_CREDENTIALS, no %s, and no "
	                          "metadata server; --no-sign-request reads public buckets",
	                          path);
}

int sky_gcred_new(struct sky_gcred **c_p, struct sky_err *err)
{
	struct sky_gcred *c = calloc(1, sizeof(*c));

	if (!c) {
		return sky_fail_mem(err, "credentials");
	}
	pthread_mutex_init(&c->lock, NULL);
	*c_p = c;
	return 0;
}

void sky_gcred_free(struct sky_gcred *c)
{
	if (c) {
		pthread_mutex_destroy(&c->lock);
		free(c);
	}
}

int sky_gcred_get(struct sky_gcred *c, const char *refused, char *out, size_t cap, struct sky_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->expires == 0 || sky_wall() > c->expires - MARGIN_S || (refused && strcmp(refused, c->token) == 0)) {
		rc = fetch(c, err);
	}
	if (rc == 0) {
		snprintf(out, cap, "%s", c->token);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}
