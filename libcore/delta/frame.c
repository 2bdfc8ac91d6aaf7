/* Frames of the skyrl format: one zstd frame of the XOR of a whole tensor, level 1, content size stated. */
#include "base/vec.h"
#include "delta/delta_int.h"

#include <zstd.h>


/* out = a ^ b; returns how many bytes are not 0. */
SKY_CLONES static uint64_t xor_count(const uint8_t *a, const uint8_t *b, uint8_t *out, uint64_t n)
{
	uint64_t zero = 0;

	for (uint64_t i = 0; i < n;) {
		uint64_t end = i + 128 < n ? i + 128 : n;
		uint8_t k = 0;

		for (; i < end; i++) {
			out[i] = a[i] ^ b[i];
			k = (uint8_t)(k + (out[i] == 0));
		}
		zero += k;
	}
	return n - zero;
}

SKY_CLONES static void xor_into(uint8_t *dst, const uint8_t *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		dst[i] ^= x[i];
	}
}

int frame_encode(const void *old, const void *fresh, uint64_t n, struct sky_buf *out, uint64_t *changed_p, struct sky_err *err)
{
	size_t bound = ZSTD_compressBound(n), k;
	uint8_t *x;
	int rc;

	*changed_p = 0;
	if (n == 0 || !memcmp(old, fresh, n)) {
		return 0;
	}
	x = sky_aligned_alloc(n);
	if (!x) {
		return sky_fail_mem(err, "difference of %llu bytes", (unsigned long long)n);
	}
	*changed_p = xor_count(old, fresh, x, n);
	rc = sky_buf_reserve(out, bound, err);
	if (rc == 0) {
		k = ZSTD_compress(out->ptr + out->n, bound, x, n, 1);
		if (ZSTD_isError(k)) {
			rc = sky_fail(err, SKY_E_LIMIT, "zstd: %s", ZSTD_getErrorName(k));
		} else {
			out->n += k;
		}
	}
	free(x);
	return rc;
}

int frame_check(const void *frame, uint64_t n_frame, uint64_t n, const char *name, struct sky_err *err)
{
	unsigned long long size = ZSTD_getFrameContentSize(frame, n_frame);

	if (size == ZSTD_CONTENTSIZE_ERROR || (size != ZSTD_CONTENTSIZE_UNKNOWN && size != n)) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: its frame is damaged or holds another length than %llu bytes", name,
		                (unsigned long long)n);
	}
	return 0;
}

int frame_apply(const void *frame, uint64_t n_frame, void *dst, uint64_t n, struct sky_buf *scratch, const char *name,
                struct sky_err *err)
{
	size_t first = ZSTD_findFrameCompressedSize(frame, n_frame), k;
	int rc = frame_check(frame, n_frame, n, name, err);

	if (rc < 0) {
		return rc;
	}
	/* Exactly one data frame; decoding never writes beyond the tensor's own length. */
	if (ZSTD_isError(first)) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: %s", name, ZSTD_getErrorName(first));
	}
	sky_buf_clear(scratch);
	rc = sky_buf_reserve(scratch, n, err);
	if (rc < 0) {
		return rc;
	}
	k = ZSTD_decompress(scratch->ptr, n, frame, first);
	if (ZSTD_isError(k) || k != n) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: %s", name,
		                ZSTD_isError(k) ? ZSTD_getErrorName(k) : "its frame is shorter than the tensor");
	}
	xor_into(dst, (const uint8_t *)scratch->ptr, n);
	return 0;
}

void frame_hash(int sha256, const void *p, uint64_t n, char out[65])
{
	uint8_t digest[32];

	if (sha256) {
		sky_sha256(p, n, digest);
		sky_hex(digest, 32, out);
	} else {
		sky_h128_hex(sky_xxh128(p, n), out);
	}
}
