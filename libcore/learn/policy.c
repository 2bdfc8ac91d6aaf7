/* Policy losses by name: per-token loss L and dL/dlp, summed over the mask. Formulas: SkyRL 0.4.0, policy_loss_type. */
#include "learn/learn.h"
#include "learn/learn_int.h"

#include <math.h>
#include <stdlib.h>

/* What a loss function works on; token arrays of the whole batch. */
struct work {
	const struct sky_algo *a;
	const struct sky_loss_in *in;
	const double *mask;     /* after off-policy correction */
	const double *weight;   /* truncated importance weights */
	double *L, *dL;         /* [n] out: per token, before weight and mask */
	struct sky_metrics *met;
	struct sky_err *err;
};

static double clamp(double x, double lo, double hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* exp(clamp(x, ±20)); *d = derivative with respect to x, 0 beyond the clamp. */
double sky_safe_exp(double x, double *d)
{
	double e = exp(clamp(x, -20, 20));

	if (d) {
		*d = x < -20 || x > 20 ? 0 : e;
	}
	return e;
}

/* Masked mean of flag over the batch; the caller has zeroed flag where it does not count. */
static double share(const struct work *w, const double *flag)
{
	int64_t n = w->in->start[w->in->n_seq];
	double s = 0, m = 0;

	for (int64_t t = 0; t < n; t++) {
		if (w->mask[t] != 0) {
			s += flag[t] * w->mask[t];
			m += w->mask[t];
		}
	}
	return s / (m > 1 ? m : 1);
}

/* L = −min(r·A, clamp(r, 1−low, 1+high)·A); *clipped = 1 where the clipped branch is the active one. */
static double ppo(double r, double dr, double A, double low, double high, double *dL, double *clipped)
{
	double c = clamp(r, 1 - low, 1 + high);
	double l1 = -r * A, l2 = -c * A;

	*clipped = l2 > l1;
	*dL = *clipped ? 0 : -dr * A;
	return *clipped ? l2 : l1;
}

static int loss_ppo(struct work *w, int dual)
{
	const struct sky_loss_in *in = w->in;
	const struct sky_algo *a = w->a;
	int64_t n = in->start[in->n_seq];
	double *clipped = sky_calloc_array((size_t)n + 1, sizeof(double));

	if (!clipped) {
		return sky_fail_mem(w->err, "policy loss");
	}
	for (int64_t t = 0; t < n; t++) {
		double dr, r, A = in->adv[t];

		if (w->mask[t] == 0) {
			continue;
		}
		r = sky_safe_exp(in->lp[t] - in->old[t], &dr);
		w->L[t] = ppo(r, dr, A, a->eps_clip_low, a->eps_clip_high, &w->dL[t], &clipped[t]);
		if (dual && A < 0 && -a->clip_ratio_c * A < w->L[t]) {
			w->L[t] = -a->clip_ratio_c * A;
			w->dL[t] = 0;
		}
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", share(w, clipped));
	free(clipped);
	return 0;
}

static int loss_regular(struct work *w)
{
	return loss_ppo(w, 0);
}

static int loss_dual_clip(struct work *w)
{
	return loss_ppo(w, 1);
}

/* Sequence ratio in token form: log s_t = min(lp_t − sg(lp_t) + g, 10) with g the masked mean of lp − old, so the value
 * is the sequence's and the gradient each token's own. */
static int loss_gspo(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	int64_t n = in->start[in->n_seq];
	double *clipped = sky_calloc_array((size_t)n + 1, sizeof(double));

	if (!clipped) {
		return sky_fail_mem(w->err, "policy loss");
	}
	for (int64_t i = 0; i < in->n_seq; i++) {
		double g = 0, m = 0, s, ds;

		for (int64_t t = in->start[i]; t < in->start[i + 1]; t++) {
			if (w->mask[t] != 0) {
				g += (in->lp[t] - in->old[t]) * w->mask[t];
				m += w->mask[t];
			}
		}
		g /= m > 1 ? m : 1;
		s = exp(g < 10 ? g : 10);
		ds = g <= 10 ? s : 0;
		for (int64_t t = in->start[i]; t < in->start[i + 1]; t++) {
			if (w->mask[t] != 0) {
				w->L[t] = ppo(s, ds, in->adv[t], w->a->eps_clip_low, w->a->eps_clip_high, &w->dL[t],
				              &clipped[t]);
			}
		}
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", share(w, clipped));
	free(clipped);
	return 0;
}

/* L = −A · sg(clamp(r, 1−low, 1+high)) · lp, r against old or the rollout. */
static int loss_cispo(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	const double *anchor = w->a->cispo_rollout ? in->rollout : in->old;
	double lo = 1 - w->a->cispo_low, hi = 1 + w->a->cispo_high;
	double s = 0, sc = 0, m = 0, out = 0, max = -INFINITY, min = INFINITY;
	int64_t n = in->start[in->n_seq];

	for (int64_t t = 0; t < n; t++) {
		double r, c;

		if (w->mask[t] == 0) {
			continue;
		}
		r = sky_safe_exp(in->lp[t] - anchor[t], NULL);
		c = clamp(r, lo, hi);
		w->L[t] = -in->adv[t] * c * in->lp[t];
		w->dL[t] = -in->adv[t] * c;
		s += r * w->mask[t];
		sc += c * w->mask[t];
		m += w->mask[t];
		out += (r < lo || r > hi) * w->mask[t];
		max = r > max ? r : max;
		min = r < min ? r : min;
	}
	m = m > 1 ? m : 1;
	sky_metric_set(w->met, "loss_metrics/clip_ratio", out / m);
	sky_metric_set(w->met, "loss_metrics/cispo/ratio_mean", s / m);
	sky_metric_set(w->met, "loss_metrics/cispo/ratio_clamped_mean", sc / m);
	if (max >= min) {
		sky_metric_set(w->met, "loss_metrics/cispo/ratio_max", max);
		sky_metric_set(w->met, "loss_metrics/cispo/ratio_min", min);
	}
	return 0;
}

/* L = −sg(f)·A·lp with f = r inside (1−low, 1+high) and 0 outside: a double-sided mask against the rollout. */
static int loss_rollout_is(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	int64_t n = in->start[in->n_seq];
	double out = 0, m = 0;

	for (int64_t t = 0; t < n; t++) {
		double r, f;

		if (w->mask[t] == 0) {
			continue;
		}
		r = sky_safe_exp(in->lp[t] - in->rollout[t], NULL);
		f = r > 1 - w->a->eps_clip_low && r < 1 + w->a->eps_clip_high ? r : 0;
		w->L[t] = -f * in->adv[t] * in->lp[t];
		w->dL[t] = -f * in->adv[t];
		out += (f == 0) * w->mask[t];
		m += w->mask[t];
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", out / (m > 1 ? m : 1));
	return 0;
}

/* 1 when the trust region of DPPO lets the token through: p, q probabilities now and at sampling time. */
static int dppo_keep(const struct sky_algo *a, double lp, double mu, double A)
{
	double p = exp(lp), q = exp(mu), d;

	if (!a->dppo_kl) {
		return !((A > 0 && p - q > a->dppo_high) || (A < 0 && q - p > a->dppo_low));
	}
	d = q * (mu - lp) + (1 - q) * log((1 - q + 1e-8) / (1 - p + 1e-8));
	return !((A > 0 && p > q && d > a->dppo_high) || (A < 0 && p < q && d > a->dppo_low));
}

static int loss_dppo(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	const double *mu = in->rollout ? in->rollout : in->old;
	int64_t n = in->start[in->n_seq];
	double out = 0, m = 0;

	for (int64_t t = 0; t < n; t++) {
		double r, dr;

		if (w->mask[t] == 0) {
			continue;
		}
		m += w->mask[t];
		if (!dppo_keep(w->a, in->lp[t], mu[t], in->adv[t])) {
			out += w->mask[t];
			continue;
		}
		r = sky_safe_exp(in->lp[t] - mu[t], &dr);
		w->L[t] = -r * in->adv[t];
		w->dL[t] = -dr * in->adv[t];
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", out / (m > 1 ? m : 1));
	return 0;
}

/* Covariance of advantage and log-prob around their means, advantages unscaled; 0 at masked tokens. The means are weighted
 * by the mask for clip_cov and plain for kl_cov. */
static void covariance(const struct work *w, int weighted, double *cov)
{
	const struct sky_loss_in *in = w->in;
	int64_t n = in->start[in->n_seq];
	double k = in->adv_scale != 0 ? 1 / in->adv_scale : 1;
	double ma = 0, ml = 0, m = 0;

	for (int64_t t = 0; t < n; t++) {
		if (w->mask[t] != 0) {
			double g = weighted ? w->mask[t] : 1;

			ma += in->adv[t] * k * g;
			ml += in->lp[t] * g;
			m += g;
		}
	}
	m = m > 1 ? m : 1;
	for (int64_t t = 0; t < n; t++) {
		cov[t] = w->mask[t] != 0 ? (in->adv[t] * k - ma / m) * (in->lp[t] - ml / m) : 0;
	}
}

/* PPO whose gradient is dropped on a few random tokens of high covariance (corr = 0). */
static int loss_clip_cov(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	const struct sky_algo *a = w->a;
	int64_t n = in->start[in->n_seq], n_cand = 0, n_drop;
	double m = 0, out = 0;
	double *cov = sky_calloc_array((size_t)n + 1, sizeof(double));
	int64_t *cand = sky_calloc_array((size_t)n + 1, sizeof(int64_t));

	if (!cov || !cand) {
		free(cov);
		free(cand);
		return sky_fail_mem(w->err, "policy loss");
	}
	covariance(w, 1, cov);
	for (int64_t t = 0; t < n; t++) {
		double r, clipped;

		if (w->mask[t] == 0) {
			continue;
		}
		r = exp(in->lp[t] - in->old[t]);
		w->L[t] = ppo(r, r, in->adv[t], a->eps_clip_low, a->eps_clip_high, &w->dL[t], &clipped);
		m += w->mask[t];
		if (!clipped && cov[t] > a->clip_cov_lb && cov[t] < a->clip_cov_ub) {
			cand[n_cand++] = t;
		}
	}
	n_drop = (int64_t)(a->clip_cov_ratio * m);
	n_drop = n_drop > 1 ? n_drop : 1;
	for (int64_t i = 0; i < n_drop && i < n_cand; i++) {
		int64_t j = in->randperm ? in->randperm[i]
		                         : (int64_t)sky_rng_permute(in->seed, SKY_RNG_ORDER, in->step, (uint64_t)i,
		                                                    (uint64_t)n_cand);
		int64_t t = cand[j];

		w->L[t] = 0;
		w->dL[t] = 0;
		out += w->mask[t];
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", out / (m > 1 ? m : 1));
	free(cov);
	free(cand);
	return 0;
}

struct ranked {
	double cov;
	int64_t t;
};

static int by_cov(const void *x, const void *y)
{
	const struct ranked *a = x, *b = y;

	if (a->cov != b->cov) {
		return a->cov > b->cov ? -1 : 1;
	}
	return a->t < b->t ? -1 : a->t > b->t;
}

/* Unclipped ratio, plus ppo_kl_coef·|lp − old| on the tokens of highest covariance. The penalty is scaled like the
 * advantages, except under compat_skyrl. */
static int loss_kl_cov(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	const struct sky_algo *a = w->a;
	int64_t n = in->start[in->n_seq], n_valid = 0, n_take;
	double coef = a->ppo_kl_coef * (a->compat_skyrl || in->adv_scale == 0 ? 1 : in->adv_scale);
	double *cov = sky_calloc_array((size_t)n + 1, sizeof(double));
	struct ranked *rank = sky_calloc_array((size_t)n + 1, sizeof(*rank));

	if (!cov || !rank) {
		free(cov);
		free(rank);
		return sky_fail_mem(w->err, "policy loss");
	}
	covariance(w, 0, cov);
	for (int64_t t = 0; t < n; t++) {
		if (w->mask[t] != 0) {
			w->L[t] = w->dL[t] = -exp(in->lp[t] - in->old[t]) * in->adv[t];
			rank[n_valid].cov = cov[t];
			rank[n_valid++].t = t;
		}
	}
	qsort(rank, (size_t)n_valid, sizeof(*rank), by_cov);
	n_take = (int64_t)(a->kl_cov_frac * (double)n_valid);
	n_take = n_take > 1 ? n_take : 1;
	for (int64_t i = 0; i < n_take && i < n_valid; i++) {
		int64_t t = rank[i].t;
		double d = in->lp[t] - in->old[t];

		w->L[t] += coef * fabs(d);
		w->dL[t] += coef * ((d > 0) - (d < 0));
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", 0);
	free(cov);
	free(rank);
	return 0;
}

/* L = −A·σ(τ(r−1))·4/τ: a soft gate instead of a clip. */
static int loss_sapo(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	int64_t n = in->start[in->n_seq];

	for (int64_t t = 0; t < n; t++) {
		double A = in->adv[t], tau = A > 0 ? w->a->sapo_tau_pos : w->a->sapo_tau_neg;
		double r, dr, g;

		if (w->mask[t] == 0) {
			continue;
		}
		r = sky_safe_exp(in->lp[t] - in->old[t], &dr);
		g = 1 / (1 + exp(-tau * (r - 1)));
		w->L[t] = -A * g * 4 / tau;
		w->dL[t] = -A * 4 * g * (1 - g) * dr;
	}
	sky_metric_set(w->met, "loss_metrics/clip_ratio", 0);
	return 0;
}

static int loss_cross_entropy(struct work *w)
{
	int64_t n = w->in->start[w->in->n_seq];

	for (int64_t t = 0; t < n; t++) {
		if (w->mask[t] != 0) {
			w->L[t] = -w->in->lp[t];
			w->dL[t] = -1;
		}
	}
	return 0;
}

static int loss_importance_sampling(struct work *w)
{
	const struct sky_loss_in *in = w->in;
	int64_t n = in->start[in->n_seq];
	double s = 0, m = 0;

	for (int64_t t = 0; t < n; t++) {
		double r;

		if (w->mask[t] == 0) {
			continue;
		}
		r = exp(in->lp[t] - in->old[t]);
		w->L[t] = w->dL[t] = -r * in->adv[t];
		s += r * w->mask[t];
		m += w->mask[t];
	}
	if (m > 0) {
		sky_metric_set(w->met, "loss_metrics/importance_ratio", s / m);
	}
	return 0;
}

enum need { NEED_OLD = 1, NEED_ROLLOUT = 2, NEED_ANCHOR = 4, NEED_EITHER = 8 };
static const struct policy_row {
	const char *name;
	int (*fn)(struct work *w);
	int need, correct;      /* off-policy correction: 0 never, 1 always, 2 not in the release, so not under compat_skyrl */
} table[] = {
	{ "regular", loss_regular, NEED_OLD, 1 },
	{ "dual_clip", loss_dual_clip, NEED_OLD, 1 },
	{ "gspo", loss_gspo, NEED_OLD, 1 },
	{ "cispo", loss_cispo, NEED_ANCHOR, 1 },
	{ "rollout_is", loss_rollout_is, NEED_ROLLOUT, 1 },
	{ "dppo", loss_dppo, NEED_EITHER, 1 },
	{ "clip_cov", loss_clip_cov, NEED_OLD, 2 },
	{ "kl_cov", loss_kl_cov, NEED_OLD, 2 },
	{ "sapo", loss_sapo, NEED_OLD, 1 },
	{ "cross_entropy", loss_cross_entropy, 0, 0 },
	{ "importance_sampling", loss_importance_sampling, NEED_OLD, 0 },
};

const char *sky_policy_loss_name(int i)
{
	return i >= 0 && i < (int)(sizeof(table) / sizeof(*table)) ? table[i].name : NULL;
}

static const struct policy_row *find(const char *name)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (!strcmp(table[i].name, name)) {
			return &table[i];
		}
	}
	return NULL;
}

int sky_policy_loss_needs_old(const struct sky_algo *a)
{
	const struct policy_row *p = find(a->policy_loss_type);

	return !p || (p->need & NEED_OLD) || ((p->need & NEED_ANCHOR) && !a->cispo_rollout) || a->use_kl_in_reward || a->tis ||
	       a->seq_mask || !isnan(a->outlier_high) || !isnan(a->outlier_low) || !isnan(a->token_mask_high);
}

static int check_inputs(const struct policy_row *p, const struct sky_algo *a, const struct sky_loss_in *in,
                        struct sky_err *err)
{
	int old = (p->need & NEED_OLD) || ((p->need & NEED_ANCHOR) && !a->cispo_rollout);
	int roll = (p->need & NEED_ROLLOUT) || ((p->need & NEED_ANCHOR) && a->cispo_rollout);

	if ((old && !in->old) || ((p->need & NEED_EITHER) && !in->old && !in->rollout)) {
		return sky_fail(err, SKY_E_USAGE, "policy_loss_type %s needs the log-probs before the update", p->name);
	}
	/* Its ratio is against the rollout already: a truncated weight would count the same gap twice. */
	if ((p->need & NEED_ANCHOR) && a->cispo_rollout && a->tis) {
		return sky_fail(err, SKY_E_USAGE, "cispo with the anchor rollout excludes tis_ratio_type");
	}
	if (roll && !in->rollout) {
		return sky_fail(err, SKY_E_USAGE,
		                "policy_loss_type %s needs the log-probs of the rollout, which these trajectories lack",
		                p->name);
	}
	return 0;
}

int sky_policy_loss(const struct sky_algo *a, const struct sky_loss_in *in, double *loss_p, double *dlp,
                    struct sky_metrics *met, struct sky_err *err)
{
	const struct policy_row *p = find(a->policy_loss_type);
	int64_t n = in->start[in->n_seq];
	double *mem, loss = 0;
	struct work w = { .a = a, .in = in, .met = met, .err = err };
	int rc;

	if (!p) {
		return sky_fail(err, SKY_E_USAGE, "policy_loss_type %s is not known", a->policy_loss_type);
	}
	rc = check_inputs(p, a, in, err);
	if (rc < 0) {
		return rc;
	}
	mem = sky_calloc_array((size_t)n * 4 + 1, sizeof(double));
	if (!mem) {
		return sky_fail_mem(err, "policy loss");
	}
	w.L = mem;
	w.dL = mem + n;
	w.weight = mem + 2 * n;
	w.mask = mem + 3 * n;
	memcpy(mem + 3 * n, in->mask, (size_t)n * sizeof(double));
	for (int64_t t = 0; t < n; t++) {
		mem[2 * n + t] = 1;
	}
	/* The losses see the mask as it came; the correction shrinks it only in the final sum, as the release does. */
	rc = p->fn(&w);
	if (rc == 0 && p->correct && !(p->correct == 2 && a->compat_skyrl) && in->rollout && in->old) {
		rc = sky_off_policy(a, in, mem + 2 * n, mem + 3 * n, met, err);
	}
	for (int64_t t = 0; rc == 0 && t < n; t++) {
		double k = w.mask[t] != 0 ? w.weight[t] * w.mask[t] : 0;

		loss += k != 0 ? w.L[t] * k : 0;
		dlp[t] = k != 0 ? w.dL[t] * k : 0;
	}
	if (rc == 0) {
		*loss_p = loss;
	}
	free(mem);
	return rc;
}
