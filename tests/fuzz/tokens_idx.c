/* Fuzz target: Megatron index files. What is accepted can be read to the last token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokens/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64], prefix[80];

static void clean(void)
{
	(void)!sky_remove_tree(dir, NULL);
}

static int put(const char *suffix, const void *p, size_t n)
{
	char path[128];
	FILE *f;
	int bad;

	snprintf(path, sizeof path, "%s%s", prefix, suffix);
	f = fopen(path, "w");
	if (!f) {
		return -1;
	}
	bad = fwrite(p, 1, n, f) != n;
	return fclose(f) || bad ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t bin[64];
	struct sky_tokens *t = NULL;
	struct sky_tokens_report r;
	struct sky_err err;
	int32_t id;

	if (!dir[0]) {
		snprintf(dir, sizeof dir, "/tmp/skyrl-fuzz-XXXXXX");
		if (!mkdtemp(dir)) {
			abort();
		}
		atexit(clean);
		snprintf(prefix, sizeof prefix, "%s/set", dir);
	}
	if (put(".bin", bin, sizeof bin) || put(".idx", data, size)) {
		abort();
	}
	if (sky_tokens_open(prefix, &t, &err) < 0) {
		if (!err.msg[0]) {
			abort();
		}
		return 0;
	}
	for (int64_t i = 0; i < sky_tokens_rows(t); i++) {
		int64_t n = sky_tokens_row_len(t, i);

		if (n && sky_tokens_ids(t, i, n - 1, 1, &id, &err) < 0) {
			abort();        /* the .bin holds zeros, which fit every type */
		}
	}
	for (int64_t i = 0; i < sky_tokens_docs(t); i++) {
		int64_t from, to;

		sky_tokens_doc(t, i, &from, &to);
		if (from > to || to > sky_tokens_rows(t)) {
			abort();
		}
	}
	(void)!sky_tokens_scan(t, -1, &r, &err);
	sky_tokens_close(t);
	return 0;
}
