/* Numbers from and to text. strtod reads the locale's decimal sign; programs keep LC_NUMERIC at "C" (style 6.1). */
#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

static int bad(struct sky_err *err, const char *s, const char *what)
{
	return sky_fail(err, SKY_E_USAGE, "\"%.80s\" is not %s", s, what);
}

int sky_parse_i64(const char *s, int64_t *v_p, struct sky_err *err)
{
	char *end;
	long long v;

	if (!isdigit((unsigned char)s[0]) && !((s[0] == '-' || s[0] == '+') && isdigit((unsigned char)s[1]))) {
		return bad(err, s, "an integer");
	}
	errno = 0;
	v = strtoll(s, &end, 10);
	if (*end != '\0') {
		return bad(err, s, "an integer");
	}
	if (errno == ERANGE) {
		return bad(err, s, "in the range of 64-bit integers");
	}
	*v_p = v;
	return 0;
}

int sky_parse_u64(const char *s, uint64_t *v_p, struct sky_err *err)
{
	char *end;
	unsigned long long v;

	if (!isdigit((unsigned char)s[0])) {
		return bad(err, s, "a non-negative integer");
	}
	errno = 0;
	v = strtoull(s, &end, 10);
	if (*end != '\0') {
		return bad(err, s, "a non-negative integer");
	}
	if (errno == ERANGE) {
		return bad(err, s, "in the range of 64-bit integers");
	}
	*v_p = v;
	return 0;
}

/* Decimal forms only: no blanks, no hexadecimal, no "inf". */
static bool scan_f64(const char *s, double *v_p, const char **end_p)
{
	const char *p = s;
	char *end;
	bool digits = false;

	p += *p == '-' || *p == '+';
	for (; isdigit((unsigned char)*p); p++) {
		digits = true;
	}
	if (*p == '.') {
		for (p++; isdigit((unsigned char)*p); p++) {
			digits = true;
		}
	}
	if (!digits || *p == 'x' || *p == 'X') {
		return false;
	}
	*v_p = strtod(s, &end);
	*end_p = end;
	return true;
}

int sky_parse_f64(const char *s, double *v_p, struct sky_err *err)
{
	const char *end;
	double v;

	if (!scan_f64(s, &v, &end) || *end != '\0') {
		return bad(err, s, "a number");
	}
	if (!isfinite(v)) {
		return bad(err, s, "in the range of a double");
	}
	*v_p = v;
	return 0;
}

/* value × unit, exact for integers; fails unless the product is a non-negative integer that fits. */
static bool scaled(const char *s, const char *end, double v, uint64_t unit, uint64_t max, uint64_t *out)
{
	uint64_t whole, r;
	const char *p;
	double d;

	for (p = s; p < end && isdigit((unsigned char)*p); p++) {
	}
	if (p == end) {
		errno = 0;
		whole = strtoull(s, NULL, 10);
		if (errno == ERANGE || sky_mul_u64(whole, unit, &r) || r > max) {
			return false;
		}
		*out = r;
		return true;
	}
	d = v * (double)unit;
	if (!(d >= 0) || d != floor(d) || d > 9007199254740992.0 || d > (double)max) {
		return false;
	}
	*out = (uint64_t)d;
	return true;
}

int sky_parse_count(const char *s, int64_t *v_p, struct sky_err *err)
{
	static const char what[] = "a count (like 1000, 1k, 2.5M, 1G, 1T)";
	const char *end;
	uint64_t unit = 1, r;
	double v;

	if (!scan_f64(s, &v, &end)) {
		return bad(err, s, what);
	}
	if (*end != '\0') {
		switch (*end) {
		case 'k': case 'K': unit = 1000ull; break;
		case 'M': case 'm': unit = 1000000ull; break;
		case 'G': case 'g': case 'B': case 'b': unit = 1000000000ull; break;
		case 'T': case 't': unit = 1000000000000ull; break;
		default: return bad(err, s, what);
		}
		if (end[1] != '\0') {
			return bad(err, s, what);
		}
	}
	if (!scaled(s, end, v, unit, INT64_MAX, &r)) {
		return bad(err, s, what);
	}
	*v_p = (int64_t)r;
	return 0;
}

int sky_parse_size(const char *s, uint64_t *v_p, struct sky_err *err)
{
	static const char what[] = "a size (like 4096, 64k, 64M, 64MiB, 64MB, 2G)";
	static const char units[] = "KMGTPE";
	const char *end, *u;
	uint64_t unit = 1, base, r;
	double v;
	int i;

	if (!scan_f64(s, &v, &end)) {
		return bad(err, s, what);
	}
	if (*end != '\0' && strcmp(end, "B") != 0) {
		u = strchr(units, toupper((unsigned char)*end));
		if (!u) {
			return bad(err, s, what);
		}
		if (end[1] == '\0' || strcmp(end + 1, "iB") == 0) {
			base = 1024;
		} else if (strcmp(end + 1, "B") == 0) {
			base = 1000;
		} else {
			return bad(err, s, what);
		}
		for (i = 0; i <= u - units; i++) {
			unit *= base;
		}
	}
	if (!scaled(s, end, v, unit, UINT64_MAX, &r)) {
		return bad(err, s, what);
	}
	*v_p = r;
	return 0;
}

int sky_parse_duration(const char *s, double *seconds_p, struct sky_err *err)
{
	static const char what[] = "a duration (like 90, 90s, 250ms, 15m, 2h, 1d)";
	static const struct { const char *unit; double s; } units[] = {
		{ "", 1 }, { "s", 1 }, { "ms", 1e-3 }, { "us", 1e-6 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 },
	};
	const char *end;
	double v;
	size_t i;

	if (!scan_f64(s, &v, &end) || !(v >= 0) || !isfinite(v)) {
		return bad(err, s, what);
	}
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit) == 0) {
			*seconds_p = v * units[i].s;
			return 0;
		}
	}
	return bad(err, s, what);
}

char *sky_fmt_count(char *out, size_t cap, double v)
{
	static const char units[] = "kMGT";
	double a = fabs(v);
	int u = -1;

	if (a < 1000 && v == floor(v)) {
		snprintf(out, cap, "%.0f", v);
		return out;
	}
	/* 999.995 would print as 1000.00 of the smaller unit. */
	while (a >= 999.995 && u < 3) {
		a /= 1000;
		v /= 1000;
		u++;
	}
	if (u < 0) {
		snprintf(out, cap, "%.2f", v);
	} else {
		snprintf(out, cap, "%.*f%c", a < 9.995 ? 2 : a < 99.95 ? 1 : 0, v, units[u]);
	}
	return out;
}

char *sky_fmt_size(char *out, size_t cap, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double v = (double)bytes;
	int u = -1;

	if (bytes < 1024) {
		snprintf(out, cap, "%u B", (unsigned)bytes);
		return out;
	}
	while (v >= 1023.95 && u < 5) {
		v /= 1024;
		u++;
	}
	snprintf(out, cap, "%.1f %ciB", v, units[u < 0 ? 0 : u]);
	return out;
}

char *sky_fmt_duration(char *out, size_t cap, double s)
{
	uint64_t t;

	if (!(s >= 0) || s > 1e15) {
		snprintf(out, cap, "?");
	} else if (s < 0.9995) {
		snprintf(out, cap, "%.0fms", s * 1e3);
	} else if (s < 59.95) {
		snprintf(out, cap, "%.1fs", s);
	} else {
		t = (uint64_t)(s + 0.5);
		if (t < 3600) {
			snprintf(out, cap, "%um%02us", (unsigned)(t / 60), (unsigned)(t % 60));
		} else if (t < 86400) {
			snprintf(out, cap, "%uh%02um", (unsigned)(t / 3600), (unsigned)(t / 60 % 60));
		} else {
			snprintf(out, cap, "%llud%02uh", (unsigned long long)(t / 86400), (unsigned)(t / 3600 % 24));
		}
	}
	return out;
}

char *sky_fmt_f64(char *out, size_t cap, double v)
{
	int digits;

	if (!isfinite(v)) {
		snprintf(out, cap, "null");
		return out;
	}
	for (digits = 15; digits <= 17; digits++) {
		snprintf(out, cap, "%.*g", digits, v);
		if (strtod(out, NULL) == v) {
			break;
		}
	}
	return out;
}

char *sky_fmt_f32(char *out, size_t cap, float v)
{
	int digits;

	if (!isfinite(v)) {
		snprintf(out, cap, "null");
		return out;
	}
	for (digits = 6; digits <= 9; digits++) {
		snprintf(out, cap, "%.*g", digits, (double)v);
		if (strtof(out, NULL) == v) {
			break;
		}
	}
	return out;
}
