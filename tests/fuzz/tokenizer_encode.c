/* Fuzz target: encoding. For every known pattern, on any UTF-8: the scanners of all instruction sets and the general
 * path give the same ids, offsets go up, and decoding gives the text back. Bytes that are not UTF-8 become U+FFFD
 * first. */
#include <stdlib.h>
#include <string.h>

#include "text/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sky_tokenizer *tokenizer[SCAN_COUNT];

static void must(int rc)
{
	if (rc < 0) {
		abort();
	}
}

/* All bytes, and some merges over and across characters. */
static void build(enum tok_scan kind)
{
	static const char *const merge[][2] = {
		{ "t", "h" },
		{ "th", "e" },
		{ "\xc4\xa0", "the" },
		{ "i", "n" },
		{ "1", "2" },
		{ "\xc3\xa6", "\xc4\xb9" },
		{ "\xc3\xa6\xc4\xb9", "\xc2\xa5" },
		{ "\xc3\xa6\xc4\xb9\xc2\xa5", "\xc3\xa6" },
		{ "\xc4\x8a", "\xc4\x8a" },
		{ "\xc4\xa0", "\xc4\xa0" },
		{ "'", "s" },
		{ "\xc4\x81", "\xc3\xa9" },
	};
	struct sky_buf json = SKY_BUF_INIT(1 << 20);
	struct sky_err err;
	struct sky_jw w;
	uint8_t b[5];
	int id = 0;

	sky_jw_init(&w, &json, &err);
	sky_jw_obj(&w);
	sky_jw_key(&w, "pre_tokenizer");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "Sequence");
	sky_jw_key(&w, "pretokenizers");
	sky_jw_arr(&w);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "Split");
	sky_jw_key(&w, "pattern");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "Regex", scan_pattern(kind));
	sky_jw_close_obj(&w);
	sky_jw_kstr(&w, "behavior", "Isolated");
	sky_jw_kbool(&w, "invert", false);
	sky_jw_close_obj(&w);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "ByteLevel");
	sky_jw_kbool(&w, "add_prefix_space", false);
	sky_jw_kbool(&w, "use_regex", false);
	sky_jw_close_obj(&w);
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	sky_jw_key(&w, "decoder");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "ByteLevel");
	sky_jw_close_obj(&w);
	sky_jw_key(&w, "model");
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "BPE");
	sky_jw_key(&w, "vocab");
	sky_jw_obj(&w);
	for (; id < 256; id++) {
		b[uc_encode(tok_char_of_byte((uint8_t)id), b)] = 0;
		sky_jw_ki64(&w, (char *)b, id);
	}
	for (size_t i = 0; i < sizeof(merge) / sizeof(merge[0]); i++) {
		char both[32];

		snprintf(both, sizeof(both), "%s%s", merge[i][0], merge[i][1]);
		sky_jw_ki64(&w, both, id++);
	}
	sky_jw_close_obj(&w);
	sky_jw_key(&w, "merges");
	sky_jw_arr(&w);
	for (size_t i = 0; i < sizeof(merge) / sizeof(merge[0]); i++) {
		sky_jw_arr(&w);
		sky_jw_str(&w, merge[i][0]);
		sky_jw_str(&w, merge[i][1]);
		sky_jw_close_arr(&w);
	}
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	sky_jw_close_obj(&w);
	must(sky_jw_end(&w));
	must(sky_tokenizer_parse(json.ptr, json.n, "fuzz", &tokenizer[kind], &err));
	if (tokenizer[kind]->scan != kind) {
		abort();
	}
	sky_buf_release(&json);
}

static void clean(const uint8_t *p, size_t n, struct sky_buf *out)
{
	struct sky_err err;

	while (n) {
		size_t good = uc_valid(p, n);

		must(sky_buf_add(out, p, good, &err));
		if (good < n) {
			must(sky_buf_adds(out, "\xef\xbf\xbd", &err));
			good++;
		}
		p += good;
		n -= good;
	}
}

static void check(const struct sky_tokenizer *t, const char *s, size_t n)
{
	struct sky_ids want = { 0 }, got = { 0 };
	struct sky_buf back = SKY_BUF_INIT(1 << 26);
	struct sky_err err;

	for (int isa = -1; isa <= SCAN_AVX512; isa++) {
		struct sky_encoder *e = NULL;

		got.n = 0;
		must(sky_encoder_new(t, &e, &err));
		e->general = isa < 0;
		e->isa = isa;
		must(sky_encode_offsets(e, s, n, 0, isa < 0 ? &want : &got, &err));
		sky_encoder_free(e);
		if (isa >= 0 && (got.n != want.n || (got.n && (memcmp(got.id, want.id, (size_t)got.n * 4) != 0 ||
							       memcmp(got.off, want.off, (size_t)got.n * 4) != 0)))) {
			abort();
		}
	}
	must(sky_decode(t, want.id, want.n, 0, &back, &err));
	if (back.n != n || (n && memcmp(back.ptr, s, n) != 0)) {
		abort();
	}
	sky_ids_release(&want);
	sky_ids_release(&got);
	sky_buf_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum tok_scan kinds[] = { SCAN_GPT2,  SCAN_LLAMA3, SCAN_QWEN2, SCAN_QWEN35,
					       SCAN_O200K, SCAN_TEKKEN, SCAN_KIMI };
	enum tok_scan kind = kinds[size ? data[0] % (sizeof(kinds) / sizeof(kinds[0])) : 0];
	struct sky_buf text = SKY_BUF_INIT(1 << 26);
	char *exact;

	if (!tokenizer[kind]) {
		build(kind);
	}
	clean(data + (size > 0), size - (size > 0), &text);
	exact = malloc(text.n + 1); /* so that a sanitizer sees reads behind the end */
	if (exact && text.n) {
		memcpy(exact, text.ptr, text.n);
		exact = realloc(exact, text.n);
	}
	check(tokenizer[kind], exact, text.n);
	free(exact);
	sky_buf_release(&text);
	return 0;
}
