/* Hand scanners for the known pre-tokenizer patterns.
 *
 * scan_char.c walks characters and is the definition; scan_mask.c classifies 64 bytes at a time with AVX-512 or AVX2
 * and falls back to it wherever its window does not decide. Both equal the regular expressions
 * (tests/unit/text_scan.c). */
#ifndef SKY_TEXT_SCAN_H
#define SKY_TEXT_SCAN_H

#include "text/tok_int.h"

#define SCAN_SLACK 64 /* more ends than asked for may be written, by at most this many */

/* Which known pattern the pre-tokenizers are; SCAN_NONE: none. */
enum tok_scan scan_recognize(const struct tok_pre *pre, size_t n);
/* The pattern as a regular expression in Oniguruma's dialect, for tests; NULL when it takes several steps. */
const char *scan_pattern(enum tok_scan kind);

/* End of the piece that starts at i < n. */
size_t scan_piece(enum tok_scan kind, const uint8_t *p, size_t i, size_t n);

/* Ends of pieces from *pos on, at least one and until max are written or the text ends; *pos moves to the last. Texts
 * are shorter than 4 GiB. */
typedef size_t scan_fn(const uint8_t *p, size_t n, size_t *pos, uint32_t *end, size_t max);
enum scan_isa { SCAN_SCALAR, SCAN_AVX2, SCAN_AVX512 };
/* The fastest that this CPU has, at most isa. */
scan_fn *scan_best(enum tok_scan kind, enum scan_isa isa);
scan_fn *scan_masked(enum tok_scan kind, enum scan_isa isa); /* scan_mask.c; NULL when it has none */

/* 's 't 're 've 'm 'll 'd at the apostrophe p[i]: bytes, or 0. fold: any case, U+017F for s. */
static inline size_t scan_contraction(const uint8_t *p, size_t i, size_t n, bool fold)
{
	uint8_t a, b;

	if (i + 1 >= n) {
		return 0;
	}
	a = fold ? p[i + 1] | 0x20 : p[i + 1];
	if (a == 's' || a == 't' || a == 'm' || a == 'd') {
		return 2;
	}
	if (i + 2 >= n) {
		return 0;
	}
	if (fold && p[i + 1] == 0xc5 && p[i + 2] == 0xbf) {
		return 3;
	}
	b = fold ? p[i + 2] | 0x20 : p[i + 2];
	return (a == 'l' && b == 'l') || ((a == 'r' || a == 'v') && b == 'e') ? 3 : 0;
}

/* The range [一-龥぀-ヿ] of DeepSeek's second split. */
static inline bool scan_is_cjk(uint32_t c)
{
	return c - 0x4e00 <= 0x9fa5 - 0x4e00 || c - 0x3040 <= 0x30ff - 0x3040;
}

#endif
