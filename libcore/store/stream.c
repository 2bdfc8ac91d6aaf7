/* store: streams. One reader for "-", a path or a URL; the kind of compression is found from the first bytes, never
 * from the name. A source that ends inside a frame, or holds anything behind the last one, is damage with its offset.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/store_int.h"

#define IN_BYTES        (256u << 10)
#define STORE_WINDOW    (16ull << 20)   /* read ahead from a store at once; parts of it travel in parallel */
#define SNIFF_BYTES     10              /* what the longest signature needs */

static const struct sky_codec *const codecs[] = { &sky_codec_gzip, &sky_codec_zstd, &sky_codec_xz, &sky_codec_bzip2 };

struct sky_stream {
	char *name;
	int fd, own_fd;
	struct sky_store *store;        /* or NULL */
	char *key;
	char tag[128];                  /* the object must stay the one we began */
	uint64_t n_object, off_object;  /* off_object: end of what was handed over */
	struct sky_buf window;          /* being read */
	size_t window_at;
	struct ahead *ahead;            /* fetches the next window meanwhile; NULL until the first read */
	uint8_t *in;                    /* compressed bytes read and not yet used */
	size_t in_at, n_in;
	int eof;
	uint64_t off;                   /* source bytes taken by the reader of `in` or handed out plain */
	const struct sky_codec *codec;  /* NULL: plain */
	void *state;
	int done;                       /* the codec reached its clean end */
	struct sky_err failed;          /* a failure stays: code 0 = none */
};

/* ---- sources ---- */

static int64_t read_fd(struct sky_stream *s, void *p, size_t n, struct sky_err *err)
{
	for (;;) {
		ssize_t got = read(s->fd, p, n);

		if (got >= 0) {
			return got;
		}
		if (errno != EINTR) {
			return sky_fail_sys(err, "%s: read at byte %llu", s->name,
			                    (unsigned long long)(s->off + s->n_in));
		}
	}
}

/* A thread that fetches the window after the one that is being read. */
struct ahead {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct sky_store *store;        /* borrowed from the stream, as are key, tag and name */
	const char *key, *tag, *name;
	uint64_t off, n_object;         /* off: of the next window to fetch */
	struct sky_buf next;
	int full, rc, stop;
	struct sky_err err;
};

/* One window; after the last one, is the object still the one that was opened? */
static int fetch_window(struct ahead *a, uint64_t off, struct sky_buf *to, struct sky_err *err)
{
	uint64_t n = a->n_object - off < STORE_WINDOW ? a->n_object - off : STORE_WINDOW;
	struct sky_object o = { 0 };
	int rc;

	sky_buf_clear(to);
	rc = sky_store_get(a->store, a->key, off, n, to, err);
	if (rc == 0 && off + n == a->n_object && off > 0) {
		rc = sky_store_head(a->store, a->key, &o, err);
		if (rc == 0 && strcmp(o.tag, a->tag) != 0) {
			rc = sky_fail(err, SKY_E_AGAIN, "%s: replaced while it was read; read it again", a->name);
		}
		sky_object_release(&o);
	}
	return rc;
}

static void *run_ahead(void *arg)
{
	struct ahead *a = arg;
	struct sky_err err = { 0 };
	int rc;

	pthread_mutex_lock(&a->lock);
	while (!a->stop && a->rc == 0 && a->off < a->n_object) {
		if (a->full) {
			pthread_cond_wait(&a->cond, &a->lock);
			continue;
		}
		pthread_mutex_unlock(&a->lock);
		rc = fetch_window(a, a->off, &a->next, &err);
		pthread_mutex_lock(&a->lock);
		a->rc = rc;
		a->err = err;
		a->off += a->next.n;
		a->full = rc == 0;
		pthread_cond_broadcast(&a->cond);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static int start_ahead(struct sky_stream *s, struct sky_err *err)
{
	struct ahead *a = calloc(1, sizeof(*a));
	sigset_t all, old;
	int rc;

	if (!a) {
		return sky_fail_mem(err, "%s", s->name);
	}
	a->store = s->store;
	a->key = s->key;
	a->tag = s->tag;
	a->name = s->name;
	a->n_object = s->n_object;
	sky_buf_init(&a->next, STORE_WINDOW + 1);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->cond, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);       /* signals are the program's */
	rc = pthread_create(&a->thread, NULL, run_ahead, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0) {
		free(a);
		return sky_fail(err, SKY_E_LIMIT, "%s: no thread to read ahead: %s", s->name, strerror(rc));
	}
	s->ahead = a;
	return 0;
}

static void stop_ahead(struct ahead *a)
{
	if (!a) {
		return;
	}
	pthread_mutex_lock(&a->lock);
	a->stop = 1;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->cond);
	sky_buf_release(&a->next);
	free(a);
}

/* Swaps in the next window. */
static int fill_window(struct sky_stream *s, struct sky_err *err)
{
	struct sky_buf spent = s->window;
	struct ahead *a;
	int rc = s->ahead ? 0 : start_ahead(s, err);

	if (rc < 0) {
		return rc;
	}
	a = s->ahead;
	pthread_mutex_lock(&a->lock);
	while (!a->full && a->rc == 0) {
		pthread_cond_wait(&a->cond, &a->lock);
	}
	rc = a->full ? 0 : a->rc;
	if (rc == 0) {
		s->window = a->next;
		s->window_at = 0;
		s->off_object += s->window.n;
		a->next = spent;
		a->full = 0;
		pthread_cond_broadcast(&a->cond);
	} else if (err) {
		*err = a->err;
	}
	pthread_mutex_unlock(&a->lock);
	return rc;
}

static int64_t read_store(struct sky_stream *s, void *p, size_t n, struct sky_err *err)
{
	if (s->window_at == s->window.n) {
		int rc = s->off_object < s->n_object ? fill_window(s, err) : SKY_EOF;

		if (rc != 0) {
			return rc == SKY_EOF ? 0 : rc;
		}
	}
	n = n < s->window.n - s->window_at ? n : s->window.n - s->window_at;
	memcpy(p, s->window.ptr + s->window_at, n);
	s->window_at += n;
	return (int64_t)n;
}

static int64_t read_source(struct sky_stream *s, void *p, size_t n, struct sky_err *err)
{
	return s->store ? read_store(s, p, n, err) : read_fd(s, p, n, err);
}

/* At least `want` bytes in s->in unless the source ends before. */
static int fill_in(struct sky_stream *s, size_t want, struct sky_err *err)
{
	if (s->in_at > 0) {
		memmove(s->in, s->in + s->in_at, s->n_in);
		s->in_at = 0;
	}
	while (!s->eof && s->n_in < want) {
		int64_t got = read_source(s, s->in + s->n_in, IN_BYTES - s->n_in, err);

		if (got < 0) {
			return (int)got;
		}
		s->eof = got == 0;
		s->n_in += (size_t)got;
	}
	return 0;
}

/* ---- opening ---- */

static int sniff(struct sky_stream *s, const struct sky_stream_opt *opt, struct sky_err *err)
{
	int rc = opt && opt->raw ? 0 : fill_in(s, SNIFF_BYTES, err);

	if (rc < 0 || (opt && opt->raw)) {
		return rc;
	}
	for (size_t i = 0; i < sizeof(codecs) / sizeof(codecs[0]); i++) {
		if (codecs[i]->match(s->in, s->n_in)) {
			s->codec = codecs[i];
			s->state = codecs[i]->init(opt);
			return s->state ? 0 : sky_fail_mem(err, "%s: %s decoder", s->name, s->codec->name);
		}
	}
	return 0;
}

static int new_stream(const char *name, struct sky_stream **s_p, struct sky_err *err)
{
	struct sky_stream *s = calloc(1, sizeof(*s));

	if (!s || !(s->name = strdup(name)) || !(s->in = malloc(IN_BYTES))) {
		if (s) {
			free(s->name);
		}
		free(s);
		return sky_fail_mem(err, "%s", name);
	}
	s->fd = -1;
	sky_buf_init(&s->window, STORE_WINDOW + 1);
	*s_p = s;
	return 0;
}

int sky_stream_fd(int fd, const char *name, const struct sky_stream_opt *opt, struct sky_stream **s_p,
                  struct sky_err *err)
{
	struct sky_stream *s;
	int rc = new_stream(name, &s, err);

	if (rc < 0) {
		return rc;
	}
	s->fd = fd;
	rc = sniff(s, opt, err);
	if (rc < 0) {
		sky_stream_close(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

static int open_path(struct sky_stream *s, struct sky_err *err)
{
	const char *path = strncmp(s->name, "file://", 7) == 0 ? s->name + 7 : s->name;
	struct stat st;

	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0) {
		return sky_fail_sys(err, "%s: open", path);
	}
	s->own_fd = 1;
	if (fstat(s->fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		return sky_fail(err, SKY_E_USAGE, "%s: is a directory", path);
	}
	(void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);        /* a hint; pipes refuse it */
	return 0;
}

/* "s3://bucket/a/b" = the object "b" in the store "s3://bucket/a". */
static int open_url(struct sky_stream *s, const struct sky_store_opt *opt, struct sky_err *err)
{
	struct sky_object o = { 0 };
	const char *slash = strrchr(s->name, '/');
	char *url;
	int rc;

	if (!slash || !slash[1] || slash[-1] == '/') {
		return sky_fail(err, SKY_E_USAGE, "%s: names no object", s->name);
	}
	url = strndup(s->name, (size_t)(slash - s->name));
	s->key = strdup(slash + 1);
	if (!url || !s->key) {
		free(url);
		return sky_fail_mem(err, "%s", s->name);
	}
	rc = sky_store_open(url, opt, &s->store, err);
	free(url);
	if (rc == 0) {
		rc = sky_store_head(s->store, s->key, &o, err);
	}
	if (rc == 0) {
		s->n_object = o.bytes;
		memcpy(s->tag, o.tag, sizeof(s->tag));
		sky_object_release(&o);
	}
	return rc;
}

int sky_stream_open(const char *name, const struct sky_stream_opt *opt, struct sky_stream **s_p, struct sky_err *err)
{
	struct sky_stream *s;
	int rc;

	if (strcmp(name, "-") == 0) {
		return sky_stream_fd(0, "standard input", opt, s_p, err);
	}
	rc = new_stream(name, &s, err);
	if (rc < 0) {
		return rc;
	}
	if (strncmp(name, "mem:", 4) == 0 || (strstr(name, "://") && strncmp(name, "file://", 7) != 0)) {
		rc = open_url(s, opt ? opt->store : NULL, err);
	} else {
		rc = open_path(s, err);
	}
	if (rc == 0) {
		rc = sniff(s, opt, err);
	}
	if (rc < 0) {
		sky_stream_close(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

/* ---- reading ---- */

static int64_t read_plain(struct sky_stream *s, void *p, uint64_t n, struct sky_err *err)
{
	int64_t got = (int64_t)(n < s->n_in ? n : s->n_in);

	if (got > 0) {
		memcpy(p, s->in + s->in_at, (size_t)got);
		s->in_at += (size_t)got;
		s->n_in -= (size_t)got;
	} else if (!s->eof) {
		got = read_source(s, p, n < 1u << 30 ? (size_t)n : 1u << 30, err);
		s->eof = got == 0;
	}
	s->off += got > 0 ? (uint64_t)got : 0;
	return got;
}

static int64_t read_codec(struct sky_stream *s, void *p, uint64_t n, struct sky_err *err)
{
	struct sky_codec_io io = { .out = p, .n_out = n < 1u << 30 ? (size_t)n : 1u << 30 };
	size_t n_want = io.n_out;

	while (io.n_out == n_want && !s->done) {
		const char *why = "damaged data";
		int rc = s->n_in == 0 ? fill_in(s, 1, err) : 0;
		size_t n_used;

		if (rc < 0) {
			return rc;
		}
		io.in = s->in + s->in_at;
		io.n_in = s->n_in;
		io.eof = s->eof && s->n_in == 0;
		rc = s->codec->step(s->state, &io, &why);
		n_used = s->n_in - io.n_in;
		s->in_at += n_used;
		s->n_in = io.n_in;
		s->off += n_used;
		if (rc < 0) {
			return sky_fail(err, rc, "%s: %s at byte %llu of the compressed data", s->name, why,
			                (unsigned long long)s->off);
		}
		s->done = rc == SKY_EOF;
	}
	return (int64_t)(n_want - io.n_out);
}

int64_t sky_stream_read(struct sky_stream *s, void *p, uint64_t n, struct sky_err *err)
{
	struct sky_err local = { 0 };
	int64_t got;

	if (s->failed.code) {
		if (err) {
			*err = s->failed;
		}
		return s->failed.code;
	}
	if (n == 0) {
		return 0;
	}
	got = s->codec ? read_codec(s, p, n, &local) : read_plain(s, p, n, &local);
	if (got < 0) {
		s->failed = local;
		s->failed.code = (int)got;
		if (err) {
			*err = local;
		}
	}
	return got;
}

uint64_t sky_stream_offset(const struct sky_stream *s)
{
	return s->off;
}

const char *sky_stream_kind(const struct sky_stream *s)
{
	return s->codec ? s->codec->name : "plain";
}

void sky_stream_close(struct sky_stream *s)
{
	if (!s) {
		return;
	}
	if (s->codec && s->state) {
		s->codec->done(s->state);
	}
	if (s->own_fd && s->fd >= 0) {
		close(s->fd);
	}
	stop_ahead(s->ahead);
	sky_store_close(s->store);
	sky_buf_release(&s->window);
	free(s->key);
	free(s->in);
	free(s->name);
	free(s);
}
