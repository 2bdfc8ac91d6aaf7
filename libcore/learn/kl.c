/* KL between policy and reference from log-probs of the sampled tokens, and its controller. */
#include "learn/learn.h"

#include <math.h>

/* Value and derivative with respect to lp of one token; x = lp − ref. */
static double k1(double x, double *d)
{
	*d = 1;
	return x;
}

static double kabs(double x, double *d)
{
	*d = (x > 0) - (x < 0);
	return fabs(x);
}

static double k2(double x, double *d)
{
	*d = x;
	return 0.5 * x * x;
}

/* e = exp(−x) with −x clamped to ±20; e + x − 1 clamped to ±10. The derivative is 0 wherever a clamp is active. */
static double k3(double x, double *d)
{
	double y = -x, inside = y >= -20 && y <= 20, e, v;

	y = y < -20 ? -20 : y > 20 ? 20 : y;
	e = exp(y);
	v = e - y - 1;
	*d = inside && v >= -10 && v <= 10 ? 1 - e : 0;
	return v < -10 ? -10 : v > 10 ? 10 : v;
}

static const struct {
	const char *name;
	double (*fn)(double x, double *d);
} table[] = { { "k1", k1 }, { "abs", kabs }, { "k2", k2 }, { "k3", k3 } };

int sky_kl(const char *type, int64_t n, const double *lp, const double *ref, const double *mask, double *kl, double *dkl,
           struct sky_err *err)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (strcmp(table[i].name, type)) {
			continue;
		}
		for (int64_t t = 0; t < n; t++) {
			double d = 0;

			kl[t] = mask[t] != 0 ? table[i].fn(lp[t] - ref[t], &d) : 0;
			if (dkl) {
				dkl[t] = d;
			}
		}
		return 0;
	}
	return sky_fail(err, SKY_E_USAGE, "kl_estimator_type %s is not known (k1, abs, k2, k3)", type);
}

static double mask_sum(const double *mask, int64_t from, int64_t to)
{
	double m = 0;

	for (int64_t t = from; t < to; t++) {
		m += mask[t];
	}
	return m > 1 ? m : 1;
}

double sky_kl_term(int64_t n_seq, const int64_t *start, const double *kl, const double *mask)
{
	double sum = 0;

	for (int64_t i = 0; i < n_seq; i++) {
		double s = 0;

		for (int64_t t = start[i]; t < start[i + 1]; t++) {
			s += mask[t] != 0 ? kl[t] * mask[t] : 0;
		}
		sum += s / mask_sum(mask, start[i], start[i + 1]);
	}
	return n_seq ? sum / (double)n_seq : 0;
}

void sky_kl_term_grad(int64_t n_seq, const int64_t *start, const double *dkl, const double *mask, double coef, double *dterm)
{
	for (int64_t i = 0; i < n_seq; i++) {
		double k = coef / ((double)n_seq * mask_sum(mask, start[i], start[i + 1]));

		for (int64_t t = start[i]; t < start[i + 1]; t++) {
			dterm[t] += mask[t] != 0 ? k * mask[t] * dkl[t] : 0;
		}
	}
}

double sky_kl_control(const struct sky_algo *a, double value, double current, int64_t n)
{
	double e = current / a->kl_target - 1;

	if (!a->kl_adaptive) {
		return value;
	}
	e = e < -0.2 ? -0.2 : e > 0.2 ? 0.2 : e;
	value *= 1 + e * (double)n / a->kl_horizon;
	/* A batch larger than five horizons would turn the coefficient negative and switch the penalty off for good. */
	return value < 0 && !a->compat_skyrl ? 0 : value;
}
