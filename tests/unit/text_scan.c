/* scanners: the pieces of the hand scanners, by characters and by masks, equal those of the regular expressions.
 *
 * Texts are random mixtures that favour what patterns distinguish: blanks, newlines, apostrophes before s, t, re …,
 * digits, cases, marks, Han, kana, slashes behind newlines, and lengths around the edges of a 64-byte window. */
#include "../testlib.h"
#include "text/scan.h"

#define MAX_PIECES 4096

static const char *const cl100k = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
				  "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s";
static const char *const deepseek[3] = {
	"\\p{N}{1,3}",
	"[一-龥぀-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
	"?[\\p{P}\\p{S}]+[\r\n]*"
	"|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

static uint64_t n_draw;
static struct tok_match *match;

static uint32_t draw(uint32_t n)
{
	return (uint32_t)sky_rng_below(7, SKY_RNG_TEST, 1, n_draw++, n);
}

/* ---- texts ---- */

/* Any assigned or unassigned character; surrogates are none. */
static uint32_t any_char(void)
{
	uint32_t c = draw(4) ? draw(0x3200) : draw(0x32400);

	return c >= 0xd800 && c < 0xe000 ? 'x' : c;
}

static size_t make_text(uint8_t *p, size_t room)
{
	static const char *const bits[] = {
		" ",
		" ",
		" ",
		"  ",
		"\n",
		"\n",
		"\r\n",
		"\t",
		"   \n",
		"\n\n  ",
		"'s",
		"'S",
		"'t",
		"'re",
		"'Ve",
		"'ll",
		"'D",
		"'m",
		"'",
		"''",
		"\xc5\xbf",
		"'\xc5\xbf",
		"a",
		"b",
		"word",
		"Camel",
		"HTTP",
		"X",
		"é",
		"É",
		"ß",
		"Ω",
		"ж",
		"Ж",
		"ǅ",
		"中",
		"文字",
		"か",
		"カタ",
		"한국",
		"ａ",
		"1",
		"12",
		"123",
		"1234567",
		"٣",
		"Ⅷ",
		"½",
		"。",
		"，",
		"。\n",
		".",
		"...",
		"!\n",
		"{\n/",
		"\n//",
		"/",
		"//\n/*",
		"(",
		"((",
		"_",
		"-",
		"€",
		"\xcc\x81",
		"e\xcc\x81",
		"\xe0\xa4\xbe",
		"\xe2\x80\x8d",
		"\xc2\xa0",
		"\xe3\x80\x80",
		"\xe2\x80\xa8",
		"\xc2\x85",
		"\x01",
		"\x1c",
		"😀",
		"👍🏽",
		"々",
		"〇",
		"⺀",
		"ـ",
		"ʰ",
		"\xf0\xa0\x80\x80",
		"\xef\xbb\xbf",
		"\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1",
		"\xf0\x91\xb7\xa1",
		"龦",
		"゛",
		"\xe3\x82\x99",
	};
	const size_t n = 1 + draw(draw(3) ? 40 : 200);
	const uint32_t ascii = draw(3);
	size_t k = 0;

	while (k < n && k + 32 < room) {
		const char *s = bits[draw(ascii == 0 ? 40 : sizeof(bits) / sizeof(bits[0]))];
		uint32_t times = draw(12) ? 1 : 1 + draw(70);

		if (draw(12) == 0) {
			k += uc_encode(any_char(), p + k);
			continue;
		}
		for (; times && k + 32 < room; times--) {
			memcpy(p + k, s, strlen(s));
			k += strlen(s);
		}
	}
	return k;
}

/* ---- the regular expressions ---- */

/* Isolated split of [from, to) by r: ends of the pieces; number of ends. */
static size_t split(const struct tok_regex *r, const uint8_t *p, size_t from, size_t to, uint32_t *end)
{
	size_t i = from, k = 0, last = SIZE_MAX, at, stop;
	struct sky_err err;

	while (tok_regex_find(r, match, p + from, to - from, i - from, last, &at, &stop, &err) == 1) {
		if (from + at > i) {
			end[k++] = (uint32_t)(from + at);
		}
		if (stop > at) {
			end[k++] = (uint32_t)(from + stop);
		}
		i = from + stop;
		last = stop;
	}
	if (i < to) {
		end[k++] = (uint32_t)to;
	}
	return k;
}

static size_t split_each(const struct tok_regex *r, const uint8_t *p, const uint32_t *in, size_t n, uint32_t *end)
{
	size_t from = 0, k = 0;

	for (size_t i = 0; i < n; from = in[i++]) {
		k += split(r, p, from, in[i], end + k);
	}
	return k;
}

static size_t split_digits(const uint8_t *p, size_t n, uint32_t *end)
{
	size_t k = 0;
	unsigned len;

	for (size_t i = 0; i < n; i += len) {
		if (uc_class(uc_decode(p + i, &len)) & UC_NUM) {
			if (i && (k == 0 || end[k - 1] != i)) {
				end[k++] = (uint32_t)i;
			}
			end[k++] = (uint32_t)(i + len);
		}
	}
	if (n && (k == 0 || end[k - 1] != n)) {
		end[k++] = (uint32_t)n;
	}
	return k;
}

static struct tok_regex *pattern[SCAN_COUNT][3];

static void compile(void)
{
	struct sky_err err;

	for (int kind = SCAN_GPT2; kind < SCAN_COUNT; kind++) {
		int rc = 0;

		if (kind == SCAN_DEEPSEEK) {
			for (int i = 0; i < 3 && rc == 0; i++) {
				rc = tok_regex_new(deepseek[i], TOK_ONIG, &pattern[kind][i], &err);
			}
		} else if (kind == SCAN_CL100K) {
			rc = tok_regex_new(cl100k, TOK_RUST, &pattern[kind][0], &err);
		} else {
			rc = tok_regex_new(scan_pattern(kind == SCAN_DIGITS_GPT2 ? SCAN_GPT2 : (enum tok_scan)kind),
					   TOK_ONIG, &pattern[kind][0], &err);
		}
		T_RC(rc, 0, &err, "pattern %d compiles", kind);
	}
}

static size_t by_regex(enum tok_scan kind, const uint8_t *p, size_t n, uint32_t *end)
{
	static uint32_t a[MAX_PIECES], b[MAX_PIECES];
	size_t k;

	if (kind == SCAN_DEEPSEEK) {
		k = split(pattern[kind][0], p, 0, n, a);
		k = split_each(pattern[kind][1], p, a, k, b);
		return split_each(pattern[kind][2], p, b, k, end);
	}
	if (kind == SCAN_DIGITS_GPT2) {
		return split_each(pattern[kind][0], p, a, split_digits(p, n, a), end);
	}
	return split(pattern[kind][0], p, 0, n, end);
}

/* ---- comparison ---- */

static void show(const uint8_t *p, size_t n, const uint32_t *end, size_t k, const char *who)
{
	char text[3000];
	size_t at = 0, from = 0;

	for (size_t i = 0; i < k && at < sizeof(text) - 300; from = end[i++]) {
		for (size_t j = from; j < end[i] && j < n && at < sizeof(text) - 300; j++) {
			at += (size_t)snprintf(text + at, 8, p[j] > 32 && p[j] < 127 ? "%c" : "\\x%02x", p[j]);
		}
		text[at++] = '|';
	}
	text[at] = 0;
	t_note("%s: %s", who, text);
}

static bool equal(enum tok_scan kind, enum scan_isa isa, const uint8_t *p, size_t n, const uint32_t *want,
		  size_t n_want)
{
	static uint32_t got[MAX_PIECES + SCAN_SLACK];
	const size_t batch = 1 + draw(64);
	size_t pos = 0, k = 0;
	char who[64];

	while (pos < n && k < MAX_PIECES - batch) {
		k += scan_best(kind, isa)(p, n, &pos, got + k, batch);
	}
	if (k == n_want && memcmp(got, want, k * sizeof(*got)) == 0) {
		return true;
	}
	snprintf(who, sizeof(who), "kind %d, set %d, scanner", (int)kind, (int)isa);
	show(p, n, want, n_want, "regular expression");
	show(p, n, got, k, who);
	return false;
}

int main(int argc, char **argv)
{
	static uint32_t want[MAX_PIECES];
	static uint8_t text[4096];
	const int64_t rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 20000;
	int n_bad[SCAN_COUNT] = { 0 };
	struct sky_err err;

	n_draw = argc > 2 ? (uint64_t)strtoll(argv[2], NULL, 10) : 0;
	if (uc_init(&err) < 0 || tok_match_new(&match, &err) < 0) {
		T_OK(false, "%s", err.msg);
		return t_done();
	}
	compile();
	for (int64_t r = 0; r < rounds; r++) {
		size_t n = make_text(text, sizeof(text));
		uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees reads behind the end */

		memcpy(exact, text, n);
		for (int kind = SCAN_GPT2; kind < SCAN_COUNT; kind++) {
			size_t k = by_regex((enum tok_scan)kind, exact, n, want);

			for (int isa = SCAN_SCALAR; isa <= SCAN_AVX512 && n_bad[kind] < 3; isa++) {
				n_bad[kind] += !equal((enum tok_scan)kind, (enum scan_isa)isa, exact, n, want, k);
			}
		}
		free(exact);
	}
	for (int kind = SCAN_GPT2; kind < SCAN_COUNT; kind++) {
		T_I64(n_bad[kind], 0, "pattern %d: %lld random texts", kind, (long long)rounds);
		for (int i = 0; i < 3; i++) {
			tok_regex_free(pattern[kind][i]);
		}
	}
	tok_match_free(match);
	return t_done();
}
