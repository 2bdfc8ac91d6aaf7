/* Decoders of the LZ4 block and frame formats, for Arrow bodies and Parquet pages. */
#include <string.h>

#include "corpus/table.h"

static int damaged(struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "damaged LZ4 data");
}

/* Length that continues in bytes of 255. */
static int more(const uint8_t *in, size_t n_in, size_t *at, size_t *len)
{
	uint8_t c;

	do {
		if (*at >= n_in) {
			return -1;
		}
		c = in[(*at)++];
		*len += c;
	} while (c == 255);
	return 0;
}

/* Sequences of: token (4 bits of literals, 4 bits of match length − 4), literals, u16 distance. The last has no match. */
static int decode(const uint8_t *in, size_t n_in, uint8_t *base, size_t at_out, size_t n_out, size_t *end_p,
                  struct sky_err *err)
{
	size_t at = 0, o = at_out, len, dist;

	while (at < n_in) {
		uint8_t token = in[at++];

		len = token >> 4;
		if ((len == 15 && more(in, n_in, &at, &len)) || len > n_in - at || len > n_out - o) {
			return damaged(err);
		}
		memcpy(base + o, in + at, len);
		at += len;
		o += len;
		if (at == n_in) {
			break;
		}
		if (n_in - at < 2) {
			return damaged(err);
		}
		dist = in[at] | (size_t)in[at + 1] << 8;
		at += 2;
		len = token & 15;
		if ((len == 15 && more(in, n_in, &at, &len)) || !dist || dist > o || len + 4 > n_out - o) {
			return damaged(err);
		}
		for (len += 4; len; len--, o++) {
			base[o] = base[o - dist];
		}
	}
	*end_p = o;
	return 0;
}

int lz4_block(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, size_t *got_p, struct sky_err *err)
{
	return decode(in, n_in, out, 0, n_out, got_p, err);
}

/* Header: magic, flags, block size, optional content size and dictionary id, header checksum. Checksums of blocks and
 * content are skipped: the callers' formats carry lengths, and their own checksums where they have any. */
int lz4_frame(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, struct sky_err *err)
{
	size_t at, o = 0, n;
	uint8_t flags;

	if (n_in < 7 || sky_load_u32(in) != 0x184d2204u || (in[4] >> 6) != 1 || in[4] & 1) {
		return damaged(err);
	}
	flags = in[4];
	at = 7 + (flags & 8 ? 8u : 0u);
	for (;;) {
		bool stored;
		int rc = 0;

		if (at > n_in || n_in - at < 4) {
			return damaged(err);
		}
		n = sky_load_u32(in + at);
		at += 4;
		if (!n) {
			break;
		}
		stored = n >> 31;
		n &= 0x7fffffff;
		if (n > n_in - at) {
			return damaged(err);
		}
		if (stored) {
			if (n > n_out - o) {
				return damaged(err);
			}
			memcpy(out + o, in + at, n);
			o += n;
		} else {
			rc = decode(in + at, n, out, o, n_out, &o, err);
		}
		if (rc < 0) {
			return rc;
		}
		at += n + (flags & 0x10 ? 4u : 0u);
	}
	return o == n_out ? 0 : damaged(err);
}
