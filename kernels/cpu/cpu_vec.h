/* Private to kernels/cpu: the functions that exist once per instruction set. They know nothing of threads, devices or
 * errors: each works on a range of rows or elements that its driver hands out. vec_impl.h is their one source text;
 * vec_base.c, vec_avx2.c, vec_avx512.c and vec_avx512bf16.c compile it.
 *
 * Operands of products come in *units* of 32 bits: one f32, or two bf16 that are neighbours along the summed index. With
 * units, f32 and bf16 products are the same loops. A *panel* is CPU_PANEL neighbouring columns of a right-hand operand. */
#ifndef KN_CPU_VEC_H
#define KN_CPU_VEC_H

#include "kernels/kernels.h"

#define CPU_PANEL 32

typedef uint32_t cpu_unit __attribute__((may_alias, aligned(2)));

/* c [m, n_panel·PANEL] = (keep ? c : 0) + A·B over nu units, every element one chain of sums in the order of u, so its bits
 * depend on nothing but its row of A and its column of B.
 * A's unit (i, u) is a[i·sm + u·su]; B's unit (u, column j of panel p) is b[p·ps + u·su_b + j]; c has row stride ldc. */
struct cpu_gemm {
	int64_t m, n_panel, nu;
	const cpu_unit *a;
	int64_t sm, su;
	const cpu_unit *b;
	int64_t ps, su_b;
	float *c;
	int64_t ldc;
	int keep;
	uint16_t *y;            /* not NULL: the result goes there as bf16, with bias [columns] or NULL added; c is only read */
	int64_t ldy;
	const float *bias;
	const char *ahead;      /* not NULL: bytes that the caller needs soon; a tile fetches one line a unit, nu lines in all */
};

struct cpu_norm {
	int64_t D;
	enum kn_dtype tx, ty;
	const void *x;
	const float *w;
	float eps;
	void *y;
	float *rstd;
};

struct cpu_norm_bwd {
	int64_t D;
	enum kn_dtype tx, tdy, tdx;
	const void *x, *dy;
	const float *w, *rstd;
	void *dx;
	int accumulate;
};

struct cpu_rope {
	enum kn_dtype t;
	int64_t n_head, d, ldx, R;
	void *x;
	const int32_t *pos;
	const float *cos, *sin;
	int sign;
};

struct cpu_qk {
	enum kn_dtype t;
	int64_t H, G, d, R;
	const void *qkv;
	const float *qw, *kw;
	float eps;
	const int32_t *pos;
	const float *cos, *sin;
	void *out;              /* backward: the gradient, in place */
};

struct cpu_logprob {
	int64_t V;
	const float *logits;
	const int32_t *target;
	float inv_temp;
	float *logprob, *entropy, *lse;         /* forward: results, each may be NULL */
	const float *dlogprob, *dentropy;       /* backward */
	const float *lse_in, *entropy_in;
	enum kn_dtype t;
	void *dlogits;
};

struct cpu_adamw {
	float *w, *m, *v;
	const float *g;
	float gscale, lr, b1, b2, eps, decay, c1, c2;   /* c1 = 1/(1−b1^t), c2 = 1/(1−b2^t) */
	enum kn_dtype tcopy;
	void *w_copy;
};

/* One block of KN_PAGE keys against m rows of scores in the flash recurrence. */
struct cpu_soft {
	int64_t m;
	float *s;                       /* [m, KN_PAGE] q·k; bf16: read only; f32: becomes p */
	cpu_unit *p;                    /* bf16: units [m, KN_PAGE / 2]; f32: may be s itself */
	const int32_t *lo, *hi;         /* [m] keys lo ≤ j < hi of the block are seen by the row */
	float c;                        /* scale·log2 e > 0 */
	float *top, *sum;               /* [m] running; top = c·max of the scores */
	float *fix;                     /* [m] 2^(old top − new top): the factor for what was summed before */
};

/* The same block in the backward pass: p = exp(scale·s − lse), ds = p·(dp − delta)·scale. */
struct cpu_soft_bwd {
	int64_t m;                      /* even for bf16 */
	const float *s, *dp;            /* [m, KN_PAGE] */
	const int32_t *lo, *hi;
	float scale, c;                 /* c = scale·log2 e */
	const float *lse, *delta;       /* [m] */
	cpu_unit *pt, *dst;             /* p, ds in units along rows: bf16 [m / 2, KN_PAGE], f32 [m, KN_PAGE] */
	cpu_unit *ds;                   /* ds in units along keys: bf16 [m, KN_PAGE / 2], f32 [m, KN_PAGE] */
};

struct cpu_vec {
	const char *name;
	int bf16_dot;                   /* products of bf16 by a dot instruction */
	void (*gemm_f32)(const struct cpu_gemm *g);
	void (*gemm_bf16)(const struct cpu_gemm *g);
	/* dst[i] = the unit of a[i] and b[i], bf16; b NULL: of a[i] and 0. */
	void (*pair)(int64_t n, const uint16_t *a, const uint16_t *b, cpu_unit *dst);
	/* y (+)= c + bias for rows of n columns. */
	void (*store)(int64_t m, int64_t n, const float *c, int64_t ldc, const float *bias,
	              enum kn_dtype ty, void *y, int64_t ldy, int accumulate);
	void (*norm)(const struct cpu_norm *o, int64_t r0, int64_t r1);
	void (*norm_bwd)(const struct cpu_norm_bwd *o, int64_t r0, int64_t r1, float *dw /* [D] += */);
	void (*rope)(const struct cpu_rope *o, int64_t r0, int64_t r1);
	void (*qk_rope)(const struct cpu_qk *o, int64_t r0, int64_t r1);
	void (*qk_rope_bwd)(const struct cpu_qk *o, int64_t r0, int64_t r1, float *dw /* [2, d] += for q, k */);
	void (*silu_mul)(enum kn_dtype t, int64_t n, const void *g, const void *u, void *y);
	void (*silu_mul_bwd)(enum kn_dtype t, int64_t n, const void *g, const void *u, const void *dy,
	                     void *dg, void *du, void *y);
	void (*add)(enum kn_dtype t, int64_t n, const void *x, float *y);
	void (*cast)(int64_t n, enum kn_dtype ts, const void *src, enum kn_dtype td, void *dst);
	void (*scale)(int64_t n, float a, float *x);
	double (*sumsq)(int64_t n, const float *x);
	void (*adamw)(const struct cpu_adamw *o, int64_t i0, int64_t i1);
	void (*logprob)(const struct cpu_logprob *o, int64_t r0, int64_t r1);
	void (*logprob_bwd)(const struct cpu_logprob *o, int64_t r0, int64_t r1);
	void (*soft_f32)(const struct cpu_soft *o);
	void (*soft_bf16)(const struct cpu_soft *o);
	void (*soft_bwd_f32)(const struct cpu_soft_bwd *o);
	void (*soft_bwd_bf16)(const struct cpu_soft_bwd *o);
	/* out = acc / sum, n elements. */
	void (*divide)(int64_t n, const float *acc, float sum, enum kn_dtype t, void *out);
	/* acc [m, n] *= fix[row]. */
	void (*scale_rows)(int64_t m, int64_t n, float *acc, const float *fix);
	float (*dot)(enum kn_dtype t, int64_t n, const void *a, const void *b);
};

extern const struct cpu_vec cpu_vec_base, cpu_vec_avx2, cpu_vec_avx512, cpu_vec_avx512bf16;

#endif
