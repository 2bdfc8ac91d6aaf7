/* kernels/ref: norm and rotation of query and key heads between the fused product and attention. Internals in double. */
#include "kernels/ref/ref_int.h"

#include <math.h>
#include <stdlib.h>

static int need_qk(kn_dev *dev, const char *op, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d,
                   const float *qw, const float *kw, int64_t R)
{
	int rc = ref_need_type(dev, op, t);

	if (rc || (rc = ref_need_size(dev, op, T | H | G | d | R)))
		return rc;
	if (2 * R > d || !qw != !kw)
		return ref_fail(dev, KN_E_ARG, "%s: 2·%lld dims of %lld turn, norms %d and %d", op, (long long)R,
		                (long long)d, qw != NULL, kw != NULL);
	return KN_OK;
}

/* 1 / sqrt(mean(x²) + eps) of the head at element o. */
static double head_rstd(enum kn_dtype t, const void *x, int64_t o, int64_t d, float eps)
{
	double sum = 0;

	for (int64_t j = 0; j < d; j++) {
		double v = ref_load(t, x, o + j);

		sum += v * v;
	}
	return 1 / sqrt(sum / (double)d + eps);
}

/* (a, b) at (j, j+R) → (a·cos − b·sin, b·cos + a·sin); sign −1 turns back. */
static void turn(double *x, int64_t R, const float *c, const float *n, int sign)
{
	for (int64_t j = 0; j < R; j++) {
		double a = x[j], b = x[j + R], z = sign * (double)n[j];

		x[j] = a * c[j] - b * z;
		x[j + R] = b * c[j] + a * z;
	}
}

int ref_qk_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                const float *sin, void *out)
{
	int rc = need_qk(s->dev, "qk_rope", t, T, H, G, d, qw, kw, R);
	double *x;

	if (rc)
		return rc;
	x = malloc((size_t)d * sizeof *x + 1);
	if (!x)
		return ref_fail(s->dev, KN_E_MEMORY, "qk_rope: no memory for a head of %lld", (long long)d);
	for (int64_t i = 0; i < T * (H + 2 * G); i++) {
		int64_t r = i / (H + 2 * G), h = i % (H + 2 * G);
		const float *w = h < H ? qw : kw;
		double rstd = w && h < H + G ? head_rstd(t, qkv, i * d, d, eps) : 1;

		for (int64_t j = 0; j < d; j++)
			x[j] = ref_load(t, qkv, i * d + j) * rstd * (w && h < H + G ? w[j] : 1);
		if (h < H + G)
			turn(x, R, cos + pos[r] * R, sin + pos[r] * R, 1);
		for (int64_t j = 0; j < d; j++)
			ref_store(t, out, i * d + j, (float)x[j]);
	}
	free(x);
	return KN_OK;
}

int ref_qk_rope_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                    const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                    const float *sin, void *dqkv, float *dqw, float *dkw)
{
	int rc = need_qk(s->dev, "qk_rope_bwd", t, T, H, G, d, qw, kw, R);
	double *g, *sum;

	if (rc)
		return rc;
	g = calloc((size_t)(3 * d) + 1, sizeof *g); /* gradient of a head, sums of dqw and of dkw */
	if (!g)
		return ref_fail(s->dev, KN_E_MEMORY, "qk_rope_bwd: no memory for a head of %lld", (long long)d);
	for (int64_t i = 0; i < T * (H + 2 * G); i++) {
		int64_t r = i / (H + 2 * G), h = i % (H + 2 * G);
		const float *w = h < H ? qw : kw;

		if (h >= H + G)
			continue;
		for (int64_t j = 0; j < d; j++)
			g[j] = ref_load(t, dqkv, i * d + j);
		turn(g, R, cos + pos[r] * R, sin + pos[r] * R, -1);
		if (w) {
			double rstd = head_rstd(t, qkv, i * d, d, eps), c = 0;

			sum = g + (h < H ? d : 2 * d);
			for (int64_t j = 0; j < d; j++) {
				double v = ref_load(t, qkv, i * d + j);

				sum[j] += g[j] * v * rstd;
				c += w[j] * g[j] * v;
			}
			c *= rstd * rstd * rstd / (double)d;
			for (int64_t j = 0; j < d; j++)
				g[j] = rstd * w[j] * g[j] - c * ref_load(t, qkv, i * d + j);
		}
		for (int64_t j = 0; j < d; j++)
			ref_store(t, dqkv, i * d + j, (float)g[j]);
	}
	for (int64_t j = 0; qw && j < d; j++) {
		dqw[j] = (float)(dqw[j] + g[d + j]);
		dkw[j] = (float)(dkw[j] + g[2 * d + j]);
	}
	free(g);
	return KN_OK;
}
