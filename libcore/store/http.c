/* store: the HTTP engine. A few lanes, each a thread that drives one curl multi handle, so parts move while their
 * owners compute; the owners submit tries and wait for them in groups. No retry is decided here. */
#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <strings.h>
#include "store/http_int.h"

#define RECV_BYTES      (512l << 10)
#define SEND_BYTES      (2l << 20)
#define TRICKLE         512             /* bytes per second that count as life */
#define BUCKET_S        0.1             /* burst of the bandwidth limit, in seconds of it */
#define LANES_MAX       4               /* one thread moves some GB/s; more only help on many cores */
#define IDLE_MAX        64
#define PAUSED_MAX      256

struct sky_http_group {
	pthread_cond_t cond;
	struct sky_try *done, **done_end;
};

struct lane {
	struct sky_http *h;
	CURLM *multi;
	pthread_t thread;
	struct sky_try *queue;          /* submitted, under the engine's lock */
	int n_flying, n_cancel;         /* under the lock */
	/* of the thread alone */
	struct sky_try *live;           /* on the multi handle, by live_next */
	CURL *idle[IDLE_MAX];           /* handles between tries keep nothing but memory */
	int n_idle;
	struct sky_try *paused[PAUSED_MAX];
	int n_paused;
};

struct sky_http {
	struct sky_http_opt opt;
	struct lane lanes[LANES_MAX];
	int n_lanes;                    /* that run */
	pthread_mutex_t lock;           /* of queues, groups and stop */
	int stop;
	pthread_mutex_t bucket_lock;
	double tokens, t_tokens;        /* bandwidth: bytes that may move now */
};

/* ---- bandwidth limit: a bucket of bytes for all transfers together ---- */

/* What may move now; `used` is taken off first. */
static double bucket(struct sky_http *h, double used)
{
	double now, max = (double)h->opt.bw_limit * BUCKET_S, have;

	if (h->opt.bw_limit == 0) {
		return 1;
	}
	pthread_mutex_lock(&h->bucket_lock);
	now = sky_now();
	h->tokens += (now - h->t_tokens) * (double)h->opt.bw_limit;
	h->t_tokens = now;
	max = max < 65536 ? 65536 : max;
	h->tokens = (h->tokens > max ? max : h->tokens) - used;
	have = h->tokens;
	pthread_mutex_unlock(&h->bucket_lock);
	return have;
}

/* Nonzero when the transfer must pause until the bucket has something again. */
static int must_pause(struct sky_try *t)
{
	struct lane *l = t->lane;

	if (l->h->opt.bw_limit == 0 || l->n_paused == PAUSED_MAX || bucket(l->h, 0) > 0) {
		return 0;
	}
	t->paused = 1;
	l->paused[l->n_paused++] = t;
	return 1;
}

static void resume_paused(struct lane *l)
{
	struct sky_try *now[PAUSED_MAX];
	int n = l->n_paused;

	if (n == 0 || bucket(l->h, 0) <= 0) {
		return;
	}
	memcpy(now, l->paused, sizeof(now[0]) * (size_t)n);
	l->n_paused = 0;
	for (int i = 0; i < n; i++) {
		now[i]->paused = 0;
		curl_easy_pause(now[i]->easy, CURLPAUSE_CONT);  /* may call back and pause again */
	}
}

/* ---- callbacks of curl, in the engine's thread ---- */

static size_t on_read(char *p, size_t size, size_t n, void *arg)
{
	struct sky_try *t = arg;
	uint64_t left = t->n_body - t->n_sent;

	n *= size;
	n = n < left ? n : (size_t)left;
	if (n == 0) {
		return 0;
	}
	if (must_pause(t)) {
		return CURL_READFUNC_PAUSE;
	}
	memcpy(p, t->body + t->n_sent, n);
	t->n_sent += n;
	bucket(((struct lane *)t->lane)->h, (double)n);
	return n;
}

/* curl rewinds when a kept connection turns out dead after a part of the body went out. */
static int on_seek(void *arg, curl_off_t off, int origin)
{
	struct sky_try *t = arg;

	if (origin != SEEK_SET || off < 0 || (uint64_t)off > t->n_body) {
		return CURL_SEEKFUNC_FAIL;
	}
	t->n_sent = (uint64_t)off;
	return CURL_SEEKFUNC_OK;
}

static size_t on_head(char *p, size_t size, size_t n, void *arg)
{
	struct sky_try *t = arg;
	size_t i;

	n *= size;
	i = n;
	if (n > 5 && strncasecmp(p, "HTTP/", 5) == 0) {         /* a new answer: forget the one before (100, proxy) */
		sky_buf_clear(&t->head);
		t->length = UINT64_MAX;
		return n;
	}
	while (i > 0 && (p[i - 1] == '\n' || p[i - 1] == '\r')) {
		i--;
	}
	for (size_t k = 0; k < i && p[k] != ':'; k++) {
		p[k] = (char)(p[k] >= 'A' && p[k] <= 'Z' ? p[k] + 32 : p[k]);
	}
	if (i > 0 && (sky_buf_add(&t->head, p, i, NULL) < 0 || sky_buf_addc(&t->head, '\n', NULL) < 0)) {
		return 0;
	}
	return n;
}

static int sink(struct sky_try *t, const char *p, size_t n)
{
	t->crc32c = sky_crc32c(t->crc32c, p, n);
	if (t->mem) {
		memcpy(t->mem + t->n_got, p, n);
		return 0;
	}
	if (t->fd < 0) {
		return sky_buf_add(&t->answer, p, n, NULL);
	}
	if (sky_pwrite_full(t->fd, p, n, t->fd_off + t->n_got, "output", NULL) < 0) {
		t->sink_errno = errno ? errno : EIO;
		return -1;
	}
	return 0;
}

/* Is this body longer than its reader has room for? Known at the first byte when the length is told in advance. */
static int is_too_long(struct sky_try *t, size_t n)
{
	curl_off_t length = -1;

	if (t->n_room == 0 || t->n_got + n > t->n_room) {
		return t->n_room > 0 || t->mem || t->fd >= 0;
	}
	return t->n_got == 0 && curl_easy_getinfo(t->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) == CURLE_OK &&
	       length > 0 && (uint64_t)length > t->n_room;
}

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	struct sky_try *t = arg;
	long status = 0;
	int ok;

	n *= size;
	if (must_pause(t)) {
		return CURL_WRITEFUNC_PAUSE;
	}
	bucket(((struct lane *)t->lane)->h, (double)n);
	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 == 2) {
		t->too_long = is_too_long(t, n);
		ok = !t->too_long && sink(t, p, n) == 0;
	} else {
		ok = sky_buf_add(&t->answer, p, n, NULL) == 0;
	}
	t->n_got += n;
	return ok ? n : 0;
}

/* ---- the thread ---- */

static int set_method(struct sky_try *t)
{
	CURL *e = t->easy;
	int rc = 0;

	if (strcmp(t->method, "HEAD") == 0) {
		return (int)curl_easy_setopt(e, CURLOPT_NOBODY, 1l);
	}
	if (strcmp(t->method, "PUT") == 0 || t->n_body > 0) {
		rc |= (int)curl_easy_setopt(e, CURLOPT_UPLOAD, 1l);
		rc |= (int)curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->n_body);
		rc |= (int)curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
		rc |= (int)curl_easy_setopt(e, CURLOPT_READDATA, t);
		rc |= (int)curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
		rc |= (int)curl_easy_setopt(e, CURLOPT_SEEKDATA, t);
		rc |= (int)curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BYTES);
	} else if (strcmp(t->method, "POST") == 0) {
		rc |= (int)curl_easy_setopt(e, CURLOPT_POST, 1l);
		rc |= (int)curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE, 0l);
		rc |= (int)curl_easy_setopt(e, CURLOPT_POSTFIELDS, "");
	}
	rc |= (int)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, t->method);
	return rc;
}

static int set_heads(struct sky_try *t)
{
	struct curl_slist *l = NULL, *more;
	char line[10240];       /* a session token has up to 8 KiB */
	int typed = 0;

	for (int i = 0; i < t->heads.n; i++) {
		const char *v = t->heads.v[i].value;

		if ((size_t)snprintf(line, sizeof(line), v[0] ? "%s: %s" : "%s;", t->heads.v[i].name, v) >=
		            sizeof(line) ||
		    !(more = curl_slist_append(l, line))) {
			curl_slist_free_all(l);
			return -1;
		}
		typed |= strcasecmp(t->heads.v[i].name, "content-type") == 0;
		l = more;
	}
	if (!typed && strcmp(t->method, "POST") == 0 && (more = curl_slist_append(l, "Content-Type:"))) {
		l = more;               /* curl would invent a form */
	}
	if ((more = curl_slist_append(l, "Expect:"))) {
		l = more;
	}
	t->slist = l;
	return (int)curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, l);
}

static int set_limits(struct sky_http *h, struct sky_try *t)
{
	CURL *e = t->easy;
	double idle = h->opt.timeout_s < 1 ? 1 : h->opt.timeout_s;
	int rc = 0;

	rc |= (int)curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(1000 * h->opt.connect_s));
	if (t->timeout_s > 0) {
		rc |= (int)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)(1000 * t->timeout_s));
		return rc;
	}
	rc |= (int)curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, h->opt.bw_limit ? 1l : (long)TRICKLE);
	rc |= (int)curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)(idle + 0.5));
	return rc;
}

static int begin(struct lane *l, struct sky_try *t)
{
	struct sky_http *h = l->h;
	const char *ca = getenv("AWS_CA_BUNDLE");
	CURL *e = l->n_idle > 0 ? l->idle[--l->n_idle] : curl_easy_init();
	int rc = 0;

	t->easy = e;
	if (!e) {
		return -1;
	}
	rc |= (int)curl_easy_setopt(e, CURLOPT_PRIVATE, (void *)t);
	rc |= (int)curl_easy_setopt(e, CURLOPT_URL, t->url);
	rc |= (int)curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1l);
	rc |= (int)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	rc |= (int)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	rc |= (int)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1l);
	rc |= (int)curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1l);
	rc |= (int)curl_easy_setopt(e, CURLOPT_BUFFERSIZE, RECV_BYTES);
	rc |= (int)curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_head);
	rc |= (int)curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
	rc |= (int)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	rc |= (int)curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
	rc |= (int)curl_easy_setopt(e, CURLOPT_USERAGENT, "skyrl-tools/" PACKAGE_VERSION);
	if (ca && *ca) {
		rc |= (int)curl_easy_setopt(e, CURLOPT_CAINFO, ca);
	}
	rc |= set_limits(h, t) | set_method(t) | set_heads(t);
	if (rc != 0) {
		return -1;
	}
	return curl_multi_add_handle(l->multi, e) == CURLM_OK ? 0 : -1;
}

/* Takes the handle off and gives the try to its group. */
static void finish(struct lane *l, struct sky_try *t, int code)
{
	struct sky_http *h = l->h;
	curl_off_t length = -1;
	long status = 0;

	for (struct sky_try **at = &l->live; *at; at = &(*at)->live_next) {
		if (*at == t) {
			*at = t->live_next;
			break;
		}
	}
	if (t->easy) {
		curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(t->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
		curl_multi_remove_handle(l->multi, t->easy);
		curl_easy_reset(t->easy);
		if (l->n_idle < IDLE_MAX) {
			l->idle[l->n_idle++] = t->easy;
		} else {
			curl_easy_cleanup(t->easy);
		}
		t->easy = NULL;
	}
	curl_slist_free_all(t->slist);
	t->slist = NULL;
	for (int i = 0; i < l->n_paused; i++) {
		if (l->paused[i] == t) {
			l->paused[i--] = l->paused[--l->n_paused];
		}
	}
	t->status = (int)status;
	t->length = length < 0 ? UINT64_MAX : (uint64_t)length;
	t->curl_code = code;
	if (code != CURLE_OK) {
		snprintf(t->why, sizeof(t->why), "%s", curl_easy_strerror(code));
	}
	pthread_mutex_lock(&h->lock);
	t->done = 1;
	t->next = NULL;
	*t->group->done_end = t;
	t->group->done_end = &t->next;
	l->n_flying--;
	pthread_cond_broadcast(&t->group->cond);
	pthread_mutex_unlock(&h->lock);
}

static void take_queue(struct lane *l)
{
	struct sky_http *h = l->h;
	struct sky_try *t, *next, *dead = NULL;

	pthread_mutex_lock(&h->lock);
	t = l->queue;
	l->queue = NULL;
	pthread_mutex_unlock(&h->lock);
	for (; t; t = next) {           /* nobody else looks at `next` of a try that left the queue */
		next = t->next;
		t->live_next = l->live;
		l->live = t;
		if (begin(l, t) < 0) {
			finish(l, t, CURLE_FAILED_INIT);
		}
	}
	pthread_mutex_lock(&h->lock);
	if (l->n_cancel > 0) {
		l->n_cancel = 0;
		for (t = l->live; t; t = t->live_next) {
			if (t->cancelled) {
				t->next = dead;
				dead = t;
			}
		}
	}
	pthread_mutex_unlock(&h->lock);
	for (; dead; dead = next) {
		next = dead->next;
		finish(l, dead, CURLE_ABORTED_BY_CALLBACK);
	}
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;
	int running, n_left;

	for (;;) {
		CURLMsg *m;

		pthread_mutex_lock(&l->h->lock);
		running = !l->h->stop;
		pthread_mutex_unlock(&l->h->lock);
		if (!running) {
			return NULL;
		}
		take_queue(l);
		resume_paused(l);
		curl_multi_perform(l->multi, &n_left);
		while ((m = curl_multi_info_read(l->multi, &n_left))) {
			char *priv = NULL;

			if (m->msg == CURLMSG_DONE) {
				int code = (int)m->data.result;

				curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &priv);
				finish(l, (struct sky_try *)(void *)priv, code);
			}
		}
		curl_multi_poll(l->multi, NULL, 0, l->n_paused > 0 ? 10 : 1000, NULL);
	}
}

/* ---- life ---- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static int curl_ready;

static void init_curl(void)
{
	curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

static int start_lane(struct sky_http *h, struct sky_err *err)
{
	struct lane *l = &h->lanes[h->n_lanes];
	sigset_t all, old;
	int rc;

	l->h = h;
	l->multi = curl_multi_init();
	if (!l->multi) {
		return sky_fail_mem(err, "HTTP engine");
	}
	curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, (long)(2 * h->opt.n_parallel + 8));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);       /* signals are the program's, not this thread's */
	rc = pthread_create(&l->thread, NULL, lane_main, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0) {
		curl_multi_cleanup(l->multi);
		return sky_fail(err, SKY_E_LIMIT, "no thread for the HTTP engine: %s", strerror(rc));
	}
	h->n_lanes++;
	return 0;
}

int sky_http_new(const struct sky_http_opt *opt, struct sky_http **h_p, struct sky_err *err)
{
	struct sky_http *h;
	int n = sky_cpu_count(), rc = 0;

	pthread_once(&curl_once, init_curl);
	h = calloc(1, sizeof(*h));
	if (!curl_ready || !h) {
		free(h);
		return sky_fail(err, SKY_E_LIMIT, "the HTTP library does not start");
	}
	h->opt = *opt;
	h->t_tokens = sky_now();
	pthread_mutex_init(&h->lock, NULL);
	pthread_mutex_init(&h->bucket_lock, NULL);
	n = n > LANES_MAX ? LANES_MAX : n;
	n = n > opt->n_parallel ? opt->n_parallel : n;
	n = n < 1 ? 1 : n;
	for (int i = 0; rc == 0 && i < n; i++) {
		rc = start_lane(h, err);
	}
	if (rc < 0) {
		sky_http_free(h);
		return rc;
	}
	*h_p = h;
	return 0;
}

void sky_http_free(struct sky_http *h)
{
	if (!h) {
		return;
	}
	pthread_mutex_lock(&h->lock);
	h->stop = 1;
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < h->n_lanes; i++) {
		struct lane *l = &h->lanes[i];

		curl_multi_wakeup(l->multi);
		pthread_join(l->thread, NULL);
		for (int k = 0; k < l->n_idle; k++) {
			curl_easy_cleanup(l->idle[k]);
		}
		curl_multi_cleanup(l->multi);
	}
	pthread_mutex_destroy(&h->lock);
	pthread_mutex_destroy(&h->bucket_lock);
	free(h);
}

/* ---- what calls.c uses ---- */

struct sky_http_group *sky_http_group_new(void)
{
	struct sky_http_group *g = calloc(1, sizeof(*g));
	pthread_condattr_t attr;

	if (g) {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&g->cond, &attr);
		pthread_condattr_destroy(&attr);
		g->done_end = &g->done;
	}
	return g;
}

void sky_http_group_free(struct sky_http_group *g)
{
	if (g) {
		pthread_cond_destroy(&g->cond);
		free(g);
	}
}

/* The lane with least to do; the first of equals, so that lone requests share one kept connection. */
static struct lane *choose_lane(struct sky_http *h)
{
	struct lane *best = &h->lanes[0];

	for (int i = 1; i < h->n_lanes; i++) {
		if (h->lanes[i].n_flying < best->n_flying) {
			best = &h->lanes[i];
		}
	}
	return best;
}

void sky_http_submit(struct sky_http *h, struct sky_http_group *g, struct sky_try *t)
{
	struct lane *l;

	t->group = g;
	t->done = t->cancelled = 0;
	t->length = UINT64_MAX;
	pthread_mutex_lock(&h->lock);
	l = choose_lane(h);
	t->lane = l;
	l->n_flying++;
	t->next = l->queue;
	l->queue = t;
	pthread_mutex_unlock(&h->lock);
	curl_multi_wakeup(l->multi);
}

/* A finished try of the group, or NULL after `s` seconds (at once for 0). */
struct sky_try *sky_http_wait(struct sky_http *h, struct sky_http_group *g, double s)
{
	struct timespec end;
	struct sky_try *t;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)s;
	end.tv_nsec += (long)(1e9 * (s - (double)(time_t)s));
	if (end.tv_nsec >= 1000000000l) {
		end.tv_nsec -= 1000000000l;
		end.tv_sec++;
	}
	pthread_mutex_lock(&h->lock);
	while (!g->done && s > 0 && rc == 0) {
		rc = pthread_cond_timedwait(&g->cond, &h->lock, &end);
	}
	t = g->done;
	if (t) {
		g->done = t->next;
		if (!g->done) {
			g->done_end = &g->done;
		}
	}
	pthread_mutex_unlock(&h->lock);
	return t;
}

/* Asks the engine to drop a try; it still comes out of _wait, like any other. */
void sky_http_cancel(struct sky_http *h, struct sky_try *t)
{
	pthread_mutex_lock(&h->lock);
	if (!t->done) {
		t->cancelled = 1;
		((struct lane *)t->lane)->n_cancel++;
	}
	pthread_mutex_unlock(&h->lock);
	curl_multi_wakeup(((struct lane *)t->lane)->multi);
}
