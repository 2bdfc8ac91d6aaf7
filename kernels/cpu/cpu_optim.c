/* kernels/cpu: drivers of the optimizer's operations and of log-probabilities. */
#include "kernels/cpu/cpu_ops.h"

/* ---- sum of squares ---- */
#define SUM_CHUNK 65536

struct sums {
	const struct cpu_vec *vec;
	const float *x;
	int64_t n;
	double *part;
};

static void sum_chunk(void *ctx, int64_t i, int thread)
{
	struct sums *c = ctx;
	int64_t at = i * SUM_CHUNK, n = c->n - at;

	(void)thread;
	c->part[i] = c->vec->sumsq(n < SUM_CHUNK ? n : SUM_CHUNK, c->x + at);
}

int cpu_sumsq(kn_stream *s, int64_t n, const float *x, double *sum_p)
{
	struct sums c = {.vec = s->dev->vec, .x = x, .n = n};
	int64_t n_chunk = cpu_div_up(n, SUM_CHUNK);
	double sum = 0;
	int rc = cpu_need(s->dev, "sumsq", KN_F32, n);

	if (rc)
		return rc;
	c.part = cpu_scratch(s->dev, (uint64_t)n_chunk * sizeof *c.part);
	if (!c.part)
		return KN_E_MEMORY;
	cpu_par(s->dev, n_chunk, sum_chunk, &c);
	for (int64_t i = 0; i < n_chunk; i++)
		sum += c.part[i];
	*sum_p = sum;
	return KN_OK;
}

/* ---- AdamW ---- */
struct adam {
	const struct cpu_vec *vec;
	struct cpu_adamw o;
};

static void adam_range(void *ctx, int64_t i0, int64_t i1)
{
	struct adam *c = ctx;

	c->vec->adamw(&c->o, i0, i1);
}

int cpu_adamw(kn_stream *s, int64_t n, float *w, float *m, float *v, const float *g, float gscale,
              float lr, float b1, float b2, float eps, float decay, int64_t t,
              enum kn_dtype tcopy, void *w_copy)
{
	struct adam c = {s->dev->vec, {.w = w, .m = m, .v = v, .g = g, .gscale = gscale, .lr = lr, .b1 = b1, .b2 = b2,
		.eps = eps, .decay = decay, .tcopy = tcopy, .w_copy = w_copy}};
	int rc = cpu_need(s->dev, "adamw", w_copy ? tcopy : KN_F32, n);

	if (rc)
		return rc;
	if (t < 1)
		return cpu_fail(s->dev, KN_E_ARG, "adamw: steps count from 1, not %lld", (long long)t);
	c.o.c1 = (float)(1 / (1 - pow(b1, (double)t)));
	c.o.c2 = (float)(1 / (1 - pow(b2, (double)t)));
	cpu_rows(s->dev, n, 4, adam_range, &c);
	return KN_OK;
}

/* ---- log-probabilities ---- */
struct logprob {
	const struct cpu_vec *vec;
	struct cpu_logprob o;
};

static void logprob_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct logprob *c = ctx;

	c->vec->logprob(&c->o, r0, r1);
}

static void logprob_bwd_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct logprob *c = ctx;

	c->vec->logprob_bwd(&c->o, r0, r1);
}

int cpu_logprob(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                float inv_temp, float *logprob, float *entropy, float *lse)
{
	struct logprob c = {s->dev->vec, {.V = V, .logits = logits, .target = target, .inv_temp = inv_temp,
		.logprob = logprob, .entropy = entropy, .lse = lse}};
	int rc = cpu_need(s->dev, "logprob", KN_F32, T);

	if (rc)
		return rc;
	if (V < 1)
		return cpu_fail(s->dev, KN_E_ARG, "logprob: vocabulary of %lld", (long long)V);
	cpu_rows(s->dev, T, V * 4, logprob_rows, &c);
	return KN_OK;
}

int cpu_logprob_bwd(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                    float inv_temp, const float *lse, const float *dlogprob, const float *dentropy,
                    const float *entropy, enum kn_dtype t, void *dlogits)
{
	struct logprob c = {s->dev->vec, {.V = V, .logits = logits, .target = target, .inv_temp = inv_temp,
		.lse_in = lse, .dlogprob = dlogprob, .dentropy = dentropy, .entropy_in = entropy, .t = t,
		.dlogits = dlogits}};
	int rc = cpu_need(s->dev, "logprob_bwd", t, T | V);

	if (rc)
		return rc;
	if (dentropy && !entropy)
		return cpu_fail(s->dev, KN_E_ARG, "logprob_bwd: dentropy needs entropy");
	cpu_rows(s->dev, T, V * 4, logprob_bwd_rows, &c);
	return KN_OK;
}
