/* kernels/cpu: threads of a device. The caller of an operation works with them and goes on when the last task is done,
 * whether or not every thread came to help: on a busy machine, where a thread may get no processor for milliseconds, an
 * operation costs what the caller alone would need, never a wait for a thread without work. (An OpenMP barrier waits for
 * each thread: decoding was measured 20 to 50 times slower with a handful of other processes on two processors.)
 *
 * A job is fn over n tasks. `ticket` holds its number in the upper and the tasks that nobody took yet in the lower half; who
 * lowers it by one owns a task, and while he owns one the job cannot end, so fn, ctx and n are read after that. */
#include "kernels/cpu/cpu_int.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_IDLE 4000  /* looks for work before a thread sleeps: about 50 µs, longer than between two operations */
#define SPIN_END 8000   /* looks for the end of the last tasks before the caller sleeps */

struct helper {
	struct cpu_pool *pool;
	pthread_t thread;
	int index;
};

struct cpu_pool {
	_Atomic uint64_t ticket;
	_Atomic uint32_t seq;           /* raised with every job and at the end; helpers sleep on it */
	_Atomic uint32_t n_asleep;
	_Atomic uint32_t n_done;        /* tasks of the current job; the caller sleeps on it */
	_Atomic int waiting;            /* the caller sleeps */
	_Atomic int stop;
	cpu_task *fn;
	void *ctx;
	uint32_t n;
	int n_helper;
	struct helper *helper;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Runs one task; false when none is left. */
static bool run_one(struct cpu_pool *p, int thread)
{
	uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);
	uint32_t n;

	do {
		if ((uint32_t)t == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel,
	                                                memory_order_acquire));
	n = p->n;
	p->fn(p->ctx, (int64_t)(n - (uint32_t)t), thread);
	if (atomic_fetch_add(&p->n_done, 1) + 1 == n && atomic_load(&p->waiting))
		futex_wake(&p->n_done);
	return true;
}

static void *help(void *arg)
{
	struct helper *h = arg;
	struct cpu_pool *p = h->pool;

	for (;;) {
		uint32_t seq = atomic_load(&p->seq);
		int spin = 0;

		while (run_one(p, h->index))
			spin = 0;
		if (atomic_load(&p->stop))
			return NULL;
		while (spin < SPIN_IDLE && atomic_load_explicit(&p->seq, memory_order_relaxed) == seq) {
			__builtin_ia32_pause();
			spin++;
		}
		if (atomic_load(&p->seq) != seq)
			continue;
		atomic_fetch_add(&p->n_asleep, 1);
		futex_wait(&p->seq, seq); /* returns at once when a job came in between */
		atomic_fetch_sub(&p->n_asleep, 1);
	}
}

static void post(struct cpu_pool *p)
{
	atomic_fetch_add(&p->seq, 1);
	if (atomic_load(&p->n_asleep))
		futex_wake(&p->seq);
}

static void run_job(struct cpu_pool *p, uint32_t n, cpu_task *fn, void *ctx)
{
	uint64_t job = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 32) + 1;
	uint32_t done;

	p->fn = fn;
	p->ctx = ctx;
	p->n = n;
	atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
	atomic_store_explicit(&p->ticket, job << 32 | n, memory_order_release);
	post(p);
	while (run_one(p, 0))
		;
	for (int spin = 0; atomic_load_explicit(&p->n_done, memory_order_acquire) < n && spin < SPIN_END; spin++)
		__builtin_ia32_pause();
	if (atomic_load(&p->n_done) == n)
		return;
	atomic_store(&p->waiting, 1);
	while ((done = atomic_load(&p->n_done)) < n)
		futex_wait(&p->n_done, done);
	atomic_store(&p->waiting, 0);
}

void cpu_pool_run(struct cpu_pool *p, int64_t n, cpu_task *fn, void *ctx)
{
	if (n <= 1 || p->n_helper == 0) {
		for (int64_t i = 0; i < n; i++)
			fn(ctx, i, 0);
		return;
	}
	run_job(p, (uint32_t)n, fn, ctx);
}

/* Signals are the business of the program's own threads. Fewer helpers than asked for are enough. */
struct cpu_pool *cpu_pool_new(int n_threads)
{
	struct cpu_pool *p = calloc(1, sizeof *p);
	sigset_t all, old;

	if (!p || n_threads == 1)
		return p;
	p->helper = calloc((size_t)n_threads - 1, sizeof *p->helper);
	if (!p->helper) {
		free(p);
		return NULL;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 0; i < n_threads - 1; i++) {
		struct helper *h = &p->helper[p->n_helper];

		h->pool = p;
		h->index = p->n_helper + 1;
		if (pthread_create(&h->thread, NULL, help, h) != 0)
			break;
		p->n_helper++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return p;
}

void cpu_pool_free(struct cpu_pool *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, 1);
	post(p);
	for (int i = 0; i < p->n_helper; i++)
		pthread_join(p->helper[i].thread, NULL);
	free(p->helper);
	free(p);
}

/* Processors that this process may run on. */
int cpu_pool_processors(void)
{
	cpu_set_t set;
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (sched_getaffinity(0, sizeof set, &set) == 0)
		n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > CPU_THREADS_MAX ? CPU_THREADS_MAX : (int)n;
}
