/* Operations under test: log-probabilities and the optimizer. */
#include "tests/kernels/ops.h"

/* T, V */
static const int64_t shapes_tv[][DIMS_MAX] = {{0, 3}, {1, 1}, {1, 2}, {3, 17}, {5, 64}, {7, 1000}, {2, 5003}, {-1}};
static const int64_t perf_tv[][DIMS_MAX] = {{1, 49152}, {512, 49152}, {64, 151936}, {-1}};
static const int64_t shapes_flat[][DIMS_MAX] = {{0}, {1}, {15}, {65}, {1000}, {65536}, {140001}, {-1}};
static const int64_t perf_flat[][DIMS_MAX] = {{135000000}, {-1}};

static int64_t n_rows(const int64_t *d)
{
	return d[0];
}

static void logprob(struct run *r)
{
	int64_t V = r->d[1], T = run_count(r, r->d[0]), first = run_first(r);
	float *x = (float *)run_in(r, KN_F32, r->d[0] * V, 0, 4) + first * V;
	int32_t *target = run_ids(r, r->d[0], (int32_t)V) + first;
	float *lp = run_buf(r, KN_F32, T), *ent = run_buf(r, KN_F32, T), *lse = run_buf(r, KN_F32, T);

	RUN(r, r->be->o->logprob(r->be->s, T, V, x, target, 0.7f, lp, r->repeat ? NULL : ent, lse));
	run_emit(r, KN_F32, lp, T, 1);
	run_emit(r, KN_F32, lse, T, 1);
	run_emit(r, KN_F32, ent, T, 1);
}

static double bytes_logprob(const int64_t *d, enum kn_dtype t)
{
	(void)t;
	return (double)(d[0] * d[1]) * 4;
}

static void logprob_bwd(struct run *r)
{
	int64_t T = r->d[0], V = r->d[1];
	float *x = run_in(r, KN_F32, T * V, 0, 4);
	int32_t *target = run_ids(r, T, (int32_t)V);
	float *g = run_in(r, KN_F32, T, 0, 1), *gh = run_in(r, KN_F32, T, 0, 1);
	float *ent = run_buf(r, KN_F32, T), *lse = run_buf(r, KN_F32, T);
	void *dx = run_buf(r, r->t, T * V);
	const struct kn_ops *o = r->be->o;

	r->rc = o->logprob(r->be->s, T, V, x, target, 0.7f, NULL, ent, lse);
	RUN(r, o->logprob_bwd(r->be->s, T, V, x, target, 0.7f, lse, g, NULL, NULL, r->t, dx));
	run_emit(r, r->t, dx, T, V);
	if (!r->repeat && !r->rc) { /* with the gradient of the entropy, and in place */
		r->rc = o->logprob_bwd(r->be->s, T, V, x, target, 0.7f, lse, g, gh, ent, r->t, dx);
		run_emit(r, r->t, dx, T, V);
		if (!r->rc)
			r->rc = o->logprob_bwd(r->be->s, T, V, x, target, 0.7f, lse, g, gh, ent, KN_F32, x);
		run_emit(r, KN_F32, x, T, V);
	}
}

static double bytes_logprob_bwd(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * (4 + (t == KN_F32 ? 4 : 2));
}

static void sumsq(struct run *r)
{
	float *x = run_in(r, KN_F32, r->d[0], 0, 1);
	double sum = 0;
	float hi, lo;

	RUN(r, r->be->o->sumsq(r->be->s, r->d[0], x, &sum));
	hi = (float)sum;
	lo = (float)(sum - (double)hi); /* both halves, so that bitwise comparisons see all of it */
	run_emit(r, KN_F32, &hi, 1, 1);
	if (r->be->o != kn_ref_ops())
		run_emit(r, KN_F32, &lo, 1, 1);
}

static double bytes_sumsq(const int64_t *d, enum kn_dtype t)
{
	(void)t;
	return (double)d[0] * 4;
}

static void scale(struct run *r)
{
	float *x = run_in(r, KN_F32, r->d[0], 0, 1);

	RUN(r, r->be->o->scale(r->be->s, r->d[0], 0.3f, x));
	run_emit(r, KN_F32, x, 1, r->d[0]);
}

static double bytes_scale(const int64_t *d, enum kn_dtype t)
{
	(void)t;
	return (double)d[0] * 8;
}

static void adamw(struct run *r)
{
	int64_t n = r->d[0];
	float *w = run_in(r, KN_F32, n, 0, 1), *m = run_in(r, KN_F32, n, 0, 0.1f), *g = run_in(r, KN_F32, n, 0, 0.1f);
	float *v = run_in(r, KN_F32, n, 1, 0.1f);
	void *copy = run_buf(r, r->t, n);

	RUN(r, r->be->o->adamw(r->be->s, n, w, m, v, g, 0.5f, 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, r->t, copy));
	run_emit(r, KN_F32, w, 1, n);
	run_emit(r, KN_F32, m, 1, n);
	run_emit(r, KN_F32, v, 1, n);
	run_emit(r, r->t, copy, 1, n);
}

static double bytes_adamw(const int64_t *d, enum kn_dtype t)
{
	return (double)d[0] * (28 + (t == KN_F32 ? 4 : 2));
}

const struct op ops_end[] = {
	{"logprob", logprob, 2, true, shapes_tv, n_rows, NULL, bytes_logprob, perf_tv},
	{"logprob_bwd", logprob_bwd, 3, false, shapes_tv, n_rows, NULL, bytes_logprob_bwd, perf_tv},
	{"sumsq", sumsq, 2, false, shapes_flat, n_rows, NULL, bytes_sumsq, perf_flat},
	{"scale", scale, 2, false, shapes_flat, n_rows, NULL, bytes_scale, perf_flat},
	{"adamw", adamw, 2, false, shapes_flat, n_rows, NULL, bytes_adamw, perf_flat},
	{.name = NULL},
};
