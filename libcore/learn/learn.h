/* learn: from log-probs and rewards to updated weights. Layer 5.
 *
 * In: log-probs of the policy, of the policy before the update (old), of the rollout engine and of a reference model;
 * rewards; masks. Out: advantages, losses, gradients with respect to the log-probs, learning rates.
 * Registries by name: estimators, policy losses, KL forms, reductions, schedules. One row adds one.
 *
 * Layout of a batch everywhere in this folder: B sequences side by side without padding. Sequence i owns the response tokens
 * [start[i], start[i+1]); arrays over tokens are double [n], n = start[B]. mask[t] is the weight of token t in the
 * loss, normally 0 or 1. A position whose mask is 0 is never read beyond the mask: a NaN there changes nothing.
 * Formulas: those of SkyRL 0.4.0, by its option names. */
#ifndef SKY_LEARN_LEARN_H
#define SKY_LEARN_LEARN_H

#include <stddef.h>
#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Named numbers on their way to metrics.ndjson; names are string constants. */
#define SKY_MAX_METRICS 64
struct sky_metrics {
	int n;
	struct { const char *name; double v; } m[SKY_MAX_METRICS];
};
void sky_metric_set(struct sky_metrics *m, const char *name, double v);         /* replaces an equal name */
/* NAN when absent. */
double sky_metric_get(const struct sky_metrics *m, const char *name);

/* trainer.algorithm.*; sky_algo_defaults gives SkyRL's defaults. */
struct sky_algo {
	char advantage_estimator[32], policy_loss_type[32], loss_reduction[32], kl_estimator_type[8];
	double eps_clip_low, eps_clip_high, clip_ratio_c;
	double gamma, lambd;
	int grpo_norm_by_std, advantage_batch_normalize;
	int use_kl_loss, use_kl_in_reward;
	double kl_loss_coef, kl_target, kl_horizon;
	int kl_adaptive;
	int use_entropy_loss;
	double entropy_loss_coef;
	int64_t max_seq_len;            /* for seq_mean_token_sum_norm, 0 = not set */
	int zero_variance_filter;
	double zero_variance_filter_tol;
	double sapo_tau_pos, sapo_tau_neg;
	double cispo_low, cispo_high;
	int cispo_rollout;              /* anchor: 0 = old, 1 = rollout */
	int dppo_kl;                    /* 0 = binary_tv, 1 = binary_kl */
	double dppo_low, dppo_high;
	double clip_cov_ratio, clip_cov_lb, clip_cov_ub;
	double kl_cov_frac, ppo_kl_coef;
	/* off_policy_correction.*; a bound that is NAN is off */
	int tis;                        /* 0 off, 1 token, 2 sequence */
	double tis_token_high, tis_seq_high;
	int seq_mask;                   /* 0 off, 1 geometric, 2 product */
	double geo_high, geo_low, product_high, product_low;
	double outlier_high, outlier_low, token_mask_high, token_mask_low;
	int compat_skyrl;               /* reproduce the release where it differs from what is meant (groups of one, rounding) */
};
void sky_algo_defaults(struct sky_algo *a);
/* One field by its dotted name below trainer.algorithm ("dppo.delta_low"), as text. Unknown name or bad value:
 * SKY_E_USAGE, near names listed. */
int sky_algo_set(struct sky_algo *a, const char *key, const char *value, struct sky_err *err) SKY_MUST_CHECK;
/* Cross-field rules: known names, exclusive KL forms, required max_seq_len. */
int sky_algo_check(const struct sky_algo *a, struct sky_err *err) SKY_MUST_CHECK;

/* ---- advantages ---- */
struct sky_adv_in {
	int64_t n_seq;
	const int64_t *start;           /* [B+1] */
	const double *reward;           /* [n] token rewards */
	const int64_t *group;           /* [B] prompt group; members need not be adjacent */
	const double *value;            /* [n] critic values, for gae; else NULL */
	/* Step-wise samples: traj[i] of sequence i and whether it is its trajectory's last turn; NULL when every sequence is a
	 * whole trajectory. Estimators see last turns, the result is broadcast to every turn. */
	const int64_t *traj;
	const uint8_t *last;
};
/* adv, ret [n]: advantages and returns by a->advantage_estimator. Means and deviations in double; a group whose rewards
 * are all equal, and a group of one, get exactly 0 (unless compat_skyrl). */
int sky_advantages(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret,
                   struct sky_err *err) SKY_MUST_CHECK;
const char *sky_estimator_name(int i);  /* NULL after the last */

/* ---- reduction: constants that divide the advantages, so that every loss is a plain sum over tokens ---- */
/* adv [n] is scaled in place for one mini-batch. prompt [B]: group of each sequence (for prompt_mean).
 * micro: sequences a micro-batch (token_mean_legacy only). */
int sky_reduce_scale(const struct sky_algo *a, int64_t n_seq, const int64_t *start, const double *mask, const int64_t *prompt,
                     int64_t micro, double *adv, struct sky_err *err) SKY_MUST_CHECK;
/* advantage_batch_normalize: mean and deviation over the batch. */
void sky_adv_normalize(const struct sky_algo *a, int64_t n_seq, const int64_t *start, double *adv);

/* ---- policy losses ---- */
struct sky_loss_in {
	int64_t n_seq;
	const int64_t *start;           /* [B+1] */
	const double *lp;               /* [n] log-probs under the current weights */
	const double *old;              /* [n] before the update; NULL only for losses that do not need it */
	const double *rollout;          /* [n] as sampled; NULL when unknown */
	const double *adv;              /* [n] scaled by sky_reduce_scale */
	const double *mask;             /* [n] */
	double adv_scale;               /* what multiplied adv (1 = none): clip_cov and kl_cov work on unscaled ones */
	/* clip_cov: permutation of the candidates; NULL: drawn from (seed, step). */
	const int64_t *randperm;
	uint64_t seed, step;
};
/* Σ L·mask into *loss_p, its gradient with respect to lp into dlp [n] (0 where mask is 0), metrics added. Off-policy
 * correction is applied inside. */
int sky_policy_loss(const struct sky_algo *a, const struct sky_loss_in *in, double *loss_p, double *dlp,
                    struct sky_metrics *met, struct sky_err *err) SKY_MUST_CHECK;
const char *sky_policy_loss_name(int i);
int sky_policy_loss_needs_old(const struct sky_algo *a);        /* 0: the forward pass of old log-probs may be skipped */

/* Off-policy correction alone: weight [n] (product of truncated ratios; all 1 when TIS is off) and mask [n] (in/out). */
int sky_off_policy(const struct sky_algo *a, const struct sky_loss_in *in, double *weight, double *mask,
                   struct sky_metrics *met, struct sky_err *err) SKY_MUST_CHECK;

/* ---- KL ---- */
/* Per-token estimate into kl [n] (0 where mask is 0) and its derivative into dkl [n] (may be NULL). */
int sky_kl(const char *type, int64_t n, const double *lp, const double *ref, const double *mask, double *kl, double *dkl,
           struct sky_err *err) SKY_MUST_CHECK;
/* Mean over sequences of masked means; with dterm [n]: its gradient through dkl (added, times coef). */
double sky_kl_term(int64_t n_seq, const int64_t *start, const double *kl, const double *mask);
void sky_kl_term_grad(int64_t n_seq, const int64_t *start, const double *dkl, const double *mask, double coef, double *dterm);
/* Adaptive controller: new coefficient after a batch of n sequences with mean KL `current`. */
double sky_kl_control(const struct sky_algo *a, double value, double current, int64_t n);

/* ---- schedules ---- */
/* Learning rate of step (from 0) of n_total steps: linear warm-up over n_warmup, then constant | linear | cosine to min_lr. */
int sky_schedule(const char *name, double lr, double min_lr, int64_t step, int64_t n_warmup, int64_t n_total, double *lr_p,
                 struct sky_err *err) SKY_MUST_CHECK;
const char *sky_schedule_name(int i);

#ifdef __cplusplus
}
#endif
#endif
