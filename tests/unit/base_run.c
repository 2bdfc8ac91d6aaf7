/* pool, pipeline, proc, lock, ndjson. */
#include "base/base.h"
#include "../testlib.h"

#include <signal.h>
#include <stdatomic.h>

static struct sky_err err;

struct sum { atomic_llong total; int64_t per_worker[8]; };

static void add(void *ctx, int64_t i, int worker)
{
	struct sum *s = ctx;

	atomic_fetch_add(&s->total, i);
	s->per_worker[worker]++;
}

static void test_pool(void)
{
	struct sky_pool *p = NULL;
	struct sum s = { 0 };
	int64_t n = 0;
	int round, i, n_bad = 0;

	T_RC(sky_pool_new(0, &p, &err), SKY_E_USAGE, &err, "no threads");
	T_RC(sky_pool_new(4, &p, &err), 0, &err, "four threads");
	T_I64(sky_pool_threads(p), 4, "with the caller");
	for (round = 0; round < 200; round++) {
		atomic_store(&s.total, 0);
		sky_pool_for(p, 1000, add, &s);
		n_bad += atomic_load(&s.total) != 499500;
	}
	T_I64(n_bad, 0, "each index once, in every round");
	for (i = 0; i < 4; i++) {
		n += s.per_worker[i];
	}
	T_I64(n, 200000, "worker numbers are in range");
	sky_pool_for(p, 0, add, &s);
	sky_pool_free(p);
	sky_pool_free(NULL);
	T_OK(sky_cpu_count() >= 1, "CPUs");
}

/* Numbers 0 … n - 1; work squares, sink checks the order. */
struct line {
	int64_t next, n, sunk, n_bad, fail_work_at, fail_source_at, fail_sink_at;
	atomic_int alive, alive_max, dropped;
};

static int source(void *ctx, void **item_p, struct sky_err *e)
{
	struct line *l = ctx;
	int64_t *item;
	int now, max;

	if (l->next == l->fail_source_at) {
		return sky_fail(e, SKY_E_DATA, "source fails at %lld", (long long)l->next);
	}
	if (l->next == l->n) {
		return SKY_EOF;
	}
	item = malloc(sizeof(*item));
	*item = l->next++;
	*item_p = item;
	now = atomic_fetch_add(&l->alive, 1) + 1;
	max = atomic_load(&l->alive_max);
	while (now > max && !atomic_compare_exchange_weak(&l->alive_max, &max, now)) {
	}
	return 0;
}

static int work(void *ctx, void *item, int worker, struct sky_err *e)
{
	struct line *l = ctx;
	int64_t v = *(int64_t *)item;

	(void)worker;
	if (l->fail_work_at >= 0 && v >= l->fail_work_at) {
		return sky_fail(e, SKY_E_DATA, "work fails at %lld", (long long)v);
	}
	*(int64_t *)item = v * v;
	return 0;
}

static int sink(void *ctx, void *item, struct sky_err *e)
{
	struct line *l = ctx;
	int64_t v = *(int64_t *)item;

	free(item);
	atomic_fetch_sub(&l->alive, 1);
	if (l->sunk == l->fail_sink_at) {
		return sky_fail(e, SKY_E_SYS, "sink fails");
	}
	l->n_bad += v != l->sunk * l->sunk;
	l->sunk++;
	return 0;
}

static void drop(void *ctx, void *item)
{
	struct line *l = ctx;

	free(item);
	atomic_fetch_sub(&l->alive, 1);
	atomic_fetch_add(&l->dropped, 1);
}

static void test_pipe(void)
{
	struct sky_pipe p = { .depth = 7, .source = source, .work = work, .sink = sink, .drop = drop };
	struct line l;
	int t;

	for (t = 1; t <= 4; t++) {
		p.n_threads = t;
		l = (struct line){ .n = 5000, .fail_work_at = -1, .fail_source_at = -1, .fail_sink_at = -1 };
		p.ctx = &l;
		T_RC(sky_pipe_run(&p, &err), 0, &err, "pipeline with %d threads", t);
		T_OK(l.sunk == 5000 && l.n_bad == 0, "every item in order");
		T_OK(l.alive == 0 && l.alive_max <= 7, "no more than depth are alive");
		l = (struct line){ .n = 5000, .fail_work_at = 100, .fail_source_at = -1, .fail_sink_at = -1 };
		T_RC(sky_pipe_run(&p, &err), SKY_E_DATA, &err, "work that fails");
		T_STR(err.msg, "work fails at 100", "the first bad item is reported");
		T_OK(l.sunk == 100 && l.alive == 0, "what comes before it is kept, the rest dropped");
		l = (struct line){ .n = 5000, .fail_work_at = -1, .fail_source_at = 50, .fail_sink_at = -1 };
		T_RC(sky_pipe_run(&p, &err), SKY_E_DATA, &err, "a source that fails");
		T_OK(l.sunk == 50 && l.alive == 0, "what it gave reaches the sink");
		l = (struct line){ .n = 5000, .fail_work_at = -1, .fail_source_at = -1, .fail_sink_at = 30 };
		T_RC(sky_pipe_run(&p, &err), SKY_E_SYS, &err, "a sink that fails");
		T_OK(l.sunk == 30 && l.alive == 0, "nothing more reaches it");
	}
}

static void test_proc(void)
{
	char *cat[] = { (char *)(uintptr_t)"cat", NULL }, *none[] = { (char *)(uintptr_t)"skyrl-no-such-program",
		NULL };
	char *printenv[] = { (char *)(uintptr_t)"printenv", (char *)(uintptr_t)"SKY_X", NULL };
	char *extra[] = { (char *)(uintptr_t)"SKY_X=new", NULL };
	struct sky_proc p = { 0 };
	char buf[64], text[100];
	int status = -1;
	int64_t n;

	sky_proc_kill(&p, 0);
	T_RC(sky_proc_start(&p, cat, NULL, SKY_PROC_STDIN | SKY_PROC_STDOUT, &err), 0, &err, "starting cat");
	T_RC(sky_write_full(p.in, "hello", 5, "cat", &err), 0, &err, "writing to it");
	T_RC(sky_proc_wait(&p, 0, &status, &err), SKY_E_AGAIN, &err, "it still runs");
	sky_proc_close_in(&p);
	n = sky_read_full(p.out, buf, sizeof(buf), "cat", &err);
	T_OK(n == 5 && memcmp(buf, "hello", 5) == 0, "reading from it");
	T_RC(sky_proc_wait(&p, 60, &status, &err), 0, &err, "waiting for its end");
	T_OK(status == 0 && p.pid == 0, "it ended well");
	T_RC(sky_proc_start(&p, none, NULL, 0, &err), SKY_E_MISSING, &err, "a missing program");
	T_HAS(err.msg, "skyrl-no-such-program", "is named");
	setenv("SKY_X", "old", 1);
	T_RC(sky_proc_start(&p, printenv, extra, SKY_PROC_STDOUT, &err), 0, &err, "extra environment");
	n = sky_read_full(p.out, buf, sizeof(buf), "printenv", &err);
	T_OK(n == 4 && memcmp(buf, "new\n", 4) == 0, "replaces ours");
	sky_proc_kill(&p, 10);
	/* A child that ignores TERM, with a child of its own that holds the pipe. */
	T_RC(sky_proc_shell(&p, "trap '' TERM; sleep 1000 & echo up; wait; sleep 1000", SKY_PROC_STDOUT, &err), 0,
	     &err, "a stubborn child");
	n = sky_read_full(p.out, buf, 3, "shell", &err);
	T_OK(n == 3, "is up");
	pid_t group = p.pid;
	sky_proc_kill(&p, 0.05);
	for (int i = 0; i < 500 && kill(-group, 0) == 0; i++) {
		usleep(10000);
	}
	T_OK(kill(-group, 0) != 0 && p.pid == 0, "its whole group is gone");
	T_RC(sky_proc_shell(&p, "kill -9 $$", 0, &err), 0, &err, "a child that dies");
	T_RC(sky_proc_wait(&p, -1, &status, &err), 0, &err, "its end");
	T_STR(sky_proc_status_text(status, text, sizeof(text)), "was killed by signal 9 (Killed)",
	      "text of its status");
	T_RC(sky_proc_shell(&p, "exit 3", 0, &err), 0, &err, "a child that fails");
	T_RC(sky_proc_wait(&p, -1, &status, &err), 0, &err, "its end");
	T_STR(sky_proc_status_text(status, text, sizeof(text)), "exited with status 3", "text of its status");
}

static void test_lock(void)
{
	struct sky_lock a = SKY_LOCK_INIT, b = SKY_LOCK_INIT;
	char pid[40];

	T_RC(sky_lock_take(&a, t_path("target/"), 0, &err), 0, &err, "taking a lock");
	T_OK(sky_file_exists(t_path("target.lock")), "lies beside the target");
	T_RC(sky_lock_take(&b, t_path("target"), 0.02, &err), SKY_E_AGAIN, &err, "a second time");
	snprintf(pid, sizeof(pid), "pid %ld on ", (long)getpid());
	T_HAS(err.msg, pid, "names the holder");
	sky_lock_drop(&a);
	sky_lock_drop(&a);
	T_RC(sky_lock_take(&b, t_path("target"), 0, &err), 0, &err, "free again");
	sky_lock_drop(&b);
	T_RC(sky_lock_take(&b, t_path("no/such/target"), 0, &err), SKY_E_MISSING, &err, "no folder for it");
}

static void test_lines(void)
{
	const char *line;
	struct sky_lines l;
	int fd[2], rc, k;
	size_t n, total = 0;

	if (pipe(fd) != 0) {
		t_bail("pipe");
	}
	T_RC(sky_write_full(fd[1], "one\r\n\nthree\n12345\r\n123456\nlast", 31, "pipe", &err), 0, &err, "lines");
	sky_lines_init(&l, fd[0], "pipe", 5);
	T_OK(sky_lines_next(&l, -1, &line, &n, &err) == 0 && n == 3 && strcmp(line, "one") == 0, "CRLF is cut");
	T_OK(sky_lines_next(&l, -1, &line, &n, &err) == 0 && n == 0, "an empty line");
	T_OK(sky_lines_next(&l, -1, &line, &n, &err) == 0 && strcmp(line, "three") == 0 && l.n_line == 3,
	     "lines are counted");
	T_OK(sky_lines_next(&l, -1, &line, &n, &err) == 0 && n == 5, "a line at the limit with CRLF");
	T_RC(sky_lines_next(&l, -1, &line, &n, &err), SKY_E_LIMIT, &err, "a longer one");
	T_HAS(err.msg, "pipe, line 5", "is named");
	sky_lines_release(&l);
	sky_lines_init(&l, fd[0], "pipe", 100);
	T_RC(sky_lines_next(&l, 0.01, &line, &n, &err), SKY_E_AGAIN, &err, "nothing comes in time");
	T_RC(sky_write_full(fd[1], "end", 3, "pipe", &err), 0, &err, "more");
	close(fd[1]);
	T_OK(sky_lines_next(&l, 60, &line, &n, &err) == 0 && strcmp(line, "end") == 0, "a last line without LF");
	T_RC(sky_lines_next(&l, 60, &line, &n, &err), SKY_EOF, &err, "the end");
	sky_lines_release(&l);
	close(fd[0]);
	/* Many lines across several reads. */
	struct sky_proc p;

	T_RC(sky_proc_shell(&p, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", SKY_PROC_STDOUT,
	                    &err), 0, &err, "a writer");
	sky_lines_init(&l, p.out, "writer", 100);
	for (k = 0; (rc = sky_lines_next(&l, 60, &line, &n, &err)) == 0; k++) {
		total += n;
	}
	T_OK(rc == SKY_EOF && k == 20000 && total == 20000 * 5 + 10 + 90 * 2 + 900 * 3 + 9000 * 4 + 10000 * 5,
	     "all lines whole");
	sky_lines_release(&l);
	sky_proc_kill(&p, 10);
}

int main(void)
{
	test_pool();
	test_pipe();
	test_proc();
	test_lock();
	test_lines();
	return t_done();
}
