/* kernels/ref: the optimizer's operations. */
#include "kernels/ref/ref_int.h"

#include <math.h>

int ref_sumsq(kn_stream *s, int64_t n, const float *x, double *sum_p)
{
	double sum = 0;
	int rc = ref_need_size(s->dev, "sumsq", n);

	if (rc)
		return rc;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	*sum_p = sum;
	return KN_OK;
}

int ref_scale(kn_stream *s, int64_t n, float a, float *x)
{
	int rc = ref_need_size(s->dev, "scale", n);

	if (rc)
		return rc;
	for (int64_t i = 0; i < n; i++)
		x[i] *= a;
	return KN_OK;
}

int ref_adamw(kn_stream *s, int64_t n, float *w, float *m, float *v, const float *g, float gscale,
              float lr, float b1, float b2, float eps, float decay, int64_t t,
              enum kn_dtype tcopy, void *w_copy)
{
	double c1 = 1 - pow(b1, (double)t), c2 = 1 - pow(b2, (double)t);
	int rc = w_copy ? ref_need_type(s->dev, "adamw", tcopy) : KN_OK;

	if (rc || (rc = ref_need_size(s->dev, "adamw", n)))
		return rc;
	if (t < 1)
		return ref_fail(s->dev, KN_E_ARG, "adamw: steps count from 1, not %lld", (long long)t);
	for (int64_t i = 0; i < n; i++) {
		double x = (double)g[i] * gscale;
		double mi = (double)b1 * m[i] + (1 - (double)b1) * x;
		double vi = (double)b2 * v[i] + (1 - (double)b2) * x * x;

		m[i] = (float)mi;
		v[i] = (float)vi;
		w[i] = (float)(w[i] - lr * (mi / c1 / (sqrt(vi / c2) + eps) + (double)decay * w[i]));
		if (w_copy)
			ref_store(tcopy, w_copy, i, w[i]);
	}
	return KN_OK;
}
