/* Class tables, UTF-8 and case: see unicode.h for the versions. */
#include "text/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct range {
	uint32_t lo, hi;
};

struct uc_tables uc_t;
uint8_t uc_ascii[128];

#define LU UTF8PROC_CATEGORY_LU
#define LL UTF8PROC_CATEGORY_LL
#define LM UTF8PROC_CATEGORY_LM
#define LO UTF8PROC_CATEGORY_LO
#define ND UTF8PROC_CATEGORY_ND
#define MN UTF8PROC_CATEGORY_MN
#define NO UTF8PROC_CATEGORY_NO
#define MC UTF8PROC_CATEGORY_MC
#define PO UTF8PROC_CATEGORY_PO
#define SO UTF8PROC_CATEGORY_SO

/* Characters of Unicode 15.0 to 16.0: libutf8proc 2.8 knows the first of these versions, PCRE2 10.42 none. */
const struct uc_assigned uc_young[] = {
	{ 0x897, 0x897, MN },     { 0xcf3, 0xcf3, MC },     { 0xece, 0xece, MN },     { 0x1b4e, 0x1b4f, PO },
	{ 0x1b7f, 0x1b7f, PO },   { 0x1c89, 0x1c89, LU },   { 0x1c8a, 0x1c8a, LL },   { 0x2427, 0x2429, SO },
	{ 0x2ffc, 0x2fff, SO },   { 0x31e4, 0x31e5, SO },   { 0x31ef, 0x31ef, SO },   { 0xa7cb, 0xa7cc, LU },
	{ 0xa7cd, 0xa7cd, LL },   { 0xa7da, 0xa7da, LU },   { 0xa7db, 0xa7db, LL },   { 0xa7dc, 0xa7dc, LU },
	{ 0x105c0, 0x105f3, LO }, { 0x10d40, 0x10d49, ND }, { 0x10d4a, 0x10d4d, LO }, { 0x10d4e, 0x10d4e, LM },
	{ 0x10d4f, 0x10d4f, LO }, { 0x10d50, 0x10d65, LU }, { 0x10d69, 0x10d6d, MN }, { 0x10d6e, 0x10d6e, PO },
	{ 0x10d6f, 0x10d6f, LM }, { 0x10d70, 0x10d85, LL }, { 0x10d8e, 0x10d8f, SO }, { 0x10ec2, 0x10ec4, LO },
	{ 0x10efc, 0x10eff, MN }, { 0x1123f, 0x11240, LO }, { 0x11241, 0x11241, MN }, { 0x11380, 0x11389, LO },
	{ 0x1138b, 0x1138b, LO }, { 0x1138e, 0x1138e, LO }, { 0x11390, 0x113b5, LO }, { 0x113b7, 0x113b7, LO },
	{ 0x113b8, 0x113c0, MN }, { 0x113c2, 0x113c2, MN }, { 0x113c5, 0x113c5, MN }, { 0x113c7, 0x113ca, MN },
	{ 0x113cc, 0x113d0, MN }, { 0x113d1, 0x113d1, LO }, { 0x113d2, 0x113d2, MN }, { 0x113d3, 0x113d3, LO },
	{ 0x113d4, 0x113d5, PO }, { 0x113d7, 0x113d8, PO }, { 0x113e1, 0x113e2, MN }, { 0x116d0, 0x116e3, ND },
	{ 0x11b00, 0x11b09, PO }, { 0x11bc0, 0x11be0, LO }, { 0x11be1, 0x11be1, PO }, { 0x11bf0, 0x11bf9, ND },
	{ 0x11f00, 0x11f01, MN }, { 0x11f02, 0x11f02, LO }, { 0x11f03, 0x11f03, MC }, { 0x11f04, 0x11f10, LO },
	{ 0x11f12, 0x11f33, LO }, { 0x11f34, 0x11f35, MC }, { 0x11f36, 0x11f3a, MN }, { 0x11f3e, 0x11f3f, MC },
	{ 0x11f40, 0x11f40, MN }, { 0x11f41, 0x11f41, MC }, { 0x11f42, 0x11f42, MN }, { 0x11f43, 0x11f4f, PO },
	{ 0x11f50, 0x11f59, ND }, { 0x11f5a, 0x11f5a, MN }, { 0x1342f, 0x1342f, LO }, { 0x13440, 0x13440, MN },
	{ 0x13441, 0x13446, LO }, { 0x13447, 0x13455, MN }, { 0x13460, 0x143fa, LO }, { 0x16100, 0x1611d, LO },
	{ 0x1611e, 0x1612f, MN }, { 0x16130, 0x16139, ND }, { 0x16d40, 0x16d42, LM }, { 0x16d43, 0x16d6a, LO },
	{ 0x16d6b, 0x16d6c, LM }, { 0x16d6d, 0x16d6f, PO }, { 0x16d70, 0x16d79, ND }, { 0x18cff, 0x18cff, LO },
	{ 0x1b132, 0x1b132, LO }, { 0x1b155, 0x1b155, LO }, { 0x1cc00, 0x1ccef, SO }, { 0x1ccf0, 0x1ccf9, ND },
	{ 0x1cd00, 0x1ceb3, SO }, { 0x1d2c0, 0x1d2d3, NO }, { 0x1df25, 0x1df2a, LL }, { 0x1e030, 0x1e06d, LM },
	{ 0x1e08f, 0x1e08f, MN }, { 0x1e4d0, 0x1e4ea, LO }, { 0x1e4eb, 0x1e4eb, LM }, { 0x1e4ec, 0x1e4ef, MN },
	{ 0x1e4f0, 0x1e4f9, ND }, { 0x1e5d0, 0x1e5ed, LO }, { 0x1e5ee, 0x1e5ef, MN }, { 0x1e5f0, 0x1e5f0, LO },
	{ 0x1e5f1, 0x1e5fa, ND }, { 0x1e5ff, 0x1e5ff, PO }, { 0x1f6dc, 0x1f6dc, SO }, { 0x1f774, 0x1f776, SO },
	{ 0x1f77b, 0x1f77f, SO }, { 0x1f7d9, 0x1f7d9, SO }, { 0x1f8b2, 0x1f8bb, SO }, { 0x1f8c0, 0x1f8c1, SO },
	{ 0x1fa75, 0x1fa77, SO }, { 0x1fa87, 0x1fa89, SO }, { 0x1fa8f, 0x1fa8f, SO }, { 0x1faad, 0x1faaf, SO },
	{ 0x1fabb, 0x1fabf, SO }, { 0x1fac6, 0x1fac6, SO }, { 0x1face, 0x1facf, SO }, { 0x1fada, 0x1fadc, SO },
	{ 0x1fadf, 0x1fadf, SO }, { 0x1fae8, 0x1fae9, SO }, { 0x1faf7, 0x1faf8, SO }, { 0x1fbcb, 0x1fbef, SO },
	{ 0x2b739, 0x2b739, LO }, { 0x2ebf0, 0x2ee5d, LO }, { 0x31350, 0x323af, LO },
};
const size_t uc_n_young = sizeof(uc_young) / sizeof(uc_young[0]);

static const struct range white_space[] = {
	{ 0x09, 0x0d },     { 0x20, 0x20 },     { 0x85, 0x85 },     { 0xa0, 0xa0 },     { 0x1680, 0x1680 },
	{ 0x2000, 0x200a }, { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
};

static const struct range han[] = {
	{ 0x2e80, 0x2e99 },   { 0x2e9b, 0x2ef3 },   { 0x2f00, 0x2fd5 },   { 0x3005, 0x3005 },   { 0x3007, 0x3007 },
	{ 0x3021, 0x3029 },   { 0x3038, 0x303b },   { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xf900, 0xfa6d },
	{ 0xfa70, 0xfad9 },   { 0x16fe2, 0x16fe3 }, { 0x16ff0, 0x16ff1 }, { 0x20000, 0x2a6df }, { 0x2a700, 0x2b739 },
	{ 0x2b740, 0x2b81d }, { 0x2b820, 0x2cea1 }, { 0x2ceb0, 0x2ebe0 }, { 0x2ebf0, 0x2ee5d }, { 0x2f800, 0x2fa1d },
	{ 0x30000, 0x3134a }, { 0x31350, 0x323af },
};

/* \w beyond letters, marks, Nd, Nl and Pc: circled and squared letters, joiners. */
static const struct range more_word[] = {
	{ 0x200c, 0x200d }, { 0x24b6, 0x24e9 }, { 0x1f130, 0x1f149 }, { 0x1f150, 0x1f169 }, { 0x1f170, 0x1f189 },
};

/* Category P today, but not in the list that the Punctuation pre-tokenizer carries. */
static const struct range not_punct[] = {
	{ 0x61d, 0x61d },     { 0x9fd, 0x9fd },     { 0xa76, 0xa76 },     { 0xc77, 0xc77 },     { 0xc84, 0xc84 },
	{ 0x1b4e, 0x1b4f },   { 0x1b7d, 0x1b7f },   { 0x2e43, 0x2e4f },   { 0x2e52, 0x2e5d },   { 0x10d6e, 0x10d6e },
	{ 0x10ead, 0x10ead }, { 0x10f55, 0x10f59 }, { 0x10f86, 0x10f89 }, { 0x113d4, 0x113d5 }, { 0x113d7, 0x113d8 },
	{ 0x1144b, 0x1144f }, { 0x1145a, 0x1145b }, { 0x1145d, 0x1145d }, { 0x11660, 0x1166c }, { 0x116b9, 0x116b9 },
	{ 0x1183b, 0x1183b }, { 0x11944, 0x11946 }, { 0x119e2, 0x119e2 }, { 0x11a3f, 0x11a46 }, { 0x11a9a, 0x11a9c },
	{ 0x11a9e, 0x11aa2 }, { 0x11b00, 0x11b09 }, { 0x11be1, 0x11be1 }, { 0x11c41, 0x11c45 }, { 0x11c70, 0x11c71 },
	{ 0x11ef7, 0x11ef8 }, { 0x11f43, 0x11f4f }, { 0x11fff, 0x11fff }, { 0x12ff1, 0x12ff2 }, { 0x16d6d, 0x16d6f },
	{ 0x16e97, 0x16e9a }, { 0x16fe2, 0x16fe2 }, { 0x1e5ff, 0x1e5ff }, { 0x1e95e, 0x1e95f },
};
static const struct range more_punct[] = { { 0x166d, 0x166d }, { 0x111c9, 0x111c9 } };
/* Numbers of Unicode 17 that the Digits pre-tokenizer knows. */
static const struct range more_num[] = { { 0x11de0, 0x11de9 }, { 0x16ff4, 0x16ff6 } };

static unsigned category_bits(int c)
{
	switch (c) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LT:
		return UC_L | UC_U | UC_W;
	case UTF8PROC_CATEGORY_LL:
		return UC_L | UC_W;
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
		return UC_L | UC_X | UC_W;
	case UTF8PROC_CATEGORY_MN:
		return UC_M | UC_MN | UC_W;
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
		return UC_M | UC_W;
	case UTF8PROC_CATEGORY_ND:
		return UC_N | UC_ND | UC_NUM | UC_W;
	case UTF8PROC_CATEGORY_NL:
		return UC_N | UC_NUM | UC_W;
	case UTF8PROC_CATEGORY_NO:
		return UC_N | UC_NUM;
	case UTF8PROC_CATEGORY_PC:
		return UC_PS | UC_P | UC_PUNCT | UC_W;
	case UTF8PROC_CATEGORY_PD:
	case UTF8PROC_CATEGORY_PS:
	case UTF8PROC_CATEGORY_PE:
	case UTF8PROC_CATEGORY_PI:
	case UTF8PROC_CATEGORY_PF:
	case UTF8PROC_CATEGORY_PO:
		return UC_PS | UC_P | UC_PUNCT;
	case UTF8PROC_CATEGORY_SM:
	case UTF8PROC_CATEGORY_SC:
	case UTF8PROC_CATEGORY_SK:
	case UTF8PROC_CATEGORY_SO:
		return UC_PS;
	default:
		return 0;
	}
}

static void put_bits(uint16_t *all, const struct range *r, size_t n, unsigned set, unsigned clear)
{
	for (size_t i = 0; i < n; i++) {
		for (uint32_t c = r[i].lo; c <= r[i].hi; c++) {
			all[c] = (uint16_t)((all[c] & ~clear) | set);
		}
	}
}

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
#define N_ALL 0xe0200u /* nothing is assigned beyond, apart from private use */

static void classify_all(uint16_t *all)
{
	for (uint32_t c = 0; c < N_ALL; c++) {
		if (c == 0x34000) {
			c = 0xe0000;
		}
		all[c] = (uint16_t)category_bits(utf8proc_category((utf8proc_int32_t)c));
	}
	for (size_t i = 0; i < uc_n_young; i++) {
		struct range r = { uc_young[i].lo, uc_young[i].hi };

		put_bits(all, &r, 1, category_bits(uc_young[i].category), 0x7fff);
	}
	put_bits(all, white_space, N_OF(white_space), UC_S, 0);
	put_bits(all, han, N_OF(han), UC_HAN, 0);
	put_bits(all, more_word, N_OF(more_word), UC_W, 0);
	put_bits(all, not_punct, N_OF(not_punct), 0, UC_PUNCT);
	put_bits(all, more_punct, N_OF(more_punct), UC_PUNCT, 0);
	put_bits(all, more_num, N_OF(more_num), UC_NUM, 0);
	for (uint32_t c = 33; c < 127; c++) {
		if (all[c] & UC_PS) {
			all[c] |= UC_PUNCT;
		}
	}
}

/* Equal blocks are stored once. */
static int compress_blocks(const uint16_t *all)
{
	const size_t width = (size_t)1 << UC_BLOCK_BITS;
	size_t n_block = 1, cap = N_ALL / width + 1;

	uc_t.stage2 = calloc(cap * width, sizeof(uint16_t)); /* block 0: no class */
	if (!uc_t.stage2) {
		return -1;
	}
	for (uint32_t b = 0; b < N_ALL / width; b++) {
		const uint16_t *src = all + b * width;
		size_t k = n_block;

		if (b * width >= 0x34000 && b * width < 0xe0000) {
			continue;
		}
		while (k > 0 && memcmp(uc_t.stage2 + (k - 1) * width, src, width * sizeof(uint16_t)) != 0) {
			k--;
		}
		if (k == 0) {
			memcpy(uc_t.stage2 + n_block * width, src, width * sizeof(uint16_t));
			k = ++n_block;
		}
		uc_t.stage1[b] = (uint16_t)((k - 1) * width);
	}
	return 0;
}

static int init_rc;

static void init_once(void)
{
	uint16_t *all = calloc(N_ALL, sizeof(*all));

	if (!all) {
		init_rc = -1;
		return;
	}
	classify_all(all);
	uc_nfc_bits(all, N_ALL);
	init_rc = compress_blocks(all);
	for (int c = 0; c < 128; c++) {
		uc_ascii[c] = (uint8_t)all[c];
	}
	free(all);
}

int uc_init(struct sky_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_once);
	return init_rc < 0 ? sky_fail_mem(err, "character tables") : 0;
}

unsigned uc_encode(uint32_t cp, uint8_t out[4])
{
	if (cp < 0x80) {
		out[0] = (uint8_t)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (uint8_t)(0xc0 | cp >> 6);
		out[1] = (uint8_t)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (uint8_t)(0xe0 | cp >> 12);
		out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | cp >> 18);
	out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (cp & 0x3f));
	return 4;
}

/* Bytes of the valid sequence at p (n ≥ 1 bytes there), or 0. */
static unsigned valid_one(const uint8_t *p, size_t n)
{
	uint8_t lo = 0x80, hi = 0xbf;
	unsigned len;

	if (p[0] < 0x80) {
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4) {
		return 0;
	}
	len = uc_length(p[0]);
	lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : lo;
	hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : hi;
	if (n < len || p[1] < lo || p[1] > hi) {
		return 0;
	}
	for (unsigned i = 2; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80) {
			return 0;
		}
	}
	return len;
}

size_t uc_valid(const uint8_t *p, size_t n)
{
	size_t i = 0;

	while (i < n) {
		uint64_t w;
		unsigned k;

		if (i + 8 <= n && (memcpy(&w, p + i, 8), (w & 0x8080808080808080ull) == 0)) {
			i += 8;
			continue;
		}
		k = valid_one(p + i, n - i);
		if (k == 0) {
			return i;
		}
		i += k;
	}
	return n;
}

/* Rust's to_lowercase: simple mappings plus U+0130, and the letters of newer versions. */
unsigned uc_lower(uint32_t cp, uint32_t out[3])
{
	static const struct {
		uint32_t lo, hi;
		int32_t add;
	} more[] = {
		{ 0x1c89, 0x1c89, 1 },      { 0xa7cb, 0xa7cb, 0x264 - 0xa7cb },
		{ 0xa7cc, 0xa7cc, 1 },      { 0xa7ce, 0xa7ce, 1 },
		{ 0xa7d2, 0xa7d2, 1 },      { 0xa7d4, 0xa7d4, 1 },
		{ 0xa7da, 0xa7da, 1 },      { 0xa7dc, 0xa7dc, 0x19b - 0xa7dc },
		{ 0x10d50, 0x10d65, 0x20 }, { 0x16ea0, 0x16eb8, 0x1b },
	};

	if (cp == 0x130) {
		out[0] = 'i';
		out[1] = 0x307;
		return 2;
	}
	for (size_t i = 0; i < N_OF(more); i++) {
		if (cp >= more[i].lo && cp <= more[i].hi) {
			out[0] = (uint32_t)((int32_t)cp + more[i].add);
			return 1;
		}
	}
	out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
	return 1;
}

int uc_map_add(struct uc_map *m, size_t off, size_t n, unsigned step, struct sky_err *err)
{
	if (!m) {
		return 0;
	}
	if (m->n + n > m->cap) {
		size_t cap = (m->n + n) * 2 + 64;
		uint32_t *at = realloc(m->at, cap * sizeof(*at));

		if (!at) {
			return sky_fail_mem(err, "offsets of a text");
		}
		m->at = at;
		m->cap = cap;
	}
	for (size_t i = 0; i < n; i++, off += step) {
		m->at[m->n++] = m->in ? m->in[off] : m->base + (uint32_t)off;
	}
	return 0;
}
