/* kernels/ref: log-probabilities of targets and their gradient. Sums in double. */
#include "kernels/ref/ref_int.h"

#include <math.h>

int ref_logprob(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                float inv_temp, float *logprob, float *entropy, float *lse)
{
	int rc = ref_need_size(s->dev, "logprob", T);

	if (rc)
		return rc;
	if (V < 1)
		return ref_fail(s->dev, KN_E_ARG, "logprob: vocabulary of %lld", (long long)V);
	for (int64_t i = 0; i < T; i++) {
		const float *x = logits + i * V;
		double max = -INFINITY, sum = 0, dot = 0, l;

		for (int64_t j = 0; j < V; j++)
			max = fmax(max, (double)(x[j] * inv_temp));
		for (int64_t j = 0; j < V; j++) {
			double z = x[j] * inv_temp, e = exp(z - max);

			sum += e;
			dot += e > 0 ? e * (z - max) : 0;
		}
		l = max + log(sum);
		if (logprob)
			logprob[i] = (float)(x[target[i]] * inv_temp - l);
		if (entropy)
			entropy[i] = (float)(log(sum) - dot / sum);
		if (lse)
			lse[i] = (float)l;
	}
	return KN_OK;
}

/* With z = logits·inv_temp, p = exp(z − lse), H the entropy: dH/dz_j = −p_j·(ln p_j + H), which is 0 where p_j is 0. */
int ref_logprob_bwd(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                    float inv_temp, const float *lse, const float *dlogprob, const float *dentropy,
                    const float *entropy, enum kn_dtype t, void *dlogits)
{
	int rc = ref_need_type(s->dev, "logprob_bwd", t);

	if (rc || (rc = ref_need_size(s->dev, "logprob_bwd", T)))
		return rc;
	if (dentropy && !entropy)
		return ref_fail(s->dev, KN_E_ARG, "logprob_bwd: dentropy needs entropy");
	for (int64_t i = 0; i < T; i++) {
		for (int64_t j = 0; j < V; j++) {
			double lp = (double)(logits[i * V + j] * inv_temp) - lse[i], p = exp(lp);
			double g = dlogprob[i] * ((j == target[i]) - p);

			if (dentropy && p > 0)
				g -= dentropy[i] * p * (lp + entropy[i]);
			ref_store(t, dlogits, i * V + j, (float)(inv_temp * g));
		}
	}
	return KN_OK;
}
