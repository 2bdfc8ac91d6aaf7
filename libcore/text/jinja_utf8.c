/* jinja: UTF-8 as Python sees strings, by code points (part of text). Input is valid UTF-8; damaged bytes, which only a
 * fuzzer brings here, count as one code point each. */
#include "text/jinja_int.h"

uint32_t ju_next(const char *p, uint32_t n, uint32_t *i_p)
{
	const uint8_t *s = (const uint8_t *)p;
	uint32_t i = *i_p, c = s[i], more, cp;

	if (c < 0x80) {
		*i_p = i + 1;
		return c;
	}
	more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
	if (more == 0 || i + more >= n + 0u) {
		*i_p = i + 1;
		return c;
	}
	cp = c & (0x3fu >> more);
	for (uint32_t k = 1; k <= more; k++) {
		if ((s[i + k] & 0xc0) != 0x80) {
			*i_p = i + 1;
			return c;
		}
		cp = cp << 6 | (s[i + k] & 0x3fu);
	}
	*i_p = i + more + 1;
	return cp;
}

uint32_t ju_put(char out[4], uint32_t cp)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}

int64_t ju_len(const char *p, uint32_t n)
{
	int64_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		len += ((uint8_t)p[i] & 0xc0) != 0x80;
	}
	return len;
}

uint32_t ju_off(const char *p, uint32_t n, int64_t i)
{
	uint32_t at = 0;

	while (i > 0 && at < n) {
		at++;
		while (at < n && ((uint8_t)p[at] & 0xc0) == 0x80) {
			at++;
		}
		i--;
	}
	return at;
}

bool ju_space(uint32_t cp)
{
	if (cp < 0x80) {
		return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
	}
	return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
	       cp == 0x202f || cp == 0x205f || cp == 0x3000;
}
