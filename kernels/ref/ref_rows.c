/* kernels/ref: operations on rows. Internals in double where a sum or a function is involved. */
#include "kernels/ref/ref_int.h"

#include <math.h>

int ref_embed(kn_stream *s, enum kn_dtype t, int64_t T, int64_t D, const int32_t *ids,
              const void *table, float *y)
{
	int rc = ref_need_type(s->dev, "embed", t);

	if (rc || (rc = ref_need_size(s->dev, "embed", T | D)))
		return rc;
	for (int64_t i = 0; i < T; i++)
		for (int64_t j = 0; j < D; j++)
			y[i * D + j] = ref_load(t, table, ids[i] * D + j);
	return KN_OK;
}

int ref_embed_bwd(kn_stream *s, int64_t T, int64_t D, const int32_t *ids, const float *dy, float *dtable)
{
	int rc = ref_need_size(s->dev, "embed_bwd", T | D);

	if (rc)
		return rc;
	for (int64_t i = 0; i < T; i++)
		for (int64_t j = 0; j < D; j++)
			dtable[ids[i] * D + j] += dy[i * D + j];
	return KN_OK;
}

int ref_rmsnorm(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                float eps, enum kn_dtype ty, void *y, float *rstd)
{
	int rc = ref_need_type(s->dev, "rmsnorm", tx);

	if (rc || (rc = ref_need_type(s->dev, "rmsnorm", ty)) || (rc = ref_need_size(s->dev, "rmsnorm", T | D)))
		return rc;
	for (int64_t i = 0; i < T; i++) {
		double sum = 0;
		float r;

		for (int64_t j = 0; j < D; j++) {
			double v = ref_load(tx, x, i * D + j);

			sum += v * v;
		}
		r = (float)(1 / sqrt(sum / (double)D + eps));
		for (int64_t j = 0; j < D; j++)
			ref_store(ty, y, i * D + j, ref_load(tx, x, i * D + j) * r * w[j]);
		if (rstd)
			rstd[i] = r;
	}
	return KN_OK;
}

/* With r = rstd, c = Σ_j w_j dy_j x_j:  dx = r·w⊙dy − x·c·r³/D,  dw += Σ_rows dy⊙x·r. */
int ref_rmsnorm_bwd(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                    const float *rstd, enum kn_dtype tdy, const void *dy,
                    enum kn_dtype tdx, void *dx, int accumulate, float *dw)
{
	int rc = ref_need_type(s->dev, "rmsnorm_bwd", tx);

	if (rc || (rc = ref_need_type(s->dev, "rmsnorm_bwd", tdy)) ||
	    (rc = ref_need_type(s->dev, "rmsnorm_bwd", tdx)) || (rc = ref_need_size(s->dev, "rmsnorm_bwd", T | D)))
		return rc;
	/* dw first: dx may take the place of dy. */
	for (int64_t j = 0; j < D; j++) {
		double sum = 0;

		for (int64_t i = 0; i < T; i++)
			sum += (double)ref_load(tdy, dy, i * D + j) * ref_load(tx, x, i * D + j) * rstd[i];
		dw[j] = (float)(dw[j] + sum);
	}
	for (int64_t i = 0; i < T; i++) {
		double r = rstd[i], c = 0;

		for (int64_t j = 0; j < D; j++)
			c += (double)w[j] * ref_load(tdy, dy, i * D + j) * ref_load(tx, x, i * D + j);
		c *= r * r * r / (double)D;
		for (int64_t j = 0; j < D; j++) {
			double v = r * w[j] * ref_load(tdy, dy, i * D + j) - c * ref_load(tx, x, i * D + j);

			if (accumulate)
				v += ref_load(tdx, dx, i * D + j);
			ref_store(tdx, dx, i * D + j, (float)v);
		}
	}
	return KN_OK;
}

int ref_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t n_head, int64_t d, int64_t ldx, int64_t R,
             void *x, const int32_t *pos, const float *cos, const float *sin, int sign)
{
	int rc = ref_need_type(s->dev, "rope", t);

	if (rc || (rc = ref_need_size(s->dev, "rope", T | n_head | R)))
		return rc;
	if (2 * R > d || n_head * d > ldx || (sign != 1 && sign != -1))
		return ref_fail(s->dev, KN_E_ARG, "rope: 2·%lld dims of %lld turn, row stride %lld, sign %d",
		                (long long)R, (long long)d, (long long)ldx, sign);
	for (int64_t i = 0; i < T; i++) {
		const float *c = cos + pos[i] * R, *n = sin + pos[i] * R;

		for (int64_t h = 0; h < n_head; h++) {
			int64_t o = i * ldx + h * d;

			for (int64_t j = 0; j < R; j++) {
				double a = ref_load(t, x, o + j), b = ref_load(t, x, o + j + R), z = sign * (double)n[j];

				ref_store(t, x, o + j, (float)(a * c[j] - b * z));
				ref_store(t, x, o + j + R, (float)(b * c[j] + a * z));
			}
		}
	}
	return KN_OK;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

int ref_silu_mul(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, void *y)
{
	int rc = ref_need_type(s->dev, "silu_mul", t);

	if (rc || (rc = ref_need_size(s->dev, "silu_mul", T | I)))
		return rc;
	for (int64_t i = 0; i < T; i++) {
		for (int64_t j = 0; j < I; j++) {
			double g = ref_load(t, gu, i * 2 * I + j), u = ref_load(t, gu, i * 2 * I + I + j);

			ref_store(t, y, i * I + j, (float)(g * sigmoid(g) * u));
		}
	}
	return KN_OK;
}

/* y = g·σ(g)·u:  du = dy·g·σ(g),  dg = dy·u·σ(g)·(1 + g·(1 − σ(g))). */
int ref_silu_mul_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, const void *dy,
                     void *dgu, void *y)
{
	int rc = ref_need_type(s->dev, "silu_mul_bwd", t);

	if (rc || (rc = ref_need_size(s->dev, "silu_mul_bwd", T | I)))
		return rc;
	for (int64_t i = 0; i < T; i++) {
		for (int64_t j = 0; j < I; j++) {
			double g = ref_load(t, gu, i * 2 * I + j), u = ref_load(t, gu, i * 2 * I + I + j);
			double z = ref_load(t, dy, i * I + j), p = sigmoid(g);

			ref_store(t, dgu, i * 2 * I + j, (float)(z * u * p * (1 + g * (1 - p))));
			ref_store(t, dgu, i * 2 * I + I + j, (float)(z * g * p));
			if (y)
				ref_store(t, y, i * I + j, (float)(g * p * u));
		}
	}
	return KN_OK;
}

int ref_add(kn_stream *s, enum kn_dtype t, int64_t n, const void *x, float *y)
{
	int rc = ref_need_type(s->dev, "add", t);

	if (rc || (rc = ref_need_size(s->dev, "add", n)))
		return rc;
	for (int64_t i = 0; i < n; i++)
		y[i] += ref_load(t, x, i);
	return KN_OK;
}

int ref_cast(kn_stream *s, int64_t n, enum kn_dtype tsrc, const void *src, enum kn_dtype tdst, void *dst)
{
	int rc = tsrc == KN_F16 ? KN_OK : ref_need_type(s->dev, "cast", tsrc);

	if (!rc && tdst != KN_F16)
		rc = ref_need_type(s->dev, "cast", tdst);
	if (rc || (rc = ref_need_size(s->dev, "cast", n)))
		return rc;
	for (int64_t i = 0; i < n; i++)
		ref_store(tdst, dst, i, ref_load(tsrc, src, i));
	return KN_OK;
}
