/* Loss reduction: the constants that divide the advantages of a mini-batch, so that each loss is a plain sum over tokens
 * and the split into micro-batches cannot change it (SkyRL's loss_reduction). */
#include "learn/learn.h"

#include <math.h>
#include <stdlib.h>

struct red {
	const struct sky_algo *a;
	int64_t B;
	const int64_t *start;
	const double *mask;
	const int64_t *prompt;
	int64_t micro;
	double *div;            /* [B] out: divisor of each sequence, 0 = its advantages become 0 */
};

static double sum(const double *x, int64_t from, int64_t to)
{
	double s = 0;

	for (int64_t t = from; t < to; t++) {
		s += x[t];
	}
	return s;
}

static double at_least_1(double x)
{
	return x > 1 ? x : 1;
}

static int token_mean(struct red *r, struct sky_err *err)
{
	(void)err;
	for (int64_t i = 0; i < r->B; i++) {
		r->div[i] = at_least_1(sum(r->mask, r->start[0], r->start[r->B]));
	}
	return 0;
}

/* Means over micro-batches; rows after the last whole one get nothing, as in the release. */
static int token_mean_legacy(struct red *r, struct sky_err *err)
{
	int64_t n_micro;

	if (r->micro <= 0) {
		return sky_fail(err, SKY_E_USAGE, "loss_reduction token_mean_legacy needs a micro-batch size");
	}
	n_micro = r->B / r->micro;
	for (int64_t i = 0; i < r->B; i++) {
		int64_t k = i / r->micro;

		r->div[i] = k < n_micro ? at_least_1(sum(r->mask, r->start[k * r->micro], r->start[(k + 1) * r->micro])) *
		                                (double)n_micro
		                        : 0;
	}
	return 0;
}

static int sequence_mean(struct red *r, struct sky_err *err)
{
	(void)err;
	for (int64_t i = 0; i < r->B; i++) {
		r->div[i] = (double)r->B * at_least_1(sum(r->mask, r->start[i], r->start[i + 1]));
	}
	return 0;
}

static int seq_mean_token_sum_norm(struct red *r, struct sky_err *err)
{
	if (r->a->max_seq_len <= 0) {
		return sky_fail(err, SKY_E_USAGE, "loss_reduction seq_mean_token_sum_norm needs trainer.algorithm.max_seq_len");
	}
	for (int64_t i = 0; i < r->B; i++) {
		r->div[i] = (double)r->B * (double)r->a->max_seq_len;
	}
	return 0;
}

/* Quadratic in the number of sequences of a mini-batch at worst; groups are neighbours in practice. */
static int prompt_mean(struct red *r, struct sky_err *err)
{
	int64_t n_prompt = 0;

	(void)err;
	for (int64_t i = 0; i < r->B; i++) {
		int64_t first = i;
		double m = 0;

		for (int64_t j = 0; j < r->B; j++) {
			if (r->prompt[j] == r->prompt[i]) {
				first = j < first ? j : first;
				m += sum(r->mask, r->start[j], r->start[j + 1]);
			}
		}
		n_prompt += first == i;
		r->div[i] = at_least_1(m);
	}
	for (int64_t i = 0; i < r->B; i++) {
		r->div[i] *= (double)n_prompt;
	}
	return 0;
}

static const struct {
	const char *name;
	int (*fn)(struct red *r, struct sky_err *err);
} table[] = {
	{ "token_mean", token_mean },
	{ "token_mean_legacy", token_mean_legacy },
	{ "sequence_mean", sequence_mean },
	{ "seq_mean_token_sum_norm", seq_mean_token_sum_norm },
	{ "prompt_mean", prompt_mean },
};

int sky_reduce_scale(const struct sky_algo *a, int64_t n_seq, const int64_t *start, const double *mask, const int64_t *prompt,
                     int64_t micro, double *adv, struct sky_err *err)
{
	struct red r = { a, n_seq, start, mask, prompt, micro, NULL };
	int rc = SKY_E_USAGE;

	r.div = sky_calloc_array((size_t)n_seq + 1, sizeof(double));
	if (!r.div) {
		return sky_fail_mem(err, "loss reduction");
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (!strcmp(table[i].name, a->loss_reduction)) {
			rc = table[i].fn(&r, err);
			break;
		}
		if (i + 1 == sizeof(table) / sizeof(*table)) {
			rc = sky_fail(err, SKY_E_USAGE, "loss_reduction %s is not known", a->loss_reduction);
		}
	}
	for (int64_t i = 0; rc == 0 && i < n_seq; i++) {
		for (int64_t t = start[i]; t < start[i + 1]; t++) {
			adv[t] = r.div[i] > 0 ? adv[t] / r.div[i] : 0;
		}
	}
	free(r.div);
	return rc;
}

void sky_adv_normalize(const struct sky_algo *a, int64_t n_seq, const int64_t *start, double *adv)
{
	int64_t n = start[n_seq], longest = 0;
	double s = sum(adv, 0, n), count = (double)n, mean, var = 0;

	for (int64_t i = 0; i < n_seq; i++) {
		longest = start[i + 1] - start[i] > longest ? start[i + 1] - start[i] : longest;
	}
	/* The release takes the mean over the padded rectangle, zeros included. */
	if (a->compat_skyrl) {
		count = (double)n_seq * (double)longest;
	}
	mean = count > 0 ? s / count : 0;
	for (int64_t t = 0; t < n; t++) {
		var += (adv[t] - mean) * (adv[t] - mean);
	}
	var = n ? var / (double)n : 0;
	var = var > 1e-8 ? var : 1e-8;
	for (int64_t t = 0; t < n; t++) {
		adv[t] = (adv[t] - mean) / sqrt(var);
	}
}
