/* Where no token can cross: between two characters that no token of the vocabulary holds side by side, nothing ever
 * merges, so the ids of a piece are those of its parts. Exact, as every merge makes a token. */
#include "text/words.h"

#include <stdlib.h>

#define CUT_BITS 21

static inline uint32_t cut_hash(uint32_t a, uint32_t b)
{
	return (uint32_t)(((uint64_t)a << 21 | b) * 0x9e3779b97f4a7c15ull >> (64 - CUT_BITS));
}

/* Is the character that ends before s[k] whole inside s[0..k)? Its start, or −1. */
static int64_t whole_before(const uint8_t *s, uint32_t k)
{
	int64_t i = (int64_t)k - 1;

	while (i > 0 && (s[i] & 0xc0) == 0x80) {
		i--;
	}
	return (s[i] & 0xc0) != 0x80 && uc_length(s[i]) == k - (uint32_t)i ? i : -1;
}

static void note_token(struct sky_tokenizer *t, const uint8_t *s, uint32_t n)
{
	for (uint32_t k = 1; k < n; k++) {
		int64_t i;
		unsigned len;

		if ((s[k] & 0xc0) == 0x80) {
			continue;
		}
		i = whole_before(s, k);
		if (i >= 0 && k + uc_length(s[k]) <= n) {
			uint32_t h = cut_hash(uc_decode(s + i, &len), uc_decode(s + k, &len));

			t->cut_pair[h >> 3] |= (uint8_t)(1u << (h & 7));
		} else {
			t->cut_part[s[k - 1]][s[k]] = 1;
		}
	}
}

int tok_cut_prepare(struct sky_tokenizer *t, struct sky_err *err)
{
	t->cut_pair = calloc(1u << (CUT_BITS - 3), 1);
	t->cut_part = calloc(256, sizeof(*t->cut_part));
	if (!t->cut_pair || !t->cut_part) {
		return sky_fail_mem(err, "tokenizer");
	}
	for (uint32_t id = 0; id < t->vocab.n_id; id++) {
		if ((t->vocab.tok[id].flag & TOK_MODEL) && !(t->vocab.tok[id].flag & TOK_FOREIGN) &&
		    t->vocab.tok[id].len != TOK_NO_LEN) {
			note_token(t, (const uint8_t *)t->vocab.bytes + t->vocab.tok[id].off, t->vocab.tok[id].len);
		}
	}
	return 0;
}

size_t tok_cut_end(const struct sky_tokenizer *t, const uint8_t *p, size_t i, size_t n)
{
	unsigned len;
	uint32_t a = uc_decode(p + i, &len), b;

	for (i += len; i < n; i += len, a = b) {
		uint32_t h;

		b = uc_decode(p + i, &len);
		h = cut_hash(a, b);
		if (!(t->cut_pair[h >> 3] >> (h & 7) & 1) && !t->cut_part[p[i - 1]][p[i]]) {
			return i;
		}
	}
	return n;
}
