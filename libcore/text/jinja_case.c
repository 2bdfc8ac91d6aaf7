/* jinja: upper, lower and title case of strings (part of text), character by character with its origin. */
#include <utf8proc.h>
#include "text/jinja_int.h"

/* Full mappings of one code point to several, of those that occur in running text. */
static const struct { uint32_t cp; const char *upper, *title; } special[] = {
	{ 0xdf, "SS", "Ss" }, { 0x149, "\xca\xbcN", "\xca\xbcN" }, { 0xfb00, "FF", "Ff" }, { 0xfb01, "FI", "Fi" },
	{ 0xfb02, "FL", "Fl" }, { 0xfb03, "FFI", "Ffi" }, { 0xfb04, "FFL", "Ffl" }, { 0xfb05, "ST", "St" },
	{ 0xfb06, "ST", "St" }, { 0x587, "\xd4\xb5\xd5\x92", "\xd4\xb5\xd6\x82" },
};

static bool cased(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
	       utf8proc_toupper((utf8proc_int32_t)cp) != (utf8proc_int32_t)cp;
}

/* A capital sigma at the end of a word becomes the final small one. */
static bool final_sigma(const struct jstr *s, uint32_t at, uint32_t after)
{
	uint32_t i = 0, cp = 0, prev = 0;

	while (i < at) {
		cp = ju_next(s->p, s->n, &i);
		prev = cp;
	}
	if (!prev || !cased(prev)) {
		return false;
	}
	i = after;
	return i >= s->n || !cased(ju_next(s->p, s->n, &i));
}

static uint32_t map_one(const struct jstr *s, uint32_t at, uint32_t after, uint32_t cp, int how, char out[16])
{
	utf8proc_int32_t c = (utf8proc_int32_t)cp;

	if (how == 'f') {
		utf8proc_int32_t fold[4];
		utf8proc_ssize_t k = utf8proc_decompose_char(c, fold, 4, UTF8PROC_CASEFOLD, NULL);
		uint32_t n = 0;

		for (utf8proc_ssize_t i = 0; i < k && i < 3; i++) {
			n += ju_put(out + n, (uint32_t)fold[i]);
		}
		return n;
	}
	if (how == 'l') {
		if (cp == 0x130) {
			memcpy(out, "i\xcc\x87", 3);
			return 3;
		}
		if (cp == 0x3a3) {
			return ju_put(out, final_sigma(s, at, after) ? 0x3c2 : 0x3c3);
		}
		return ju_put(out, (uint32_t)utf8proc_tolower(c));
	}
	for (unsigned i = 0; cp >= 0xdf && i < sizeof(special) / sizeof(special[0]); i++) {
		if (special[i].cp == cp) {
			const char *t = how == 'u' ? special[i].upper : special[i].title;

			memcpy(out, t, strlen(t));
			return (uint32_t)strlen(t);
		}
	}
	return ju_put(out, (uint32_t)(how == 'u' ? utf8proc_toupper(c) : utf8proc_totitle(c)));
}

struct jv ji_case(struct ji *in, struct jv v, int how)
{
	const struct jstr *s = v.u.s;
	struct jmark m = ji_begin(in);
	bool word = false;
	uint32_t i = 0;

	while (i < s->n && !in->rc) {
		uint32_t at = i, cp = ju_next(s->p, s->n, &i), n;
		int one = how;
		char out[16];

		if (how == 'c') {
			one = at == 0 ? 't' : 'l';
		} else if (how == 't') {
			one = word ? 'l' : 't';
			word = cased(cp);
		} else if (how == 's') {
			one = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp) != cp ? 'l' : 'u';
		}
		if (cp < 0x80) {
			out[0] = (char)(one == 'l' || one == 'f' ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp) :
			                (cp >= 'a' && cp <= 'z' ? cp - 32 : cp));
			n = 1;
		} else {
			n = map_one(s, at, i, cp, one, out);
		}
		ji_put(in, out, n, jstr_org(v, at));
	}
	return ji_end(in, m);
}
