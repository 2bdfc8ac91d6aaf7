/* Digests: libxxhash for content, SHA-256 and HMAC for fingerprints and signatures. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

struct sky_h128 sky_xxh128(const void *p, size_t n)
{
	XXH128_hash_t h = XXH3_128bits(p, n);

	return (struct sky_h128){ h.high64, h.low64 };
}

uint64_t sky_xxh64(const void *p, size_t n, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, n, seed);
}

struct sky_xxh_state *sky_xxh_new(void)
{
	XXH3_state_t *s = XXH3_createState();

	if (s && XXH3_128bits_reset(s) != XXH_OK) {
		XXH3_freeState(s);
		s = NULL;
	}
	return (struct sky_xxh_state *)s;
}

void sky_xxh_update(struct sky_xxh_state *s, const void *p, size_t n)
{
	if (n > 0) {
		(void)XXH3_128bits_update((XXH3_state_t *)s, p, n);
	}
}

struct sky_h128 sky_xxh_digest(const struct sky_xxh_state *s)
{
	XXH128_hash_t h = XXH3_128bits_digest((const XXH3_state_t *)s);

	return (struct sky_h128){ h.high64, h.low64 };
}

void sky_xxh_free(struct sky_xxh_state *s)
{
	XXH3_freeState((XXH3_state_t *)s);
}

void sky_h128_hex(struct sky_h128 h, char out[33])
{
	snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ?
		c - 'A' + 10 : -1;
}

int sky_h128_parse(const char *hex, struct sky_h128 *h_p)
{
	uint64_t part[2] = { 0, 0 };
	int i, d;

	for (i = 0; i < 32; i++) {
		d = hex_digit(hex[i]);
		if (d < 0) {
			return -1;
		}
		part[i / 16] = part[i / 16] << 4 | (uint64_t)d;
	}
	if (hex[32] != '\0') {
		return -1;
	}
	h_p->hi = part[0];
	h_p->lo = part[1];
	return 0;
}

/* SHA-256 as in FIPS 180-4, 6.2. Our own compression keeps the state a plain struct that callers may copy and store;
 * whole buffers go to libcrypto, which uses the SHA instructions. */
static const uint32_t sha_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[64], v[8], t1, t2;
	int i;

	for (i = 0; i < 16; i++) {
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	}
	for (; i < 64; i++) {
		w[i] = w[i - 16] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
			(ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
	}
	memcpy(v, h, sizeof(v));
	for (i = 0; i < 64; i++) {
		t1 = v[7] + (ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4],
		                                                25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_k[i] + w[i];
		t2 = (ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof(v[0]));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (i = 0; i < 8; i++) {
		h[i] += v[i];
	}
}

void sky_sha256_init(struct sky_sha256 *s)
{
	static const uint32_t start[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(s->h, start, sizeof(start));
	s->n = 0;
}

void sky_sha256_update(struct sky_sha256 *s, const void *p, size_t n)
{
	const uint8_t *b = p;
	size_t have = (size_t)(s->n % 64), take;

	s->n += n;
	while (n > 0) {
		if (have == 0 && n >= 64) {
			sha_block(s->h, b);
			take = 64;
		} else {
			take = n < 64 - have ? n : 64 - have;
			memcpy(s->block + have, b, take);
			have += take;
			if (have == 64) {
				sha_block(s->h, s->block);
				have = 0;
			}
		}
		b += take;
		n -= take;
	}
}

void sky_sha256_final(struct sky_sha256 *s, uint8_t out[32])
{
	static const uint8_t zero[64];
	uint64_t bits = s->n * 8;
	uint8_t tail[9] = { 0x80 };
	int i;

	sky_sha256_update(s, tail, 1);
	sky_sha256_update(s, zero, (size_t)((120 - s->n % 64) % 64));
	for (i = 0; i < 8; i++) {
		tail[i] = (uint8_t)(bits >> (56 - 8 * i));
	}
	sky_sha256_update(s, tail, 8);
	for (i = 0; i < 32; i++) {
		out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
	}
}

void sky_sha256(const void *p, size_t n, uint8_t out[32])
{
	struct sky_sha256 s;

	if (EVP_Digest(p, n, out, NULL, EVP_sha256(), NULL) == 1) {
		return;
	}
	sky_sha256_init(&s);
	sky_sha256_update(&s, p, n);
	sky_sha256_final(&s, out);
}

/* RFC 2104. */
void sky_hmac_sha256(const void *key, size_t n_key, const void *p, size_t n, uint8_t out[32])
{
	struct sky_sha256 s;
	uint8_t k[64] = { 0 }, pad[64];
	int i;

	if (n_key > 64) {
		sky_sha256(key, n_key, k);
	} else if (n_key > 0) {
		memcpy(k, key, n_key);
	}
	for (i = 0; i < 64; i++) {
		pad[i] = k[i] ^ 0x36;
	}
	sky_sha256_init(&s);
	sky_sha256_update(&s, pad, 64);
	sky_sha256_update(&s, p, n);
	sky_sha256_final(&s, out);
	for (i = 0; i < 64; i++) {
		pad[i] = k[i] ^ 0x5c;
	}
	sky_sha256_init(&s);
	sky_sha256_update(&s, pad, 64);
	sky_sha256_update(&s, out, 32);
	sky_sha256_final(&s, out);
}
