/* trainer.algorithm.*: defaults, setting a field by its name, cross-field rules; and the small list of metrics. */
#include "learn/learn.h"

#include <math.h>
#include <stddef.h>

void sky_algo_defaults(struct sky_algo *a)
{
	*a = (struct sky_algo){
		.advantage_estimator = "grpo", .policy_loss_type = "regular", .loss_reduction = "token_mean",
		.kl_estimator_type = "k3",
		.eps_clip_low = 0.2, .eps_clip_high = 0.2, .clip_ratio_c = 3, .gamma = 1, .lambd = 1,
		.grpo_norm_by_std = 1, .use_kl_loss = 1, .kl_loss_coef = 0.001, .kl_target = 0.1, .kl_horizon = 10000,
		.entropy_loss_coef = 0.01, .zero_variance_filter_tol = 1e-6,
		.sapo_tau_pos = 1, .sapo_tau_neg = 1.05, .cispo_low = 1, .cispo_high = 4, .dppo_low = 0.2, .dppo_high = 0.2,
		.clip_cov_ratio = 0.0002, .clip_cov_lb = 1, .clip_cov_ub = 5, .kl_cov_frac = 0.2, .ppo_kl_coef = 1,
		.tis_token_high = 2, .tis_seq_high = 5, .geo_high = 1.01, .geo_low = 0.99, .product_high = 2,
		.product_low = 0.5,
		.outlier_high = NAN, .outlier_low = NAN, .token_mask_high = NAN, .token_mask_low = NAN,
	};
}

enum kind { NUMBER, BOUND, FLAG, COUNT, NAME, CHOICE };
#define F(k, member, kind) { k, kind, offsetof(struct sky_algo, member), sizeof(((struct sky_algo *)0)->member), NULL }
#define C(k, member, words) { k, CHOICE, offsetof(struct sky_algo, member), sizeof(int), words }
/* BOUND: a number or null (off). CHOICE: words separated by '|', the value is the index. */
static const struct field {
	const char *key;
	enum kind kind;
	size_t off, size;
	const char *words;
} fields[] = {
	F("advantage_estimator", advantage_estimator, NAME), F("policy_loss_type", policy_loss_type, NAME),
	F("loss_reduction", loss_reduction, NAME), F("kl_estimator_type", kl_estimator_type, NAME),
	F("eps_clip_low", eps_clip_low, NUMBER), F("eps_clip_high", eps_clip_high, NUMBER),
	F("clip_ratio_c", clip_ratio_c, NUMBER), F("gamma", gamma, NUMBER), F("lambd", lambd, NUMBER),
	F("grpo_norm_by_std", grpo_norm_by_std, FLAG), F("advantage_batch_normalize", advantage_batch_normalize, FLAG),
	F("use_kl_loss", use_kl_loss, FLAG), F("use_kl_in_reward", use_kl_in_reward, FLAG),
	F("kl_loss_coef", kl_loss_coef, NUMBER), F("kl_ctrl.kl_target", kl_target, NUMBER),
	F("kl_ctrl.horizon", kl_horizon, NUMBER), C("kl_ctrl.type", kl_adaptive, "fixed|adaptive"),
	F("use_entropy_loss", use_entropy_loss, FLAG), F("entropy_loss_coef", entropy_loss_coef, NUMBER),
	F("max_seq_len", max_seq_len, COUNT), F("zero_variance_filter", zero_variance_filter, FLAG),
	F("zero_variance_filter_tol", zero_variance_filter_tol, NUMBER),
	F("sapo.tau_pos", sapo_tau_pos, NUMBER), F("sapo.tau_neg", sapo_tau_neg, NUMBER),
	F("cispo.cispo_eps_clip_low", cispo_low, NUMBER), F("cispo.cispo_eps_clip_high", cispo_high, NUMBER),
	C("cispo.cispo_anchor", cispo_rollout, "old|rollout"), C("dppo.dppo_type", dppo_kl, "binary_tv|binary_kl"),
	F("dppo.delta_low", dppo_low, NUMBER), F("dppo.delta_high", dppo_high, NUMBER),
	F("clip_cov.clip_ratio", clip_cov_ratio, NUMBER), F("clip_cov.clip_cov_lb", clip_cov_lb, NUMBER),
	F("clip_cov.clip_cov_ub", clip_cov_ub, NUMBER), F("kl_cov.kl_cov_frac", kl_cov_frac, NUMBER),
	F("kl_cov.ppo_kl_coef", ppo_kl_coef, NUMBER),
	C("off_policy_correction.tis_ratio_type", tis, "null|token|sequence"),
	F("off_policy_correction.token_tis_ratio_clip_high", tis_token_high, NUMBER),
	F("off_policy_correction.sequence_tis_ratio_clip_high", tis_seq_high, NUMBER),
	C("off_policy_correction.sequence_mask_metric", seq_mask, "null|geometric|product"),
	F("off_policy_correction.geo_mask_high", geo_high, NUMBER), F("off_policy_correction.geo_mask_low", geo_low, NUMBER),
	F("off_policy_correction.product_mask_high", product_high, NUMBER),
	F("off_policy_correction.product_mask_low", product_low, NUMBER),
	F("off_policy_correction.outlier_token_is_threshold_high", outlier_high, BOUND),
	F("off_policy_correction.outlier_token_is_threshold_low", outlier_low, BOUND),
	F("off_policy_correction.token_mask_is_threshold_high", token_mask_high, BOUND),
	F("off_policy_correction.token_mask_is_threshold_low", token_mask_low, BOUND),
};
#define N_FIELD (sizeof(fields) / sizeof(*fields))

/* Index of value among words "a|b|c", or −1. */
static int word_index(const char *words, const char *value)
{
	size_t n = strlen(value);
	int i = 0;

	for (const char *p = words; *p; i++) {
		size_t k = strcspn(p, "|");

		if (k == n && !memcmp(p, value, n)) {
			return i;
		}
		p += k + (p[k] == '|');
	}
	return -1;
}

static int set_field(struct sky_algo *a, const struct field *f, const char *value, struct sky_err *err)
{
	char *at = (char *)a + f->off;
	double v = NAN;
	int64_t n;
	int rc;

	switch (f->kind) {
	case NAME:
		if (strlen(value) >= f->size) {
			return sky_fail(err, SKY_E_USAGE, "trainer.algorithm.%s: %s is not known", f->key, value);
		}
		memcpy(at, value, strlen(value) + 1);
		return 0;
	case FLAG:
		n = word_index("false|true|False|True|0|1", value);
		if (n < 0) {
			return sky_fail(err, SKY_E_USAGE, "trainer.algorithm.%s: true or false expected, got %s", f->key, value);
		}
		*(int *)at = (int)(n & 1);
		return 0;
	case CHOICE:
		n = word_index(f->words, value);
		if (n < 0) {
			return sky_fail(err, SKY_E_USAGE, "trainer.algorithm.%s: one of %s expected, got %s", f->key, f->words,
			                value);
		}
		*(int *)at = (int)n;
		return 0;
	case COUNT:
		rc = sky_parse_count(value, &n, err);
		if (rc == 0) {
			*(int64_t *)at = n;
		}
		return sky_while(err, rc, "trainer.algorithm.%s", f->key);
	default:
		if (f->kind == BOUND && !strcmp(value, "null")) {
			*(double *)at = NAN;
			return 0;
		}
		rc = sky_parse_f64(value, &v, err);
		if (rc == 0) {
			*(double *)at = v;
		}
		return sky_while(err, rc, "trainer.algorithm.%s", f->key);
	}
}

int sky_algo_set(struct sky_algo *a, const char *key, const char *value, struct sky_err *err)
{
	const char *near = NULL;
	size_t best = 3;

	for (size_t i = 0; i < N_FIELD; i++) {
		size_t k = 0;

		if (!strcmp(fields[i].key, key)) {
			return set_field(a, &fields[i], value, err);
		}
		while (key[k] && key[k] == fields[i].key[k]) {
			k++;
		}
		if (k > best) {
			best = k;
			near = fields[i].key;
		}
	}
	if (near) {
		return sky_fail(err, SKY_E_USAGE, "trainer.algorithm.%s is not known; did you mean %s?", key, near);
	}
	return sky_fail(err, SKY_E_USAGE, "trainer.algorithm.%s is not known", key);
}

static int known(const char *(*name)(int i), const char *s)
{
	for (int i = 0; name(i); i++) {
		if (!strcmp(name(i), s)) {
			return 1;
		}
	}
	return 0;
}

int sky_algo_check(const struct sky_algo *a, struct sky_err *err)
{
	if (!known(sky_estimator_name, a->advantage_estimator)) {
		return sky_fail(err, SKY_E_USAGE, "advantage_estimator %s is not known", a->advantage_estimator);
	}
	if (!known(sky_policy_loss_name, a->policy_loss_type)) {
		return sky_fail(err, SKY_E_USAGE, "policy_loss_type %s is not known", a->policy_loss_type);
	}
	if (word_index("token_mean|token_mean_legacy|sequence_mean|seq_mean_token_sum_norm|prompt_mean", a->loss_reduction) < 0) {
		return sky_fail(err, SKY_E_USAGE, "loss_reduction %s is not known", a->loss_reduction);
	}
	if (word_index("k1|abs|k2|k3", a->kl_estimator_type) < 0) {
		return sky_fail(err, SKY_E_USAGE, "kl_estimator_type %s is not known", a->kl_estimator_type);
	}
	if (a->use_kl_loss && a->use_kl_in_reward) {
		return sky_fail(err, SKY_E_USAGE, "use_kl_loss and use_kl_in_reward exclude each other");
	}
	if (a->kl_adaptive && (a->kl_horizon <= 0 || a->kl_target == 0)) {
		return sky_fail(err, SKY_E_USAGE, "an adaptive kl_ctrl needs a positive horizon and a kl_target");
	}
	if (!strcmp(a->loss_reduction, "seq_mean_token_sum_norm") && a->max_seq_len <= 0) {
		return sky_fail(err, SKY_E_USAGE, "loss_reduction seq_mean_token_sum_norm needs max_seq_len");
	}
	if (isnan(a->token_mask_high) != isnan(a->token_mask_low)) {
		return sky_fail(err, SKY_E_USAGE, "token_mask_is_threshold_low and _high must be given together");
	}
	return 0;
}

void sky_metric_set(struct sky_metrics *m, const char *name, double v)
{
	for (int i = 0; i < m->n; i++) {
		if (!strcmp(m->m[i].name, name)) {
			m->m[i].v = v;
			return;
		}
	}
	if (m->n < SKY_MAX_METRICS) {
		m->m[m->n].name = name;
		m->m[m->n++].v = v;
	}
}

double sky_metric_get(const struct sky_metrics *m, const char *name)
{
	for (int i = 0; i < m->n; i++) {
		if (!strcmp(m->m[i].name, name)) {
			return m->m[i].v;
		}
	}
	return NAN;
}
