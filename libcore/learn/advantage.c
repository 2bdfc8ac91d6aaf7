/* Advantage estimators by name (SkyRL's advantage_estimator). */
#include "learn/learn.h"

#include <math.h>
#include <stdlib.h>

/* One score a sequence in, one advantage a sequence out; groups are runs of order[]. */
struct scores {
	const struct sky_algo *a;
	int64_t n;              /* sequences that count (last turns) */
	const double *s;        /* [n] sum of the rewards */
	double *adv;            /* [n] out */
	const int64_t *order;   /* [n] indices sorted by (group, index) */
	const int64_t *group;   /* [n] */
};

/* Applies fn to each run of equal group. */
static void each_group(struct scores *g, void (*fn)(struct scores *g, const int64_t *member, int64_t k))
{
	for (int64_t i = 0, j; i < g->n; i = j) {
		for (j = i + 1; j < g->n && g->group[g->order[j]] == g->group[g->order[i]]; j++) {
		}
		fn(g, g->order + i, j - i);
	}
}

/* Mean in double; *same = all equal, tested on the values and not on the rounding of their mean. */
static double mean_of(const struct scores *g, const int64_t *member, int64_t k, int *same)
{
	double s = 0, min = g->s[member[0]], max = min;

	for (int64_t i = 0; i < k; i++) {
		double x = g->s[member[i]];

		s += x;
		min = x < min ? x : min;
		max = x > max ? x : max;
	}
	*same = min == max;
	return *same ? min : s / (double)k;
}

/* (s − mean) / (std + 1e-6), deviation with k − 1; Dr. GRPO leaves the division out. */
static void grpo(struct scores *g, const int64_t *member, int64_t k)
{
	int same;
	double mean = mean_of(g, member, k, &same), var = 0, div = 1;

	if (k == 1) {
		/* The release lets the raw score pass through: mean 0, deviation 1. */
		g->adv[member[0]] = g->a->compat_skyrl ? g->s[member[0]] / (g->a->grpo_norm_by_std ? 1 + 1e-6 : 1) : 0;
		return;
	}
	for (int64_t i = 0; i < k; i++) {
		var += (g->s[member[i]] - mean) * (g->s[member[i]] - mean);
	}
	if (g->a->grpo_norm_by_std) {
		div = sqrt(var / (double)(k - 1)) + 1e-6;
	}
	for (int64_t i = 0; i < k; i++) {
		g->adv[member[i]] = same ? 0 : (g->s[member[i]] - mean) / div;
	}
}

/* k/(k−1)·(s − mean): the leave-one-out baseline. */
static void rloo(struct scores *g, const int64_t *member, int64_t k)
{
	int same;
	double mean = mean_of(g, member, k, &same);

	for (int64_t i = 0; i < k; i++) {
		g->adv[member[i]] = same || k == 1 ? 0 : (double)k / (double)(k - 1) * (g->s[member[i]] - mean);
	}
}

/* (s − mean) / (mean + 1e-6). */
static void maxrl(struct scores *g, const int64_t *member, int64_t k)
{
	int same;
	double mean = mean_of(g, member, k, &same);

	for (int64_t i = 0; i < k; i++) {
		if (k == 1) {
			g->adv[member[i]] = g->a->compat_skyrl ? g->s[member[i]] : 0;
		} else {
			g->adv[member[i]] = same ? 0 : (g->s[member[i]] - mean) / (mean + 1e-6);
		}
	}
}

struct keyed {
	int64_t group, i;
};

static int by_group(const void *x, const void *y)
{
	const struct keyed *a = x, *b = y;

	if (a->group != b->group) {
		return a->group < b->group ? -1 : 1;
	}
	return a->i < b->i ? -1 : a->i > b->i;
}

static double seq_sum(const double *x, const int64_t *start, int64_t i)
{
	double s = 0;

	for (int64_t t = start[i]; t < start[i + 1]; t++) {
		s += x[t];
	}
	return s;
}

/* Outcome estimators: one number a trajectory, written on every token of every turn of it. */
static int outcome(const struct sky_algo *a, const struct sky_adv_in *in, void (*fn)(struct scores *, const int64_t *, int64_t),
                   double *adv, double *ret, struct sky_err *err)
{
	size_t B = (size_t)in->n_seq;
	double *s = sky_calloc_array(2 * B + 1, sizeof(double));
	int64_t *idx = sky_calloc_array(3 * B + 1, sizeof(int64_t));
	struct keyed *key = sky_calloc_array(B + 1, sizeof(*key));
	struct scores g = { .a = a, .s = s, .order = idx, .group = idx + B };
	int64_t owner;
	int rc = 0;

	if (!s || !idx || !key) {
		rc = sky_fail_mem(err, "advantages");
		goto out;
	}
	g.adv = s + B;
	for (int64_t i = 0; i < in->n_seq; i++) {
		if (!in->last || in->last[i]) {
			s[g.n] = seq_sum(in->reward, in->start, i);
			idx[B + (size_t)g.n] = in->group[i];
			key[g.n].group = in->group[i];
			key[g.n].i = g.n;
			g.n++;
		}
	}
	qsort(key, (size_t)g.n, sizeof(*key), by_group);
	for (int64_t i = 0; i < g.n; i++) {
		idx[i] = key[i].i;
	}
	each_group(&g, fn);
	owner = 0;
	for (int64_t i = 0; i < in->n_seq; i++) {
		if (owner >= g.n) {
			rc = sky_fail(err, SKY_E_DATA, "sequence %lld: its trajectory has no last turn", (long long)i);
			goto out;
		}
		for (int64_t t = in->start[i]; t < in->start[i + 1]; t++) {
			adv[t] = ret[t] = g.adv[owner];
		}
		owner += !in->last || in->last[i];
	}
out:
	free(s);
	free(idx);
	free(key);
	return rc;
}

static int adv_grpo(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err)
{
	return outcome(a, in, grpo, adv, ret, err);
}

static int adv_rloo(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err)
{
	return outcome(a, in, rloo, adv, ret, err);
}

static int adv_maxrl(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err)
{
	return outcome(a, in, maxrl, adv, ret, err);
}

/* (x − mean)·rsqrt(var + 1e-8), variance with n − 1. */
static int whiten(int64_t n, double *x, struct sky_err *err)
{
	double s = 0, var = 0, mean;

	if (n < 2) {
		return sky_fail(err, SKY_E_DATA, "whitening needs at least two response tokens in the batch, it has %lld",
		                (long long)n);
	}
	for (int64_t t = 0; t < n; t++) {
		s += x[t];
	}
	mean = s / (double)n;
	for (int64_t t = 0; t < n; t++) {
		var += (x[t] - mean) * (x[t] - mean);
	}
	var /= (double)(n - 1);
	for (int64_t t = 0; t < n; t++) {
		x[t] = (x[t] - mean) / sqrt(var + 1e-8);
	}
	return 0;
}

/* G_t = r_t + γ·G_{t+1}, whitened over the batch. */
static int adv_reinforce_pp(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret,
                            struct sky_err *err)
{
	int64_t n = in->start[in->n_seq];

	for (int64_t i = 0; i < in->n_seq; i++) {
		double G = 0;

		for (int64_t t = in->start[i + 1] - 1; t >= in->start[i]; t--) {
			G = in->reward[t] + a->gamma * G;
			ret[t] = G;
		}
	}
	memcpy(adv, ret, (size_t)n * sizeof(double));
	return whiten(n, adv, err);
}

/* δ_t = r_t + γ·V_{t+1} − V_t, A_t = δ_t + γλ·A_{t+1}; returns = A + V, then A is whitened. */
static int adv_gae(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err)
{
	int64_t n = in->start[in->n_seq];

	if (!in->value) {
		return sky_fail(err, SKY_E_USAGE, "advantage_estimator gae needs a critic's values");
	}
	for (int64_t i = 0; i < in->n_seq; i++) {
		double A = 0, next = 0;

		for (int64_t t = in->start[i + 1] - 1; t >= in->start[i]; t--) {
			A = in->reward[t] + a->gamma * next - in->value[t] + a->gamma * a->lambd * A;
			next = in->value[t];
			adv[t] = A;
			ret[t] = A + in->value[t];
		}
	}
	return whiten(n, adv, err);
}

static const struct {
	const char *name;
	int (*fn)(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err);
} table[] = {
	{ "grpo", adv_grpo },
	{ "rloo", adv_rloo },
	{ "maxrl", adv_maxrl },
	{ "reinforce++", adv_reinforce_pp },
	{ "gae", adv_gae },
};

const char *sky_estimator_name(int i)
{
	return i >= 0 && i < (int)(sizeof(table) / sizeof(*table)) ? table[i].name : NULL;
}

int sky_advantages(const struct sky_algo *a, const struct sky_adv_in *in, double *adv, double *ret, struct sky_err *err)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (!strcmp(table[i].name, a->advantage_estimator)) {
			return table[i].fn(a, in, adv, ret, err);
		}
	}
	return sky_fail(err, SKY_E_USAGE, "advantage_estimator %s is not known", a->advantage_estimator);
}
