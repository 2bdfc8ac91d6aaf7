/* UTF-8 of corpus text: where it stops being valid, and its repair. RFC 3629: shortest forms, no surrogates, ≤ U+10FFFF. */
#include <string.h>

#include "corpus/corpus_int.h"

/* Bytes of the valid character at p (n > 0 bytes follow), or 0. *part_p: bytes of the longest prefix of a valid character,
 * at least 1, for replacing. */
static size_t char_bytes(const unsigned char *p, size_t n, size_t *part_p)
{
	unsigned lo = 0x80, hi = 0xbf, need;

	*part_p = 1;
	if (p[0] < 0x80) {
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		need = 1;
	} else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		need = 2;
		lo = p[0] == 0xe0 ? 0xa0 : lo;
		hi = p[0] == 0xed ? 0x9f : hi;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		need = 3;
		lo = p[0] == 0xf0 ? 0x90 : lo;
		hi = p[0] == 0xf4 ? 0x8f : hi;
	} else {
		return 0;
	}
	for (size_t i = 1; i <= need; i++) {
		if (i >= n || p[i] < lo || p[i] > hi) {
			return 0;
		}
		*part_p = i + 1;
		lo = 0x80;
		hi = 0xbf;
	}
	return need + 1;
}

size_t sky_utf8_valid(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t i = 0, k, part;
	uint64_t w[4];

	while (i < n) {
		while (n - i >= sizeof w) {
			memcpy(w, p + i, sizeof w);
			if ((w[0] | w[1] | w[2] | w[3]) & 0x8080808080808080ull) {
				break;
			}
			i += sizeof w;
		}
		/* One mixed stretch, character by character, then look for ASCII again. */
		for (size_t stop = i + 64; i < n && i < stop; i += k) {
			k = char_bytes(p + i, n - i, &part);
			if (!k) {
				return i;
			}
		}
	}
	return n;
}

int sky_utf8_replace(const char *text, size_t n, struct sky_buf *out, struct sky_err *err)
{
	size_t ok, part;
	int rc;

	while (n) {
		ok = sky_utf8_valid(text, n);
		rc = sky_buf_add(out, text, ok, err);
		if (rc < 0) {
			return rc;
		}
		text += ok;
		n -= ok;
		if (n) {
			(void)char_bytes((const unsigned char *)text, n, &part);
			rc = sky_buf_add(out, "\xef\xbf\xbd", 3, err);
			if (rc < 0) {
				return rc;
			}
			text += part;
			n -= part;
		}
	}
	return 0;
}
