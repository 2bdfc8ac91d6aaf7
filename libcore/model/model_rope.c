/* model: angular frequencies of rotary embeddings and their tables of cosines and sines. ref: models.md
 * §1.3. */
#include "model/model_int.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

/* λ < L/hi keeps its frequency, λ > L/lo is stretched by the factor, between them a linear mix. */
static double llama3(const struct sky_rope_conf *r, double inv)
{
	double wave = 2 * PI / inv, mix;

	if (wave < r->orig_pos / r->hi) {
		return inv;
	}
	if (wave > r->orig_pos / r->lo) {
		return inv / r->factor;
	}
	mix = (r->orig_pos / wave - r->lo) / (r->hi - r->lo);
	return (1 - mix) * inv / r->factor + mix * inv;
}

/* Index of the pair that turns beta times within orig_pos positions; d = 2R. */
static double yarn_index(const struct sky_rope_conf *r, double d, double beta)
{
	return d * log(r->orig_pos / (beta * 2 * PI)) / (2 * log(r->theta));
}

static double yarn_mscale(double factor, double m)
{
	return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static double yarn_amp(const struct sky_rope_conf *r)
{
	if (r->attn_factor != 0) {
		return r->attn_factor;
	}
	if (r->mscale != 0 && r->mscale_all != 0) {
		return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all);
	}
	return yarn_mscale(r->factor, 1);
}

static void yarn(const struct sky_rope_conf *r, int64_t R, double *inv)
{
	double d = 2 * (double)R, low = yarn_index(r, d, r->beta_fast),
	       high = yarn_index(r, d, r->beta_slow);

	if (r->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = low < 0 ? 0 : low;
	high = high > d - 1 ? d - 1 : high;
	if (low == high) {
		high += 0.001;
	}
	for (int64_t i = 0; i < R; i++) {
		double ramp = ((double)i - low) / (high - low);

		ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
		inv[i] = inv[i] / r->factor * ramp + inv[i] * (1 - ramp);
	}
}

void sky_rope_freq(const struct sky_rope_conf *r, int64_t R, double *inv, double *amp_p)
{
	for (int64_t i = 0; i < R; i++) {
		inv[i] = pow(r->theta, -(double)i / (double)R);
		if (r->type == SKY_ROPE_LINEAR) {
			inv[i] /= r->factor;
		} else if (r->type == SKY_ROPE_LLAMA3) {
			inv[i] = llama3(r, inv[i]);
		}
	}
	*amp_p = 1;
	if (r->type == SKY_ROPE_YARN) {
		yarn(r, R, inv);
		*amp_p = yarn_amp(r);
	}
}

/* Fills rows of the tables on the host, then moves them to the device. */
static int fill(struct sky_model *m, int64_t n_pos, float *cos_d, float *sin_d, struct sky_err *err)
{
	int64_t R = m->plan.rope_pairs;
	uint64_t bytes = (uint64_t)(n_pos * R) * sizeof(float);
	float *host = sky_malloc_array((size_t)(n_pos * R), 2 * sizeof *host);
	double *inv = sky_malloc_array((size_t)R, sizeof *inv), amp;
	int rc = 0;

	if (!host || !inv) {
		rc = sky_fail_mem(err, "making rotary tables of %lld positions", (long long)n_pos);
		goto out;
	}
	sky_rope_freq(&m->plan.rope, R, inv, &amp);
	for (int64_t p = 0; p < n_pos; p++) {
		for (int64_t i = 0; i < R; i++) {
			host[p * R + i] = (float)(amp * cos((double)p * inv[i]));
			host[(n_pos + p) * R + i] = (float)(amp * sin((double)p * inv[i]));
		}
	}
	KN_TRY(rc, m->d.ops->copy(m->d.stream, cos_d, host, bytes));
	KN_TRY(rc, m->d.ops->copy(m->d.stream, sin_d, host + n_pos * R, bytes));
	KN_TRY(rc, m->d.ops->sync(m->d.stream));
	rc = rc ? sky_kn_fail(m, rc, "copying rotary tables", err) : 0;
out:
	free(inv);
	free(host);
	return rc;
}

int sky_rope_fit(struct sky_model *m, int64_t n_pos, struct sky_err *err)
{
	int64_t R = m->plan.rope_pairs, n = m->n_pos ? m->n_pos : 1024;
	void *c = NULL, *s = NULL;
	uint64_t bytes;
	int rc = 0;

	if (R == 0 || n_pos <= m->n_pos) {
		return 0;
	}
	while (n < n_pos) {
		n *= 2;
	}
	n = n > m->cfg.max_pos && n_pos <= m->cfg.max_pos ? m->cfg.max_pos : n;
	bytes = (uint64_t)(n * R) * sizeof(float);
	KN_TRY(rc, m->d.ops->alloc(m->d.dev, bytes, &c));
	KN_TRY(rc, m->d.ops->alloc(m->d.dev, bytes, &s));
	rc = rc ? sky_kn_fail(m, rc, "allocating rotary tables", err) : fill(m, n, c, s, err);
	if (rc < 0) {
		m->d.ops->free(m->d.dev, c);
		m->d.ops->free(m->d.dev, s);
		return rc;
	}
	m->d.ops->free(m->d.dev, m->cos);
	m->d.ops->free(m->d.dev, m->sin);
	m->cos = c;
	m->sin = s;
	m->n_pos = n;
	return 0;
}
