/* CRC32C (Castagnoli, reflected polynomial 0x82f63b78), CRC-32 by zlib, and MD5 by libcrypto. */
#include "base/hash.h"

#include <nmmintrin.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <zlib.h>

#include "base/base_int.h"

static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_fill(void)
{
	uint32_t c;
	int i, k;

	for (i = 0; i < 256; i++) {
		c = (uint32_t)i;
		for (k = 0; k < 8; k++) {
			c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
		}
		crc_table[0][i] = c;
	}
	for (i = 0; i < 256; i++) {
		for (k = 1; k < 8; k++) {
			c = crc_table[k - 1][i];
			crc_table[k][i] = c >> 8 ^ crc_table[0][c & 255];
		}
	}
}

/* Eight bytes a step by tables. */
uint32_t sky_crc32c_scalar(uint32_t crc, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint32_t lo, hi, c = ~crc;

	pthread_once(&crc_once, crc_fill);
	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&lo, b, 4);
		memcpy(&hi, b + 4, 4);
		lo ^= c;
		c = crc_table[7][lo & 255] ^ crc_table[6][lo >> 8 & 255] ^ crc_table[5][lo >> 16 & 255] ^
			crc_table[4][lo >> 24] ^ crc_table[3][hi & 255] ^ crc_table[2][hi >> 8 & 255] ^
			crc_table[1][hi >> 16 & 255] ^ crc_table[0][hi >> 24];
	}
	for (; n > 0; n--, b++) {
		c = c >> 8 ^ crc_table[0][(c ^ *b) & 255];
	}
	return ~c;
}

__attribute__((target("sse4.2")))
static uint32_t crc32c_sse42(uint32_t crc, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t c = ~crc, w;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&w, b, 8);
		c = _mm_crc32_u64(c, w);
	}
	for (; n > 0; n--, b++) {
		c = _mm_crc32_u8((uint32_t)c, *b);
	}
	return ~(uint32_t)c;
}

uint32_t sky_crc32c(uint32_t crc, const void *p, size_t n)
{
	return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, p, n) : sky_crc32c_scalar(crc, p, n);
}

uint32_t sky_crc32(uint32_t crc, const void *p, size_t n)
{
	return n == 0 ? crc : (uint32_t)crc32_z(crc, p, n);
}

void sky_md5(const void *p, size_t n, uint8_t out[16])
{
	if (EVP_Digest(p, n, out, NULL, EVP_md5(), NULL) != 1) {
		/* A FIPS provider refuses MD5. An object store compares it with its own and refuses the upload. */
		memset(out, 0, 16);
	}
}

void sky_hex(const uint8_t *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}
