/* Learning-rate schedules by name: linear warm-up, then a shape down to min_lr. */
#include "learn/learn.h"

#include <math.h>

/* Share of (lr − min_lr) that is left at progress x in [0, 1]. */
static double constant(double x)
{
	(void)x;
	return 1;
}

static double linear(double x)
{
	return 1 - x;
}

static double cosine(double x)
{
	return 0.5 * (1 + cos(M_PI * x));
}

static const struct {
	const char *name;
	double (*fn)(double x);
} table[] = { { "cosine", cosine }, { "linear", linear }, { "constant", constant } };

const char *sky_schedule_name(int i)
{
	return i >= 0 && i < (int)(sizeof(table) / sizeof(*table)) ? table[i].name : NULL;
}

int sky_schedule(const char *name, double lr, double min_lr, int64_t step, int64_t n_warmup, int64_t n_total, double *lr_p,
                 struct sky_err *err)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		double x;

		if (strcmp(table[i].name, name)) {
			continue;
		}
		if (step < n_warmup) {
			*lr_p = lr * (double)step / (double)n_warmup;
			return 0;
		}
		x = n_total > n_warmup ? (double)(step - n_warmup) / (double)(n_total - n_warmup) : 0;
		*lr_p = min_lr + (lr - min_lr) * table[i].fn(x > 1 ? 1 : x);
		return 0;
	}
	return sky_fail(err, SKY_E_USAGE, "schedule %s is not known (cosine, linear, constant)", name);
}
