/* S3 when things go wrong: every retry class, lost answers, races, skewed clocks, expired keys, stalls, damage. The
 * server is tests/fake/s3d; pauses are nothing (SKYRL_TEST_SLEEP=0). */
#include "store/store.h"
#include "tests/fake/server.h"

static struct sky_err err;
static int port;
static char endpoint[64];

static void fault(const char *args)
{
	char path[256];

	snprintf(path, sizeof(path), "/-/fault?%s", args);
	server_get(port, path);
}

static struct sky_store *fresh(const struct sky_store_opt *more)
{
	struct sky_store_opt opt = { 0 };
	struct sky_store *s = NULL;

	if (more) {
		opt = *more;
	}
	opt.endpoint_url = endpoint;
	opt.part_bytes = 65536;
	opt.n_parallel = 4;
	opt.timeout_s = opt.timeout_s > 0 ? opt.timeout_s : 20;
	server_get(port, "/-/reset");
	if (sky_store_open("s3://bucket/p", &opt, &s, &err) < 0) {
		t_bail("open: %s", err.msg);
	}
	return s;
}

static uint64_t n_retry(struct sky_store *s)
{
	struct sky_store_stats st;

	sky_store_stats(s, &st);
	return st.n_retry;
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

/* A fault that one more try overcomes, on a put and on a get. */
static void overcome(const char *mode, const char *what)
{
	struct sky_store *s = fresh(NULL);
	char args[64];

	snprintf(args, sizeof(args), "mode=%s&n=2&method=PUT", mode);
	fault(args);
	T_RC(sky_store_put(s, mode, "payload", 7, 0, NULL, &err), 0, &err, "%s: put gets through", what);
	T_OK(n_retry(s) >= 1, "%s: by trying again", what);
	snprintf(args, sizeof(args), "mode=%s&n=2&method=GET", mode);
	fault(args);
	T_OK(reads(s, mode, "payload", 7), "%s: get gets through", what);
	sky_store_close(s);
}

/* An answer that no retry helps: the code, one request. */
static void final(const char *mode, int code, const char *text)
{
	struct sky_store *s = fresh(NULL);
	struct sky_buf b = SKY_BUF_INIT(1000);
	char args[64];

	snprintf(args, sizeof(args), "mode=%s&n=5&method=GET", mode);
	fault(args);
	T_RC(sky_store_get(s, "x", 0, UINT64_MAX, &b, &err), code, &err, "%s: code %d", mode, code);
	T_HAS(err.msg, text, "%s: says why", mode);
	T_I64(n_retry(s), 0, "%s: is not tried again", mode);
	sky_buf_release(&b);
	sky_store_close(s);
}

static void giving_up(void)
{
	struct sky_store_opt opt = { .n_tries = 4 };
	struct sky_store *s = fresh(&opt);
	struct sky_buf b = SKY_BUF_INIT(1000);

	fault("mode=503&n=100");
	T_RC(sky_store_get(s, "x", 0, UINT64_MAX, &b, &err), SKY_E_AGAIN, &err, "503 for ever: run again later");
	T_HAS(err.msg, "SlowDown", "the message names the answer");
	T_HAS(err.msg, "4 tries", "and the number of tries");
	T_I64(n_retry(s), 3, "as many tries as allowed");
	sky_buf_release(&b);
	sky_store_close(s);
}

static void nobody_listens(void)
{
	struct sky_store_opt opt = { .n_tries = 2, .endpoint_url = "http://127.0.0.1:9", .timeout_s = 5 };
	struct sky_store *s;
	struct sky_buf b = SKY_BUF_INIT(1000);

	T_RC(sky_store_open("s3://bucket", &opt, &s, &err), 0, &err, "a store opens without its server");
	T_RC(sky_store_get(s, "x", 0, UINT64_MAX, &b, &err), SKY_E_AGAIN, &err, "nobody listens: run again later");
	sky_buf_release(&b);
	sky_store_close(s);
}

static void lost_answers(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_upload *u;
	char *p = calloc(1, 200000);
	int64_t n = -1;

	fault("mode=reset&method=PUT");
	T_RC(sky_store_put(s, "mine", "v1", 2, SKY_PUT_CREATE, NULL, &err), 0, &err,
	     "create whose answer was lost is a success");
	T_OK(reads(s, "mine", "v1", 2), "with our bytes");
	fault("mode=race&method=PUT&on=theirs");
	T_RC(sky_store_put(s, "theirs", "v1", 2, SKY_PUT_CREATE, NULL, &err), SKY_E_AGAIN, &err,
	     "create that another wins");
	T_OK(reads(s, "theirs", "rival", 5), "leaves the winner's bytes");
	fault("mode=503&method=PUT&on=theirs2");
	fault("mode=race&method=PUT&on=theirs2");
	T_RC(sky_store_put(s, "theirs2", "v1", 2, SKY_PUT_CREATE, NULL, &err), SKY_E_AGAIN, &err, "also after a 503");
	fault("mode=reset&method=POST&on=uploadId");
	T_RC(sky_upload_open(s, "many", SKY_PUT_CREATE, &u, &err), 0, &err, "upload opens");
	T_RC(sky_upload_write(u, p, 200000, &err), 0, &err, "upload writes");
	T_RC(sky_upload_commit(u, &err), 0, &err, "completion whose answer was lost is a success");
	T_OK(reads(s, "many", p, 200000), "with all parts");
	fault("mode=race&method=POST&on=uploadId");
	T_RC(sky_upload_open(s, "many2", SKY_PUT_CREATE, &u, &err), 0, &err, "upload opens");
	T_RC(sky_upload_write(u, p, 200000, &err), 0, &err, "upload writes");
	T_RC(sky_upload_commit(u, &err), SKY_E_AGAIN, &err, "completion that another wins");
	T_OK(reads(s, "many2", "rival", 5), "leaves the winner's bytes");
	T_RC(sky_store_uploads(s, "", 0, 0, &n, &err), 0, &err, "uploads are listed");
	T_I64(n, 0, "and the loser's is aborted");
	fault("mode=lie&method=POST&on=uploadId&n=2");
	T_RC(sky_upload_open(s, "many3", 0, &u, &err), 0, &err, "upload opens");
	T_RC(sky_upload_write(u, p, 200000, &err), 0, &err, "upload writes");
	T_RC(sky_upload_commit(u, &err), 0, &err, "200 with an error inside is tried again");
	T_OK(reads(s, "many3", p, 200000), "and succeeds");
	free(p);
	sky_store_close(s);
}

static void failing_uploads(void)
{
	static const char *const at[] = { "method=POST&on=uploads", "method=PUT&on=partNumber%3D2",
		                          "method=POST&on=uploadId" };
	struct sky_store *s = fresh(NULL);
	struct sky_object o;
	struct sky_upload *u;
	char *p = calloc(1, 300000), args[96], key[16];
	int64_t n = -1;

	for (int i = 0; i < 3; i++) {
		int rc;

		snprintf(args, sizeof(args), "mode=403&n=3&%s", at[i]);
		snprintf(key, sizeof(key), "fail%d", i);
		server_get(port, "/-/reset");
		fault(args);
		T_RC(sky_upload_open(s, key, 0, &u, &err), 0, &err, "upload %d opens", i);
		rc = sky_upload_write(u, p, 300000, &err);
		if (rc < 0) {
			sky_upload_abort(u);
		} else {
			rc = sky_upload_commit(u, &err);
		}
		T_RC(rc, SKY_E_SYS, &err, "upload denied at step %d fails", i);
		T_RC(sky_store_uploads(s, "", 0, 0, &n, &err), 0, &err, "uploads are listed");
		T_I64(n, 0, "nothing of it is left");
		T_RC(sky_store_head(s, key, &o, &err), SKY_E_MISSING, &err, "and nothing is published");
	}
	T_RC(sky_upload_open(s, "left", 0, &u, &err), 0, &err, "an upload that its writer forgets");
	T_RC(sky_upload_write(u, p, 300000, &err), 0, &err, "takes bytes");
	server_get(port, "/-/reset");
	fault("mode=403&n=1&method=DELETE");
	sky_upload_abort(u);
	T_RC(sky_store_uploads(s, "", 3600, 1, &n, &err), 0, &err, "abort of uploads older than an hour");
	T_I64(n, 0, "finds none");
	T_RC(sky_store_uploads(s, "", 0, 1, &n, &err), 0, &err, "abort of all uploads");
	T_I64(n, 1, "finds one");
	T_RC(sky_store_uploads(s, "", 0, 0, &n, &err), 0, &err, "afterwards");
	T_I64(n, 0, "none is left");
	free(p);
	sky_store_close(s);
}

static void damaged_bodies(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_buf b = SKY_BUF_INIT(1u << 20);
	char *p = malloc(250000);

	for (int i = 0; i < 250000; i++) {
		p[i] = (char)(i * 7 + i / 251);
	}
	T_RC(sky_store_put(s, "obj", p, 1000, 0, NULL, &err), 0, &err, "an object");
	fault("mode=flip&method=GET");
	T_OK(reads(s, "obj", p, 1000), "a flipped bit on the way is seen and read again");
	T_I64(n_retry(s), 1, "by one more try");
	fault("mode=short&method=GET&n=2");
	T_OK(reads(s, "obj", p, 1000), "a body cut short is read again");
	fault("mode=short&method=GET&n=1");
	T_RC(sky_store_get(s, "obj", 100, 200, &b, &err), 0, &err, "also in a range");
	T_OK(b.n == 200 && memcmp(b.ptr, p + 100, 200) == 0, "with the right bytes");
	T_RC(sky_store_put(s, "wide", p, 250000, 0, NULL, &err), 0, &err, "an object of several ranges");
	fault("mode=drop&method=GET&n=3&skip=2");
	T_OK(reads(s, "wide", p, 250000), "ranges that break are read again");
	server_get(port, "/-/reset");
	fault("mode=flip&method=GET&n=1&skip=2");
	sky_buf_clear(&b);
	T_RC(sky_store_get(s, "wide", 0, UINT64_MAX, &b, &err), SKY_E_AGAIN, &err,
	     "a flipped bit in one of many ranges is seen");
	T_HAS(err.msg, "checksum", "and said");
	fault("mode=baddigest&method=PUT&n=2");
	T_RC(sky_store_put(s, "up", p, 1000, 0, NULL, &err), 0, &err, "a put that arrives damaged is sent again");
	free(p);
	sky_buf_release(&b);
	sky_store_close(s);
}

/* A file that cannot be written is no fault of the server: said at once. */
static void bad_sinks(void)
{
	struct sky_store *s = fresh(NULL);
	int fd = open("/dev/null", O_RDONLY);
	uint64_t n;

	T_RC(sky_store_put(s, "obj", "abc", 3, 0, NULL, &err), 0, &err, "an object");
	T_RC(sky_store_get_fd(s, "obj", fd, &n, &err), SKY_E_SYS, &err, "get into a file that is not open for writing");
	T_I64(n_retry(s), 0, "is not tried again");
	close(fd);
	sky_store_close(s);
}

static void identity(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_object o = { 0 };

	T_RC(sky_store_put(s, "obj", "abc", 3, 0, NULL, &err), 0, &err, "an object");
	server_get(port, "/-/set?skew=7200");
	T_OK(reads(s, "obj", "abc", 3), "a clock two hours off is corrected from the answer");
	T_I64(n_retry(s), 1, "once");
	T_OK(reads(s, "obj", "abc", 3), "and stays corrected");
	T_I64(n_retry(s), 1, "without another try");
	sky_store_close(s);
	s = fresh(NULL);
	server_get(port, "/-/set?skew=-7200");
	T_RC(sky_store_head(s, "obj", &o, &err), 0, &err, "a clock that is off is corrected after a HEAD, too");
	sky_object_release(&o);
	sky_store_close(s);
	s = fresh(NULL);
	server_get(port, "/-/set?region=eu-test-1");
	T_OK(reads(s, "obj", "abc", 3), "the right region is learned from the answer");
	server_get(port, "/-/set?region=");
	sky_store_close(s);
	setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
	s = fresh(NULL);
	T_RC(sky_store_put(s, "obj", "abc", 3, 0, NULL, &err), SKY_E_SYS, &err, "a wrong secret is denied");
	T_HAS(err.msg, "SignatureDoesNotMatch", "with the server's reason");
	sky_store_close(s);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	s = fresh(NULL);
	fault("mode=expired&n=9");
	T_RC(sky_store_put(s, "obj", "abc", 3, 0, NULL, &err), SKY_E_SYS, &err, "expired for ever ends");
	T_I64(n_retry(s), 1, "after one refresh");
	sky_store_close(s);
}

static void old_stores(void)
{
	struct sky_store *s = fresh(NULL);

	fault("mode=nosum&method=PUT&n=1");
	T_RC(sky_store_put(s, "obj", "abc", 3, 0, NULL, &err), 0, &err, "a store that refuses CRC32C gets Content-MD5");
	T_RC(sky_store_put(s, "obj", "abcd", 4, 0, NULL, &err), 0, &err, "from then on");
	T_I64(n_retry(s), 1, "without asking again");
	sky_store_close(s);
}

static void stalls(void)
{
	struct sky_store_opt opt = { .timeout_s = 1, .n_tries = 2 };
	struct sky_store *s = fresh(&opt);
	struct sky_buf b = SKY_BUF_INIT(1000);

	fault("mode=stall&n=2&method=GET");
	T_RC(sky_store_get(s, "x", 0, UINT64_MAX, &b, &err), SKY_E_AGAIN, &err,
	     "a server that says nothing is given up");
	sky_store_close(s);
	opt.n_tries = 9;        /* a busy machine may stall as well */
	s = fresh(&opt);
	fault("mode=stall&n=1&method=PUT");
	T_RC(sky_store_put(s, "x", "abc", 3, 0, NULL, &err), 0, &err, "one stall is overcome");
	sky_buf_release(&b);
	sky_store_close(s);
}

static bool stop;

static bool is_stopping(void)
{
	return stop;
}

static void stopping(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_upload *u;
	char *p = calloc(1, 300000);
	int64_t n = -1;
	int rc;

	sky_store_stop_on(is_stopping);
	T_RC(sky_upload_open(s, "stopped", 0, &u, &err), 0, &err, "an upload");
	T_RC(sky_upload_write(u, p, 300000, &err), 0, &err, "with parts on their way");
	stop = true;
	rc = sky_upload_commit(u, &err);
	T_RC(rc, SKY_E_STOP, &err, "is stopped when the program is");
	stop = false;
	T_RC(sky_store_uploads(s, "", 0, 0, &n, &err), 0, &err, "its parts");
	T_I64(n, 0, "are aborted all the same");
	sky_store_stop_on(NULL);
	free(p);
	sky_store_close(s);
}

/* A stream of an object that needs several windows, with a break in the middle; and one that is given up early. */
static void streams(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_store_opt so = {
		.endpoint_url = endpoint, .part_bytes = 1u << 20, .n_parallel = 4, .timeout_s = 20
	};
	struct sky_stream_opt opt = { .store = &so };
	struct sky_stream *st;
	size_t n = 37u << 20, at = 0;
	char *p = malloc(n), *buf = malloc(100000);
	int64_t got;
	int same = 1;

	for (size_t i = 0; i < n; i++) {
		p[i] = (char)(i * 131 + i / 4099);
	}
	T_RC(sky_store_put(s, "long", p, n, 0, NULL, &err), 0, &err, "a long object");
	fault("mode=drop&method=GET&on=long&n=3&skip=7");
	T_RC(sky_stream_open("s3://bucket/p/long", &opt, &st, &err), 0, &err, "is opened as a stream");
	while ((got = sky_stream_read(st, buf, 100000, &err)) > 0) {
		same &= memcmp(buf, p + at, (size_t)got) == 0;
		at += (size_t)got;
	}
	T_RC((int)got, 0, &err, "and read to its end");
	T_OK(same && at == n, "byte for byte");
	sky_stream_close(st);
	T_RC(sky_stream_open("s3://bucket/p/long", &opt, &st, &err), 0, &err, "a stream");
	T_I64(sky_stream_read(st, buf, 1000, &err), 1000, "of which little is read");
	sky_stream_close(st);
	T_RC(sky_stream_open("s3://bucket/p/long", &opt, &st, &err), 0, &err, "a stream");
	fault("mode=404&method=GET&n=100");
	while ((got = sky_stream_read(st, buf, 100000, &err)) > 0) {
		;
	}
	T_RC((int)got, SKY_E_MISSING, &err, "whose object is deleted meanwhile");
	T_RC((int)sky_stream_read(st, buf, 1000, &err), SKY_E_MISSING, &err, "fails from then on");
	sky_stream_close(st);
	free(p);
	free(buf);
	sky_store_close(s);
}

static void listings(void)
{
	struct sky_store *s = fresh(NULL);
	struct sky_object *v = NULL;
	int64_t n = 0;
	char key[16];

	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "pages/%02d", i);
		T_RC(sky_store_put(s, key, "", 0, 0, NULL, &err), 0, &err, "object %d", i);
	}
	fault("mode=slow&method=GET&n=2");
	fault("mode=503&method=GET&n=1");
	fault("mode=short&method=GET&n=1");
	T_RC(sky_store_list(s, "pages/", 0, &v, &n, &err), 0, &err, "a listing of slow, refused and short pages");
	T_I64(n, 30, "is whole");
	sky_objects_free(v, n);
	server_get(port, "/-/set?loop=1");
	T_RC(sky_store_list(s, "pages/", 0, &v, &n, &err), SKY_E_DATA, &err,
	     "a listing that gives one page for ever ends");
	T_HAS(err.msg, "does not get on", "and says so");
	sky_store_close(s);
}

static void slow(void)
{
	struct sky_store_opt opt = { .bw_limit = 4u << 20 };
	struct sky_store *s = fresh(&opt);
	char *p = calloc(1, 1u << 20);

	T_RC(sky_store_put(s, "slow", p, 1u << 20, 0, NULL, &err), 0, &err, "put with a bandwidth limit");
	T_OK(reads(s, "slow", p, 1u << 20), "get with a bandwidth limit");
	free(p);
	sky_store_close(s);
}

int main(void)
{
	server_clean_env();
	setenv("AWS_ACCESS_KEY_ID", "test", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	port = server_s3d("--page", "8", NULL, NULL);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", port);
	overcome("503", "503");
	overcome("500", "500");
	overcome("429", "429 with Retry-After");
	overcome("html", "502 of a proxy");
	overcome("timeout", "400 RequestTimeout");
	overcome("drop", "closed connection");
	overcome("reset", "lost answer");
	overcome("409", "409 conflict");
	final("403", SKY_E_SYS, "AccessDenied");
	final("404", SKY_E_MISSING, "no such object");
	final("405", SKY_E_SYS, "405");
	final("nobucket", SKY_E_MISSING, "no bucket");
	giving_up();
	nobody_listens();
	lost_answers();
	failing_uploads();
	damaged_bodies();
	bad_sinks();
	identity();
	old_stores();
	stalls();
	stopping();
	streams();
	listings();
	slow();
	server_stop_all();
	return t_done();
}
