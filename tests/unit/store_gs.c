/* Google Cloud Storage when things go wrong: tokens, resumed uploads, generations, and the XML interface with HMAC
 * keys. The server is tests/fake/s3d. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include "store/cred_int.h"
#include "tests/fake/server.h"

#define CHUNK (512u << 10)

static struct sky_err err;
static int port;
static char endpoint[64];

static void fault(const char *args)
{
	char path[256];

	snprintf(path, sizeof(path), "/-/fault?%s", args);
	server_get(port, path);
}

static struct sky_store *fresh(void)
{
	struct sky_store_opt opt = { .endpoint_url = endpoint, .part_bytes = CHUNK, .n_parallel = 4, .timeout_s = 20 };
	struct sky_store *s = NULL;

	server_get(port, "/-/reset");
	if (sky_store_open("gs://bucket/p", &opt, &s, &err) < 0) {
		t_bail("open: %s", err.msg);
	}
	return s;
}

static int reads(struct sky_store *s, const char *key, const char *want, size_t n)
{
	struct sky_buf b = SKY_BUF_INIT(1u << 24);
	int rc = sky_store_get(s, key, 0, UINT64_MAX, &b, &err);
	int same = rc == 0 && b.n == n && memcmp(b.ptr, want, n) == 0;

	if (!same) {
		t_note("code %d, %zu bytes: %s", rc, b.n, rc < 0 ? err.msg : "");
	}
	sky_buf_release(&b);
	return same;
}

static int upload(struct sky_store *s, const char *key, const char *p, size_t n, unsigned flags)
{
	struct sky_upload *u;
	int rc = sky_upload_open(s, key, flags, &u, &err);

	if (rc < 0) {
		return rc;
	}
	rc = sky_upload_write(u, p, n, &err);
	if (rc < 0) {
		sky_upload_abort(u);
		return rc;
	}
	return sky_upload_commit(u, &err);
}

static void resumed(const char *name)
{
	static const struct { const char *fault, *what; } cases[] = {
		{ "mode=503&method=PUT&on=session&n=2", "a chunk that is refused twice" },
		{ "mode=reset&method=PUT&on=session&n=1", "a chunk whose answer is lost" },
		{ "mode=drop&method=PUT&on=session&n=1&skip=1", "a connection that breaks at the second chunk" },
		{ "mode=reset&method=PUT&on=session&n=1&skip=3", "the last chunk's answer lost" },
		{ "mode=429&method=PUT&on=session&n=3&skip=2", "throttling in the middle" },
	};
	struct sky_store *s = fresh();
	size_t n = 3 * CHUNK + 1000;
	char *p = malloc(n), key[16];

	for (size_t i = 0; i < n; i++) {
		p[i] = (char)(i * 31 + i / 1021);
	}
	for (int i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "%s%d", name, i);
		server_get(port, "/-/reset");
		fault(cases[i].fault);
		T_RC(upload(s, key, p, n, SKY_PUT_CREATE), 0, &err, "%s: %s", name, cases[i].what);
		T_OK(reads(s, key, p, n), "%s: the object is whole", name);
	}
	server_get(port, "/-/reset");
	server_get(port, "/-/set?half=1");
	T_RC(upload(s, "half", p, n, SKY_PUT_CREATE), 0, &err, "%s: a chunk of which half is kept", name);
	T_OK(reads(s, "half", p, n), "%s: the rest was sent again", name);
	T_RC(upload(s, "half", p, n, SKY_PUT_CREATE), SKY_E_AGAIN, &err, "%s: create of what is there", name);
	fault("mode=race:bucket/p/lost&method=PUT&on=session&skip=3");
	T_RC(upload(s, "lost", p, n, SKY_PUT_CREATE), SKY_E_AGAIN, &err, "%s: another writer wins at the end", name);
	T_OK(reads(s, "lost", "rival", 5), "%s: and keeps the object", name);
	server_get(port, "/-/reset");
	fault("mode=404&method=PUT&on=session&skip=1");
	T_RC(upload(s, "gone", p, n, SKY_PUT_CREATE), SKY_E_AGAIN, &err, "%s: a session that ends early", name);
	T_HAS(err.msg, "session is gone", "%s: says so", name);
	free(p);
	T_RC(sky_store_delete(s, "half", &err), 0, &err, "%s: delete", name);
	T_RC(sky_store_delete(s, "lost", &err), 0, &err, "%s: delete", name);
	sky_store_close(s);
}

static void objects(const char *name)
{
	struct sky_store *s = fresh();
	struct sky_object o = { 0 };
	int64_t n = 0;
	struct sky_object *v = NULL;
	char key[32];

	T_RC(sky_store_put(s, "once", "v1", 2, SKY_PUT_CREATE, NULL, &err), 0, &err, "%s: create", name);
	T_RC(sky_store_put(s, "once", "v2", 2, SKY_PUT_CREATE, NULL, &err), SKY_E_AGAIN, &err, "%s: create again",
	     name);
	T_RC(sky_store_head(s, "once", &o, &err), 0, &err, "%s: head", name);
	T_OK(o.tag[0] && strspn(o.tag, "0123456789") == strlen(o.tag), "%s: the tag is a generation", name);
	T_RC(sky_store_put(s, "once", "v3", 2, 0, o.tag, &err), 0, &err, "%s: replace", name);
	T_RC(sky_store_put(s, "once", "v4", 2, 0, o.tag, &err), SKY_E_AGAIN, &err, "%s: replace by an old generation",
	     name);
	T_OK(reads(s, "once", "v3", 2), "%s: content", name);
	sky_object_release(&o);
	fault("mode=reset&method=POST");
	fault("mode=reset&method=PUT");
	T_RC(sky_store_put(s, "mine", "x", 1, SKY_PUT_CREATE, NULL, &err), 0, &err,
	     "%s: create whose answer was lost", name);
	server_get(port, "/-/reset");
	fault("mode=flip&method=GET&on=once");
	T_OK(reads(s, "once", "v3", 2), "%s: a flipped bit is seen and read again", name);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "l/%d/%02d", i % 2, i);
		T_RC(sky_store_put(s, key, key, strlen(key), 0, NULL, &err), 0, &err, "%s: object %d", name, i);
	}
	T_RC(sky_store_list(s, "l/", 0, &v, &n, &err), 0, &err, "%s: list", name);
	T_I64(n, 20, "%s: all pages", name);
	sky_objects_free(v, n);
	T_RC(sky_store_list(s, "l/", SKY_LIST_SHALLOW, &v, &n, &err), 0, &err, "%s: shallow list", name);
	T_I64(n, 2, "%s: prefixes", name);
	sky_objects_free(v, n);
	T_RC(sky_store_delete(s, "once", &err), 0, &err, "%s: delete", name);
	T_RC(sky_store_delete(s, "once", &err), 0, &err, "%s: delete of what is gone", name);
	T_RC(sky_store_delete(s, "mine", &err), 0, &err, "%s: delete", name);
	sky_store_close(s);
}

/* ---- tokens ---- */

static void token_is(const char *want, const char *what)
{
	struct sky_gcred *c;
	char token[8192] = "";

	T_RC(sky_gcred_new(&c, &err), 0, &err, "%s", what);
	T_RC(sky_gcred_get(c, NULL, token, sizeof(token), &err), 0, &err, "%s: a token", what);
	T_STR(token, want, "%s: the right one", what);
	sky_gcred_free(c);
}

static void token_fails(int code, const char *text, const char *what)
{
	struct sky_gcred *c;
	char token[8192];

	T_RC(sky_gcred_new(&c, &err), 0, &err, "%s", what);
	T_RC(sky_gcred_get(c, NULL, token, sizeof(token), &err), code, &err, "%s: code %d", what, code);
	T_HAS(err.msg, text, "%s: says why", what);
	sky_gcred_free(c);
}

static void write_key(const char *name, const char *pem, const char *email)
{
	struct sky_buf b = SKY_BUF_INIT(1u << 16);
	struct sky_jw w;
	char uri[96];

	snprintf(uri, sizeof(uri), "%s/token", endpoint);
	sky_jw_init(&w, &b, &err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "service_account");
	sky_jw_kstr(&w, "client_email", email);
	sky_jw_kstr(&w, "private_key_id", "k1");
	sky_jw_kstr(&w, "private_key", pem);
	sky_jw_kstr(&w, "token_uri", uri);
	sky_jw_close_obj(&w);
	T_I64(sky_jw_end(&w), 0, "a key file");
	t_write(name, b.ptr, b.n);
	sky_buf_release(&b);
}

static void tokens(void)
{
	EVP_PKEY *key = EVP_RSA_gen(2048);
	BIO *priv = BIO_new(BIO_s_mem());
	char *pem, host[32], text[512];
	FILE *f = fopen(t_path("pub.pem"), "w");
	long n;

	PEM_write_bio_PrivateKey(priv, key, NULL, NULL, 0, NULL, NULL);
	n = BIO_get_mem_data(priv, &pem);
	pem = strndup(pem, (size_t)n);
	PEM_write_PUBKEY(f, key);
	fclose(f);
	snprintf(text, sizeof(text), "/-/set?jwtkey=%s", t_path("pub.pem"));
	server_get(port, text);
	write_key("key.json", pem, "robot@example");
	setenv("GOOGLE_APPLICATION_CREDENTIALS", t_path("key.json"), 1);
	token_is("bearer-test", "service account");
	write_key("key.json", pem, "someone@else");
	token_fails(SKY_E_SYS, "invalid_grant", "service account that is not known");
	write_key("key.json", "no pem", "robot@example");
	token_fails(SKY_E_DATA, "PEM", "service account without a key");
	snprintf(text, sizeof(text),
	         "{\"type\":\"authorized_user\",\"client_id\":\"i\",\"client_secret\":\"s\",\"refresh_token\":"
	         "\"refresh-me\",\"token_uri\":\"%s/token\"}",
	         endpoint);
	t_write("user.json", text, strlen(text));
	setenv("GOOGLE_APPLICATION_CREDENTIALS", t_path("user.json"), 1);
	token_is("bearer-test", "authorized user");
	t_write("other.json", "{\"type\":\"external_account\"}", 27);
	setenv("GOOGLE_APPLICATION_CREDENTIALS", t_path("other.json"), 1);
	token_fails(SKY_E_USAGE, "external_account", "an unknown kind of credentials");
	setenv("GOOGLE_APPLICATION_CREDENTIALS", t_path("absent.json"), 1);
	token_fails(SKY_E_MISSING, "absent.json", "a key file that is not there");
	unsetenv("GOOGLE_APPLICATION_CREDENTIALS");
	setenv("GCE_METADATA_HOST", "127.0.0.1:9", 1);
	token_fails(SKY_E_SYS, "--no-sign-request", "no credentials at all");
	snprintf(host, sizeof(host), "127.0.0.1:%d", port);
	setenv("GCE_METADATA_HOST", host, 1);
	token_is("bearer-test", "metadata server");
	setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "direct", 1);
	token_is("direct", "token of the environment");
	unsetenv("CLOUDSDK_AUTH_ACCESS_TOKEN");
	free(pem);
	BIO_free(priv);
	EVP_PKEY_free(key);
}

/* A token that the store no longer takes is fetched again, once. */
static void token_end(void)
{
	struct sky_store *s = fresh();

	T_RC(sky_store_put(s, "a", "1", 1, 0, NULL, &err), 0, &err, "put with a token");
	server_get(port, "/-/set?token=-next");
	T_RC(sky_store_put(s, "a", "2", 1, 0, NULL, &err), 0, &err, "put after the token's end");
	T_OK(reads(s, "a", "2", 1), "and get");
	server_get(port, "/-/set?token=");
	sky_store_close(s);
	setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "wrong", 1);
	s = fresh();
	T_RC(sky_store_put(s, "a", "1", 1, 0, NULL, &err), SKY_E_SYS, &err, "a wrong token is denied");
	sky_store_close(s);
	unsetenv("CLOUDSDK_AUTH_ACCESS_TOKEN");
}

int main(void)
{
	server_clean_env();
	port = server_s3d("--page", "7", NULL, NULL);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
	tokens();
	token_end();
	objects("json");
	resumed("json");
	setenv("GS_ACCESS_KEY_ID", "test", 1);
	setenv("GS_SECRET_ACCESS_KEY", "secret", 1);
	objects("xml");
	resumed("xml");
	server_stop_all();
	return t_done();
}
