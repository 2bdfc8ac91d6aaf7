/* Fuzz target: whole input files. The first byte chooses the format (JSON lines, JSON, text, lines, Parquet, Arrow, tar, by
 * content), the rest is the file. Every block that comes out counts its rows rightly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "corpus/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t lines(const struct sky_block *b)
{
	int64_t n = 0;

	for (size_t i = 0; i < b->data.n; i++) {
		n += b->data.ptr[i] == '\n';
	}
	return n + (b->data.n && b->data.ptr[b->data.n - 1] != '\n');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_corpus_opt opt = { .max_line = 1u << 20, .block_bytes = 1000 };
	struct sky_corpus *c = NULL;
	struct sky_block *b;
	struct sky_err err;
	char path[64];
	const char *name = path;
	int64_t n_row = 0;
	int fd, rc;

	if (!size) {
		return 0;
	}
	opt.format = (enum sky_input_format)(data[0] % 8);
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || sky_write_full(fd, data + 1, size - 1, "fuzz", &err) < 0) {
		abort();
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	rc = sky_corpus_open(&name, 1, &opt, &c, &err);
	/* A lying file may hold rows without end; a thousand are enough. */
	while (!rc && n_row < 1000 && !(rc = sky_corpus_next(c, &b, &err))) {
		if (b->n_row < 1 || (b->kind != SKY_BLOCK_DOC && lines(b) != b->n_row)) {
			abort();
		}
		n_row += b->n_row;
		sky_block_free(b);
	}
	sky_corpus_close(c);
	close(fd);
	return 0;
}
