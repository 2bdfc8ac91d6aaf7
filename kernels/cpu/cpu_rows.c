/* kernels/cpu: drivers of the row operations: they check, and deal ranges of rows to threads. */
#include "kernels/cpu/cpu_ops.h"

/* ---- one element, the slow way ---- */
static float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, f = h & 1023, u;
	float x;

	if (e == 0) {
		x = (float)f * 0x1p-24f;
		return sign ? -x : x;
	}
	u = e == 31 ? sign | 0x7f800000u | f << 13 : sign | (e + 112) << 23 | f << 13;
	memcpy(&x, &u, sizeof x);
	return x;
}

static uint16_t f32_to_f16(float x)
{
	uint32_t u, sign, mag;

	memcpy(&u, &x, sizeof u);
	sign = u >> 16 & 0x8000;
	mag = u & 0x7fffffffu;
	if (mag > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
	if (mag >= 0x477ff000u) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (mag < 0x38800000u) { /* a multiple of 2^-24: the last bit of a sum with 0.5 */
		float y;

		memcpy(&y, &mag, sizeof y);
		y += 0.5f;
		memcpy(&u, &y, sizeof u);
		return (uint16_t)(sign | (u - 0x3f000000u));
	}
	mag += 0xfff + (mag >> 13 & 1);
	return (uint16_t)(sign | ((mag - 0x38000000u) >> 13));
}

float cpu_get(enum kn_dtype t, const void *p, int64_t i)
{
	uint32_t u;
	float x;

	if (t == KN_F32)
		return ((const float *)p)[i];
	if (t == KN_F16)
		return f16_to_f32(((const uint16_t *)p)[i]);
	u = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&x, &u, sizeof x);
	return x;
}

void cpu_put(enum kn_dtype t, void *p, int64_t i, float x)
{
	uint32_t u;

	if (t == KN_F32) {
		((float *)p)[i] = x;
		return;
	}
	if (t == KN_F16) {
		((uint16_t *)p)[i] = f32_to_f16(x);
		return;
	}
	memcpy(&u, &x, sizeof u);
	u = x != x ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
	((uint16_t *)p)[i] = (uint16_t)u;
}

/* ---- embedding ---- */
struct embed {
	const struct cpu_vec *vec;
	enum kn_dtype t;
	int64_t D, T;
	const int32_t *ids;
	const void *table;
	const float *dy;
	float *y;
};

static void embed_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct embed *c = ctx;

	for (int64_t r = r0; r < r1; r++)
		c->vec->cast(c->D, c->t, cpu_at(c->t, c->table, c->ids[r] * c->D), KN_F32, c->y + r * c->D);
}

int cpu_embed(kn_stream *s, enum kn_dtype t, int64_t T, int64_t D, const int32_t *ids,
              const void *table, float *y)
{
	struct embed c = {.vec = s->dev->vec, .t = t, .D = D, .ids = ids, .table = table, .y = y};
	int rc = cpu_need(s->dev, "embed", t, T | D);

	if (!rc)
		cpu_rows(s->dev, T, D, embed_rows, &c);
	return rc;
}

/* Threads own columns, so a row of the table that occurs twice gets its sums in the order of rows. */
#define EMBED_COLS 64

static void embed_bwd_cols(void *ctx, int64_t i, int thread)
{
	struct embed *c = ctx;
	int64_t j = i * EMBED_COLS, n = c->D - j < EMBED_COLS ? c->D - j : EMBED_COLS;

	(void)thread;
	for (int64_t r = 0; r < c->T; r++)
		c->vec->add(KN_F32, n, c->dy + r * c->D + j, c->y + c->ids[r] * c->D + j);
}

int cpu_embed_bwd(kn_stream *s, int64_t T, int64_t D, const int32_t *ids, const float *dy, float *dtable)
{
	struct embed c = {.vec = s->dev->vec, .D = D, .T = T, .ids = ids, .dy = dy, .y = dtable};
	int rc = cpu_need(s->dev, "embed_bwd", KN_F32, T | D);

	if (!rc)
		cpu_par(s->dev, cpu_div_up(D, EMBED_COLS), embed_bwd_cols, &c);
	return rc;
}

/* ---- rmsnorm ---- */
struct norm {
	const struct cpu_vec *vec;
	struct cpu_norm f;
	struct cpu_norm_bwd b;
	int64_t T, step;
	float *dw;      /* [chunks, D] partial sums */
};

static void norm_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct norm *c = ctx;

	c->vec->norm(&c->f, r0, r1);
}

int cpu_rmsnorm(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                float eps, enum kn_dtype ty, void *y, float *rstd)
{
	struct norm c = {.vec = s->dev->vec,
		.f = {.D = D, .tx = tx, .ty = ty, .x = x, .w = w, .eps = eps, .y = y, .rstd = rstd}};
	int rc = cpu_need(s->dev, "rmsnorm", tx, T | D);

	if (!rc)
		rc = cpu_need(s->dev, "rmsnorm", ty, 0);
	if (!rc)
		cpu_rows(s->dev, T, D, norm_rows, &c);
	return rc;
}

/* Sums over rows are made in chunks of rows whose number depends on T alone, then added up in order. */
#define NORM_CHUNKS 64

static void norm_bwd_chunk(void *ctx, int64_t i, int thread)
{
	struct norm *c = ctx;
	int64_t r0 = i * c->step, r1 = r0 + c->step;
	float *dw = c->dw + i * c->b.D;

	(void)thread;
	memset(dw, 0, (size_t)c->b.D * sizeof *dw);
	c->vec->norm_bwd(&c->b, r0, r1 < c->T ? r1 : c->T, dw);
}

int cpu_rmsnorm_bwd(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                    const float *rstd, enum kn_dtype tdy, const void *dy,
                    enum kn_dtype tdx, void *dx, int accumulate, float *dw)
{
	struct norm c = {.vec = s->dev->vec, .T = T,
		.b = {.D = D, .tx = tx, .tdy = tdy, .tdx = tdx, .x = x, .dy = dy, .w = w, .rstd = rstd, .dx = dx,
		      .accumulate = accumulate}};
	int64_t n;
	int rc = cpu_need(s->dev, "rmsnorm_bwd", tx, T | D);

	if (rc || (rc = cpu_need(s->dev, "rmsnorm_bwd", tdy, 0)) || (rc = cpu_need(s->dev, "rmsnorm_bwd", tdx, 0)))
		return rc;
	if (T == 0 || D == 0)
		return KN_OK;
	c.step = cpu_div_up(T, NORM_CHUNKS);
	n = cpu_div_up(T, c.step);
	c.dw = cpu_scratch(s->dev, (uint64_t)(n * D) * sizeof *c.dw);
	if (!c.dw)
		return KN_E_MEMORY;
	cpu_par(s->dev, n, norm_bwd_chunk, &c);
	for (int64_t i = 0; i < n; i++)
		c.vec->add(KN_F32, D, c.dw + i * D, dw);
	return KN_OK;
}

/* ---- rotary embedding ---- */
struct rope {
	const struct cpu_vec *vec;
	struct cpu_rope o;
};

static void rope_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct rope *c = ctx;

	c->vec->rope(&c->o, r0, r1);
}

int cpu_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t n_head, int64_t d, int64_t ldx, int64_t R,
             void *x, const int32_t *pos, const float *cos, const float *sin, int sign)
{
	struct rope c = {s->dev->vec, {.t = t, .n_head = n_head, .d = d, .ldx = ldx, .R = R, .x = x, .pos = pos,
		.cos = cos, .sin = sin, .sign = sign}};
	int rc = cpu_need(s->dev, "rope", t, T | n_head | R);

	if (rc)
		return rc;
	if (2 * R > d || n_head * d > ldx || (sign != 1 && sign != -1))
		return cpu_fail(s->dev, KN_E_ARG, "rope: 2·%lld dims of %lld turn, row stride %lld, sign %d",
		                (long long)R, (long long)d, (long long)ldx, sign);
	cpu_rows(s->dev, T, n_head * R * 2, rope_rows, &c);
	return KN_OK;
}

/* ---- activation ---- */
struct act {
	const struct cpu_vec *vec;
	enum kn_dtype t;
	int64_t I;
	const void *gu, *dy;
	void *dgu, *y;
};

static void silu_mul_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct act *c = ctx;

	for (int64_t r = r0; r < r1; r++) {
		const void *g = cpu_at(c->t, c->gu, r * 2 * c->I);

		c->vec->silu_mul(c->t, c->I, g, cpu_at(c->t, g, c->I), cpu_at_w(c->t, c->y, r * c->I));
	}
}

static void silu_mul_bwd_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct act *c = ctx;

	for (int64_t r = r0; r < r1; r++) {
		const void *g = cpu_at(c->t, c->gu, r * 2 * c->I);
		void *dg = cpu_at_w(c->t, c->dgu, r * 2 * c->I);

		c->vec->silu_mul_bwd(c->t, c->I, g, cpu_at(c->t, g, c->I), cpu_at(c->t, c->dy, r * c->I),
		                     dg, cpu_at_w(c->t, dg, c->I), c->y ? cpu_at_w(c->t, c->y, r * c->I) : NULL);
	}
}

int cpu_silu_mul(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, void *y)
{
	struct act c = {.vec = s->dev->vec, .t = t, .I = I, .gu = gu, .y = y};
	int rc = cpu_need(s->dev, "silu_mul", t, T | I);

	if (!rc)
		cpu_rows(s->dev, T, I * 4, silu_mul_rows, &c);
	return rc;
}

int cpu_silu_mul_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, const void *dy,
                     void *dgu, void *y)
{
	struct act c = {.vec = s->dev->vec, .t = t, .I = I, .gu = gu, .dy = dy, .dgu = dgu, .y = y};
	int rc = cpu_need(s->dev, "silu_mul_bwd", t, T | I);

	if (!rc)
		cpu_rows(s->dev, T, I * 6, silu_mul_bwd_rows, &c);
	return rc;
}

/* ---- flat arrays ---- */
struct flat {
	const struct cpu_vec *vec;
	enum kn_dtype t, td;
	const void *x;
	void *y;
	float a;
};

static void add_range(void *ctx, int64_t i0, int64_t i1)
{
	struct flat *c = ctx;

	c->vec->add(c->t, i1 - i0, cpu_at(c->t, c->x, i0), (float *)c->y + i0);
}

static void cast_range(void *ctx, int64_t i0, int64_t i1)
{
	struct flat *c = ctx;

	c->vec->cast(i1 - i0, c->t, cpu_at(c->t, c->x, i0), c->td, cpu_at_w(c->td, c->y, i0));
}

static void scale_range(void *ctx, int64_t i0, int64_t i1)
{
	struct flat *c = ctx;

	c->vec->scale(i1 - i0, c->a, (float *)c->y + i0);
}

int cpu_add(kn_stream *s, enum kn_dtype t, int64_t n, const void *x, float *y)
{
	struct flat c = {.vec = s->dev->vec, .t = t, .x = x, .y = y};
	int rc = cpu_need(s->dev, "add", t, n);

	if (!rc)
		cpu_rows(s->dev, n, 1, add_range, &c);
	return rc;
}

int cpu_cast(kn_stream *s, int64_t n, enum kn_dtype tsrc, const void *src, enum kn_dtype tdst, void *dst)
{
	struct flat c = {.vec = s->dev->vec, .t = tsrc, .td = tdst, .x = src, .y = dst};
	int rc = cpu_need(s->dev, "cast", tsrc == KN_F16 ? KN_F32 : tsrc, n);

	if (!rc)
		rc = cpu_need(s->dev, "cast", tdst == KN_F16 ? KN_F32 : tdst, n);
	if (!rc)
		cpu_rows(s->dev, n, 1, cast_range, &c);
	return rc;
}

int cpu_scale(kn_stream *s, int64_t n, float a, float *x)
{
	struct flat c = {.vec = s->dev->vec, .a = a, .y = x};
	int rc = cpu_need(s->dev, "scale", KN_F32, n);

	if (!rc)
		cpu_rows(s->dev, n, 1, scale_range, &c);
	return rc;
}
