/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC11). */
#include "base/rng.h"

#include <math.h>

#include "base/base_int.h"

#define M0 0xd2511f53u
#define M1 0xcd9e8d57u
#define W0 0x9e3779b9u          /* golden ratio */
#define W1 0xbb67ae85u          /* sqrt(3) - 1 */

void sky_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
	uint64_t p0, p1;
	int round;

	for (round = 0; round < 10; round++) {
		p0 = (uint64_t)M0 * c0;
		p1 = (uint64_t)M1 * c2;
		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += W0;
		k1 += W1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* The counter is (index, stream). The key is derived from (seed, purpose) by one more Philox call, so that all bits of
 * both count. */
static void key_of(uint64_t seed, uint32_t purpose, uint32_t key[2])
{
	const uint32_t ctr[4] = { (uint32_t)seed, (uint32_t)(seed >> 32), purpose, 0 };
	static const uint32_t zero[2];
	uint32_t out[4];

	sky_philox(ctr, zero, out);
	key[0] = out[0];
	key[1] = out[1];
}

void sky_rng_draw(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index, uint32_t out[4])
{
	const uint32_t ctr[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
		(uint32_t)(stream >> 32) };
	uint32_t key[2];

	key_of(seed, purpose, key);
	sky_philox(ctr, key, out);
}

static uint64_t word(const uint32_t out[4], int i)
{
	return (uint64_t)out[2 * i + 1] << 32 | out[2 * i];
}

double sky_rng_uniform(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index)
{
	uint32_t out[4];

	sky_rng_draw(seed, purpose, stream, index, out);
	return (double)(word(out, 0) >> 11) * 0x1p-53;
}

uint64_t sky_rng_below(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index, uint64_t n)
{
	uint32_t out[4];
	unsigned __int128 m;

	/* Multiply-shift over 128 random bits: the bias is below n / 2^128. */
	sky_rng_draw(seed, purpose, stream, index, out);
	m = (unsigned __int128)word(out, 1) * n;
	m = (unsigned __int128)word(out, 0) * n + (uint64_t)(m >> 64);
	return (uint64_t)(m >> 64);
}

double sky_rng_normal(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index)
{
	uint32_t out[4];
	double u, v;

	/* Box-Muller; u in (0, 1]. */
	sky_rng_draw(seed, purpose, stream, index, out);
	u = ((double)(word(out, 0) >> 11) + 1) * 0x1p-53;
	v = (double)(word(out, 1) >> 11) * 0x1p-53;
	return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Balanced Feistel network over 2 × half bits ≥ bits of n, six rounds; results outside [0, n) go round again, fewer
 * than four times on average since the domain is below 4 n. */
uint64_t sky_rng_permute(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t i, uint64_t n)
{
	uint32_t key[2], out[4], ctr[4];
	uint64_t left, right, mask, t;
	int half = 1, round;

	if (n < 2) {
		return i;
	}
	while (half < 32 && (n - 1) >> (2 * half) != 0) {
		half++;
	}
	mask = (1ull << half) - 1;
	key_of(seed, purpose, key);
	do {
		left = i >> half;
		right = i & mask;
		for (round = 0; round < 6; round++) {
			ctr[0] = (uint32_t)right;
			/* Domain size and round are part of the function; bit 31 keeps it apart from sky_rng_draw. */
			ctr[1] = 0x80000000u | (uint32_t)half << 8 | (uint32_t)round;
			ctr[2] = (uint32_t)stream;
			ctr[3] = (uint32_t)(stream >> 32);
			sky_philox(ctr, key, out);
			t = left ^ (out[0] & mask);
			left = right;
			right = t;
		}
		i = left << half | right;
	} while (i >= n);
	return i;
}
