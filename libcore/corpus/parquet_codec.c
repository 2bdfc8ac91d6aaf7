/* Compression of Parquet pages. */
#include <string.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "corpus/parquet_int.h"

#define MAX_PAGE (1ull << 32)

static int gunzip(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_raw)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)n_in, .next_out = out, .avail_out = (uInt)n_raw };
	int rc;

	if (n_in > UINT32_MAX || n_raw > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK) {
		return -1;
	}
	rc = inflate(&z, Z_FINISH);
	/* Several members may follow one another. */
	while (rc == Z_STREAM_END && z.avail_in && z.avail_out) {
		rc = inflateReset(&z) == Z_OK ? inflate(&z, Z_FINISH) : Z_DATA_ERROR;
	}
	inflateEnd(&z);
	return rc == Z_STREAM_END && !z.avail_out ? 0 : -1;
}

/* Codec 5: LZ4 blocks, each behind two big-endian lengths (raw, stored), as Hadoop writes them; some writers leave the
 * lengths out. */
static int lz4_hadoop(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_raw, struct sky_err *err)
{
	const uint8_t *start = in;
	size_t n_start = n_in, o = 0, got;

	while (n_in >= 8 && o < n_raw) {
		size_t raw = (size_t)in[0] << 24 | (size_t)in[1] << 16 | (size_t)in[2] << 8 | in[3];
		size_t n = (size_t)in[4] << 24 | (size_t)in[5] << 16 | (size_t)in[6] << 8 | in[7];

		if (raw > n_raw - o || n > n_in - 8 || lz4_block(in + 8, n, out + o, raw, &got, err) || got != raw) {
			break;
		}
		o += raw;
		in += 8 + n;
		n_in -= 8 + n;
	}
	if (o == n_raw && !n_in) {
		return 0;
	}
	return lz4_block(start, n_start, out, n_raw, &got, err) || got != n_raw ? -1 : 0;
}

static int unpack_one(int codec, const uint8_t *in, size_t n_in, uint8_t *out, size_t n_raw, struct sky_err *err)
{
	size_t n = n_raw;

	switch (codec) {
	case 1:
		return snappy_uncompress((const char *)in, n_in, (char *)out, &n) == SNAPPY_OK && n == n_raw ? 0 : -1;
	case 2:
		return gunzip(in, n_in, out, n_raw);
	case 5:
		return lz4_hadoop(in, n_in, out, n_raw, err);
	case 6:
		n = ZSTD_decompress(out, n_raw, in, n_in);
		return !ZSTD_isError(n) && n == n_raw ? 0 : -1;
	default:
		return lz4_block(in, n_in, out, n_raw, &n, err) || n != n_raw ? -1 : 0;
	}
}

int pq_unpack(struct parquet *q, int codec, const uint8_t *in, size_t n_in, size_t n_raw, const uint8_t **out_p,
              struct sky_err *err)
{
	static const char *const names[] = { "none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw" };
	size_t n;
	uint8_t *out;

	if (codec == 0) {
		if (n_in != n_raw) {
			return sky_fail(err, SKY_E_DATA, "%s: damaged page: %zu bytes instead of %zu", q->file, n_in, n_raw);
		}
		*out_p = in;
		return 0;
	}
	if (codec < 0 || codec > 7 || codec == 3 || codec == 4) {
		return sky_fail(err, SKY_E_DATA,
				"%s: pages compressed with %s (%d), which this reader does not have; write the file "
				"again with zstd, snappy or gzip", q->file, codec >= 0 && codec <= 7 ? names[codec] :
						"an unknown codec",
				codec);
	}
	if (n_raw > MAX_PAGE || n_raw / 100000 > n_in + 1 ||
	    (codec == 1 && (snappy_uncompressed_length((const char *)in, n_in, &n) != SNAPPY_OK || n != n_raw))) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged page: an impossible length", q->file);
	}
	out = sky_arena_alloc(&q->batch, n_raw + 64);
	if (!out) {
		return sky_fail_mem(err, "a page of %s", q->file);
	}
	if (unpack_one(codec, in, n_in, out, n_raw, err)) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged page: %s data", q->file, names[codec]);
	}
	*out_p = out;
	return 0;
}
