/* TAP for unit programs: one header, no library. A test reads
 *
 *	int main(void)
 *	{
 *		T_OK(sky_dtype_bits(SKY_BF16) == 16, "bf16 has 16 bits");
 *		T_I64(n_rows, 36, "rows of %s", name);
 *		return t_done();
 *	}
 *
 * Every check prints one line and goes on; t_done prints the plan and gives the exit status. Data is looked up with
 * t_src (files of the tree), t_shared (golden data outside it, NULL where absent) and t_path (scratch, removed at the
 * end). Not for use from several threads at once. */
#ifndef SKY_TESTLIB_H
#define SKY_TESTLIB_H

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

#define T_UNUSED __attribute__((unused))
#define T_NORETURN __attribute__((noreturn))
#define T_PATH_MAX 4096

static int t_n_test, t_n_bad;
static char t_dir[T_PATH_MAX];

/* A comment line; several lines of text stay comments. */
T_UNUSED SKY_PRINTF(1, 2) static void t_note(const char *fmt, ...)
{
	char text[4096];
	const char *p = text;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	while (*p) {
		size_t n = strcspn(p, "\n");

		printf("#   %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	fflush(stdout);
}

T_UNUSED static void t_line(bool ok, const char *file, int line, const char *cond, const char *fmt, va_list ap)
{
	char name[512];
	char *p;

	vsnprintf(name, sizeof(name), fmt, ap);
	for (p = name; *p; p++) {
		*p = *p == '#' || *p == '\n' ? ' ' : *p;        /* "#" would begin a TAP directive */
	}
	printf("%s %d - %s\n", ok ? "ok" : "not ok", ++t_n_test, name);
	if (!ok) {
		t_n_bad++;
		t_note("%s:%d: %s", file, line, cond);
	}
	fflush(stdout);
}

/* The macros below come here. Returns ok, so that a test can stop where going on makes no sense. */
T_UNUSED SKY_PRINTF(5, 6) static bool t_check(bool ok, const char *file, int line, const char *cond,
                                              const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t_line(ok, file, line, cond, fmt, ap);
	va_end(ap);
	return ok;
}

T_UNUSED static bool t_diff_i64(int64_t got, int64_t want)
{
	if (got != want) {
		t_note("got %" PRId64 ", want %" PRId64, got, want);
	}
	return got == want;
}

T_UNUSED static bool t_diff_str(const char *got, const char *want)
{
	bool same = got && want ? strcmp(got, want) == 0 : got == want;

	if (!same) {
		t_note("got  %s\nwant %s", got ? got : "(null)", want ? want : "(null)");
	}
	return same;
}

T_UNUSED static bool t_diff_mem(const void *got, const void *want, size_t n)
{
	const uint8_t *a = (const uint8_t *)got, *b = (const uint8_t *)want;
	size_t i = 0;

	while (i < n && a[i] == b[i]) {
		i++;
	}
	if (i < n) {
		t_note("byte %zu of %zu: got 0x%02x, want 0x%02x", i, n, a[i], b[i]);
	}
	return i == n;
}

/* |got − want| ≤ tol; two NaN or two equal infinities agree. */
T_UNUSED static bool t_diff_near(double got, double want, double tol)
{
	bool same = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= tol;

	if (!same) {
		t_note("got %.17g, want %.17g, difference %.3g, allowed %.3g", got, want, fabs(got - want), tol);
	}
	return same;
}

T_UNUSED static bool t_diff_has(const char *text, const char *part)
{
	bool has = text && strstr(text, part);

	if (!has) {
		t_note("text %s\nlacks %s", text ? text : "(null)", part);
	}
	return has;
}

/* want: the expected code, err (may be NULL) is shown when another one came. */
T_UNUSED static bool t_diff_rc(int rc, int want, const struct sky_err *err)
{
	if (rc != want) {
		t_note("got code %d, want %d%s%s", rc, want, err && rc < 0 ? ": " : "", err && rc < 0 ? err->msg : "");
	}
	return rc == want;
}

/* Each takes a printf-style name of the behaviour under test as its last arguments. */
#define T_OK(cond, ...) t_check(!!(cond), __FILE__, __LINE__, #cond, __VA_ARGS__)
#define T_I64(got, want, ...) \
	t_check(t_diff_i64((int64_t)(got), (int64_t)(want)), __FILE__, __LINE__, #got " == " #want, __VA_ARGS__)
#define T_STR(got, want, ...) t_check(t_diff_str((got), (want)), __FILE__, __LINE__, #got " equals " #want, __VA_ARGS__)
#define T_MEM(got, want, n, ...) \
	t_check(t_diff_mem((got), (want), (n)), __FILE__, __LINE__, #got " equals " #want, __VA_ARGS__)
#define T_NEAR(got, want, tol, ...) \
	t_check(t_diff_near((got), (want), (tol)), __FILE__, __LINE__, #got " near " #want, __VA_ARGS__)
#define T_HAS(text, part, ...) \
	t_check(t_diff_has((text), (part)), __FILE__, __LINE__, #text " contains " #part, __VA_ARGS__)
#define T_RC(rc, want, err, ...) \
	t_check(t_diff_rc((rc), (want), (err)), __FILE__, __LINE__, #rc " gives " #want, __VA_ARGS__)

/* One test that could not run here, with the reason. */
T_UNUSED SKY_PRINTF(1, 2) static void t_skip(const char *why, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	printf("ok %d # SKIP %s\n", ++t_n_test, text);
	fflush(stdout);
}

T_UNUSED static void t_clean(void)
{
	char cmd[T_PATH_MAX + 16];

	if (t_dir[0]) {
		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", t_dir);
		if (system(cmd) != 0) {
			t_note("scratch folder %s stays", t_dir);
		}
		t_dir[0] = '\0';
	}
}

/* Ends the program at once, for what everything else depends on. */
T_UNUSED SKY_PRINTF(1, 2) static T_NORETURN void t_bail(const char *fmt, ...)
{
	va_list ap;

	printf("Bail out! ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	t_clean();
	exit(1);
}

/* As the last statement of main: return t_done(); Under make a failure was counted from the output already, so that a
 * status other than 0 means a crash or a sanitizer. */
T_UNUSED static int t_done(void)
{
	t_clean();
	printf("1..%d\n", t_n_test);
	return t_n_bad > 0 && !getenv("T_UNDER_MAKE");
}

/* In front of everything else: the whole program cannot run here. */
T_UNUSED SKY_PRINTF(1, 2) static T_NORETURN void t_skip_all(const char *why, ...)
{
	va_list ap;

	printf("1..0 # SKIP ");
	va_start(ap, why);
	vprintf(why, ap);
	va_end(ap);
	printf("\n");
	t_clean();
	exit(0);
}

/* A ring of results, so that one call may use several paths. */
T_UNUSED static char *t_slot(void)
{
	static char ring[8][T_PATH_MAX];
	static unsigned i;

	return ring[i++ % 8];
}

/* DIR/NAME of the source tree, e.g. t_src("tests/parity/x.json"). */
T_UNUSED static const char *t_src(const char *name)
{
	const char *dir = getenv("srcdir");
	char *out = t_slot();

	snprintf(out, T_PATH_MAX, "%s/%s", dir ? dir : ".", name);
	return out;
}

/* Path below the golden data ($SKYRL_SHARED, else ../shared beside the source tree), or NULL where it is absent; the
 * caller then calls t_skip. */
T_UNUSED static const char *t_shared(const char *name)
{
	const char *dir = getenv("SKYRL_SHARED");
	char *out = t_slot();

	if (dir && *dir) {
		snprintf(out, T_PATH_MAX, "%s/%s", dir, name);
	} else {
		snprintf(out, T_PATH_MAX, "%s/../shared/%s", getenv("srcdir") ? getenv("srcdir") : ".", name);
	}
	return access(out, R_OK) == 0 ? out : NULL;
}

/* Path of NAME in this program's scratch folder, which is made on first use and removed by t_done. */
T_UNUSED static const char *t_path(const char *name)
{
	const char *tmp = getenv("TMPDIR");
	char *out = t_slot();

	if (!t_dir[0]) {
		snprintf(t_dir, sizeof(t_dir), "%s/skyrl-unit.XXXXXX", tmp && *tmp ? tmp : "/tmp");
		if (!mkdtemp(t_dir)) {
			t_dir[0] = '\0';
			t_bail("cannot make a scratch folder");
		}
	}
	if (snprintf(out, T_PATH_MAX, "%s/%s", t_dir, name) >= T_PATH_MAX) {
		t_bail("scratch path too long");
	}
	return out;
}

/* A small file in the scratch folder; returns its path. */
T_UNUSED static const char *t_write(const char *name, const void *p, size_t n)
{
	const char *path = t_path(name);
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0) {
		t_bail("cannot write %s", path);
	}
	return path;
}

/* A whole file in memory (malloc, NUL behind it), or NULL; *n_p may be NULL. */
T_UNUSED static char *t_read(const char *path, size_t *n_p)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	char *p = NULL;

	if (f && fstat(fileno(f), &st) == 0 && (p = (char *)malloc((size_t)st.st_size + 1))) {
		size_t n = fread(p, 1, (size_t)st.st_size, f);

		p[n] = '\0';
		if (n_p) {
			*n_p = n;
		}
	}
	if (f) {
		fclose(f);
	}
	return p;
}

#endif
