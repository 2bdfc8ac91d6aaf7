/* The known patterns on 64 bytes at a time.
 *
 * A window begins where a piece begins, so nothing before it matters (no pattern looks back). Each class of characters
 * becomes a bit mask with one bit per character: bytes are classified with vector compares, the bits of multi-byte
 * characters are squeezed to one with pext. Boundaries are then a few shifts and additions of masks. Only boundaries
 * that cannot depend on what follows the window are used; the next window begins at the last of them. Where a window
 * decides nothing, scan_char.c finds one piece.
 *
 * Names: m.L letters, N numbers, S white space, R \r and \n, P anything else; X all characters of the window. */
#include "text/scan.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define T_AVX512 "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,popcnt"
#define T_AVX2 "avx2,bmi,bmi2,lzcnt,popcnt"
#define WITH_AVX512 __attribute__((target(T_AVX512)))
#define WITH_AVX2 __attribute__((target(T_AVX2)))
#define WITH_BMI __attribute__((target("bmi,bmi2,lzcnt,popcnt")))

/* Characters that follow an apostrophe and may still decide about a boundary, and one more. */
#define LOOK_AHEAD 4

enum { C_L = 1, C_N = 2, C_S = 4, C_R = 8, C_SP = 16, C_AP = 32, C_U = 64, C_PS = 128 }; /* classes of ASCII */

struct masks {
	uint64_t L, N, S, R, SP, AP, U, PS; /* AP apostrophe, SP U+0020, U upper or title case, PS \p{P} or \p{S} */
	uint64_t M, Xc, G;                  /* marks; Lm and Lo; Han or CJK where the pattern knows it */
	uint64_t slash, ascii_letter, ascii_mark;
	uint64_t X, lead; /* characters; bytes that begin one */
	unsigned n;       /* characters */
	bool ascii, cut;  /* cut: X ends before the bytes do */
};

/* Class byte of every ASCII character, in the order that vpermi2b wants. */
static uint8_t class_of[128];
/* By lead byte & 63, where all characters of a lead byte are letters: 1 Han that DeepSeek's range holds (U+5000–8FFF),
 * 2 other Han (U+9000–9FFF), 4 Hangul (U+B000–CFFF), 8 Cyrillic, with case (U+0400–047F). */
enum { LEAD_CJK = 1, LEAD_HAN = 2, LEAD_HANGUL = 4, LEAD_CASE = 8 };
static uint8_t plain_lead[64];

__attribute__((constructor)) static void fill_tables(void)
{
	for (int c = 0; c < 128; c++) {
		bool upper = c >= 'A' && c <= 'Z', letter = upper || (c >= 'a' && c <= 'z'),
		     digit = c >= '0' && c <= '9';
		bool space = c == ' ' || (c >= 9 && c <= 13);

		class_of[c] = (uint8_t)((letter ? C_L : 0) | (upper ? C_U : 0) | (digit ? C_N : 0) | (space ? C_S : 0) |
					(c == '\n' || c == '\r' ? C_R : 0) | (c == ' ' ? C_SP : 0) |
					(c == '\'' ? C_AP : 0) | (c > 32 && c < 127 && !letter && !digit ? C_PS : 0));
	}
	for (int b = 0xe5; b <= 0xe8; b++) {
		plain_lead[b & 63] = LEAD_CJK;
	}
	plain_lead[0xe9 & 63] = LEAD_HAN;
	plain_lead[0xeb & 63] = plain_lead[0xec & 63] = LEAD_HANGUL;
	plain_lead[0xd0 & 63] = plain_lead[0xd1 & 63] = LEAD_CASE;
}

/* ---- what a family needs ---- */

struct family {
	enum tok_scan kind;
	bool fold;       /* contractions in any case */
	bool case_words; /* o200k */
	bool suffix;     /* contractions end words */
	bool slash;      /* punctuation takes [\r\n/]* */
	bool han, cjk;
	bool whole; /* white space up to the end of the text is one piece */
	bool marks; /* marks are letters */
	bool gpt2, guard;
	int n_digits;
};

/* ---- classification ---- */

/* Classes of the multi-byte characters whose lead bits are in `open`, from the tables. m->X ends before one that only
 * scan_char.c decides. */
INLINE void classify_wide(const struct family f, const uint8_t *p, uint64_t open, struct masks *m)
{
	while (open) {
		unsigned i = (unsigned)__builtin_ctzll(open), len;
		uint32_t cp = uc_decode(p + i, &len);
		unsigned c = uc_class(cp);
		uint64_t bit = open & -open;

		open ^= bit;
		if ((f.case_words && (c & UC_M)) || (f.han && (c & UC_HAN) && (c & (UC_L | UC_X)) != (UC_L | UC_X)) ||
		    (f.guard && (c & UC_NUM) && !(c & UC_N))) {
			m->X &= bit - 1; /* rare kinds: leave them to the scanner by characters */
			m->cut = true;
			return;
		}
		m->L |= c & UC_L ? bit : 0;
		m->N |= c & UC_N ? bit : 0;
		m->S |= c & UC_S ? bit : 0;
		m->M |= c & UC_M ? bit : 0;
		m->U |= c & UC_U ? bit : 0;
		m->Xc |= c & UC_X ? bit : 0;
		m->PS |= c & UC_PS ? bit : 0;
		m->G |= (f.han && (c & UC_HAN)) || (f.cjk && scan_is_cjk(cp)) ? bit : 0;
	}
}

/* Bytes → characters: every mask loses the bits of continuation bytes. */
INLINE WITH_BMI void squeeze(struct masks *m)
{
	const uint64_t lead = m->lead &= m->X;

	m->L = _pext_u64(m->L, lead);
	m->N = _pext_u64(m->N, lead);
	m->S = _pext_u64(m->S, lead);
	m->R = _pext_u64(m->R, lead);
	m->SP = _pext_u64(m->SP, lead);
	m->AP = _pext_u64(m->AP, lead);
	m->U = _pext_u64(m->U, lead);
	m->PS = _pext_u64(m->PS, lead);
	m->M = _pext_u64(m->M, lead);
	m->Xc = _pext_u64(m->Xc, lead);
	m->G = _pext_u64(m->G, lead);
	m->slash = _pext_u64(m->slash, lead);
	m->ascii_letter = _pext_u64(m->ascii_letter, lead);
	m->ascii_mark = _pext_u64(m->ascii_mark, lead);
	m->n = (unsigned)_mm_popcnt_u64(lead);
	m->X = m->n == 64 ? ~0ull : (1ull << m->n) - 1;
}

/* Lead bytes by what is known of their characters. */
struct wide {
	uint64_t all, cjk, han, hangul, cased;
};

/* The part of classification after the vector compares. */
INLINE WITH_BMI void finish_masks(const struct family f, const uint8_t *p, struct wide w, unsigned n_bytes,
				  struct masks *m)
{
	uint64_t open, plain = w.hangul | w.cjk | (f.cjk ? 0 : w.han);

	m->X = n_bytes == 64 ? ~0ull : (1ull << n_bytes) - 1;
	m->ascii = w.all == 0;
	m->cut = false;
	if (m->ascii) {
		m->n = n_bytes;
		return;
	}
	open = w.all & m->X;
	if (open) { /* a last character that the window cuts is left out */
		unsigned last = 63 - (unsigned)_lzcnt_u64(open);

		if (last + uc_length(p[last]) > n_bytes) {
			m->X &= (1ull << last) - 1;
			m->cut = true;
		}
	}
	m->G |= f.cjk ? w.cjk : f.han ? w.cjk | w.han : 0;
	m->Xc |= plain;
	plain |= f.case_words ? 0 : w.cased;
	m->L |= plain;
	classify_wide(f, p, open & m->X & ~plain, m);
	squeeze(m);
}

INLINE WITH_AVX512 void classify_avx512(const struct family f, const uint8_t *p, unsigned n_bytes, struct masks *m)
{
	const __m512i v = _mm512_loadu_si512(p);
	const __mmask64 high = _mm512_movepi8_mask(v);
	const __m512i c = _mm512_maskz_permutex2var_epi8(~high, _mm512_loadu_si512(class_of), v,
							 _mm512_loadu_si512(class_of + 64));
	struct wide w = { 0, 0, 0, 0, 0 };

	m->L = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_L));
	m->N = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_N));
	m->S = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_S));
	m->R = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_R));
	m->SP = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_SP));
	m->AP = _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_AP));
	m->U = f.case_words ? _mm512_test_epi8_mask(c, _mm512_set1_epi8(C_U)) : 0;
	m->PS = f.cjk ? _mm512_test_epi8_mask(c, _mm512_set1_epi8((char)C_PS)) : 0;
	m->slash = f.slash ? _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('/')) : 0;
	m->ascii_letter = f.cjk ? m->L : 0;
	m->ascii_mark = m->PS;
	m->M = m->Xc = m->G = 0;
	m->lead = ~0ull;
	if (high) {
		const __m512i kind = _mm512_permutexvar_epi8(v, _mm512_loadu_si512(plain_lead));

		w.all = high & _mm512_test_epi8_mask(v, _mm512_set1_epi8(0x40));
		m->lead = ~(high & ~w.all);
		w.cjk = w.all & _mm512_test_epi8_mask(kind, _mm512_set1_epi8(LEAD_CJK));
		w.han = w.all & _mm512_test_epi8_mask(kind, _mm512_set1_epi8(LEAD_HAN));
		w.hangul = w.all & _mm512_test_epi8_mask(kind, _mm512_set1_epi8(LEAD_HANGUL));
		w.cased = w.all & _mm512_test_epi8_mask(kind, _mm512_set1_epi8(LEAD_CASE));
	}
	finish_masks(f, p, w, n_bytes, m);
}

/* One bit for each of 64 bytes that lies in [lo, lo + span]. */
INLINE WITH_AVX2 uint64_t in_range(const __m256i v[2], int lo, int span)
{
	uint64_t r = 0;

	for (int i = 0; i < 2; i++) {
		__m256i d = _mm256_sub_epi8(v[i], _mm256_set1_epi8((char)lo));
		__m256i in = _mm256_cmpeq_epi8(_mm256_min_epu8(d, _mm256_set1_epi8((char)span)), d);

		r |= (uint64_t)(uint32_t)_mm256_movemask_epi8(in) << (32 * i);
	}
	return r;
}

INLINE WITH_AVX2 void classify_avx2(const struct family f, const uint8_t *p, unsigned n_bytes, struct masks *m)
{
	const __m256i v[2] = { _mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32)) };
	const uint64_t upper = in_range(v, 'A', 25), high = in_range(v, 0x80, 0x7f);
	struct wide w = { 0, 0, 0, 0, 0 };

	m->L = upper | in_range(v, 'a', 25);
	m->N = in_range(v, '0', 9);
	m->SP = in_range(v, ' ', 0);
	m->S = m->SP | in_range(v, 9, 4);
	m->R = in_range(v, '\n', 0) | in_range(v, '\r', 0);
	m->AP = in_range(v, '\'', 0);
	m->U = f.case_words ? upper : 0;
	m->PS = f.cjk ? in_range(v, 33, 126 - 33) & ~(m->L | m->N) : 0;
	m->slash = f.slash ? in_range(v, '/', 0) : 0;
	m->ascii_letter = f.cjk ? m->L : 0;
	m->ascii_mark = m->PS;
	m->M = m->Xc = m->G = 0;
	m->lead = ~0ull;
	if (high) {
		w.all = in_range(v, 0xc0, 0x3f);
		m->lead = ~(high & ~w.all);
		w.cjk = in_range(v, 0xe5, 3);
		w.han = in_range(v, 0xe9, 0);
		w.hangul = in_range(v, 0xeb, 1);
		w.cased = in_range(v, 0xd0, 1);
	}
	finish_masks(f, p, w, n_bytes, m);
}

/* ---- boundaries ---- */

/* First and every third character of each run of numbers. */
INLINE uint64_t thirds(uint64_t N)
{
	const uint64_t three = N & N << 1 & N << 2;
	uint64_t b = N & ~(N << 1), all = b;

	while ((b = b << 3 & three & N << 3)) {
		all |= b;
	}
	return all;
}

/* White space: starts of its pieces. P: punctuation that takes newlines behind it; next: characters before which a last
 * blank splits off. */
INLINE WITH_BMI uint64_t space_starts(const struct masks *m, uint64_t absorbed, uint64_t landed, uint64_t next)
{
	const uint64_t T = m->S & ~m->R; /* blanks */
	const uint64_t after_newline = T & m->R << 1;
	const uint64_t land = (T + after_newline) & ~T; /* what follows the blanks behind a newline */
	uint64_t B = m->S & ~(m->S << 1) & ~absorbed;

	B |= landed & m->S;
	B |= T & next >> 1;                                    /* \s+(?!\S) leaves the last blank */
	B |= _pdep_u64(_pext_u64(~m->S, land), after_newline); /* behind the last newline of a run */
	return B;
}

/* The bit of character i as a place in the text. */
INLINE WITH_BMI unsigned byte_of(const struct masks *m, unsigned i)
{
	return m->ascii ? i : (unsigned)__builtin_ctzll(_pdep_u64(1ull << i, m->lead));
}

/* Contractions at the start of a piece: the piece ends behind them. */
INLINE WITH_BMI uint64_t contractions(const struct family f, const uint8_t *p, size_t n, const struct masks *m,
				      uint64_t L, uint64_t B)
{
	uint64_t open = m->AP & (B | 1);

	while (open) {
		const unsigned i = (unsigned)__builtin_ctzll(open), at = byte_of(m, i);
		size_t k = scan_contraction(p, at, n, f.fold);

		open &= open - 1;
		if (!k) {
			continue;
		}
		k = k == 3 && p[at + 1] == 0xc5 ? 2 : k; /* in characters */
		if (f.gpt2) {
			B &= ~(2ull << i);
		}
		if (i + k < 64) {
			B |= (1ull << (i + k)) & L;
		}
	}
	return B;
}

/* Contractions behind a word belong to it (o200k). A letter run right behind one starts a new word. */
INLINE WITH_BMI uint64_t word_suffixes(const uint8_t *p, size_t n, const struct masks *m, uint64_t L, uint64_t B)
{
	uint64_t open = m->AP & L << 1;
	unsigned done = 0;

	while (open) {
		const unsigned i = (unsigned)__builtin_ctzll(open), at = byte_of(m, i);
		size_t k = scan_contraction(p, at, n, true);

		open &= open - 1;
		if (!k || (done && i == done)) {
			continue;
		}
		k = k == 3 && p[at + 1] == 0xc5 ? 2 : k;
		B &= ~(((1ull << k) - 1) << i);
		if (i + k < 64) {
			B |= (1ull << (i + k)) & L;
		}
		done = (unsigned)(i + k);
	}
	return B;
}

INLINE WITH_BMI uint64_t starts_cl100k(const struct family f, const uint8_t *p, size_t n, const struct masks *m)
{
	const uint64_t L = f.marks ? m->L | m->M : m->L, T = m->S & ~m->R;
	const uint64_t P = m->X & ~(L | m->N | m->S);
	const uint64_t start = P & ~(P << 1) & ~(m->SP << 1); /* punctuation that begins a piece */
	const uint64_t absorbed = m->R & P << 1;
	const uint64_t landed = (m->R + absorbed) & ~m->R;
	uint64_t B = start;

	B |= L & ~(L << 1) & ~(T << 1) & ~(start << 1); /* words, without a character in front */
	B |= f.n_digits == 1 ? m->N : thirds(m->N);
	B |= space_starts(m, absorbed, landed, m->X & ~m->S);
	return m->AP ? contractions(f, p, n, m, L, B) : B;
}

INLINE WITH_BMI uint64_t starts_gpt2(const struct family f, const uint8_t *p, size_t n, const struct masks *m)
{
	const uint64_t P = m->X & ~(m->L | m->N | m->S), no_space = ~(m->SP << 1);
	uint64_t B = m->L & ~(m->L << 1) & no_space;

	B |= P & ~(P << 1) & no_space;
	B |= f.guard ? m->N : m->N & ~(m->N << 1) & no_space;
	B |= m->S & ~(m->S << 1);
	B |= m->S & (m->X & ~(f.guard ? m->S | m->N : m->S)) >> 1;
	return m->AP ? contractions(f, p, n, m, m->L, B) : B;
}

/* The bits of the runs in `of` from the bits `first` (each the only one of its run) up to their ends. */
INLINE uint64_t run_from(uint64_t of, uint64_t first)
{
	return (of ^ (of + first)) & of;
}

/* [\r\n/]* behind punctuation that it does not itself hold: fills upwards, as a run may hold several beginnings. */
INLINE uint64_t newlines_and_slashes(const struct masks *m, uint64_t P)
{
	uint64_t a = m->R & P << 1, through = m->R | m->slash;

	for (int step = 1; step < 64; step *= 2) {
		a |= through & a << step;
		through &= through << step;
	}
	return a;
}

INLINE WITH_BMI uint64_t starts_o200k(const struct family f, const uint8_t *p, size_t n, const struct masks *m)
{
	const uint64_t L = m->L & ~m->G, T = m->S & ~m->R;
	const uint64_t P = m->X & ~(m->L | m->N | m->S);
	const uint64_t absorbed =
		f.slash && (m->slash & m->R << 1) ? newlines_and_slashes(m, P) : run_from(m->R, m->R & P << 1);
	const uint64_t landed = absorbed << 1 & ~absorbed & m->X;
	const uint64_t P2 = P & ~absorbed;
	const uint64_t start = P2 & ~(P2 << 1) & ~(m->SP << 1);
	uint64_t B = start | landed;

	B |= m->G & ~(m->G << 1);
	B |= L & ~(L << 1) & ~(T << 1) & ~(start << 1);
	B |= m->U & (L & ~m->U) << 1;
	B |= f.n_digits == 1 ? m->N : thirds(m->N);
	B |= space_starts(m, absorbed, landed, m->X & ~m->S);
	return f.suffix && m->AP ? word_suffixes(p, n, m, L, B) : B;
}

/* Nothing reaches across a digit or a change between CJK and the rest. */
INLINE WITH_BMI uint64_t starts_deepseek(const struct masks *m)
{
	const uint64_t change = m->G ^ m->G << 1, W = (m->L | m->M) & ~m->N, PS = m->PS, T = m->S & ~m->R;
	const uint64_t other = m->X & ~(m->N | W | PS | m->S);
	const uint64_t start = PS & (change | (~(PS << 1) & ~(m->SP << 1)));
	const uint64_t joined = (start & m->ascii_mark) << 1 & m->ascii_letter; /* an ASCII mark and letters */
	const uint64_t letters_end = (m->ascii_letter + joined) & ~m->ascii_letter;
	const uint64_t absorbed = m->R & PS << 1 & ~change;
	const uint64_t landed = (m->R + absorbed) & ~m->R;
	uint64_t B = start | thirds(m->N) | (change & m->X & ~m->N);

	B |= W & ~(W << 1) & ~(T << 1) & ~(other << 1) & ~joined;
	B |= letters_end & W;
	B |= other & (~(other << 1) | (W & ~change) >> 1);
	B |= space_starts(m, absorbed, landed, m->X & ~(m->S | m->N | m->G));
	return B;
}

INLINE WITH_BMI uint64_t starts(const struct family f, const uint8_t *p, size_t n, const struct masks *m)
{
	if (f.gpt2) {
		return starts_gpt2(f, p, n, m);
	}
	if (f.case_words) {
		return starts_o200k(f, p, n, m);
	}
	return f.cjk ? starts_deepseek(m) : starts_cl100k(f, p, n, m);
}

/* Characters from which on boundaries may depend on what follows the window. */
INLINE WITH_BMI unsigned certain(const struct masks *m)
{
	const uint64_t solid = m->X & ~m->S;
	const unsigned blank_from = solid ? 64 - (unsigned)_lzcnt_u64(solid) : 0;
	const unsigned limit = m->n > LOOK_AHEAD ? m->n - LOOK_AHEAD : 0;

	return limit < blank_from ? limit : blank_from;
}

/* Upper-case letters beside letters without case: which of them a word keeps depends on what ends it. */
INLINE bool mixed_case(const struct family f, const struct masks *m)
{
	return f.case_words && m->U && (m->Xc & ~m->G);
}

/* White space at the very end of the text is one piece (cl100k). */
INLINE WITH_BMI uint64_t keep_tail_whole(const struct masks *m, uint64_t B)
{
	const uint64_t P = m->X & ~(m->L | m->N | m->S), absorbed = m->R & P << 1, landed = (m->R + absorbed) & ~m->R;
	const uint64_t solid = m->X & ~m->S;
	const unsigned from = solid ? 64 - (unsigned)_lzcnt_u64(solid) : 0;
	const uint64_t tail = from < 64 ? ~0ull << from : 0;
	const uint64_t first = landed & tail ? landed & tail & -(landed & tail) : from < 64 ? 1ull << from : 0;

	return (B & ~tail) | (B & first);
}

/* Boundaries as byte bits; bit 0 is never set. at_end: the window reaches the end of the text. */
INLINE WITH_BMI uint64_t window(const struct family f, const uint8_t *p, size_t n, struct masks *m, bool at_end)
{
	uint64_t B;
	unsigned z;

	if (mixed_case(f, m)) {
		return 0;
	}
	B = starts(f, p, n, m) & m->X & ~1ull;
	if (at_end) {
		B = f.whole ? keep_tail_whole(m, B) : B;
	} else {
		z = certain(m);
		B &= (2ull << z) - 1;
	}
	return m->ascii ? B : _pdep_u64(B, m->lead);
}

/* ---- the loops ---- */

INLINE size_t one_by_characters(const struct family f, const uint8_t *p, size_t n, size_t *i, uint32_t *end, size_t k)
{
	*i = scan_piece(f.kind, p, *i, n);
	end[k] = (uint32_t)*i;
	return k + 1;
}

/* Positions of the bits of B, plus base. */
INLINE WITH_AVX512 size_t extract_avx512(uint64_t B, size_t base, uint32_t *end)
{
	const __m512i iota =
		_mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42,
				41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20,
				19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	const __m512i at = _mm512_maskz_compress_epi8(B, iota), from = _mm512_set1_epi32((int)base);
	const size_t n = (size_t)_mm_popcnt_u64(B);

	_mm512_storeu_si512(end, _mm512_add_epi32(from, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(at))));
	_mm512_storeu_si512(end + 16, _mm512_add_epi32(from, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(at, 1))));
	if (n > 32) {
		_mm512_storeu_si512(end + 32,
				    _mm512_add_epi32(from, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(at, 2))));
		_mm512_storeu_si512(end + 48,
				    _mm512_add_epi32(from, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(at, 3))));
	}
	return n;
}

INLINE WITH_AVX2 size_t extract_avx2(uint64_t B, size_t base, uint32_t *end)
{
	size_t n = (size_t)_mm_popcnt_u64(B);

	for (size_t k = 0; B; B &= B - 1) {
		end[k++] = (uint32_t)(base + (unsigned)__builtin_ctzll(B));
	}
	return n;
}

#define LOOP(isa, family) \
	size_t i = *pos, k = 0; \
	while (i < n && k < max) { \
		const size_t room = n - i; \
		struct masks m; \
		uint64_t B; \
		if (room >= 64) { \
			classify_##isa(family, p + i, 64, &m); \
			B = window(family, p + i, room, &m, false); \
		} else { \
			uint8_t tail[64] = { 0 }; \
			memcpy(tail, p + i, room); \
			classify_##isa(family, tail, (unsigned)room, &m); \
			B = window(family, tail, room, &m, !m.cut); \
		} \
		if (!B) { \
			k = one_by_characters(family, p, n, &i, end, k); \
			continue; \
		} \
		k += extract_##isa(B, i, end + k); \
		i = end[k - 1]; \
	} \
	*pos = i; \
	return k;

#define PARAMETERS const uint8_t *p, size_t n, size_t *pos, uint32_t *end, size_t max
#define SCANNERS(name, ...) \
	static WITH_AVX512 size_t name##_avx512(PARAMETERS) \
	{ \
		const struct family f = { __VA_ARGS__ }; \
		LOOP(avx512, f) \
	} \
	static WITH_AVX2 size_t name##_avx2(PARAMETERS) \
	{ \
		const struct family f = { __VA_ARGS__ }; \
		LOOP(avx2, f) \
	}

SCANNERS(gpt2, .kind = SCAN_GPT2, .gpt2 = true)
SCANNERS(digits_gpt2, .kind = SCAN_DIGITS_GPT2, .gpt2 = true, .guard = true)
SCANNERS(cl100k, .kind = SCAN_CL100K, .fold = true, .n_digits = 3, .whole = true)
SCANNERS(llama3, .kind = SCAN_LLAMA3, .fold = true, .n_digits = 3)
SCANNERS(qwen2, .kind = SCAN_QWEN2, .fold = true, .n_digits = 1)
SCANNERS(qwen35, .kind = SCAN_QWEN35, .fold = true, .n_digits = 1, .marks = true)
SCANNERS(o200k, .kind = SCAN_O200K, .case_words = true, .suffix = true, .slash = true, .n_digits = 3)
SCANNERS(tekken, .kind = SCAN_TEKKEN, .case_words = true, .slash = true, .n_digits = 1)
SCANNERS(kimi, .kind = SCAN_KIMI, .case_words = true, .suffix = true, .han = true, .n_digits = 3)
SCANNERS(deepseek, .kind = SCAN_DEEPSEEK, .cjk = true, .n_digits = 3)

scan_fn *scan_masked(enum tok_scan kind, enum scan_isa isa)
{
	static scan_fn *const table[SCAN_COUNT][2] = {
		[SCAN_GPT2] = { gpt2_avx2, gpt2_avx512 },
		[SCAN_DIGITS_GPT2] = { digits_gpt2_avx2, digits_gpt2_avx512 },
		[SCAN_CL100K] = { cl100k_avx2, cl100k_avx512 },
		[SCAN_LLAMA3] = { llama3_avx2, llama3_avx512 },
		[SCAN_QWEN2] = { qwen2_avx2, qwen2_avx512 },
		[SCAN_QWEN35] = { qwen35_avx2, qwen35_avx512 },
		[SCAN_O200K] = { o200k_avx2, o200k_avx512 },
		[SCAN_TEKKEN] = { tekken_avx2, tekken_avx512 },
		[SCAN_KIMI] = { kimi_avx2, kimi_avx512 },
		[SCAN_DEEPSEEK] = { deepseek_avx2, deepseek_avx512 },
	};

	return table[kind][isa == SCAN_AVX512];
}
