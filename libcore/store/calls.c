/* store: calls, a request with all its tries. Which answers are worth another try, how long to pause before it, and
 * when to give up is decided here and in the judges of the services; the engine below knows none of it. */
#include <curl/curl.h>
#include <errno.h>
#include <unistd.h>
#include "store/http_int.h"

#define STOP_SLICE_S 0.2        /* how often a wait looks at the stop flag */

static bool (*is_stopping)(void);

void sky_store_stop_on(bool (*stopping)(void))
{
	is_stopping = stopping;
}

int sky_calls_init(struct sky_calls *cs, struct sky_http *http, struct sky_store *s, struct sky_err *err)
{
	memset(cs, 0, sizeof(*cs));
	cs->http = http;
	cs->s = s;
	cs->group = sky_http_group_new();
	return cs->group ? 0 : sky_fail_mem(err, "requests");
}

static void unlink_call(struct sky_calls *cs, struct sky_call *c)
{
	for (struct sky_call **at = &cs->active; *at; at = &(*at)->next) {
		if (*at == c) {
			*at = c->next;
			c->next = NULL;
			cs->n_active--;
			return;
		}
	}
}

/* Builds and sends the next try. Nonzero: the call is over, since the request cannot be built. */
static int send_try(struct sky_calls *cs, struct sky_call *c)
{
	sky_try_release(&c->t);
	c->waiting = 0;
	c->retry_after_s = 0;
	c->rc = c->build(c, &c->t, &c->err);
	if (c->rc < 0) {
		unlink_call(cs, c);
		return 1;
	}
	c->n_try++;
	cs->s->n_request++;
	cs->s->n_retry += c->n_try > 1;
	sky_log("store", 3, "%s: try %d", c->what, c->n_try);
	sky_http_submit(cs->http, cs->group, &c->t);
	return 0;
}

/* The call begins to wait for its first try at once; _next and _poll send it. */
void sky_calls_start(struct sky_calls *cs, struct sky_call *c)
{
	sky_try_init(&c->t);
	c->n_try = 0;
	c->rc = 0;
	c->t_begin = sky_now();
	c->next = cs->active;
	cs->active = c;
	cs->n_active++;
	if (send_try(cs, c)) {
		c->next = cs->active;           /* over already: reported by the next look */
		cs->active = c;
		cs->n_active++;
		c->waiting = -1;
	}
}

/* Full jitter: anything between nothing and the doubled pause. */
static double pause_before(const struct sky_call *c)
{
	double cap = 0.5;
	double u = sky_rng_uniform((uint64_t)getpid(), SKY_RNG_RETRY, (uint64_t)(uintptr_t)c,
	                           (uint64_t)(sky_wall() * 1e6) + (uint64_t)c->n_try);

	for (int i = 1; i < c->n_try && cap < SKY_HTTP_RETRY_CAP_S; i++) {
		cap *= 2;
	}
	cap = cap < SKY_HTTP_RETRY_CAP_S ? cap : SKY_HTTP_RETRY_CAP_S;
	return u * cap > c->retry_after_s ? u * cap : c->retry_after_s;
}

/* After a judge said "again": schedules, or gives up. Nonzero: over. */
static int schedule(struct sky_calls *cs, struct sky_call *c)
{
	double spent = sky_now() - c->t_begin, wait = pause_before(c);
	char why[sizeof(c->err.msg)];

	if (c->n_try < cs->s->set.n_tries && spent + wait <= cs->s->set.retry_time_s) {
		sky_log("store", 2, "%s: %s; again in %.1f s", c->what, c->err.msg, wait);
		c->waiting = 1;
		c->t_next = sky_now() + wait;
		return 0;
	}
	snprintf(why, sizeof(why), "%s", c->err.msg);
	c->rc = sky_fail(&c->err, SKY_E_AGAIN, "%.300s: %.500s; gave up after %d %s in %.1f s", c->what, why, c->n_try,
	                 c->n_try == 1 ? "try" : "tries", spent);
	return 1;
}

static struct sky_call *settle(struct sky_calls *cs, struct sky_try *t)
{
	struct sky_call *c = cs->active;

	while (c && &c->t != t) {
		c = c->next;
	}
	if (!c) {
		return NULL;
	}
	c->rc = c->judge(c, t, &c->err);
	if (c->rc == SKY_EOF && !schedule(cs, c)) {
		return NULL;
	}
	unlink_call(cs, c);
	return c;
}

/* The earliest call that waits for its time; NULL when none does. */
static struct sky_call *earliest(struct sky_calls *cs)
{
	struct sky_call *first = NULL;

	for (struct sky_call *c = cs->active; c; c = c->next) {
		if (c->waiting > 0 && (!first || c->t_next < first->t_next)) {
			first = c;
		}
	}
	return first;
}

static struct sky_call *failed_at_start(struct sky_calls *cs)
{
	for (struct sky_call *c = cs->active; c; c = c->next) {
		if (c->waiting < 0) {
			unlink_call(cs, c);
			return c;
		}
	}
	return NULL;
}

static struct sky_call *stopped(struct sky_calls *cs)
{
	struct sky_call *c = cs->active;

	if (!is_stopping || cs->no_stop || !c || !is_stopping()) {
		return NULL;
	}
	if (!c->waiting) {
		sky_http_cancel(cs->http, &c->t);
		while (!c->t.done) {
			(void)sky_http_wait(cs->http, cs->group, STOP_SLICE_S);
		}
	}
	unlink_call(cs, c);
	c->rc = sky_fail(&c->err, SKY_E_STOP, "%s: stopped", c->what);
	return c;
}

static struct sky_call *look(struct sky_calls *cs, int may_wait)
{
	while (cs->n_active > 0) {
		struct sky_call *c = failed_at_start(cs), *due = earliest(cs);
		struct sky_try *t;
		double wait = due ? due->t_next - sky_now() : STOP_SLICE_S;
		int flying = 0;

		if (c || (c = stopped(cs))) {
			return c;
		}
		for (c = cs->active; c; c = c->next) {
			flying += !c->waiting;
		}
		if (due && !flying && may_wait) {
			sky_sleep(wait > STOP_SLICE_S ? STOP_SLICE_S : wait);
			wait = cs->no_sleep ? 0 : due->t_next - sky_now();
			if (wait > 0) {
				continue;
			}
		}
		if (due && wait <= 0) {
			if (send_try(cs, due)) {
				return due;
			}
			continue;
		}
		t = sky_http_wait(cs->http, cs->group, !may_wait ? 0 : wait < STOP_SLICE_S ? wait : STOP_SLICE_S);
		c = t ? settle(cs, t) : NULL;
		if (c || (!t && !may_wait)) {
			return c;
		}
	}
	return NULL;
}

struct sky_call *sky_calls_next(struct sky_calls *cs)
{
	const char *e = getenv("SKYRL_TEST_SLEEP");

	cs->no_sleep = e && strcmp(e, "0") == 0;
	return look(cs, 1);
}

struct sky_call *sky_calls_poll(struct sky_calls *cs)
{
	return look(cs, 0);
}

void sky_calls_cancel(struct sky_calls *cs)
{
	for (struct sky_call *c = cs->active; c; c = c->next) {
		if (!c->waiting) {
			sky_http_cancel(cs->http, &c->t);
		}
	}
	for (struct sky_call *c = cs->active; c; ) {
		if (!c->waiting && !c->t.done) {
			(void)sky_http_wait(cs->http, cs->group, 1.0);
			continue;
		}
		c = c->next;
	}
	while (sky_http_wait(cs->http, cs->group, 0)) {
		;
	}
	cs->active = NULL;
	cs->n_active = 0;
}

void sky_calls_release(struct sky_calls *cs)
{
	if (cs->group) {
		sky_calls_cancel(cs);
		sky_http_group_free(cs->group);
		cs->group = NULL;
	}
}

void sky_call_release(struct sky_call *c)
{
	sky_try_release(&c->t);
}

int sky_call_run(struct sky_http *http, struct sky_store *s, struct sky_call *c, struct sky_err *err)
{
	struct sky_calls cs;
	int rc = sky_calls_init(&cs, http, s, err);

	if (rc < 0) {
		return rc;
	}
	sky_calls_start(&cs, c);
	while (sky_calls_next(&cs)) {
		;
	}
	if (c->rc < 0 && err) {
		*err = c->err;
	}
	sky_calls_release(&cs);
	return c->rc;
}

/* ---- judging ---- */

static double retry_after(const struct sky_try *t)
{
	char v[64];
	double s = 0;
	struct sky_err quiet;

	if (!sky_try_head(t, "retry-after", v, sizeof(v)) || sky_parse_f64(v, &s, &quiet) < 0 || !(s > 0)) {
		return 0;
	}
	return s < SKY_HTTP_RETRY_AFTER_S ? s : SKY_HTTP_RETRY_AFTER_S;
}

int sky_judge_common(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	if (t->sink_errno) {
		errno = t->sink_errno;
		return sky_fail_sys(err, "%s: writing what came", c->what);
	}
	if (t->too_long) {
		return 0;
	}
	if (t->curl_code == CURLE_UNSUPPORTED_PROTOCOL || t->curl_code == CURLE_URL_MALFORMAT ||
	    t->curl_code == CURLE_FAILED_INIT || t->curl_code == CURLE_SSL_CACERT_BADFILE ||
	    t->curl_code == CURLE_PEER_FAILED_VERIFICATION) {
		return sky_fail(err, SKY_E_SYS, "%s: %s (%s)", c->what, t->why, t->url);
	}
	if (t->curl_code != 0 || t->status == 0) {
		sky_fail(err, SKY_E_AGAIN, "%s", t->why[0] ? t->why : "no answer");
		return SKY_EOF;
	}
	switch (t->status) {
	case 408:
	case 429:
	case 500:
	case 502:
	case 503:
	case 504:
		c->retry_after_s = retry_after(t);
		sky_fail(err, SKY_E_AGAIN, "server answers %d", t->status);
		return SKY_EOF;
	default:
		return 0;
	}
}
