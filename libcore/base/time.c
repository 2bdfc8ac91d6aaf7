/* Clocks and calendar; the only place that asks the time. */
#include "base/time.h"

#include <errno.h>
#include <math.h>
#include <time.h>

static double now_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double sky_now(void)
{
	return now_of(CLOCK_MONOTONIC);
}

double sky_wall(void)
{
	const char *fixed = getenv("SKYRL_TEST_NOW");

	return fixed && *fixed ? strtod(fixed, NULL) : now_of(CLOCK_REALTIME);
}

void sky_sleep(double s)
{
	const char *how = getenv("SKYRL_TEST_SLEEP");
	struct timespec t;

	if (!(s > 0) || (how && strcmp(how, "0") == 0)) {
		return;
	}
	if (s > 1e9) {
		s = 1e9;
	}
	t.tv_sec = (time_t)s;
	t.tv_nsec = (long)((s - floor(s)) * 1e9);
	(void)nanosleep(&t, NULL);
}

/* Days of the proleptic Gregorian calendar counted from 1970-01-01, by 400-year eras that start in March. */
static int64_t days_from_civil(int64_t y, int m, int d)
{
	int64_t era, yoe, doy;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

void sky_utc_fields(int64_t s, int out[6])
{
	int64_t days = s / 86400, rest = s % 86400, era, doe, yoe, doy, mp;

	if (rest < 0) {
		rest += 86400;
		days--;
	}
	days += 719468;
	era = (days >= 0 ? days : days - 146096) / 146097;
	doe = days - era * 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	out[2] = (int)(doy - (153 * mp + 2) / 5 + 1);
	out[1] = (int)(mp < 10 ? mp + 3 : mp - 9);
	out[0] = (int)(yoe + era * 400 + (out[1] <= 2));
	out[3] = (int)(rest / 3600);
	out[4] = (int)(rest / 60 % 60);
	out[5] = (int)(rest % 60);
}

int64_t sky_utc_seconds(const int f[6])
{
	return days_from_civil(f[0], f[1], f[2]) * 86400 + f[3] * 3600 + f[4] * 60 + f[5];
}

char *sky_utc(char *out, size_t cap, double wall_s)
{
	int f[6];

	sky_utc_fields((int64_t)floor(wall_s), f);
	snprintf(out, cap, "%04d-%02d-%02dT%02d:%02d:%02dZ", f[0], f[1], f[2], f[3], f[4], f[5]);
	return out;
}
