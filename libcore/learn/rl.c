/* The update of one batch: log-probs before it, advantages, then epochs of mini-batches of micro-batches. */
#include "learn/rl.h"

#include <math.h>
#include <stdlib.h>

struct sky_rl {
	struct sky_model *m, *ref;
	struct sky_optim *opt;
	/* per response token, [R] each, in the order of sequences; slices of mem */
	double *mem, *lp, *old, *rollout, *refp, *reward, *adv, *ret, *mask, *kl, *dkl, *dlp, *entropy;
	int64_t R, N;
	int64_t *rs;            /* [N+1] response offsets */
	/* one pass, [rows] */
	int32_t *ids, *target, *start, *pos0;
	float *flp, *fent, *fdlp, *fdent;
	int64_t row_cap, seq_cap;
};

int sky_rl_new(struct sky_model *m, struct sky_model *ref, struct sky_optim *opt, struct sky_rl **r_p, struct sky_err *err)
{
	struct sky_rl *r = sky_calloc_array(1, sizeof(*r));

	if (!r) {
		return sky_fail_mem(err, "update");
	}
	r->m = m;
	r->ref = ref;
	r->opt = opt;
	*r_p = r;
	return 0;
}

void sky_rl_free(struct sky_rl *r)
{
	if (r) {
		free(r->mem);
		free(r->rs);
		free(r->ids);
		free(r->target);
		free(r->start);
		free(r->pos0);
		free(r->flp);
		free(r->fent);
		free(r->fdlp);
		free(r->fdent);
		free(r);
	}
}

#define N_ARRAY 12

/* Cuts the batch down to response tokens. */
static int load(struct sky_rl *r, const struct sky_rl_batch *b, struct sky_err *err)
{
	int64_t R = b->start[b->n_seq], k = 0;
	double **slice[N_ARRAY] = { &r->lp, &r->old, &r->rollout, &r->refp, &r->reward, &r->adv, &r->ret, &r->mask, &r->kl, &r->dkl,
	                            &r->dlp, &r->entropy };

	free(r->mem);
	free(r->rs);
	r->mem = sky_calloc_array((size_t)R * N_ARRAY + 1, sizeof(double));
	r->rs = sky_calloc_array((size_t)b->n_seq + 1, sizeof(int64_t));
	if (!r->mem || !r->rs) {
		return sky_fail_mem(err, "batch of %lld tokens", (long long)R);
	}
	for (int i = 0; i < N_ARRAY; i++) {
		*slice[i] = r->mem + i * R;
	}
	for (int64_t i = 0; i < b->n_seq; i++) {
		for (int64_t t = b->start[i] + b->prompt_len[i]; t < b->start[i + 1]; t++, k++) {
			r->rollout[k] = (double)b->logprob[t];
			r->reward[k] = (double)b->reward[t];
			r->mask[k] = b->mask[t] ? 1 : 0;
		}
		r->rs[i + 1] = k;
	}
	r->N = b->n_seq;
	r->R = k;
	return 0;
}

static int reserve(struct sky_rl *r, int64_t n_row, int64_t n_seq, struct sky_err *err)
{
	if (n_row > r->row_cap) {
		size_t n = (size_t)(r->row_cap = n_row + n_row / 4);

		r->ids = sky_realloc_array(r->ids, n, sizeof(int32_t));
		r->target = sky_realloc_array(r->target, n, sizeof(int32_t));
		r->flp = sky_realloc_array(r->flp, n, sizeof(float));
		r->fent = sky_realloc_array(r->fent, n, sizeof(float));
		r->fdlp = sky_realloc_array(r->fdlp, n, sizeof(float));
		r->fdent = sky_realloc_array(r->fdent, n, sizeof(float));
	}
	if (n_seq + 1 > r->seq_cap) {
		r->seq_cap = 2 * (n_seq + 1);
		r->start = sky_realloc_array(r->start, (size_t)r->seq_cap, sizeof(int32_t));
		r->pos0 = sky_realloc_array(r->pos0, (size_t)r->seq_cap, sizeof(int32_t));
	}
	return r->ids && r->target && r->flp && r->fent && r->fdlp && r->fdent && r->start && r->pos0
	               ? 0 : sky_fail_mem(err, "pass of %lld tokens", (long long)n_row);
}

/* First sequence behind a pass that begins at i: as many as fit into micro_tokens, at least one. */
static int64_t pass_end(const struct sky_rl_batch *b, int64_t i, int64_t end, int64_t micro_tokens)
{
	int64_t j = i + 1;

	while (j < end && b->start[j + 1] - b->start[i] <= micro_tokens) {
		j++;
	}
	return j;
}

/* Row r predicts token r + 1: response token t of sequence s is asked for at row start[s] + prompt_len[s] + t − 1. Only
 * trained tokens are asked for. */
static int fill_rows(struct sky_rl *r, const struct sky_rl_batch *b, int64_t i, int64_t j, struct sky_rows *rows,
                     struct sky_err *err)
{
	int64_t base = b->start[i], n = b->start[j] - base;
	int rc = reserve(r, n, j - i, err);

	if (rc < 0) {
		return rc;
	}
	memcpy(r->ids, b->ids + base, (size_t)n * sizeof(int32_t));
	for (int64_t s = i; s < j; s++) {
		r->start[s - i] = (int32_t)(b->start[s] - base);
		r->pos0[s - i] = 0;
		for (int64_t t = b->start[s]; t < b->start[s + 1]; t++) {
			bool ask = t + 1 < b->start[s + 1] && t + 1 >= b->start[s] + b->prompt_len[s] && b->mask[t + 1];

			r->target[t - base] = ask ? b->ids[t + 1] : -1;
		}
	}
	r->start[j - i] = (int32_t)n;
	*rows = (struct sky_rows){ .n_seq = j - i, .start = r->start, .pos0 = r->pos0, .ids = r->ids };
	return 0;
}

/* Row of a pass that predicts response token k of sequence s. */
static int64_t row_of(const struct sky_rl *r, const struct sky_rl_batch *b, int64_t i, int64_t s, int64_t k)
{
	return b->start[s] - b->start[i] + b->prompt_len[s] + (k - r->rs[s]) - 1;
}

/* Copies the results of a pass over sequences [i, j) to response tokens. */
static void gather(const struct sky_rl *r, const struct sky_rl_batch *b, int64_t i, int64_t j, const float *from, double *to)
{
	for (int64_t s = i; s < j; s++) {
		for (int64_t k = r->rs[s]; k < r->rs[s + 1]; k++) {
			to[k] = r->mask[k] != 0 ? (double)from[row_of(r, b, i, s, k)] : 0;
		}
	}
}

static int score_all(struct sky_rl *r, struct sky_model *m, const struct sky_rl_batch *b, const struct sky_rl_opt *o,
                     float inv_temp,
                     double *out, struct sky_err *err)
{
	struct sky_rows rows;
	int rc = 0;

	for (int64_t i = 0, j; i < b->n_seq && rc == 0; i = j) {
		j = pass_end(b, i, b->n_seq, o->micro_tokens);
		rc = fill_rows(r, b, i, j, &rows, err);
		rc = rc < 0 ? rc : sky_model_score(m, &rows, r->target, inv_temp, 0, r->flp, NULL, err);
		if (rc == 0) {
			gather(r, b, i, j, r->flp, out);
		}
	}
	return rc;
}

/* policy/rollout_train_logprobs_abs_diff_*: what training computes before the first update against what was sampled. */
static void gap_metrics(const struct sky_rl *r, struct sky_metrics *met)
{
	double s = 0, ss = 0, max = 0, min = INFINITY;
	int64_t n = 0;

	for (int64_t k = 0; k < r->R; k++) {
		double d = r->mask[k] != 0 ? fabs(r->old[k] - r->rollout[k]) : 0;

		if (r->mask[k] != 0) {
			s += d;
			ss += d * d;
			max = d > max ? d : max;
			min = d < min ? d : min;
			n++;
		}
	}
	if (n > 0) {
		double mean = s / (double)n, var = ss / (double)n - mean * mean;

		sky_metric_set(met, "policy/rollout_train_logprobs_abs_diff_mean", mean);
		sky_metric_set(met, "policy/rollout_train_logprobs_abs_diff_std", var > 0 ? sqrt(var) : 0);
		sky_metric_set(met, "policy/rollout_train_logprobs_abs_diff_max", max);
		sky_metric_set(met, "policy/rollout_train_logprobs_abs_diff_min", min);
	}
}

static void kl_metrics(const struct sky_rl *r, double coef, double *mean_p, struct sky_metrics *met)
{
	double max_sum = 0;

	*mean_p = sky_kl_term(r->N, r->rs, r->kl, r->mask);
	for (int64_t i = 0; i < r->N; i++) {
		double max = 0;

		for (int64_t k = r->rs[i]; k < r->rs[i + 1]; k++) {
			max = fabs(r->kl[k]) > max ? fabs(r->kl[k]) : max;
		}
		max_sum += max;
	}
	sky_metric_set(met, "loss/avg_kl", *mean_p);
	sky_metric_set(met, "loss/avg_kl_max", r->N ? max_sum / (double)r->N : 0);
	sky_metric_set(met, "loss/kl_loss_coef", coef);
}

/* rewards −= kl·max(0, coef), and the controller moves on. */
static int kl_in_reward(struct sky_rl *r, const struct sky_algo *a, double *coef, struct sky_metrics *met, struct sky_err *err)
{
	double mean, c = *coef > 0 ? *coef : 0;
	int rc = sky_kl(a->kl_estimator_type, r->R, r->old, r->refp, r->mask, r->kl, NULL, err);

	if (rc < 0) {
		return rc;
	}
	kl_metrics(r, *coef, &mean, met);
	for (int64_t k = 0; k < r->R; k++) {
		r->reward[k] -= c * r->kl[k];
	}
	*coef = sky_kl_control(a, *coef, mean, r->N);
	return 0;
}

/* Groups with more than one live member whose rewards are all equal (within tol) are not trained on. Works on
 * trajectories: a turn counts through its trajectory's last turn. */
static void zero_variance(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_algo *a, struct sky_metrics *met)
{
	int64_t n_filtered = 0;

	for (int64_t i = 0, j; i < b->n_seq; i = j) {
		double min = INFINITY, max = -INFINITY;
		int64_t live = 0;

		for (j = i; j < b->n_seq && b->group[j] == b->group[i]; j++) {
			double s = 0, m = 0;

			for (int64_t k = r->rs[j]; k < r->rs[j + 1]; k++) {
				s += r->reward[k];
				m += r->mask[k];
			}
			if (m > 0 && (!b->last || b->last[j])) {
				min = s < min ? s : min;
				max = s > max ? s : max;
				live++;
			}
		}
		if (live > 1 && max - min <= a->zero_variance_filter_tol) {
			n_filtered++;
			for (int64_t k = r->rs[i]; k < r->rs[j]; k++) {
				r->mask[k] = 0;
			}
		}
	}
	sky_metric_set(met, "reward/num_zero_variance_filtered", (double)n_filtered);
}

static int advantages(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_algo *a, struct sky_metrics *met,
                      struct sky_err *err)
{
	struct sky_adv_in in = { .n_seq = b->n_seq, .start = r->rs, .reward = r->reward, .group = b->group, .traj = b->traj,
	                         .last = b->last };
	double rew = 0, s = 0, abs_s = 0;
	int rc = sky_advantages(a, &in, r->adv, r->ret, err);

	if (rc < 0) {
		return rc;
	}
	if (a->advantage_batch_normalize) {
		sky_adv_normalize(a, b->n_seq, r->rs, r->adv);
	}
	for (int64_t k = 0; k < r->R; k++) {
		rew += r->reward[k];
		s += r->adv[k];
		abs_s += fabs(r->adv[k]);
	}
	sky_metric_set(met, "loss/avg_final_rewards", b->n_seq ? rew / (double)b->n_seq : 0);
	sky_metric_set(met, "loss/avg_raw_advantages", r->R ? s / (double)r->R : 0);
	sky_metric_set(met, "loss/avg_raw_advantages_abs", r->R ? abs_s / (double)r->R : 0);
	return 0;
}

struct sums {
	double policy_loss, kl, entropy, n_entropy;
	struct sky_metrics loss;        /* of the last micro-batch, weighted sums in acc */
	double acc[SKY_MAX_METRICS], weight;
};

/* Metrics of the loss: maxima and minima as such, the rest as means weighted by sequences. */
static void accumulate(struct sums *s, const struct sky_metrics *m, double w)
{
	for (int i = 0; i < m->n; i++) {
		double old = sky_metric_get(&s->loss, m->m[i].name), v = m->m[i].v;
		size_t len = strlen(m->m[i].name);

		if (len > 4 && !strcmp(m->m[i].name + len - 4, "_max")) {
			v = !isnan(old) && old > v ? old : v;
		} else if (len > 4 && !strcmp(m->m[i].name + len - 4, "_min")) {
			v = !isnan(old) && old < v ? old : v;
		} else if (!isnan(old)) {
			v = (old * s->weight + v * w) / (s->weight + w);
		}
		sky_metric_set(&s->loss, m->m[i].name, v);
	}
	s->weight += w;
}

/* Gradient of the entropy bonus −coef·(masked mean entropy) of this micro-batch, and the entropy itself. */
static void entropy_term(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_algo *a, int64_t i,
                         int64_t j, double weight,
                         struct sums *sum)
{
	double m = 0, s = 0;

	for (int64_t k = r->rs[i]; k < r->rs[j]; k++) {
		m += r->mask[k];
		s += r->mask[k] != 0 ? r->entropy[k] : 0;
	}
	sum->entropy += s;
	sum->n_entropy += m;
	for (int64_t q = i; q < j; q++) {
		for (int64_t k = r->rs[q]; k < r->rs[q + 1] && a->use_entropy_loss; k++) {
			if (r->mask[k] != 0) {
				r->fdent[row_of(r, b, i, q, k)] = (float)(-a->entropy_loss_coef * weight / (m > 1 ? m : 1));
			}
		}
	}
}

/* Forward, loss, backward of sequences [i, j) of a mini-batch of n_mini sequences. */
static int micro(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_rl_opt *o, float inv_temp, int64_t i, int64_t j,
                 int64_t n_mini, double adv_scale, bool first, int64_t step, struct sums *sum, struct sky_err *err)
{
	const struct sky_algo *a = &o->algo;
	int64_t k0 = r->rs[i], n_row = b->start[j] - b->start[i];
	double loss, weight = (double)(j - i) / (double)n_mini;
	int64_t *rs = sky_malloc_array((size_t)(j - i) + 1, sizeof(int64_t));
	struct sky_metrics met = { 0 };
	struct sky_loss_in in;
	struct sky_rows rows;
	int rc = rs ? fill_rows(r, b, i, j, &rows, err) : sky_fail_mem(err, "micro-batch");

	rc = rc < 0 ? rc : sky_model_score(r->m, &rows, r->target, inv_temp, 1, r->flp, r->fent, err);
	if (rc < 0) {
		free(rs);
		return rc;
	}
	gather(r, b, i, j, r->flp, r->lp);
	gather(r, b, i, j, r->fent, r->entropy);
	if (first) {
		memcpy(r->old + k0, r->lp + k0, (size_t)(r->rs[j] - k0) * sizeof(double));
	}
	for (int64_t s = i; s <= j; s++) {
		rs[s - i] = r->rs[s] - k0;
	}
	in = (struct sky_loss_in){ .n_seq = j - i, .start = rs, .lp = r->lp + k0, .old = r->old + k0, .rollout = r->rollout + k0,
	                           .adv = r->adv + k0, .mask = r->mask + k0, .adv_scale = adv_scale, .seed = o->seed,
	                           .step = (uint64_t)step * 4096 + (uint64_t)i };
	rc = sky_policy_loss(a, &in, &loss, r->dlp + k0, &met, err);
	if (rc == 0 && a->use_kl_loss) {
		rc = sky_kl(a->kl_estimator_type, rs[j - i], in.lp, r->refp + k0, in.mask, r->kl + k0, r->dkl + k0, err);
		if (rc == 0) {
			sum->kl += weight * sky_kl_term(j - i, rs, r->kl + k0, in.mask);
			sky_kl_term_grad(j - i, rs, r->dkl + k0, in.mask, a->kl_loss_coef * weight, r->dlp + k0);
		}
	}
	memset(r->fdlp, 0, (size_t)n_row * sizeof(float));
	memset(r->fdent, 0, (size_t)n_row * sizeof(float));
	for (int64_t s = i; s < j && rc == 0; s++) {
		for (int64_t k = r->rs[s]; k < r->rs[s + 1]; k++) {
			if (r->mask[k] != 0) {
				r->fdlp[row_of(r, b, i, s, k)] = (float)r->dlp[k];
			}
		}
	}
	if (rc == 0) {
		entropy_term(r, b, a, i, j, weight, sum);
		sum->policy_loss += loss;
		accumulate(sum, &met, weight);
		rc = sky_model_backward(r->m, r->fdlp, a->use_entropy_loss ? r->fdent : NULL, err);
	}
	free(rs);
	return rc;
}

/* First sequence behind the mini-batch that begins at i: mini_prompts whole groups. */
static int64_t mini_end(const struct sky_rl_batch *b, int64_t i, int64_t mini_prompts)
{
	int64_t n = 0, j = i;

	if (mini_prompts <= 0) {
		return b->n_seq;
	}
	while (j < b->n_seq && n < mini_prompts) {
		int64_t g = b->group[j];

		while (j < b->n_seq && b->group[j] == g) {
			j++;
		}
		n++;
	}
	return j;
}

/* One optimizer step on sequences [i, j). */
static int mini(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_rl_opt *o, float inv_temp, int64_t i, int64_t j,
                bool first, int64_t step, struct sums *sum, double *norm, struct sky_err *err)
{
	int64_t n = r->rs[j] - r->rs[i], micro_seqs = 0;
	int64_t *rs = sky_malloc_array((size_t)(j - i) + 1, sizeof(int64_t));
	double *keep = sky_malloc_array((size_t)n + 1, sizeof(double)), scale = 1;
	int rc = 0;

	if (!rs || !keep) {
		free(rs);
		free(keep);
		return sky_fail_mem(err, "mini-batch");
	}
	for (int64_t s = i; s <= j; s++) {
		rs[s - i] = r->rs[s] - r->rs[i];
	}
	/* Advantages are scaled for this mini-batch and put back, since another epoch scales them again. */
	memcpy(keep, r->adv + r->rs[i], (size_t)n * sizeof(double));
	micro_seqs = pass_end(b, i, j, o->micro_tokens) - i;
	rc = sky_reduce_scale(&o->algo, j - i, rs, r->mask + r->rs[i], b->group + i, micro_seqs, r->adv + r->rs[i], err);
	for (int64_t k = 0; k < n; k++) {
		if (keep[k] != 0 && r->adv[r->rs[i] + k] != 0) {
			scale = r->adv[r->rs[i] + k] / keep[k];
			break;
		}
	}
	for (int64_t p = i, q; p < j && rc == 0; p = q) {
		q = pass_end(b, p, j, o->micro_tokens);
		rc = micro(r, b, o, inv_temp, p, q, j - i, scale, first, step, sum, err);
	}
	rc = rc < 0 ? rc : sky_optim_step(r->opt, o->lr, norm, err);
	memcpy(r->adv + r->rs[i], keep, (size_t)n * sizeof(double));
	free(rs);
	free(keep);
	return rc;
}

static int prepare(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_rl_opt *o, float inv_temp, bool old_first,
                   double *kl_coef, struct sky_metrics *met, struct sky_err *err)
{
	const struct sky_algo *a = &o->algo;
	int rc = load(r, b, err);

	if (rc == 0 && !old_first) {
		rc = score_all(r, r->m, b, o, inv_temp, r->old, err);
		if (rc == 0) {
			gap_metrics(r, met);
		}
	}
	if (rc == 0 && (a->use_kl_loss || a->use_kl_in_reward)) {
		if (!r->ref) {
			return sky_fail(err, SKY_E_USAGE, "a KL term needs a reference model (--ref-model)");
		}
		rc = score_all(r, r->ref, b, o, inv_temp, r->refp, err);
	}
	if (rc == 0 && a->use_kl_in_reward) {
		rc = kl_in_reward(r, a, kl_coef, met, err);
	}
	rc = rc < 0 ? rc : advantages(r, b, a, met, err);
	if (rc == 0 && a->zero_variance_filter) {
		zero_variance(r, b, a, met);
	}
	return rc;
}

int sky_rl_update(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_rl_opt *opt, int64_t step, double *kl_coef,
                  struct sky_metrics *met, int *trained_p, struct sky_err *err)
{
	struct sky_rl_opt o = *opt;
	float inv_temp = o.temperature > 0 ? (float)(1 / o.temperature) : 1;
	double norm = 0, norm_sum = 0, live = 0;
	struct sums sum = { 0 };
	int64_t n_mini = 0;
	bool old_first;
	int rc = sky_algo_check(&o.algo, err);

	o.n_epoch = o.n_epoch > 0 ? o.n_epoch : 1;
	o.micro_tokens = o.micro_tokens > 0 ? o.micro_tokens : 4096;
	/* One optimizer step: the log-probs before it are those of its own forward pass. */
	old_first = o.n_epoch == 1 && mini_end(b, 0, o.mini_prompts) == b->n_seq && !o.algo.use_kl_in_reward;
	rc = rc < 0 ? rc : prepare(r, b, &o, inv_temp, old_first, kl_coef, met, err);
	for (int64_t k = 0; rc == 0 && k < r->R; k++) {
		live += r->mask[k];
	}
	*trained_p = live > 0;
	for (int64_t e = 0; e < o.n_epoch && rc == 0 && live > 0; e++) {
		for (int64_t i = 0, j; i < b->n_seq && rc == 0; i = j) {
			j = mini_end(b, i, o.mini_prompts);
			rc = mini(r, b, &o, inv_temp, i, j, old_first, step, &sum, &norm, err);
			norm_sum += norm;
			n_mini++;
		}
	}
	if (rc < 0 || n_mini == 0) {
		return rc;
	}
	if (old_first) {
		gap_metrics(r, met);
	}
	if (o.algo.use_kl_loss) {
		sky_metric_set(met, "policy/policy_kl", sum.kl / (double)n_mini);
	}
	for (int i = 0; i < sum.loss.n; i++) {
		sky_metric_set(met, sum.loss.m[i].name, sum.loss.m[i].v);
	}
	sky_metric_set(met, "policy/policy_loss", sum.policy_loss / (double)n_mini);
	sky_metric_set(met, "policy/policy_entropy", sum.n_entropy > 0 ? sum.entropy / sum.n_entropy : 0);
	sky_metric_set(met, "policy/final_loss",
	               (sum.policy_loss + (o.algo.use_kl_loss ? o.algo.kl_loss_coef * sum.kl : 0)) / (double)n_mini);
	sky_metric_set(met, "policy/grad_norm", norm_sum / (double)n_mini);
	sky_metric_set(met, "policy/policy_lr", o.lr);
	sky_metric_set(met, "policy/response_length", (double)r->R / (double)b->n_seq);
	return 0;
}
