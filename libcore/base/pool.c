/* Parallel-for. A generation counter starts the workers, an atomic counter deals out the indices. */
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/base_int.h"
#include "base/limits.h"

struct sky_pool {
	pthread_mutex_t lock;
	pthread_cond_t start, done;
	pthread_t *threads;
	int n_threads;                  /* with the caller */
	int n_started;
	uint64_t round;                 /* of work; workers wait for the next */
	int n_busy;
	int quit;
	void (*fn)(void *ctx, int64_t i, int worker);
	void *ctx;
	int64_t n;
	atomic_int_fast64_t next;
};

struct worker_arg {
	struct sky_pool *pool;
	int worker;
};

static void work(struct sky_pool *p, int worker)
{
	int64_t i;

	while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n) {
		p->fn(p->ctx, i, worker);
	}
}

static void *worker_main(void *varg)
{
	struct worker_arg *arg = varg;
	struct sky_pool *p = arg->pool;
	int worker = arg->worker;
	uint64_t seen = 0;

	free(arg);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->quit && p->round == seen) {
			pthread_cond_wait(&p->start, &p->lock);
		}
		if (p->quit) {
			break;
		}
		seen = p->round;
		pthread_mutex_unlock(&p->lock);
		work(p, worker);
		pthread_mutex_lock(&p->lock);
		if (--p->n_busy == 0) {
			pthread_cond_signal(&p->done);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Signals belong to the main thread (style 6.7). */
int sky_thread_start(pthread_t *t, void *(*fn)(void *), void *arg, struct sky_err *err)
{
	sigset_t all, old;
	int e;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0) {
		errno = e;
		return sky_fail_sys(err, "starting a thread");
	}
	return 0;
}

int sky_pool_new(int n_threads, struct sky_pool **pool_p, struct sky_err *err)
{
	struct worker_arg *arg;
	struct sky_pool *p;
	int i, rc;

	if (n_threads < 1 || n_threads > SKY_MAX_THREADS) {
		return sky_fail(err, SKY_E_USAGE, "%d threads: 1 to %d are possible (--threads)", n_threads,
		                SKY_MAX_THREADS);
	}
	p = calloc(1, sizeof(*p));
	if (!p || !(p->threads = calloc((size_t)n_threads, sizeof(*p->threads)))) {
		free(p);
		return sky_fail_mem(err, "starting %d threads", n_threads);
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->start, NULL);
	pthread_cond_init(&p->done, NULL);
	p->n_threads = n_threads;
	for (i = 1; i < n_threads; i++) {
		arg = malloc(sizeof(*arg));
		if (!arg) {
			rc = sky_fail_mem(err, "starting %d threads", n_threads);
			goto out_fail;
		}
		arg->pool = p;
		arg->worker = i;
		rc = sky_thread_start(&p->threads[i], worker_main, arg, err);
		if (rc < 0) {
			free(arg);
			goto out_fail;
		}
		p->n_started = i;
	}
	*pool_p = p;
	return 0;

out_fail:
	sky_pool_free(p);
	return rc;
}

void sky_pool_free(struct sky_pool *p)
{
	int i;

	if (!p) {
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->quit = 1;
	pthread_cond_broadcast(&p->start);
	pthread_mutex_unlock(&p->lock);
	for (i = 1; i <= p->n_started; i++) {
		pthread_join(p->threads[i], NULL);
	}
	pthread_cond_destroy(&p->done);
	pthread_cond_destroy(&p->start);
	pthread_mutex_destroy(&p->lock);
	free(p->threads);
	free(p);
}

int sky_pool_threads(const struct sky_pool *p)
{
	return p->n_threads;
}

void sky_pool_for(struct sky_pool *p, int64_t n, void (*fn)(void *ctx, int64_t i, int worker), void *ctx)
{
	int64_t i;

	if (p->n_threads == 1 || n <= 1) {
		for (i = 0; i < n; i++) {
			fn(ctx, i, 0);
		}
		return;
	}
	pthread_mutex_lock(&p->lock);
	p->fn = fn;
	p->ctx = ctx;
	p->n = n;
	atomic_store_explicit(&p->next, 0, memory_order_relaxed);
	p->n_busy = p->n_started;
	p->round++;
	pthread_cond_broadcast(&p->start);
	pthread_mutex_unlock(&p->lock);
	work(p, 0);
	pthread_mutex_lock(&p->lock);
	while (p->n_busy > 0) {
		pthread_cond_wait(&p->done, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
}

/* CPUs that the cgroup's quota pays for, rounded up; n when there is no quota. */
static int cgroup_cpus(int n)
{
	long long quota = 0, period = 0;
	char text[100], *end;
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	size_t got;

	if (!f) {
		return n;
	}
	got = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[got] = '\0';
	quota = strtoll(text, &end, 10);
	period = strtoll(end, NULL, 10);
	if (quota <= 0 || period <= 0) {
		/* "max 100000": no limit */
		return n;
	}
	quota = (quota + period - 1) / period;
	return quota < n ? (int)quota : n;
}

int sky_cpu_count(void)
{
	cpu_set_t *set;
	int cap, n = 0;

	for (cap = 1024; cap <= 1 << 20 && n == 0; cap *= 2) {
		set = CPU_ALLOC((size_t)cap);
		if (!set) {
			break;
		}
		if (sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)cap), set) == 0) {
			n = CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)cap), set);
		}
		CPU_FREE(set);
	}
	n = cgroup_cpus(n > 0 ? n : 1);
	return n > SKY_MAX_THREADS ? SKY_MAX_THREADS : n;
}
