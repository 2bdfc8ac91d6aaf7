/* Fuzz target: tokenizer.json. What loads also encodes and decodes, by the fast and by the general path alike. */
#include <stdlib.h>
#include <string.h>

#include "text/tok_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const texts[] = {
	"",
	"the cat's <s> sat, 123456 times\n\n  on <mask> the mat",
	"e\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80\xc2\xa0 ab",
	"ab ab<x>ab",
};

static void use(const struct sky_tokenizer *t)
{
	struct sky_ids fast = { 0 }, general = { 0 };
	struct sky_buf back = SKY_BUF_INIT(1 << 24);
	struct sky_encoder *e = NULL;
	struct sky_err err;

	if (sky_encoder_new(t, &e, &err) < 0) {
		return;
	}
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		fast.n = general.n = 0;
		e->general = false;
		if (sky_encode(e, texts[i], strlen(texts[i]), SKY_ENC_SPECIAL, &fast, &err) < 0) {
			continue;
		}
		e->general = true;
		if (sky_encode_offsets(e, texts[i], strlen(texts[i]), SKY_ENC_SPECIAL, &general, &err) < 0 ||
		    fast.n != general.n ||
		    (fast.n && memcmp(fast.id, general.id, (size_t)fast.n * sizeof(*fast.id)) != 0)) {
			abort();
		}
		if (sky_decode(t, fast.id, fast.n, 0, &back, &err) < 0 && err.code != SKY_E_LIMIT) {
			abort();
		}
	}
	sky_encoder_free(e);
	sky_ids_release(&fast);
	sky_ids_release(&general);
	sky_buf_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_tokenizer *t = NULL;
	struct sky_err err;

	if (sky_tokenizer_parse((const char *)data, size, "fuzz", &t, &err) == 0) {
		use(t);
		sky_tokenizer_close(t);
	}
	return 0;
}
