/* The known patterns, one character at a time. Each function returns the end of the piece that starts at i; the order
 * of its tests is the order of the alternatives in the regular expression. */
#include "text/scan.h"

#include <string.h>

struct text {
	const uint8_t *p;
	size_t n;
};
struct ch {
	unsigned c, len;
}; /* class bits; at the end of the text: 0, 0 */

static inline struct ch at(struct text t, size_t i)
{
	struct ch r = { 0, 0 };

	if (i >= t.n) {
		return r;
	}
	if (t.p[i] < 0x80) {
		r.c = uc_class(t.p[i]);
		r.len = 1;
	} else {
		r.c = uc_class(uc_decode(t.p + i, &r.len));
	}
	return r;
}

static inline bool is_newline(struct text t, size_t i)
{
	return i < t.n && (t.p[i] == '\n' || t.p[i] == '\r');
}

/* Characters with a bit of mask from i on. */
static inline size_t run(struct text t, size_t i, unsigned mask)
{
	struct ch k;

	while ((k = at(t, i)).c & mask) {
		i += k.len;
	}
	return i;
}

/* Characters without any bit of mask from i on. */
static inline size_t run_not(struct text t, size_t i, unsigned mask)
{
	struct ch k;

	while ((k = at(t, i)).len && !(k.c & mask)) {
		i += k.len;
	}
	return i;
}

static inline size_t run_newlines(struct text t, size_t i, bool slash)
{
	while (is_newline(t, i) || (slash && i < t.n && t.p[i] == '/')) {
		i++;
	}
	return i;
}

static inline size_t digits(struct text t, size_t i, int max)
{
	struct ch k;

	while (max-- > 0 && ((k = at(t, i)).c & UC_N)) {
		i += k.len;
	}
	return i;
}

/* \s*[\r\n]+ | \s+(?!\S) | \s+ where white space starts at i. newlines: the first alternative is there. whole: white
 * space that reaches the end of the text stays together, newlines or not. */
static inline size_t space(struct text t, size_t i, bool newlines, bool whole)
{
	size_t last = i, after_newline = 0, k = i;
	struct ch c;

	while ((c = at(t, k)).c & UC_S) {
		last = k;
		k += c.len;
		after_newline = is_newline(t, last) ? k : after_newline;
	}
	if (k == t.n && whole) {
		return k;
	}
	if (newlines && after_newline) {
		return after_newline;
	}
	return k == t.n || last == i ? k : last;
}

/* ?[^\s\p{L}\p{N}]+[\r\n]* with `other` the complement; 0: does not match */
static inline size_t punctuation(struct text t, size_t i, unsigned other, bool newlines, bool slash)
{
	size_t j = i + (t.p[i] == ' '), k = run_not(t, j, other);

	return k == j ? 0 : newlines ? run_newlines(t, k, slash) : k;
}

/* guard: characters that stand alone and are like the end of the text for what lies between them (SmolLM's digits). */
static inline size_t piece_gpt2(struct text t, size_t i, unsigned guard)
{
	size_t j = i + (t.p[i] == ' '), k = t.p[i] == '\'' ? scan_contraction(t.p, i, t.n, false) : 0;
	struct ch c = at(t, i);

	if (c.c & guard) {
		return i + c.len;
	}
	if (k) {
		return i + k;
	}
	c = at(t, j);
	if ((c.c & (UC_L | UC_N)) && !(c.c & guard)) {
		return run(t, j, c.c & (UC_L | UC_N));
	}
	k = punctuation(t, i, UC_S | UC_L | UC_N | guard, false, false);
	if (k) {
		return k;
	}
	k = run(t, i, UC_S);
	t.n = at(t, k).c & guard ? k : t.n;
	return space(t, i, false, false);
}

static inline size_t piece_cl100k(struct text t, size_t i, unsigned letter, int n_digits, bool whole)
{
	struct ch c = at(t, i);
	size_t k = t.p[i] == '\'' ? scan_contraction(t.p, i, t.n, true) : 0;

	if (k) {
		return i + k;
	}
	if (c.c & letter) {
		return run(t, i, letter);
	}
	if (c.c & UC_N) {
		return digits(t, i, n_digits);
	}
	if (!is_newline(t, i) && (at(t, i + c.len).c & letter)) {
		return run(t, i + c.len, letter);
	}
	k = punctuation(t, i, UC_S | UC_N | letter, true, false);
	return k ? k : space(t, i, true, whole);
}

/* ---- o200k: words by case ---- */

struct case_rules {
	unsigned not_word;
	bool contraction, slash;
	int n_digits;
};

static inline bool in_upper(unsigned c, unsigned not_word)
{
	return (c & (UC_U | UC_X | UC_M)) && !(c & not_word);
}

static inline bool in_lower(unsigned c, unsigned not_word)
{
	return (c & (UC_L | UC_M)) && !(c & UC_U) && !(c & not_word);
}

/* [upper]*[lower]+ from i: end or 0. A character in both sets is given back when nothing lower follows. */
static inline size_t word_lower(struct text t, size_t i, unsigned not_word)
{
	size_t k = i, both = 0, end;
	struct ch c;

	while (in_upper((c = at(t, k)).c, not_word)) {
		k += c.len;
		both = c.c & UC_U ? both : k;
	}
	for (end = k; in_lower((c = at(t, end)).c, not_word); end += c.len) {
	}
	return end > k ? end : both;
}

/* [upper]+[lower]* */
static inline size_t word_upper(struct text t, size_t i, unsigned not_word)
{
	size_t k = i;
	struct ch c;

	while (in_upper((c = at(t, k)).c, not_word)) {
		k += c.len;
	}
	if (k == i) {
		return 0;
	}
	while (in_lower((c = at(t, k)).c, not_word)) {
		k += c.len;
	}
	return k;
}

static inline size_t word(struct text t, size_t i, struct case_rules r)
{
	struct ch c = at(t, i);
	bool prefix = !is_newline(t, i) && !(c.c & (UC_L | UC_N));
	size_t k = prefix ? word_lower(t, i + c.len, r.not_word) : 0;

	k = k ? k : word_lower(t, i, r.not_word);
	k = k ? k : prefix ? word_upper(t, i + c.len, r.not_word) : 0;
	k = k ? k : word_upper(t, i, r.not_word);
	if (k && r.contraction && k < t.n && t.p[k] == '\'') {
		k += scan_contraction(t.p, k, t.n, true);
	}
	return k;
}

static inline size_t piece_o200k(struct text t, size_t i, struct case_rules r)
{
	size_t k;

	if (r.not_word && (at(t, i).c & UC_HAN)) {
		return run(t, i, UC_HAN);
	}
	k = word(t, i, r);
	if (k) {
		return k;
	}
	if (at(t, i).c & UC_N) {
		return digits(t, i, r.n_digits);
	}
	k = punctuation(t, i, UC_S | UC_L | UC_N, true, r.slash);
	return k ? k : space(t, i, true, false);
}

/* ---- DeepSeek: digits are cut out, then runs of CJK; the third pattern works inside what that leaves ---- */

struct part {
	struct text t;
	bool cjk;
}; /* up to the next digit or the next change between CJK and the rest */

static inline bool is_cjk_at(struct text t, size_t i)
{
	unsigned len;

	return i < t.n && t.p[i] >= 0xe3 && t.p[i] <= 0xe9 && scan_is_cjk(uc_decode(t.p + i, &len));
}

/* As at(), but the end of the part is the end of the text. */
static inline struct ch inside(struct part s, size_t i)
{
	struct ch c = at(s.t, i), none = { 0, 0 };

	return (c.c & UC_N) || is_cjk_at(s.t, i) != s.cjk ? none : c;
}

static inline bool is_ascii_letter(uint8_t c)
{
	return (uint8_t)((c | 0x20) - 'a') < 26;
}

static inline size_t run_inside(struct part s, size_t i, unsigned mask)
{
	struct ch k;

	while ((k = inside(s, i)).c & mask) {
		i += k.len;
	}
	return i;
}

/* White space that reaches the end of the part stays together as at the end of a text. */
static inline size_t space_inside(struct part s, size_t i)
{
	size_t end = run(s.t, i, UC_S);
	struct text whole = { s.t.p, inside(s, end).len == 0 ? end : s.t.n };

	return space(whole, i, true, false);
}

/* End of the match of the third pattern at i, 0 when none of its alternatives matches. */
static inline size_t match_deepseek(struct part s, size_t i)
{
	const struct text t = s.t;
	struct ch c = at(t, i);
	size_t j, k;

	if (c.len == 1 && (c.c & UC_PS) && i + 1 < t.n && is_ascii_letter(t.p[i + 1])) {
		for (k = i + 1; k < t.n && is_ascii_letter(t.p[k]); k++) {
		}
		return k;
	}
	if (!is_newline(t, i) && !(c.c & (UC_L | UC_PS)) && (inside(s, i + c.len).c & (UC_L | UC_M))) {
		return run_inside(s, i + c.len, UC_L | UC_M);
	}
	if (c.c & (UC_L | UC_M)) {
		return run_inside(s, i, UC_L | UC_M);
	}
	j = i + (t.p[i] == ' ');
	k = run_inside(s, j, UC_PS);
	if (k > j) {
		return inside(s, k).len ? run_newlines(t, k, false) : k;
	}
	return c.c & UC_S ? space_inside(s, i) : 0;
}

static inline size_t piece_deepseek(struct text t, size_t i)
{
	const struct part s = { t, is_cjk_at(t, i) };
	struct ch c = at(t, i);
	size_t k;

	if (c.c & UC_N) {
		return digits(t, i, 3);
	}
	k = match_deepseek(s, i);
	if (k) {
		return k;
	}
	for (k = i + c.len; inside(s, k).len && !match_deepseek(s, k); k += inside(s, k).len) {
	}
	return k; /* what no alternative matches stays together */
}

/* ---- dispatch ---- */

static inline size_t piece(enum tok_scan kind, const uint8_t *p, size_t i, size_t n)
{
	const struct text t = { p, n };

	switch (kind) {
	case SCAN_GPT2:
		return piece_gpt2(t, i, 0);
	case SCAN_DIGITS_GPT2:
		return piece_gpt2(t, i, UC_NUM);
	case SCAN_CL100K:
		return piece_cl100k(t, i, UC_L, 3, true);
	case SCAN_LLAMA3:
		return piece_cl100k(t, i, UC_L, 3, false);
	case SCAN_QWEN2:
		return piece_cl100k(t, i, UC_L, 1, false);
	case SCAN_QWEN35:
		return piece_cl100k(t, i, UC_L | UC_M, 1, false);
	case SCAN_O200K:
		return piece_o200k(t, i, (struct case_rules){ 0, true, true, 3 });
	case SCAN_TEKKEN:
		return piece_o200k(t, i, (struct case_rules){ 0, false, true, 1 });
	case SCAN_KIMI:
		return piece_o200k(t, i, (struct case_rules){ UC_HAN, true, false, 3 });
	case SCAN_DEEPSEEK:
		return piece_deepseek(t, i);
	default:
		return n;
	}
}

size_t scan_piece(enum tok_scan kind, const uint8_t *p, size_t i, size_t n)
{
	return piece(kind, p, i, n);
}

#define SCALAR(kind) \
	static size_t scalar_##kind(const uint8_t *p, size_t n, size_t *pos, uint32_t *end, size_t max) \
	{ \
		size_t i = *pos, k = 0; \
		while (i < n && k < max) { \
			i = piece(kind, p, i, n); \
			end[k++] = (uint32_t)i; \
		} \
		*pos = i; \
		return k; \
	}
SCALAR(SCAN_GPT2)
SCALAR(SCAN_DIGITS_GPT2)
SCALAR(SCAN_CL100K)
SCALAR(SCAN_LLAMA3)
SCALAR(SCAN_QWEN2)
SCALAR(SCAN_QWEN35)
SCALAR(SCAN_O200K)
SCALAR(SCAN_TEKKEN)
SCALAR(SCAN_KIMI)
SCALAR(SCAN_DEEPSEEK)

scan_fn *scan_best(enum tok_scan kind, enum scan_isa isa)
{
	static scan_fn *const scalar[SCAN_COUNT] = {
		[SCAN_GPT2] = scalar_SCAN_GPT2,     [SCAN_DIGITS_GPT2] = scalar_SCAN_DIGITS_GPT2,
		[SCAN_CL100K] = scalar_SCAN_CL100K, [SCAN_LLAMA3] = scalar_SCAN_LLAMA3,
		[SCAN_QWEN2] = scalar_SCAN_QWEN2,   [SCAN_QWEN35] = scalar_SCAN_QWEN35,
		[SCAN_O200K] = scalar_SCAN_O200K,   [SCAN_TEKKEN] = scalar_SCAN_TEKKEN,
		[SCAN_KIMI] = scalar_SCAN_KIMI,     [SCAN_DEEPSEEK] = scalar_SCAN_DEEPSEEK,
	};
	scan_fn *f = NULL;

	__builtin_cpu_init();
	if (isa >= SCAN_AVX512 && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vbmi") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("bmi2")) {
		f = scan_masked(kind, SCAN_AVX512);
	}
	if (!f && isa >= SCAN_AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
		f = scan_masked(kind, SCAN_AVX2);
	}
	return f ? f : scalar[kind];
}

/* ---- which pattern is it? ---- */

#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"

static const struct {
	enum tok_scan kind;
	const char *pattern;
} known[] = {
	{ SCAN_LLAMA3, SHORT "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL },
	{ SCAN_QWEN2, SHORT "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL },
	{ SCAN_QWEN35, SHORT "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL },
	{ SCAN_O200K, LEAD UPPER "*" LOWER "+" SHORT "?|" LEAD UPPER "+" LOWER "*" SHORT
				 "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL },
	{ SCAN_TEKKEN, LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL },
	{ SCAN_KIMI, "[\\p{Han}]+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" SHORT "?|" LEAD KIMI_UPPER "+" KIMI_LOWER
		     "*" SHORT "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL },
	{ SCAN_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+" },
};
static const char *const deepseek[3] = {
	"\\p{N}{1,3}",
	"[一-龥぀-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
	"?[\\p{P}\\p{S}]+[\r\n]*"
	"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

#define N_KNOWN (sizeof(known) / sizeof(known[0]))

const char *scan_pattern(enum tok_scan kind)
{
	for (size_t i = 0; i < N_KNOWN; i++) {
		if (known[i].kind == kind) {
			return known[i].pattern;
		}
	}
	return NULL;
}

/* A split that keeps every piece: Isolated, or the matches themselves where the pattern leaves no gap. */
static bool keeps_all(const struct tok_pre *s)
{
	return s->kind == PRE_SPLIT && s->source &&
	       ((s->behavior == SPLIT_ISOLATED && !s->invert) || (s->behavior == SPLIT_REMOVED && s->invert));
}

enum tok_scan scan_recognize(const struct tok_pre *pre, size_t n)
{
	const struct tok_pre *last = n ? &pre[n - 1] : NULL;

	if (!last || last->kind != PRE_BYTE_LEVEL || last->prefix_space) {
		return SCAN_NONE;
	}
	if (last->use_regex) {
		bool single_digits = n == 2 && pre[0].kind == PRE_DIGITS && pre[0].individual;

		return n == 1 ? SCAN_GPT2 : single_digits ? SCAN_DIGITS_GPT2 : SCAN_NONE;
	}
	if (n == 2 && keeps_all(&pre[0])) {
		for (size_t i = 0; i < N_KNOWN; i++) {
			if (strcmp(pre[0].source, known[i].pattern) == 0) {
				return known[i].kind;
			}
		}
	}
	if (n == 4) {
		int same = 0;

		for (int i = 0; i < 3; i++) {
			same += pre[i].kind == PRE_SPLIT && pre[i].behavior == SPLIT_ISOLATED && !pre[i].invert &&
				pre[i].source && strcmp(pre[i].source, deepseek[i]) == 0;
		}
		return same == 3 ? SCAN_DEEPSEEK : SCAN_NONE;
	}
	return SCAN_NONE;
}
