/* Entries of word tables: the cache of an encoder (words.c) and the lexicon of a tokenizer (lexicon.c). */
#ifndef SKY_TEXT_WORDS_H
#define SKY_TEXT_WORDS_H

#include "text/tok_int.h"

#include <emmintrin.h>
#include <string.h>

#define WORD_SPILLED 0xffu

struct word_entry {      /* all zero: free */
	uint64_t key[2]; /* bytes, zero padded; the last byte is the length */
	uint32_t id[3];
	uint32_t count; /* 1 to 3, or WORD_SPILLED: id[0] is the place in spill, id[1] the number */
};
struct word_line {
	struct word_entry e[2];
};

static inline uint64_t word_hash(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ (b << 31 | b >> 33)) * 0x9e3779b97f4a7c15ull;

	return (h ^ h >> 32 ^ b) * 0xd6e8feb86659fd93ull;
}

/* Key of p[0..n), n ≤ 15. room: readable bytes from p on. */
static inline void word_key(const uint8_t *p, size_t n, size_t room, uint64_t key[2])
{
	static const uint8_t keep[32] = { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 };
	__m128i v;

	if (room >= 16) {
		v = _mm_and_si128(_mm_loadu_si128((const __m128i *)p),
				  _mm_loadu_si128((const __m128i *)(keep + 15 - n)));
		_mm_storeu_si128((__m128i *)key, v);
	} else {
		key[0] = key[1] = 0;
		memcpy(key, p, n);
	}
	key[1] |= (uint64_t)n << 56;
}

/* The token that a piece with this key is, or NULL. */
const struct word_entry *tok_lexicon_find(const struct sky_tokenizer *t, const uint64_t key[2], uint64_t hash);
/* Next place behind i, at most n, between characters of p where no token of the vocabulary crosses. */
size_t tok_cut_end(const struct sky_tokenizer *t, const uint8_t *p, size_t i, size_t n);

#endif
