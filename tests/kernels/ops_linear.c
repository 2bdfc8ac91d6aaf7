/* Operations under test: matrix products. Sizes: T, N, K. */
#include "tests/kernels/ops.h"

static const int64_t shapes[][DIMS_MAX] = {
	{0, 5, 3}, {1, 1, 1}, {1, 33, 7}, {2, 31, 64}, {3, 64, 65}, {5, 257, 33}, {7, 96, 128}, {12, 32, 576}, {13, 65, 31},
	{25, 70, 130}, {49, 129, 50}, {97, 40, 72}, {53, 33, 4200},
	{2, 4100, 3}, {1030, 5, 4}, {-1},
};
static const int64_t perf[][DIMS_MAX] = {
	{1, 960, 576}, {1, 3072, 576}, {1, 576, 1536}, {1, 49152, 576}, {1, 4096, 4096}, {32, 960, 576}, {32, 3072, 576},
	{32, 49152, 576}, {512, 960, 576}, {512, 576, 576}, {512, 3072, 576}, {512, 576, 1536}, {512, 49152, 576},
	{512, 4096, 4096}, {4096, 960, 576}, {4096, 576, 576}, {4096, 3072, 576}, {4096, 576, 1536}, {-1},
};

static int64_t n_rows(const int64_t *d)
{
	return d[0];
}

static double flops(const int64_t *d)
{
	return 2.0 * (double)d[0] * (double)d[1] * (double)d[2];
}

static double bytes(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[1] * d[2] + d[0] * (d[1] + d[2])) * (t == KN_F32 ? 4 : 2);
}

static kn_weight *weight(struct run *r, int64_t N, int64_t K, unsigned uses)
{
	const struct kn_ops *o = r->be->o;
	void *w = run_in(r, r->t, N * K, 0, 0.5f);
	kn_weight *kw = NULL;

	r->rc = o->weight_new(r->be->dev, r->t, N, K, uses, &kw);
	if (!r->rc)
		r->rc = o->weight_set(r->be->s, kw, w);
	return kw;
}

/* y = x·Wᵀ three ways: plain in the type of the products, with bias in f32, added to what is there. */
static void linear(struct run *r)
{
	int64_t N = r->d[1], K = r->d[2], T = run_count(r, r->d[0]), first = run_first(r);
	kn_weight *w = weight(r, N, K, KN_USE_FWD);
	void *x = ops_at(r->t, run_in(r, r->t, r->d[0] * K, 0.1f, 0.5f), first * K);
	float *bias = run_in(r, KN_F32, N, 0, 1);
	void *y = run_buf(r, r->t, T * N);
	float *y32 = run_buf(r, KN_F32, T * N);
	const struct kn_ops *o = r->be->o;

	if (!r->rc)
		RUN(r, o->linear(r->be->s, w, T, x, NULL, r->t, y, 0));
	if (!r->rc && !r->repeat)
		r->rc = o->linear(r->be->s, w, T, x, bias, KN_F32, y32, 0);
	run_emit(r, r->t, y, T, N);
	if (!r->rc && !r->repeat) {
		run_emit(r, KN_F32, y32, T, N);
		r->rc = o->linear(r->be->s, w, T, x, NULL, KN_F32, y32, 1);
		run_emit(r, KN_F32, y32, T, N);
		r->rc = o->linear(r->be->s, w, T, x, bias, r->t, y, 0);
		run_emit(r, r->t, y, T, N);
	}
	o->weight_free(w);
}

static void linear_bwd_x(struct run *r)
{
	int64_t T = r->d[0], N = r->d[1], K = r->d[2];
	kn_weight *w = weight(r, N, K, KN_USE_BWD_X);
	void *dy = run_in(r, r->t, T * N, 0, 0.5f), *dx = run_buf(r, r->t, T * K);
	float *dx32 = run_in(r, KN_F32, T * K, 0, 1);
	const struct kn_ops *o = r->be->o;

	if (!r->rc)
		RUN(r, o->linear_bwd_x(r->be->s, w, T, dy, r->t, dx, 0));
	run_emit(r, r->t, dx, T, K);
	if (!r->rc && !r->repeat) {
		r->rc = o->linear_bwd_x(r->be->s, w, T, dy, KN_F32, dx32, 1);
		run_emit(r, KN_F32, dx32, T, K);
	}
	o->weight_free(w);
}

static void linear_bwd_w(struct run *r)
{
	int64_t T = r->d[0], N = r->d[1], K = r->d[2];
	void *dy = run_in(r, r->t, T * N, 0, 0.5f), *x = run_in(r, r->t, T * K, 0.1f, 0.5f);
	float *dw = run_in(r, KN_F32, N * K, 0, 1), *db = run_in(r, KN_F32, N, 0, 1);

	RUN(r, r->be->o->linear_bwd_w(r->be->s, r->t, T, N, K, dy, x, dw, r->repeat ? NULL : db));
	run_emit(r, KN_F32, dw, N, K);
	run_emit(r, KN_F32, db, 1, N);
}

const struct op ops_linear[] = {
	{"linear", linear, 2, true, shapes, n_rows, flops, bytes, perf},
	{"linear_bwd_x", linear_bwd_x, 3, false, shapes, n_rows, flops, bytes, perf},
	{"linear_bwd_w", linear_bwd_w, 3, false, shapes, n_rows, flops, bytes, perf},
	{.name = NULL},
};
