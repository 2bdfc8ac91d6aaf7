/* Off-policy correction: how far the weights that trained differ from the engine that sampled, per token w = exp(old −
 * rollout). Order matters, each step shrinks the mask that the next one sees (SkyRL's off_policy_correction). */
#include "learn/learn.h"
#include "learn/learn_int.h"

#include <math.h>
#include <stdlib.h>

struct corr {
	const struct sky_algo *a;
	const struct sky_loss_in *in;
	const double *w;        /* [n] */
	double *mask;           /* [n] in/out */
	struct sky_metrics *met;
};

static void ratio_metrics(const struct corr *c)
{
	int64_t n = c->in->start[c->in->n_seq], n_act = 0;
	double s = 0, m = 0, mean, var = 0, max = -INFINITY, min = INFINITY;

	for (int64_t t = 0; t < n; t++) {
		double x = c->mask[t] != 0 ? c->w[t] : 0;

		if (c->mask[t] != 0) {
			s += x * c->mask[t];
			m += c->mask[t];
			max = x > max ? x : max;
			min = x < min ? x : min;
			n_act++;
		}
	}
	if (!n_act) {
		return;
	}
	mean = s / (m > 1 ? m : 1);
	for (int64_t t = 0; t < n; t++) {
		var += c->mask[t] != 0 ? (c->w[t] - mean) * (c->w[t] - mean) : 0;
	}
	sky_metric_set(c->met, "is_ratio_mean", mean);
	sky_metric_set(c->met, "is_ratio_std", n_act > 1 ? sqrt(var / (double)(n_act - 1)) : 0);
	sky_metric_set(c->met, "is_ratio_max", max);
	sky_metric_set(c->met, "is_ratio_min", min);
}

static void drop(const struct corr *c, int64_t i)
{
	for (int64_t t = c->in->start[i]; t < c->in->start[i + 1]; t++) {
		c->mask[t] = 0;
	}
}

/* A sequence with one token outside the bounds is dropped whole. */
static void outlier_mask(const struct corr *c)
{
	double hi = c->a->outlier_high, lo = c->a->outlier_low;
	int64_t n_over = 0, n_under = 0, n_drop = 0, B = c->in->n_seq;

	if (isnan(hi) && isnan(lo)) {
		return;
	}
	for (int64_t i = 0; i < B; i++) {
		int over = 0, under = 0;

		for (int64_t t = c->in->start[i]; t < c->in->start[i + 1]; t++) {
			over |= c->mask[t] != 0 && !isnan(hi) && c->w[t] > hi;
			under |= c->mask[t] != 0 && !isnan(lo) && c->w[t] < lo;
		}
		n_over += over;
		n_under += under;
		n_drop += over || under;
		if (over || under) {
			drop(c, i);
		}
	}
	sky_metric_set(c->met, "outlier_seq_masked_ratio", B ? (double)n_drop / (double)B : 0);
	sky_metric_set(c->met, "outlier_seq_over_high_ratio", B ? (double)n_over / (double)B : 0);
	sky_metric_set(c->met, "outlier_seq_under_low_ratio", B ? (double)n_under / (double)B : 0);
}

static void token_mask(const struct corr *c)
{
	double hi = c->a->token_mask_high, lo = c->a->token_mask_low, out = 0, m = 0;
	int64_t n = c->in->start[c->in->n_seq];

	if (isnan(hi) || isnan(lo)) {
		return;
	}
	for (int64_t t = 0; t < n; t++) {
		if (c->mask[t] != 0) {
			m += c->mask[t];
			if (c->w[t] > hi || c->w[t] < lo) {
				out += c->mask[t];
				c->mask[t] = 0;
			}
		}
	}
	sky_metric_set(c->met, "token_mask_ratio", out / (m > 1 ? m : 1));
}

/* Log of the product of the ratios of sequence i and the sum of its mask. */
static double seq_log(const struct corr *c, int64_t i, double *m_p)
{
	double s = 0, m = 0;

	for (int64_t t = c->in->start[i]; t < c->in->start[i + 1]; t++) {
		if (c->mask[t] != 0) {
			s += (c->in->old[t] - c->in->rollout[t]) * c->mask[t];
			m += c->mask[t];
		}
	}
	*m_p = m;
	return s;
}

static void truncate(const struct corr *c, double *weight)
{
	int64_t n = c->in->start[c->in->n_seq], B = c->in->n_seq, n_high = 0;
	double high = 0, m = 0, d;

	if (c->a->tis == 1) {
		for (int64_t t = 0; t < n; t++) {
			if (c->mask[t] != 0) {
				weight[t] = fmin(c->w[t], c->a->tis_token_high);
				high += (c->w[t] > c->a->tis_token_high) * c->mask[t];
				m += c->mask[t];
			}
		}
		sky_metric_set(c->met, "tis_token_clip_high_ratio", high / (m > 1 ? m : 1));
	} else if (c->a->tis == 2) {
		for (int64_t i = 0; i < B; i++) {
			double r = sky_safe_exp(seq_log(c, i, &m), &d);

			n_high += r > c->a->tis_seq_high;
			for (int64_t t = c->in->start[i]; t < c->in->start[i + 1]; t++) {
				weight[t] = fmin(r, c->a->tis_seq_high);
			}
		}
		sky_metric_set(c->met, "tis_seq_clip_high_ratio", B ? (double)n_high / (double)B : 0);
	}
}

static void sequence_mask(const struct corr *c)
{
	int geo = c->a->seq_mask == 1;
	double hi = geo ? c->a->geo_high : c->a->product_high, lo = geo ? c->a->geo_low : c->a->product_low;
	int64_t B = c->in->n_seq, n_over = 0, n_under = 0;

	if (!c->a->seq_mask) {
		return;
	}
	for (int64_t i = 0; i < B; i++) {
		double m, s = seq_log(c, i, &m), r, d;

		r = sky_safe_exp(geo ? s / (m > 1 ? m : 1) : s, &d);
		n_over += r > hi;
		n_under += r < lo;
		if (r > hi || r < lo) {
			drop(c, i);
		}
	}
	sky_metric_set(c->met, geo ? "geo_sequence_mask_masked_ratio" : "product_sequence_mask_masked_ratio",
	               B ? (double)(n_over + n_under) / (double)B : 0);
	sky_metric_set(c->met, geo ? "geo_sequence_mask_over_high_ratio" : "product_sequence_mask_over_high_ratio",
	               B ? (double)n_over / (double)B : 0);
	sky_metric_set(c->met, geo ? "geo_sequence_mask_under_low_ratio" : "product_sequence_mask_under_low_ratio",
	               B ? (double)n_under / (double)B : 0);
}

int sky_off_policy(const struct sky_algo *a, const struct sky_loss_in *in, double *weight, double *mask,
                   struct sky_metrics *met, struct sky_err *err)
{
	int64_t n = in->start[in->n_seq];
	double *w;
	struct corr c = { .a = a, .in = in, .mask = mask, .met = met };

	for (int64_t t = 0; t < n; t++) {
		weight[t] = 1;
	}
	if (!a->tis && !a->seq_mask && isnan(a->outlier_high) && isnan(a->outlier_low) &&
	    (isnan(a->token_mask_high) || isnan(a->token_mask_low))) {
		return 0;
	}
	w = sky_calloc_array((size_t)n + 1, sizeof(double));
	if (!w) {
		return sky_fail_mem(err, "off-policy correction");
	}
	for (int64_t t = 0; t < n; t++) {
		w[t] = mask[t] != 0 ? sky_safe_exp(in->old[t] - in->rollout[t], NULL) : 0;
	}
	c.w = w;
	ratio_metrics(&c);
	outlier_mask(&c);
	token_mask(&c);
	truncate(&c, weight);
	sequence_mask(&c);
	free(w);
	return 0;
}
