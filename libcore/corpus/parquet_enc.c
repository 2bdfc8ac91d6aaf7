/* Parquet encodings below the page: the run-length/bit-packed hybrid and the delta family. */
#include <string.h>

#include "corpus/parquet_int.h"

static int damaged(struct pq_in *in, const char *what)
{
	return sky_fail(in->err, SKY_E_DATA, "%s: damaged page: %s", in->file, what);
}

static int uleb(struct pq_in *in, uint64_t *v_p)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 64 && in->n; shift += 7) {
		uint8_t c = *in->p++;

		in->n--;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*v_p = v;
			return 0;
		}
	}
	return damaged(in, "a number that does not end");
}

/* n values of `bits` bits from p, lowest bit first; (n * bits + 7) / 8 bytes are there. */
static void unpack_bits(const uint8_t *p, size_t n_bytes, int bits, int64_t n, uint32_t *out)
{
	uint64_t window = 0;
	int have = 0;
	size_t at = 0;

	for (int64_t i = 0; i < n; i++) {
		while (have < bits) {
			window |= (uint64_t)(at < n_bytes ? p[at] : 0) << have;
			at++;
			have += 8;
		}
		out[i] = (uint32_t)(window & ((1ull << bits) - 1));
		window >>= bits;
		have -= bits;
	}
}

/* Runs: header h; h odd: (h >> 1) groups of 8 packed values; even: one value (whole bytes) h >> 1 times. */
int pq_rle(struct pq_in *in, int bits, int64_t n, uint32_t *out)
{
	uint64_t h, count;
	uint32_t v;
	size_t n_bytes;

	if (bits < 0 || bits > 32) {
		return damaged(in, "a bit width above 32");
	}
	if (!bits) {
		memset(out, 0, (size_t)n * sizeof *out);
		return 0;
	}
	while (n > 0) {
		int rc = uleb(in, &h);

		if (rc < 0) {
			return rc;
		}
		count = h >> 1;
		if (!count) {
			return damaged(in, "an empty run");
		}
		if (h & 1) {
			count = count > UINT64_MAX / 8 / 32 ? UINT64_MAX / 8 / 32 : count;
			n_bytes = (size_t)(count * (unsigned)bits);
			count *= 8;
			count = count < (uint64_t)n ? count : (uint64_t)n;
			/* The last group may be cut at the end of the page when its values are padding. */
			if ((count * (unsigned)bits + 7) / 8 > in->n) {
				return damaged(in, "packed values are missing");
			}
			n_bytes = n_bytes < in->n ? n_bytes : in->n;
			unpack_bits(in->p, n_bytes, bits, (int64_t)count, out);
		} else {
			n_bytes = ((size_t)bits + 7) / 8;
			if (n_bytes > in->n) {
				return damaged(in, "a repeated value is missing");
			}
			v = 0;
			for (size_t i = 0; i < n_bytes; i++) {
				v |= (uint32_t)in->p[i] << 8 * i;
			}
			if (bits < 32 && v >> bits) {
				return damaged(in, "a repeated value is too large");
			}
			count = count < (uint64_t)n ? count : (uint64_t)n;
			for (uint64_t i = 0; i < count; i++) {
				out[i] = v;
			}
		}
		in->p += n_bytes;
		in->n -= n_bytes;
		out += count;
		n -= (int64_t)count;
	}
	return 0;
}

static int64_t unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* One miniblock: n differences of `bits` bits on top of min, summed into out. */
static void miniblock(const uint8_t *p, size_t n_bytes, int bits, uint64_t min, int64_t n, uint64_t *last, int64_t *out)
{
	unsigned __int128 window = 0;
	int have = 0;
	size_t at = 0;
	uint64_t d;

	for (int64_t i = 0; i < n; i++) {
		while (have < bits) {
			window |= (unsigned __int128)(at < n_bytes ? p[at] : 0) << have;
			at++;
			have += 8;
		}
		d = bits == 64 ? (uint64_t)window : (uint64_t)window & ((1ull << bits) - 1);
		window >>= bits;
		have -= bits;
		*last += min + d;
		out[i] = (int64_t)*last;
	}
}

/* Header: block size, miniblocks a block, number of values, first value. Block: least difference, a bit width a
 * miniblock, miniblocks. */
int pq_delta_ints(struct pq_in *in, int64_t max, int64_t *out, int64_t *n_p, size_t *used_p)
{
	const uint8_t *start = in->p;
	uint64_t block, minis, total, first, min, last, per;
	int64_t left;
	int rc = uleb(in, &block);

	rc = rc ? rc : uleb(in, &minis);
	rc = rc ? rc : uleb(in, &total);
	rc = rc ? rc : uleb(in, &first);
	if (rc < 0) {
		return rc;
	}
	if (!minis || block > 1u << 24 || minis > block || block % minis || total > (uint64_t)max) {
		return damaged(in, "an impossible delta header");
	}
	per = block / minis;
	last = (uint64_t)unzigzag(first);
	left = (int64_t)total;
	if (left) {
		*out++ = (int64_t)last;
		left--;
	}
	while (left > 0) {
		const uint8_t *widths;

		rc = uleb(in, &min);
		if (rc < 0) {
			return rc;
		}
		min = (uint64_t)unzigzag(min);
		if (in->n < minis) {
			return damaged(in, "bit widths are missing");
		}
		widths = in->p;
		in->p += minis;
		in->n -= minis;
		for (uint64_t m = 0; m < minis && left > 0; m++) {
			int64_t n = left < (int64_t)per ? left : (int64_t)per;
			size_t n_bytes = (size_t)(per * widths[m] + 7) / 8;

			if (widths[m] > 64 || ((uint64_t)n * widths[m] + 7) / 8 > in->n) {
				return damaged(in, "differences are missing");
			}
			n_bytes = n_bytes < in->n ? n_bytes : in->n;
			miniblock(in->p, n_bytes, widths[m], min, n, &last, out);
			in->p += n_bytes;
			in->n -= n_bytes;
			out += n;
			left -= n;
		}
	}
	*n_p = (int64_t)total;
	*used_p = (size_t)(in->p - start);
	return 0;
}

static int lengths(struct pq_in *in, int64_t n, int64_t **len_p)
{
	int64_t *len = sky_arena_alloc(in->arena, ((size_t)n + 1) * sizeof *len), got;
	size_t used;
	int rc;

	if (!len) {
		return sky_fail_mem(in->err, "a page of %s", in->file);
	}
	rc = pq_delta_ints(in, n, len, &got, &used);
	if (!rc && got != n) {
		rc = damaged(in, "fewer lengths than values");
	}
	*len_p = len;
	return rc;
}

/* DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes. */
int pq_delta_lengths(struct pq_in *in, int64_t n, struct tstr *out)
{
	int64_t *len;
	int rc = lengths(in, n, &len);

	for (int64_t i = 0; !rc && i < n; i++) {
		if (len[i] < 0 || (uint64_t)len[i] > in->n) {
			return damaged(in, "a length leaves the page");
		}
		out[i] = (struct tstr){ (const char *)in->p, (uint64_t)len[i] };
		in->p += len[i];
		in->n -= (size_t)len[i];
	}
	return rc;
}

/* DELTA_BYTE_ARRAY: lengths shared with the value before, then the rests as above. */
int pq_delta_bytes(struct pq_in *in, int64_t n, struct tstr *out)
{
	int64_t *shared, total = 0;
	struct tstr *rest = sky_arena_alloc(in->arena, ((size_t)n + 1) * sizeof *rest);
	char *text, *before;
	int rc = rest ? lengths(in, n, &shared) : sky_fail_mem(in->err, "a page of %s", in->file);

	rc = rc ? rc : pq_delta_lengths(in, n, rest);
	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < n; i++) {
		if (shared[i] < 0 || (uint64_t)shared[i] > (i ? out[i - 1].n : 0)) {
			return damaged(in, "a shared length is larger than the value before");
		}
		out[i].n = (uint64_t)shared[i] + rest[i].n;
		if (sky_add_i64(total, (int64_t)out[i].n, &total) || total > (int64_t)1 << 34) {
			return damaged(in, "texts of more than 16 GiB in a page");
		}
	}
	text = sky_arena_alloc(in->arena, (size_t)total + 1);
	if (!text) {
		return sky_fail_mem(in->err, "a page of %s", in->file);
	}
	before = text;
	for (int64_t i = 0; i < n; i++) {
		memmove(text, before, (size_t)shared[i]);
		memcpy(text + shared[i], rest[i].p, rest[i].n);
		out[i].p = before = text;
		text += out[i].n;
	}
	return 0;
}
