/* Operations under test: embedding, norms, rotation, activation, casts. Sizes: T, D and what the operation adds. */
#include "tests/kernels/ops.h"

#include <math.h>

static const int64_t shapes_td[][DIMS_MAX] = {
	{0, 8}, {1, 1}, {1, 17}, {2, 64}, {3, 100}, {67, 33}, {130, 76}, {5, 4099}, {-1},
};
/* T, H, G, d, R */
static const int64_t shapes_head[][DIMS_MAX] = {
	{0, 1, 1, 8, 4}, {1, 1, 1, 2, 1}, {3, 3, 1, 18, 9}, {5, 4, 2, 64, 32}, {70, 9, 3, 64, 32}, {4, 2, 2, 96, 16},
	{3, 2, 1, 72, 36}, {2, 2, 1, 65, 20}, {-1},
};
static const int64_t shapes_flat[][DIMS_MAX] = {{0}, {1}, {15}, {17}, {64}, {1000}, {70001}, {-1}};
static const int64_t perf_td[][DIMS_MAX] = {{1, 576}, {4096, 576}, {-1}};
static const int64_t perf_act[][DIMS_MAX] = {{1, 1536}, {4096, 1536}, {-1}};
static const int64_t perf_head[][DIMS_MAX] = {{1, 9, 3, 64, 32}, {4096, 9, 3, 64, 32}, {-1}};
static const int64_t perf_flat[][DIMS_MAX] = {{4096 * 576}, {100000000}, {-1}};

static int64_t n_rows(const int64_t *d)
{
	return d[0];
}

static double elem(enum kn_dtype t)
{
	return t == KN_F32 ? 4 : 2;
}

/* ---- embedding ---- */
#define VOCAB 50

static void embed(struct run *r)
{
	int64_t D = r->d[1], T = run_count(r, r->d[0]);
	int32_t *ids = run_ids(r, r->d[0], VOCAB) + run_first(r);
	void *table = run_in(r, r->t, VOCAB * D, 0, 1);
	float *y = run_buf(r, KN_F32, T * D);

	RUN(r, r->be->o->embed(r->be->s, r->t, T, D, ids, table, y));
	run_emit(r, KN_F32, y, T, D);
}

static double bytes_embed(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * (4 + elem(t));
}

static void embed_bwd(struct run *r)
{
	int64_t T = r->d[0], D = r->d[1];
	int32_t *ids = run_ids(r, T, VOCAB);
	float *dy = run_in(r, KN_F32, T * D, 0, 1), *dt = run_in(r, KN_F32, VOCAB * D, 0, 1);

	RUN(r, r->be->o->embed_bwd(r->be->s, T, D, ids, dy, dt));
	run_emit(r, KN_F32, dt, VOCAB, D);
}

static double bytes_embed_bwd(const int64_t *d, enum kn_dtype t)
{
	(void)t;
	return (double)(d[0] * d[1]) * 12;
}

/* ---- rmsnorm: of the f32 stream into the type of the products, and of that type in place ---- */
static void rmsnorm(struct run *r)
{
	int64_t D = r->d[1], T = run_count(r, r->d[0]), at = run_first(r) * D;
	float *x = (float *)run_in(r, KN_F32, r->d[0] * D, 0.2f, 1) + at;
	void *x2 = ops_at(r->t, run_in(r, r->t, r->d[0] * D, 0, 1), at);
	float *w = run_in(r, KN_F32, D, 1, 0.2f), *rstd = run_buf(r, KN_F32, T);
	void *y = run_buf(r, r->t, T * D);

	RUN(r, r->be->o->rmsnorm(r->be->s, T, D, KN_F32, x, w, 1e-5f, r->t, y, rstd));
	run_emit(r, r->t, y, T, D);
	run_emit(r, KN_F32, rstd, T, 1);
	if (!r->repeat && !r->rc) {
		r->rc = r->be->o->rmsnorm(r->be->s, T, D, r->t, x2, w, 1e-5f, r->t, x2, NULL);
		run_emit(r, r->t, x2, T, D);
	}
}

static double bytes_norm(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * (4 + elem(t));
}

static void rmsnorm_bwd(struct run *r)
{
	int64_t T = r->d[0], D = r->d[1], n = T * D;
	float *x = run_in(r, KN_F32, n, 0.2f, 1), *w = run_in(r, KN_F32, D, 1, 0.2f);
	void *dy = run_in(r, r->t, n, 0, 1), *x2 = run_in(r, r->t, n, 0, 1), *dx2 = run_buf(r, r->t, n);
	float *dx = run_in(r, KN_F32, n, 0, 1), *dw = run_in(r, KN_F32, D, 0, 1), *rstd = run_buf(r, KN_F32, T);
	void *y = run_buf(r, KN_F32, n);
	const struct kn_ops *o = r->be->o;

	r->rc = o->rmsnorm(r->be->s, T, D, KN_F32, x, w, 1e-5f, KN_F32, y, rstd);
	RUN(r, o->rmsnorm_bwd(r->be->s, T, D, KN_F32, x, w, rstd, r->t, dy, KN_F32, dx, 1, dw));
	run_emit(r, KN_F32, dx, T, D);
	run_emit(r, KN_F32, dw, 1, D);
	if (!r->repeat && !r->rc) {
		r->rc = o->rmsnorm_bwd(r->be->s, T, D, r->t, x2, w, rstd, r->t, dy, r->t, dx2, 0, dw);
		run_emit(r, r->t, dx2, T, D);
	}
}

static double bytes_norm_bwd(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * (12 + elem(t));
}

/* ---- rotation ---- */
#define N_POS 200

static void turns(struct run *r, int64_t R, float **cos_p, float **sin_p)
{
	*cos_p = run_buf(r, KN_F32, N_POS * R);
	*sin_p = run_buf(r, KN_F32, N_POS * R);
	for (int64_t p = 0; p < N_POS; p++) {
		for (int64_t j = 0; j < R; j++) {
			double a = (double)p * pow(10000, -(double)j / (double)R);

			(*cos_p)[p * R + j] = (float)cos(a);
			(*sin_p)[p * R + j] = (float)sin(a);
		}
	}
}

static void rope(struct run *r)
{
	int64_t H = r->d[1], d = r->d[3], R = r->d[4], T = run_count(r, r->d[0]), ld = H * d + 3;
	int32_t *pos = run_ids(r, r->d[0], N_POS) + run_first(r);
	void *x = ops_at(r->t, run_in(r, r->t, r->d[0] * ld, 0, 1), run_first(r) * ld);
	float *cos, *sin;

	turns(r, R, &cos, &sin);
	RUN(r, r->be->o->rope(r->be->s, r->t, T, H, d, ld, R, x, pos, cos, sin, 1));
	run_emit(r, r->t, x, T, ld);
	if (!r->repeat && !r->rc) {
		r->rc = r->be->o->rope(r->be->s, r->t, T, H, d, ld, R, x, pos, cos, sin, -1);
		run_emit(r, r->t, x, T, ld);
	}
}

static double bytes_head(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * (d[1] + 2 * d[2]) * d[3]) * 2 * elem(t);
}

static void qk(struct run *r, bool norm)
{
	int64_t H = r->d[1], G = r->d[2], d = r->d[3], R = r->d[4], T = run_count(r, r->d[0]), w = (H + 2 * G) * d;
	int32_t *pos = run_ids(r, r->d[0], N_POS) + run_first(r);
	void *x = ops_at(r->t, run_in(r, r->t, r->d[0] * w, 0, 1), run_first(r) * w), *y = run_buf(r, r->t, T * w);
	float *qw = run_in(r, KN_F32, d, 1, 0.2f), *kw = run_in(r, KN_F32, d, 1, 0.2f), *cos, *sin;
	const struct kn_ops *o = r->be->o;

	turns(r, R, &cos, &sin);
	RUN(r, o->qk_rope(r->be->s, r->t, T, H, G, d, x, norm ? qw : NULL, norm ? kw : NULL, 1e-6f, R, pos, cos, sin, y));
	run_emit(r, r->t, y, T, w);
	if (!r->repeat && !r->rc) { /* in place */
		r->rc = o->qk_rope(r->be->s, r->t, T, H, G, d, x, norm ? qw : NULL, norm ? kw : NULL, 1e-6f, R, pos, cos,
		                   sin, x);
		run_emit(r, r->t, x, T, w);
	}
}

static void qk_rope(struct run *r)
{
	qk(r, false);
}

static void qk_rope_norm(struct run *r)
{
	qk(r, true);
}

static void qk_bwd(struct run *r, bool norm)
{
	int64_t T = r->d[0], H = r->d[1], G = r->d[2], d = r->d[3], R = r->d[4], n = T * (H + 2 * G) * d;
	int32_t *pos = run_ids(r, T, N_POS);
	void *x = run_in(r, r->t, n, 0, 1), *dy = run_in(r, r->t, n, 0, 1);
	float *qw = run_in(r, KN_F32, d, 1, 0.2f), *kw = run_in(r, KN_F32, d, 1, 0.2f), *cos, *sin;
	float *dq = run_in(r, KN_F32, d, 0, 1), *dk = run_in(r, KN_F32, d, 0, 1);
	const struct kn_ops *o = r->be->o;

	turns(r, R, &cos, &sin);
	if (norm)
		RUN(r, o->qk_rope_bwd(r->be->s, r->t, T, H, G, d, x, qw, kw, 1e-6f, R, pos, cos, sin, dy, dq, dk));
	else
		RUN(r, o->qk_rope_bwd(r->be->s, r->t, T, H, G, d, NULL, NULL, NULL, 1e-6f, R, pos, cos, sin, dy, NULL,
		                      NULL));
	run_emit(r, r->t, dy, T, (H + 2 * G) * d);
	run_emit(r, KN_F32, dq, 1, d);
	run_emit(r, KN_F32, dk, 1, d);
}

static void qk_rope_bwd(struct run *r)
{
	qk_bwd(r, false);
}

static void qk_rope_norm_bwd(struct run *r)
{
	qk_bwd(r, true);
}

/* ---- activation ---- */
static void silu_mul(struct run *r)
{
	int64_t I = r->d[1], T = run_count(r, r->d[0]);
	void *gu = ops_at(r->t, run_in(r, r->t, r->d[0] * 2 * I, 0, 3), run_first(r) * 2 * I);
	void *y = run_buf(r, r->t, T * I);

	RUN(r, r->be->o->silu_mul(r->be->s, r->t, T, I, gu, y));
	run_emit(r, r->t, y, T, I);
}

static double bytes_act(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * 3 * elem(t);
}

static void silu_mul_bwd(struct run *r)
{
	int64_t T = r->d[0], I = r->d[1];
	void *gu = run_in(r, r->t, T * 2 * I, 0, 3), *dy = run_in(r, r->t, T * I, 0, 1);
	void *dgu = run_buf(r, r->t, T * 2 * I), *y = run_buf(r, r->t, T * I);

	RUN(r, r->be->o->silu_mul_bwd(r->be->s, r->t, T, I, gu, dy, dgu, y));
	run_emit(r, r->t, dgu, T, 2 * I);
	run_emit(r, r->t, y, T, I);
}

static double bytes_act_bwd(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[0] * d[1]) * 6 * elem(t);
}

/* ---- flat arrays ---- */
static void add(struct run *r)
{
	void *x = run_in(r, r->t, r->d[0], 0, 1);
	float *y = run_in(r, KN_F32, r->d[0], 0, 1);

	RUN(r, r->be->o->add(r->be->s, r->t, r->d[0], x, y));
	run_emit(r, KN_F32, y, 1, r->d[0]);
}

static double bytes_add(const int64_t *d, enum kn_dtype t)
{
	return (double)d[0] * (8 + elem(t));
}

/* f32 → type → f32, by way of f16 as well. */
static void cast(struct run *r)
{
	int64_t n = r->d[0];
	float *x = run_in(r, KN_F32, n, 0, 1), *back = run_buf(r, KN_F32, n);
	uint16_t *half = run_buf(r, KN_F16, n);
	void *y = run_buf(r, r->t, n);

	for (int64_t i = 0; i < n; i++) /* not what bf16 can hold: rounding is the point */
		x[i] *= 1.0009765625f;
	RUN(r, r->be->o->cast(r->be->s, n, KN_F32, x, r->t, y));
	run_emit(r, r->t, y, 1, n);
	if (!r->repeat && !r->rc) {
		r->rc = r->be->o->cast(r->be->s, n, r->t, y, KN_F16, half);
		if (!r->rc)
			r->rc = r->be->o->cast(r->be->s, n, KN_F16, half, KN_F32, back);
		run_emit(r, KN_F32, back, 1, n);
	}
}

static double bytes_cast(const int64_t *d, enum kn_dtype t)
{
	return (double)d[0] * (4 + elem(t));
}

const struct op ops_rows[] = {
	{"embed", embed, 2, true, shapes_td, n_rows, NULL, bytes_embed, perf_td},
	{"embed_bwd", embed_bwd, 3, false, shapes_td, n_rows, NULL, bytes_embed_bwd, perf_td},
	{"rmsnorm", rmsnorm, 2, true, shapes_td, n_rows, NULL, bytes_norm, perf_td},
	{"rmsnorm_bwd", rmsnorm_bwd, 3, false, shapes_td, n_rows, NULL, bytes_norm_bwd, perf_td},
	{"rope", rope, 2, true, shapes_head, n_rows, NULL, bytes_head, perf_head},
	{"qk_rope", qk_rope, 2, true, shapes_head, n_rows, NULL, bytes_head, perf_head},
	{"qk_rope with norms", qk_rope_norm, 2, true, shapes_head, n_rows, NULL, bytes_head, perf_head},
	{"qk_rope_bwd", qk_rope_bwd, 3, false, shapes_head, n_rows, NULL, bytes_head, perf_head},
	{"qk_rope_bwd with norms", qk_rope_norm_bwd, 3, false, shapes_head, n_rows, NULL, bytes_head, perf_head},
	{"silu_mul", silu_mul, 2, true, shapes_td, n_rows, NULL, bytes_act, perf_act},
	{"silu_mul_bwd", silu_mul_bwd, 3, false, shapes_td, n_rows, NULL, bytes_act_bwd, perf_act},
	{"add", add, 2, false, shapes_flat, n_rows, NULL, bytes_add, perf_flat},
	{"cast", cast, 2, false, shapes_flat, n_rows, NULL, bytes_cast, perf_flat},
	{.name = NULL},
};
