/* Ordered pipeline: source → work → sink over a ring of slots.
 *
 * Every thread does whatever is possible next: feed the source, work on an item, or drain the oldest finished one. A
 * slot belongs to sequence number seq % depth; order at the sink is order of the sequence numbers. One mutex, one
 * condition: items are large (a block of lines), so the lock is taken rarely. */
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>

#include "base/base_int.h"
#include "base/limits.h"

enum slot_state { SLOT_EMPTY, SLOT_READY, SLOT_WORKING, SLOT_DONE };

struct slot {
	enum slot_state state;
	void *item;
	int rc;                         /* of work; counts when its turn at the sink comes, so the first bad item is */
	struct sky_err err;             /* reported whatever the number of threads */
};

struct line {
	const struct sky_pipe *p;
	pthread_mutex_t lock;
	pthread_cond_t change;
	struct slot *slots;
	int64_t n_in, n_work, n_out;    /* sequence numbers: next from the source, to work on, to the sink */
	int in_source, in_sink;         /* a thread is inside */
	int source_end;
	int rc;                         /* first failure in order: nothing more reaches the sink */
	int rc_source;                  /* failure of the source: reported after what it gave has reached the sink */
	struct sky_err err, err_source;
};

struct pipe_arg {
	struct line *l;
	int worker;
	pthread_t thread;
};

static struct slot *slot_of(struct line *l, int64_t seq)
{
	return &l->slots[seq % l->p->depth];
}

/* The steps below are called and return with the lock held, and give it up while user code runs. */
static void step_source(struct line *l)
{
	struct slot *s = slot_of(l, l->n_in);
	struct sky_err err = { 0 };
	void *item = NULL;
	int rc;

	l->in_source = 1;
	pthread_mutex_unlock(&l->lock);
	rc = l->p->source(l->p->ctx, &item, &err);
	pthread_mutex_lock(&l->lock);
	l->in_source = 0;
	if (rc == 0) {
		s->state = SLOT_READY;
		s->item = item;
		l->n_in++;
		return;
	}
	l->source_end = 1;
	if (rc < 0) {
		l->rc_source = rc;
		l->err_source = err;
	}
}

static void fail(struct line *l, int rc, const struct sky_err *err)
{
	if (l->rc == 0) {
		l->rc = rc;
		l->err = *err;
	}
}

static void step_work(struct line *l, int worker)
{
	struct slot *s = slot_of(l, l->n_work++);

	s->state = SLOT_WORKING;
	pthread_mutex_unlock(&l->lock);
	s->rc = l->p->work(l->p->ctx, s->item, worker, &s->err);
	pthread_mutex_lock(&l->lock);
	s->state = SLOT_DONE;
	if (s->rc < 0) {
		l->source_end = 1;
	}
}

static void step_sink(struct line *l)
{
	struct slot *s = slot_of(l, l->n_out);
	struct sky_err err = { 0 };
	void *item = s->item;
	int rc;

	if (s->rc < 0) {
		fail(l, s->rc, &s->err);
		return;
	}
	l->in_sink = 1;
	pthread_mutex_unlock(&l->lock);
	rc = l->p->sink(l->p->ctx, item, &err);
	pthread_mutex_lock(&l->lock);
	l->in_sink = 0;
	s->item = NULL;
	s->state = SLOT_EMPTY;
	l->n_out++;
	if (rc < 0) {
		fail(l, rc, &err);
	}
}

static void run(struct line *l, int worker)
{
	pthread_mutex_lock(&l->lock);
	for (;;) {
		if (l->rc < 0 || (l->source_end && l->n_out == l->n_in && !l->in_source)) {
			break;
		}
		/* The oldest first: a full ring helps nobody. */
		if (!l->in_sink && l->n_out < l->n_in && slot_of(l, l->n_out)->state == SLOT_DONE) {
			step_sink(l);
		} else if (l->n_work < l->n_in) {
			step_work(l, worker);
		} else if (!l->in_source && !l->source_end && l->n_in - l->n_out < l->p->depth) {
			step_source(l);
		} else {
			pthread_cond_wait(&l->change, &l->lock);
			continue;
		}
		pthread_cond_broadcast(&l->change);
	}
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
}

static void *pipe_main(void *varg)
{
	struct pipe_arg *arg = varg;

	run(arg->l, arg->worker);
	return NULL;
}

int sky_pipe_run(const struct sky_pipe *p, struct sky_err *err)
{
	struct line l = { .p = p };
	struct pipe_arg *args;
	int n_started, i, rc = 0;

	if (p->n_threads < 1 || p->n_threads > SKY_MAX_THREADS || p->depth < 1) {
		return sky_fail(err, SKY_E_USAGE, "%d threads: 1 to %d are possible (--threads)", p->n_threads,
		                SKY_MAX_THREADS);
	}
	l.slots = calloc((size_t)p->depth, sizeof(*l.slots));
	args = calloc((size_t)p->n_threads, sizeof(*args));
	if (!l.slots || !args) {
		free(l.slots);
		free(args);
		return sky_fail_mem(err, "starting %d threads", p->n_threads);
	}
	pthread_mutex_init(&l.lock, NULL);
	pthread_cond_init(&l.change, NULL);
	for (n_started = 1; n_started < p->n_threads; n_started++) {
		args[n_started].l = &l;
		args[n_started].worker = n_started;
		rc = sky_thread_start(&args[n_started].thread, pipe_main, &args[n_started], &l.err);
		if (rc < 0) {
			pthread_mutex_lock(&l.lock);
			l.rc = rc;
			pthread_mutex_unlock(&l.lock);
			break;
		}
	}
	run(&l, 0);
	for (i = 1; i < n_started; i++) {
		pthread_join(args[i].thread, NULL);
	}
	for (; l.n_out < l.n_in; l.n_out++) {
		p->drop(p->ctx, slot_of(&l, l.n_out)->item);
	}
	rc = l.rc < 0 ? l.rc : l.rc_source;
	if (rc < 0 && err) {
		*err = l.rc < 0 ? l.err : l.err_source;
	}
	pthread_cond_destroy(&l.change);
	pthread_mutex_destroy(&l.lock);
	free(l.slots);
	free(args);
	return rc;
}
