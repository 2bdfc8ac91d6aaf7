/* Normal forms. Decompositions are libutf8proc's; ordering and composition are here, because `tokenizers` follows
 * Unicode 9.0: combining marks that came later do not take part in reordering. */
#include "text/unicode.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct range {
	uint32_t lo, hi;
};

/* Marks younger than Unicode 9.0 that have a combining class now. */
static const struct range young_marks[] = {
	{ 0x7fd, 0x7fd },     { 0x898, 0x89f },     { 0x8ca, 0x8d3 },     { 0x9fe, 0x9fe },     { 0xc3c, 0xc3c },
	{ 0xd3b, 0xd3c },     { 0xeba, 0xeba },     { 0x1715, 0x1715 },   { 0x1abf, 0x1ace },   { 0x1df6, 0x1dfa },
	{ 0xa82c, 0xa82c },   { 0x10d24, 0x10d27 }, { 0x10eab, 0x10eac }, { 0x10efd, 0x10eff }, { 0x10f46, 0x10f50 },
	{ 0x10f82, 0x10f85 }, { 0x11070, 0x11070 }, { 0x1133b, 0x1133b }, { 0x1145e, 0x1145e }, { 0x11839, 0x1183a },
	{ 0x1193d, 0x1193e }, { 0x11943, 0x11943 }, { 0x119e0, 0x119e0 }, { 0x11a34, 0x11a34 }, { 0x11a47, 0x11a47 },
	{ 0x11a99, 0x11a99 }, { 0x11d42, 0x11d42 }, { 0x11d44, 0x11d45 }, { 0x11d97, 0x11d97 }, { 0x11f41, 0x11f42 },
	{ 0x16ff0, 0x16ff1 }, { 0x1e08f, 0x1e08f }, { 0x1e130, 0x1e136 }, { 0x1e2ae, 0x1e2ae }, { 0x1e2ec, 0x1e2ef },
	{ 0x1e4ec, 0x1e4ef },
};
/* Compatibility and canonical decompositions that came after 9.0. */
static const struct range young_decompositions[] = {
	{ 0x32ff, 0x32ff },   { 0xa7f2, 0xa7f4 },   { 0xab69, 0xab69 },   { 0x10781, 0x10785 }, { 0x10787, 0x107b0 },
	{ 0x107b2, 0x107ba }, { 0x11938, 0x11938 }, { 0x1e030, 0x1e06d }, { 0x1f16c, 0x1f16c }, { 0x1fbf0, 0x1fbf9 },
};

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static int within(const struct range *r, size_t n, uint32_t c)
{
	for (size_t i = 0; i < n; i++) {
		if (c >= r[i].lo && c <= r[i].hi) {
			return 1;
		}
	}
	return 0;
}

static unsigned combining_class(uint32_t c)
{
	unsigned k = (unsigned)utf8proc_get_property((utf8proc_int32_t)c)->combining_class;

	return k && within(young_marks, N_OF(young_marks), c) ? 0 : k;
}

/* Full decomposition into out[18]; number of code points. */
static int decompose(uint32_t c, int compat, utf8proc_int32_t out[32])
{
	int last = 0;
	utf8proc_ssize_t n;

	if (within(young_decompositions, N_OF(young_decompositions), c)) {
		out[0] = (utf8proc_int32_t)c;
		return 1;
	}
	n = utf8proc_decompose_char((utf8proc_int32_t)c, out, 32, UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0),
				    &last);
	return n < 1 || n > 32 ? (out[0] = (utf8proc_int32_t)c, 1) : (int)n;
}

/* ---- composition: pair of code points → composite, in a small open hash ---- */

#define N_PAIR 4096 /* about 940 pairs */
static struct {
	uint32_t a, b, c;
} pairs[N_PAIR];

static unsigned pair_slot(uint32_t a, uint32_t b)
{
	unsigned i = (a * 0x9e3779b1u ^ b * 0x85ebca77u) >> 20;

	while (pairs[i].c && (pairs[i].a != a || pairs[i].b != b)) {
		i = (i + 1) % N_PAIR;
	}
	return i;
}

static uint32_t compose(uint32_t a, uint32_t b)
{
	if (a - 0x1100 < 19 && b - 0x1161 < 21) {
		return 0xac00 + ((a - 0x1100) * 21 + (b - 0x1161)) * 28;
	}
	if (a - 0xac00 < 11172 && (a - 0xac00) % 28 == 0 && b - 0x11a8 < 27) {
		return a + (b - 0x11a7);
	}
	return pairs[pair_slot(a, b)].c;
}

/* Does composition give c back? Not for singletons, non-starter decompositions and the listed exclusions. */
static int is_primary(uint32_t c)
{
	uint8_t text[5] = { 0 }, *same;
	unsigned n = uc_encode(c, text);
	int yes;

	same = utf8proc_NFC(text);
	yes = same && strlen((const char *)same) == n && memcmp(same, text, n) == 0;
	free(same);
	return yes;
}

/* Primary composites whose full decomposition has len parts: their first part is one of the next shorter kind. */
static void add_pairs(uint16_t *all, uint32_t n, int len)
{
	utf8proc_int32_t d[32];

	for (uint32_t c = 0xc0; c < n; c = c == 0x33fff ? 0xe0000 : c + 1) {
		const utf8proc_property_t *prop = utf8proc_get_property((utf8proc_int32_t)c);
		uint32_t first;
		unsigned s;

		if (prop->decomp_seqindex == UINT16_MAX || prop->decomp_type || (c >= 0xac00 && c < 0xd7a4) ||
		    decompose(c, 0, d) != len || (len == 1 && (uint32_t)d[0] == c)) {
			continue;
		}
		if (len == 1 || !is_primary(c)) {
			all[c] |= UC_NFC;
			continue;
		}
		first = (uint32_t)d[0];
		for (int i = 1; i < len - 1; i++) {
			first = pairs[pair_slot(first, (uint32_t)d[i])].c;
		}
		s = pair_slot(first, (uint32_t)d[len - 1]);
		pairs[s].a = first;
		pairs[s].b = (uint32_t)d[len - 1];
		pairs[s].c = c;
		all[(uint32_t)d[len - 1]] |= UC_NFC;
	}
}

/* Called once while the tables are built: fills the pairs and marks what NFC may change. */
void uc_nfc_bits(uint16_t *all, uint32_t n)
{
	for (uint32_t c = 0x300; c < n; c = c == 0x33fff ? 0xe0000 : c + 1) {
		if (combining_class(c)) {
			all[c] |= UC_NFC;
		}
	}
	for (int len = 1; len <= 4; len++) {
		add_pairs(all, n, len);
	}
	for (uint32_t c = 0x1161; c <= 0x1175; c++) {
		all[c] |= UC_NFC;
	}
	for (uint32_t c = 0x11a8; c <= 0x11c2; c++) {
		all[c] |= UC_NFC;
	}
}

/* ---- spans ---- */

/* By lead byte: 1 where none of its characters has UC_NFC; ASCII, Latin, Cyrillic letters, most Han, Hangul syllables.
 */
static const uint8_t calm_lead[256] = {
	[0x00 ... 0xcb] = 1, [0xd0] = 1, [0xd1] = 1, [0xe4 ... 0xe9] = 1, [0xeb] = 1, [0xec] = 1,
};

static size_t nfc_span_scalar(const uint8_t *p, size_t n, size_t i)
{
	while (i < n) {
		unsigned k;

		if (calm_lead[p[i]]) {
			i++; /* continuation bytes count as calm, so a step need not be a whole character */
			continue;
		}
		if (uc_class(uc_decode(p + i, &k)) & UC_NFC) {
			return i;
		}
		i += k;
	}
	return n;
}

/* 64 bytes at a time to the next lead byte that is not calm. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static size_t nfc_span_avx512(const uint8_t *p, size_t n)
{
	const __m512i calm = _mm512_loadu_si512(calm_lead + 0xc0);
	size_t i = 0;

	while (i + 64 <= n) {
		const __m512i v = _mm512_loadu_si512(p + i);
		__mmask64 lead = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)0xcc));

		if (lead) {
			lead &= _mm512_testn_epi8_mask(_mm512_permutexvar_epi8(v, calm), _mm512_set1_epi8(1));
		}
		for (; lead; lead &= lead - 1) {
			size_t at = i + (size_t)__builtin_ctzll(lead);
			unsigned k;

			if (uc_class(uc_decode(p + at, &k)) & UC_NFC) {
				return at;
			}
		}
		i += 64;
	}
	return nfc_span_scalar(p, n, i);
}

size_t uc_nfc_span(const uint8_t *p, size_t n)
{
	static int fast = -1; /* every thread finds the same */
	int use = __atomic_load_n(&fast, __ATOMIC_RELAXED);

	if (use < 0) {
		__builtin_cpu_init();
		use = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw");
		__atomic_store_n(&fast, use, __ATOMIC_RELAXED);
	}
	return use ? nfc_span_avx512(p, n) : nfc_span_scalar(p, n, 0);
}

struct chars {
	uint32_t *c;
	size_t n, cap;
};

static int chars_add(struct chars *v, uint32_t c, struct sky_err *err)
{
	if (v->n == v->cap) {
		size_t cap = v->cap ? v->cap * 2 : 64;
		uint32_t *q = realloc(v->c, cap * sizeof(*q));

		if (!q) {
			return sky_fail_mem(err, "normal form of a text");
		}
		v->c = q;
		v->cap = cap;
	}
	v->c[v->n++] = c;
	return 0;
}

static int by_class(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Canonical ordering: stable sort of every run of characters with a combining class. */
static int reorder(struct chars *v, struct sky_err *err)
{
	for (size_t i = 0; i < v->n; i++) {
		size_t j = i;
		uint64_t *key;

		while (j < v->n && combining_class(v->c[j])) {
			j++;
		}
		if (j - i < 2) {
			i = j > i ? j - 1 : i;
			continue;
		}
		key = malloc((j - i) * sizeof(*key));
		if (!key) {
			return sky_fail_mem(err, "normal form of a text");
		}
		for (size_t k = i; k < j; k++) { /* class, then place (41 bits hold any), then the character below */
			key[k - i] = (uint64_t)combining_class(v->c[k]) << 56 | (uint64_t)(k - i) << 21 | v->c[k];
		}
		qsort(key, j - i, sizeof(*key), by_class);
		for (size_t k = i; k < j; k++) {
			v->c[k] = (uint32_t)(key[k - i] & 0x1fffff);
		}
		free(key);
		i = j - 1;
	}
	return 0;
}

static void compose_all(struct chars *v)
{
	size_t starter = SIZE_MAX, out = 0;
	unsigned last = 0; /* class of the last character kept behind the starter */

	for (size_t i = 0; i < v->n; i++) {
		uint32_t c = v->c[i], m;
		unsigned k = combining_class(c);

		if (starter != SIZE_MAX && (out == starter + 1 || last < k)) {
			m = compose(v->c[starter], c);
			if (m) {
				v->c[starter] = m;
				continue;
			}
		}
		if (k == 0) {
			starter = out;
			last = 0;
		} else {
			last = k;
		}
		v->c[out++] = c;
	}
	v->n = out;
}

/* One span [from, to) that starts and ends at characters which nothing before or behind can change. */
static int normalize_span(const uint8_t *p, size_t from, size_t to, enum uc_form form, struct chars *v,
			  struct sky_buf *out, struct uc_map *map, struct sky_err *err)
{
	const int compat = form == UC_NFKC_FORM || form == UC_NFKD_FORM;
	utf8proc_int32_t d[32];
	unsigned k;
	int rc = 0;

	v->n = 0;
	for (size_t i = from; i < to && rc == 0; i += k) {
		int n = decompose(uc_decode(p + i, &k), compat, d);

		for (int j = 0; j < n && rc == 0; j++) {
			rc = chars_add(v, (uint32_t)d[j], err);
		}
	}
	if (rc == 0) {
		rc = reorder(v, err);
	}
	if (rc == 0 && (form == UC_NFC_FORM || form == UC_NFKC_FORM)) {
		compose_all(v);
	}
	for (size_t i = 0; i < v->n && rc == 0; i++) {
		uint8_t b[4];
		unsigned n = uc_encode(v->c[i], b);

		rc = sky_buf_add(out, b, n, err);
		if (rc == 0) {
			rc = uc_map_add(map, from, n, 0, err);
		}
	}
	return rc;
}

/* Does c begin a span of its own: ASCII always; for NFC every character that is neither combining nor composable? */
static int is_border(uint32_t c, enum uc_form form)
{
	return c < 0x80 || (form == UC_NFC_FORM && !(uc_class(c) & UC_NFC));
}

int uc_normalize(const uint8_t *p, size_t n, enum uc_form form, struct sky_buf *out, struct uc_map *map,
		 struct sky_err *err)
{
	struct chars v = { NULL, 0, 0 };
	size_t i = 0;
	int rc = 0;

	while (i < n && rc == 0) {
		size_t clean = i, last = i, to;
		unsigned k;

		/* text that is normal already, up to and without the border character before the first suspect one */
		while (clean < n) {
			uint32_t c = uc_decode(p + clean, &k);

			if (!is_border(c, form)) {
				break;
			}
			last = clean;
			clean += k;
		}
		if (clean == n) {
			last = n;
		}
		rc = sky_buf_add(out, p + i, last - i, err);
		if (rc == 0) {
			rc = uc_map_add(map, i, last - i, 1, err);
		}
		to = clean;
		while (to < n && !is_border(uc_decode(p + to, &k), form)) {
			to += k;
		}
		if (rc == 0 && last < n) {
			rc = normalize_span(p, last, to, form, &v, out, map, err);
		}
		i = to;
	}
	free(v.c);
	return rc;
}
