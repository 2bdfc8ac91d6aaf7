/* Fuzz target: JSON rows and what becomes of them in every schema. Texts that come out are valid UTF-8, masks fit their ids, and
 * conversations are JSON that the strict parser takes. */
#include <stdlib.h>
#include <string.h>

#include "corpus/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sample(const struct sky_sample *s)
{
	struct sky_json *doc = NULL;
	struct sky_err err;

	for (int64_t i = 0; i < s->n_piece; i++) {
		if (sky_utf8_valid(s->piece[i].p, s->piece[i].n) != s->piece[i].n) {
			abort();
		}
	}
	for (int64_t i = 0; i < s->n_ids; i++) {
		if (s->ids[i] < 0 || s->mask[i] > 1 || (i == 0 && s->mask[i])) {
			abort();
		}
	}
	if (s->kind == SKY_SAMPLE_CHAT && sky_utf8_valid(s->messages.ptr, s->messages.n) != s->messages.n) {
		abort();
	}
	/* NUL inside a message is refused there, never here. */
	if (s->kind == SKY_SAMPLE_CHAT && !memmem(s->messages.ptr, s->messages.n, "\\u0000", 6) &&
	    sky_json_parse(s->messages.ptr, s->messages.n, "messages", 0, &doc, &err) < 0 && err.code == SKY_E_DATA &&
	    !strstr(err.msg, "deep") && !strstr(err.msg, "nested")) {
		abort();
	}
	sky_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_jdoc d = { 0 };
	struct sky_rows *rows;
	const struct sky_sample *s;
	enum sky_reason why;
	struct sky_err err;
	char *copy = malloc(size + 1);  /* exactly as long as the text, so that a read behind it is seen */

	if (!copy) {
		return 0;
	}
	memcpy(copy, data, size);
	if (sky_jdoc_parse(&d, copy, size, &err) == 0 && (d.val[0].end != d.n_val || d.val[0].n_str > size)) {
		abort();
	}
	for (int k = 0; k < 16; k++) {
		struct sky_rows_opt o = { .schema = (enum sky_schema)(k / 2), .utf8 = k % 2 ? SKY_UTF8_REPLACE : SKY_UTF8_ERROR,
					  .arguments_as_text = k % 2 };

		if (sky_rows_new(&o, &rows, &err) < 0) {
			break;
		}
		s = NULL;
		if (sky_rows_sample(rows, k == 15 ? SKY_BLOCK_DOC : SKY_BLOCK_JSON, copy, size, &s, &why, &err) == 0 && why == SKY_ROW_OK) {
			check_sample(s);
		}
		sky_rows_free(rows);
	}
	sky_jdoc_release(&d);
	free(copy);
	return 0;
}
