/* Character classes and normal forms as the `tokenizers` library sees them.
 *
 * Its parts follow different Unicode versions: regular expressions (Oniguruma) 16.0, normalization 9.0, `Punctuation`
 * an older list. The tables are libutf8proc's (15.0) plus the differences, so ids agree on newly assigned characters
 * too. Built once in a process (about a millisecond), then read only. */
#ifndef SKY_TEXT_UNICODE_H
#define SKY_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

enum uc_class {
	UC_L = 1u << 0,      /* \p{L} */
	UC_N = 1u << 1,      /* \p{N} */
	UC_S = 1u << 2,      /* White_Space, \s */
	UC_M = 1u << 3,      /* \p{M} */
	UC_PS = 1u << 4,     /* \p{P} or \p{S} */
	UC_U = 1u << 5,      /* Lu, Lt */
	UC_X = 1u << 6,      /* Lm, Lo: neither upper nor lower */
	UC_HAN = 1u << 7,    /* script Han */
	UC_P = 1u << 8,      /* \p{P} */
	UC_ND = 1u << 9,     /* \p{Nd} */
	UC_W = 1u << 10,     /* \w of the Rust regex engine */
	UC_PUNCT = 1u << 11, /* what the Punctuation pre-tokenizer splits at */
	UC_NUM = 1u << 12,   /* what the Digits pre-tokenizer splits at */
	UC_MN = 1u << 13,    /* \p{Mn} */
	UC_NFC = 1u << 14,   /* may change under NFC: combining class not 0, or NFC_Quick_Check not Yes */
};

#define UC_BLOCK_BITS 7
#define UC_MAX 0x110000u

struct uc_tables {
	uint16_t stage1[UC_MAX >> UC_BLOCK_BITS]; /* first index of the block in stage2 */
	uint16_t *stage2;
};
extern struct uc_tables uc_t;
extern uint8_t uc_ascii[128]; /* low 8 class bits of ASCII */

/* Young characters by general category (utf8proc's numbers). */
struct uc_assigned {
	uint32_t lo, hi;
	uint8_t category;
};
extern const struct uc_assigned uc_young[];
extern const size_t uc_n_young;

/* nfc.c: fills the composition table and the UC_NFC bits of all[0..n); called once by uc_init. */
void uc_nfc_bits(uint16_t *all, uint32_t n);
/* Builds the tables (thread-safe, idempotent). */
int uc_init(struct sky_err *err) SKY_MUST_CHECK;

static inline unsigned uc_class(uint32_t cp)
{
	return uc_t.stage2[uc_t.stage1[cp >> UC_BLOCK_BITS] + (cp & ((1u << UC_BLOCK_BITS) - 1))];
}

/* Code point at p (valid UTF-8); *n_p its bytes. */
static inline uint32_t uc_decode(const uint8_t *p, unsigned *n_p)
{
	if (p[0] < 0x80) {
		*n_p = 1;
		return p[0];
	}
	if (p[0] < 0xe0) {
		*n_p = 2;
		return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
	}
	if (p[0] < 0xf0) {
		*n_p = 3;
		return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
	}
	*n_p = 4;
	return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

static inline unsigned uc_length(uint8_t lead)
{
	return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

unsigned uc_encode(uint32_t cp, uint8_t out[4]); /* bytes written */
/* Length of the valid UTF-8 at the front of p; n when all of it is. */
size_t uc_valid(const uint8_t *p, size_t n);
/* First byte that makes a change under NFC possible, or n: p is NFC up to there. */
size_t uc_nfc_span(const uint8_t *p, size_t n);

enum uc_form { UC_NFC_FORM, UC_NFD_FORM, UC_NFKC_FORM, UC_NFKD_FORM };
/* Normal form of p[0..n) appended to out; map (may be NULL) gets, for each byte of the result, map_in of the byte of p
 * where its source span begins (map_in NULL: the offset in p itself). */
struct uc_map;
int uc_normalize(const uint8_t *p, size_t n, enum uc_form form, struct sky_buf *out, struct uc_map *map,
		 struct sky_err *err) SKY_MUST_CHECK;
/* Full lower case of one character: 1 to 3 code points. */
unsigned uc_lower(uint32_t cp, uint32_t out[3]);

/* Origin of each byte of a rewritten text. */
struct uc_map {
	uint32_t *at; /* owned, n valid */
	size_t n, cap;
	const uint32_t *in; /* origin of the text that is being rewritten; NULL = identity */
	uint32_t base;      /* added to offsets when in is NULL */
};
/* n more bytes that all come from byte off of the input; step 1: from off, off + 1, … */
int uc_map_add(struct uc_map *m, size_t off, size_t n, unsigned step, struct sky_err *err) SKY_MUST_CHECK;

#endif
