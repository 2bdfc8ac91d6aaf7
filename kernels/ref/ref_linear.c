/* kernels/ref: matrix products. Every sum runs in double in the order of its index. */
#include "kernels/ref/ref_int.h"

#include <stdlib.h>

int ref_weight_new(kn_dev *dev, enum kn_dtype t, int64_t N, int64_t K, unsigned uses, kn_weight **w_p)
{
	kn_weight *w;

	if (ref_need_type(dev, "weight_new", t))
		return KN_E_UNSUPPORTED;
	if (N < 0 || K < 0 || (K && N > INT64_MAX / 8 / K))
		return ref_fail(dev, KN_E_ARG, "weight_new: bad shape [%lld, %lld]", (long long)N, (long long)K);
	w = calloc(1, sizeof *w);
	if (w)
		w->w = calloc((size_t)(N * K) + 1, ref_type_bytes(t));
	if (!w || !w->w) {
		free(w);
		return ref_fail(dev, KN_E_MEMORY, "weight_new: no memory for [%lld, %lld]", (long long)N, (long long)K);
	}
	w->dev = dev;
	w->t = t;
	w->n = N;
	w->k = K;
	w->uses = uses;
	*w_p = w;
	return KN_OK;
}

int ref_weight_set(kn_stream *s, kn_weight *w, const void *src)
{
	(void)s;
	if (w->n && w->k)
		memcpy(w->w, src, (size_t)(w->n * w->k) * ref_type_bytes(w->t));
	return KN_OK;
}

void ref_weight_free(kn_weight *w)
{
	if (!w)
		return;
	free(w->w);
	free(w);
}

/* The output type of a product is f32 or the type of the product; sums into an output want f32. */
static int need_out(kn_dev *dev, const char *op, enum kn_dtype t, enum kn_dtype tout, int accumulate)
{
	if (tout != KN_F32 && tout != t)
		return ref_fail(dev, KN_E_UNSUPPORTED, "%s: output type %d with products of type %d", op, (int)tout, (int)t);
	if (accumulate && tout != KN_F32)
		return ref_fail(dev, KN_E_UNSUPPORTED, "%s: only an f32 output can accumulate", op);
	return KN_OK;
}

int ref_linear(kn_stream *s, const kn_weight *w, int64_t T, const void *x, const float *bias,
               enum kn_dtype ty, void *y, int accumulate)
{
	int rc = need_out(s->dev, "linear", w->t, ty, accumulate);

	if (rc || (rc = ref_need_size(s->dev, "linear", T)))
		return rc;
	if (!(w->uses & KN_USE_FWD))
		return ref_fail(s->dev, KN_E_ARG, "linear: the weight was not made with KN_USE_FWD");
	for (int64_t i = 0; i < T; i++) {
		for (int64_t j = 0; j < w->n; j++) {
			double sum = bias ? bias[j] : 0;

			for (int64_t k = 0; k < w->k; k++)
				sum += (double)ref_load(w->t, x, i * w->k + k) * ref_load(w->t, w->w, j * w->k + k);
			if (accumulate)
				sum += ((float *)y)[i * w->n + j];
			ref_store(ty, y, i * w->n + j, (float)sum);
		}
	}
	return KN_OK;
}

int ref_linear_bwd_x(kn_stream *s, const kn_weight *w, int64_t T, const void *dy,
                     enum kn_dtype tdx, void *dx, int accumulate)
{
	int rc = need_out(s->dev, "linear_bwd_x", w->t, tdx, accumulate);

	if (rc || (rc = ref_need_size(s->dev, "linear_bwd_x", T)))
		return rc;
	if (!(w->uses & KN_USE_BWD_X))
		return ref_fail(s->dev, KN_E_ARG, "linear_bwd_x: the weight was not made with KN_USE_BWD_X");
	for (int64_t i = 0; i < T; i++) {
		for (int64_t k = 0; k < w->k; k++) {
			double sum = accumulate ? ((float *)dx)[i * w->k + k] : 0;

			for (int64_t j = 0; j < w->n; j++)
				sum += (double)ref_load(w->t, dy, i * w->n + j) * ref_load(w->t, w->w, j * w->k + k);
			ref_store(tdx, dx, i * w->k + k, (float)sum);
		}
	}
	return KN_OK;
}

int ref_linear_bwd_w(kn_stream *s, enum kn_dtype t, int64_t T, int64_t N, int64_t K,
                     const void *dy, const void *x, float *dw, float *dbias)
{
	int rc = ref_need_type(s->dev, "linear_bwd_w", t);

	if (rc || (rc = ref_need_size(s->dev, "linear_bwd_w", T | N | K)))
		return rc;
	for (int64_t j = 0; j < N; j++) {
		double sum = 0;

		for (int64_t k = 0; k < K; k++) {
			double p = 0;

			for (int64_t i = 0; i < T; i++)
				p += (double)ref_load(t, dy, i * N + j) * ref_load(t, x, i * K + k);
			dw[j * K + k] = (float)(dw[j * K + k] + p);
		}
		for (int64_t i = 0; i < T; i++)
			sum += ref_load(t, dy, i * N + j);
		if (dbias)
			dbias[j] = (float)(dbias[j] + sum);
	}
	return KN_OK;
}
