/* Speed of the model alone: training step (forward, backward, AdamW), scoring, prefill and decode,
 * tokens a second.
 *
 * usage: bench_model train|score|prefill|decode DIR [f32|bf16] [BATCH] [LENGTH] [STEPS] [THREADS]
 *   train, score: BATCH sequences of LENGTH tokens; prefill: BATCH prompts of LENGTH tokens, logits of
 * the last; decode: BATCH sequences, LENGTH tokens each after a prompt of 32. One warm-up run, then
 * STEPS timed ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "model/model.h"

static struct sky_model *m;
static struct sky_device dev;
static struct sky_err err;
static int64_t B, L, V;
static int32_t *ids, *start, *pos0, *target;
static float *lp, *dl, **state;

static void die(void)
{
	fprintf(stderr, "bench_model: %s\n", err.msg);
	exit(1);
}

static void optimizer(int64_t step)
{
	for (int64_t i = 0; i < sky_model_n_param(m); i++) {
		const struct sky_param *p = sky_model_param(m, i);

		if (!state[i]) {
			state[i] = calloc((size_t)p->n * 2, sizeof(float));
		}
		if (dev.ops->adamw(dev.stream, p->n, p->master, state[i], state[i] + p->n, p->grad, 1,
				   1e-6f, 0.9f, 0.999f, 1e-8f, 0.01f, step, KN_F32, NULL) != 0) {
			snprintf(err.msg, sizeof err.msg, "%s", dev.ops->last_error(dev.dev));
			die();
		}
	}
}

static void train(int64_t step)
{
	struct sky_rows rows = { B, start, pos0, ids };
	double t[3];

	t[0] = sky_now();
	if (sky_model_zero_grad(m, &err) < 0 ||
	    sky_model_score_backward(m, &rows, target, 1, dl, lp, &err) < 0) {
		die();
	}
	t[1] = sky_now();
	optimizer(step);
	if (sky_model_sync(m, &err) < 0) {
		die();
	}
	t[2] = sky_now();
	printf("  forward and backward %.3f s, update %.3f s\n", t[1] - t[0], t[2] - t[1]);
}

static void score(void)
{
	struct sky_rows rows = { B, start, pos0, ids };

	if (sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err) < 0) {
		die();
	}
}

/* Prompts of n tokens, then `more` decode steps. Seconds of the steps alone in *decode_p. */
static void generate(int64_t n, int64_t more, double *decode_p)
{
	int64_t stride = (n + more + KN_PAGE - 1) / KN_PAGE;
	struct sky_kvpool *pool = NULL;
	int32_t *table = malloc((size_t)(B * stride) * sizeof *table),
		*want = malloc((size_t)B * sizeof *want);
	int32_t *at = malloc((size_t)(B + 1) * sizeof *at), *pos = calloc((size_t)B, sizeof *pos);
	float *z = malloc((size_t)(B * V) * sizeof *z);
	double t0 = 0;

	if (sky_kvpool_new(m, B * stride, &pool, &err) < 0) {
		die();
	}
	for (int64_t i = 0; i < B * stride; i++) {
		table[i] = sky_kvpool_take(pool);
	}
	for (int64_t step = 0; step <= more; step++) {
		struct sky_rows rows = { B, at, pos, ids };
		struct sky_kvview kv = { pool, table, stride };
		int64_t k = step ? 1 : n;

		at[0] = 0;
		for (int64_t s = 0; s < B; s++) {
			at[s + 1] = (int32_t)((s + 1) * k);
			want[s] = at[s + 1] - 1;
			pos[s] = (int32_t)(step ? n + step - 1 : 0);
		}
		if (step == 1) {
			t0 = sky_now();
		}
		if (sky_model_infer(m, &rows, &kv, want, B, z, &err) < 0) {
			die();
		}
	}
	*decode_p = sky_now() - t0;
	sky_kvpool_free(pool);
	free(table);
	free(want);
	free(at);
	free(pos);
	free(z);
}

static int64_t arg(int argc, char **argv, int i, int64_t def)
{
	return argc > i ? strtoll(argv[i], NULL, 10) : def;
}

/* Rows of the batch: any ids do, speed does not depend on them. */
static void make_rows(void)
{
	int64_t T = B * L;

	V = sky_model_config(m)->vocab;
	state = calloc((size_t)sky_model_n_param(m), sizeof *state);
	ids = malloc((size_t)T * sizeof *ids);
	target = malloc((size_t)T * sizeof *target);
	lp = malloc((size_t)T * sizeof *lp);
	dl = malloc((size_t)T * sizeof *dl);
	start = malloc((size_t)(B + 1) * sizeof *start);
	pos0 = calloc((size_t)B, sizeof *pos0);
	for (int64_t i = 0; i < T; i++) {
		ids[i] = (int32_t)((uint64_t)i * 7919 % (uint64_t)V);
		target[i] = i % L == L - 1 ? -1 : (int32_t)((uint64_t)(i + 1) * 7919 % (uint64_t)V);
		dl[i] = -1 / (float)T;
		start[i / L] = (int32_t)(i / L * L);
	}
	start[B] = (int32_t)T;
}

/* Of all threads: what counts on a machine that others use as well. */
static double cpu_seconds(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* One run of the mode; its seconds. */
static double run(const char *mode, int64_t step)
{
	double t0 = sky_now(), d;

	if (strcmp(mode, "train") == 0) {
		train(step);
	} else if (strcmp(mode, "score") == 0) {
		score();
	} else if (strcmp(mode, "prefill") == 0) {
		generate(L, 0, &d);
	} else {
		generate(32, L, &d);
		return d;
	}
	return sky_now() - t0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	struct sky_model_opt opt = { .compute = KN_BF16, .train = strcmp(mode, "train") == 0 };
	int64_t n_step = arg(argc, argv, 6, 3);
	double t0 = sky_now(), best = 0, sum = 0, cpu = 0;
	struct rusage use;

	if (argc < 3) {
		fprintf(stderr, "usage: bench_model train|score|prefill|decode DIR [f32|bf16] [BATCH] "
				"[LENGTH] [STEPS] [THREADS]\n");
		return 2;
	}
	opt.compute = argc > 3 && strcmp(argv[3], "f32") == 0 ? KN_F32 : KN_BF16;
	B = arg(argc, argv, 4, 4);
	L = arg(argc, argv, 5, 1024);
	dev.ops = kn_cpu_ops() ? kn_cpu_ops() : kn_ref_ops();
	if (dev.ops->open(0, (int32_t)arg(argc, argv, 7, 0), &dev.dev) != 0 ||
	    dev.ops->stream_new(dev.dev, &dev.stream) != 0) {
		fprintf(stderr, "bench_model: %s\n", dev.ops->last_error(dev.dev));
		return 1;
	}
	if (sky_model_open(&dev, argv[2], &opt, &m, &err) < 0) {
		die();
	}
	printf("%s; open %.3f s\n", dev.ops->describe(dev.dev), sky_now() - t0);
	make_rows();
	for (int64_t i = 0; i <= n_step; i++) {
		double c = cpu_seconds(), t = run(mode, i + 1);

		cpu += i ? cpu_seconds() - c : 0;
		sum += i ? t : 0;
		best = i && (best == 0 || t < best) ? t : best;
	}
	getrusage(RUSAGE_SELF, &use);
	printf("%s batch %lld length %lld: %.1f tokens/s (best %.1f), %.1f a CPU second, peak %.2f GB\n",
	       mode, (long long)B, (long long)L, (double)(n_step * B * L) / sum, (double)(B * L) / best,
	       (double)(n_step * B * L) / cpu, (double)use.ru_maxrss / 1e6);
	return 0;
}
