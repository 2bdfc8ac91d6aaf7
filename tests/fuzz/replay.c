/* Driver for fuzz targets without a fuzzer: runs LLVMFuzzerTestOneInput over the seeds of the target, over every short
 * cut of small ones, and over a fixed number of mutations drawn from a fixed seed. Prints TAP, one line a seed.
 *
 *	tests/fuzz/json [FILE…]         without files: $srcdir/tests/fuzz/seeds/NAME/, NAME that of the program
 *
 * FUZZ_RUNS sets the mutations per seed. A crash names its seed and mutation; --write K FILE writes that input to
 * stdout. With clang and ./configure --enable-fuzz the same target is a libFuzzer program instead. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"

#define MAX_SEED (1u << 20)
#define MAX_GROWTH 4096
#define DEFAULT_RUNS 300
#define HANG_S 60

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char current[8400];      /* for the crash handler */
static int n_test;

static void on_crash(int sig)
{
	ssize_t ignored = write(1, current, strlen(current));

	(void)ignored;
	signal(sig, SIG_DFL);
	raise(sig);
}

static uint64_t draw(uint64_t run, uint64_t i, uint64_t n)
{
	return n == 0 ? 0 : sky_rng_below(20260131, SKY_RNG_TEST, run, i, n);
}

static const char *const words[] = { "0", "-1", "1e400", "18446744073709551616", "9223372036854775807", "4294967295",
	"[[[[[[[[", "{\"\":", "\"\\ud800\"", "\\u0000", "\xff\xfe", "\xf4\x90\x80\x80", "null", "\xef\xbb\xbf", "%s",
	"\r\n", "{%", "{{", "<|" };

/* One edit of out[m], drawn by (run, i…i+7); returns the new length, at most cap. */
static size_t edit(uint64_t run, uint64_t i, uint8_t *out, size_t m, size_t cap)
{
	size_t at = (size_t)draw(run, i + 1, m + 1), len = (size_t)draw(run, i + 2, 16) + 1;
	const char *word = words[draw(run, i + 3, sizeof(words) / sizeof(words[0]))];
	size_t n_word = strlen(word);
	uint64_t v;

	switch (draw(run, i, 7)) {
	case 0: /* one bit */
		if (at < m) {
			out[at] ^= (uint8_t)(1u << draw(run, i + 4, 8));
		}
		return m;
	case 1: /* one byte */
		if (at < m) {
			out[at] = (uint8_t)draw(run, i + 4, 256);
		}
		return m;
	case 2: /* cut the end */
		return at;
	case 3: /* take a piece out */
		len = len > m - at ? m - at : len;
		memmove(out + at, out + at + len, m - at - len);
		return m - len;
	case 4: /* repeat a piece */
		if (m + len > cap || at + len > m) {
			return m;
		}
		memmove(out + at + len, out + at, m - at);
		return m + len;
	case 5: /* put a word in */
		if (m + n_word > cap) {
			return m;
		}
		memmove(out + at + n_word, out + at, m - at);
		memcpy(out + at, word, n_word);
		return m + n_word;
	default: /* a lying number */
		v = draw(run, i + 4, 2) ? UINT64_MAX >> draw(run, i + 5, 64) : draw(run, i + 5, 70000);
		if (at + 8 <= m) {
			memcpy(out + at, &v, draw(run, i + 6, 2) ? 8 : 4);
		}
		return m;
	}
}

/* Mutation number run of in[n]; returns its length, at most cap. */
static size_t mutate(uint64_t run, const char *in, size_t n, uint8_t *out, size_t cap)
{
	uint64_t step, steps = 1 + draw(run, 0, 4);

	memcpy(out, in, n);
	for (step = 1; step <= steps; step++) {
		n = edit(run, step * 8, out, n, cap);
	}
	return n;
}

/* A copy of exactly n bytes, so that a sanitizer sees a read beyond its end. */
static void one(const void *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	if (!copy) {
		abort();
	}
	if (n) {
		memcpy(copy, p, n);
	}
	alarm(HANG_S);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static void replay(const char *path, uint64_t runs, uint8_t *room, const struct sky_buf *in)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	uint64_t run;
	size_t n;

	snprintf(current, sizeof(current), "# crashed or hung on %s as it is\n", path);
	one(in->ptr, in->n);
	for (n = 0; n < in->n && n < 256; n++) {
		snprintf(current, sizeof(current), "# crashed or hung on the first %zu bytes of %s\n", n, path);
		one(in->ptr, n);
	}
	for (run = 1; in->n > 0 && run <= runs; run++) {
		snprintf(current, sizeof(current), "# crashed or hung on mutation %llu of %s\n",
			 (unsigned long long)run, path);
		n = mutate(run, in->ptr, in->n, room, in->n + MAX_GROWTH);
		one(room, n);
	}
	printf("ok %d - %s, %llu mutations\n", ++n_test, name, (unsigned long long)(in->n ? runs : 0));
}

/* write_run ≥ 0: that mutation to stdout instead of running anything. */
static void file(const char *path, uint64_t runs, long long write_run)
{
	struct sky_buf in = SKY_BUF_INIT(MAX_SEED);
	struct sky_err err;
	uint8_t *room = NULL;
	size_t n;

	if (sky_file_read(path, &in, &err) < 0) {
		printf("not ok %d - %s\n", ++n_test, err.msg);
		return;
	}
	room = malloc(in.n + MAX_GROWTH);
	if (!room) {
		abort();
	}
	if (write_run < 0) {
		replay(path, runs, room, &in);
	} else {
		n = write_run > 0 && in.n > 0 ? mutate((uint64_t)write_run, in.ptr, in.n, room, in.n + MAX_GROWTH)
					      : in.n;
		fwrite(write_run > 0 ? (const void *)room : in.ptr, 1, n, stdout);
	}
	free(room);
	sky_buf_release(&in);
}

static int folder(const char *name, uint64_t runs)
{
	const char *dir = getenv("srcdir");
	char seeds[4096], path[8192];
	struct sky_err err;
	char **names = NULL;
	size_t i, n = 0;

	snprintf(seeds, sizeof(seeds), "%s/tests/fuzz/seeds/%s", dir ? dir : ".", name);
	if (sky_list_dir(seeds, &names, &n, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		return 1;
	}
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", seeds, names[i]);
		file(path, runs, -1);
	}
	sky_names_free(names, n);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	const char *runs_text = getenv("FUZZ_RUNS");
	uint64_t runs = runs_text ? strtoull(runs_text, NULL, 10) : DEFAULT_RUNS;
	int a;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 4 && strcmp(argv[1], "--write") == 0) {
		file(argv[3], 0, strtoll(argv[2], NULL, 10));
		return 0;
	}
	signal(SIGSEGV, on_crash);
	signal(SIGABRT, on_crash);
	signal(SIGALRM, on_crash);
	signal(SIGFPE, on_crash);
	for (a = 1; a < argc; a++) {
		file(argv[a], runs, -1);
	}
	if (argc < 2 && folder(name, runs) != 0) {
		return 1;
	}
	snprintf(current, sizeof(current), "# crashed or hung on empty input\n");
	one(NULL, 0);
	printf("ok %d - empty input\n1..%d\n", n_test + 1, n_test + 1);
	return 0;
}
