/* hash, rng: published vectors and agreement of the paths. */
#include "base/base.h"
#include "base/base_int.h"
#include "../testlib.h"

static void test_digests(void)
{
	/* From Python's hashlib, xxhash and zlib. */
	static const struct { size_t n; const char *sha, *md5, *xxh; uint64_t xxh64; uint32_t crc; } want[] = {
		{ 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		  "d41d8cd98f00b204e9800998ecf8427e",
		  "99aa06d3014798d86001c324468d497f", 0x2d06800538d394c2ull, 0 },
		{ 1280, "d414b085826eb06778483ba35564dc849e643359f69ed9747878ba6e54985bed",
		  "82829f1f3f2bb0f18b25f278e5bba8bd",
		  "d92ab3a1cb0542a74844b009e164352e", 0x4844b009e164352eull, 0x1e7a6d24 },
	};
	uint8_t data[1280], out[32];
	struct sky_xxh_state *x;
	struct sky_sha256 s;
	struct sky_h128 h, back;
	char hex[65];
	size_t i, k;

	for (i = 0; i < sizeof(data); i++) {
		data[i] = (uint8_t)i;
	}
	for (i = 0; i < 2; i++) {
		sky_sha256(data, want[i].n, out);
		sky_hex(out, 32, hex);
		T_STR(hex, want[i].sha, "SHA-256 of %zu bytes", want[i].n);
		sky_sha256_init(&s);
		x = sky_xxh_new();
		for (k = 0; k < want[i].n; k += 40) {
			sky_sha256_update(&s, data + k, 40);
			sky_xxh_update(x, data + k, 40);
		}
		sky_sha256_final(&s, out);
		sky_hex(out, 32, hex);
		T_STR(hex, want[i].sha, "SHA-256 in pieces");
		h = sky_xxh_digest(x);
		sky_xxh_free(x);
		sky_h128_hex(h, hex);
		T_STR(hex, want[i].xxh, "XXH3-128 in pieces");
		h = sky_xxh128(data, want[i].n);
		sky_h128_hex(h, hex);
		T_STR(hex, want[i].xxh, "XXH3-128");
		T_OK(sky_h128_parse(hex, &back) == 0 && back.hi == h.hi && back.lo == h.lo, "its text reads back");
		T_OK(sky_xxh64(data, want[i].n, 0) == want[i].xxh64, "XXH3-64");
		T_I64(sky_crc32(0, data, want[i].n), want[i].crc, "CRC-32");
		sky_md5(data, want[i].n, out);
		sky_hex(out, 16, hex);
		T_STR(hex, want[i].md5, "MD5");
	}
	T_OK(sky_h128_parse("99aa06d3014798d86001c324468d497", &back) == -1, "31 digits are no digest");
	T_OK(sky_xxh64("abc", 3, 42) == 0xd8438def21bbdcc3ull, "XXH3-64 with a seed");
	sky_hmac_sha256("key", 3, "The quick brown fox jumps over the lazy dog", 43, out);
	sky_hex(out, 32, hex);
	T_STR(hex, "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8", "HMAC");
	memset(data, 'k', 100);
	sky_hmac_sha256(data, 100, "x", 1, out);
	sky_hex(out, 32, hex);
	T_STR(hex, "8c1858bff6cf9cb73708b4b54f43bca6e1b8b4c3380760dc009001b265b64c6f", "HMAC with a long key");
}

static void test_crc32c(void)
{
	uint8_t data[300];
	size_t i, n;
	int n_bad = 0;

	/* RFC 3720, B.4, and the check value of the catalogue. */
	memset(data, 0, sizeof(data));
	T_I64(sky_crc32c(0, data, 32), 0x8a9136aa, "CRC32C of 32 zeros");
	T_I64(sky_crc32c(0, "123456789", 9), 0xe3069283, "CRC32C of 123456789");
	T_I64(sky_crc32c(sky_crc32c(0, "1234", 4), "56789", 5), 0xe3069283, "CRC32C in pieces");
	for (i = 0; i < sizeof(data); i++) {
		data[i] = (uint8_t)(i * 37 + 11);
	}
	for (n = 0; n < sizeof(data) - 8; n++) {
		n_bad += sky_crc32c(7, data + n % 8, n) != sky_crc32c_scalar(7, data + n % 8, n);
	}
	T_I64(n_bad, 0, "instruction and tables agree at every length");
}

static void test_philox(void)
{
	/* kat_vectors of the authors' Random123, philox4x32 10. */
	static const struct { uint32_t ctr[4], key[2], out[4]; } kat[] = {
		{ { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};
	uint32_t out[4];
	size_t i;

	for (i = 0; i < 3; i++) {
		sky_philox(kat[i].ctr, kat[i].key, out);
		T_MEM(out, kat[i].out, 16, "known answer %zu", i);
	}
}

static void test_draws(void)
{
	double sum = 0, sum2 = 0, u, lo = 1, hi = 0;
	uint32_t a[4], b[4];
	int64_t count[7] = { 0 }, i, n_bad = 0;

	for (i = 0; i < 100000; i++) {
		u = sky_rng_normal(1, SKY_RNG_TEST, 0, (uint64_t)i);
		sum += u;
		sum2 += u * u;
		u = sky_rng_uniform(1, SKY_RNG_TEST, 1, (uint64_t)i);
		lo = fmin(lo, u);
		hi = fmax(hi, u);
		count[sky_rng_below(1, SKY_RNG_TEST, 2, (uint64_t)i, 7)]++;
	}
	T_NEAR(sum / 1e5, 0, 0.015, "mean of normal draws");
	T_NEAR(sum2 / 1e5, 1, 0.02, "variance of normal draws");
	T_OK(lo >= 0 && lo < 1e-3 && hi < 1 && hi > 0.999, "uniform draws fill [0, 1)");
	for (i = 0; i < 7; i++) {
		n_bad += llabs(count[i] - 100000 / 7) > 500;
	}
	T_I64(n_bad, 0, "draws below 7 are even");
	sky_rng_draw(1, SKY_RNG_TEST, 5, 9, a);
	sky_rng_draw(1, SKY_RNG_SAMPLE, 5, 9, b);
	T_OK(memcmp(a, b, 16) != 0, "purposes differ");
	sky_rng_draw(1ull << 40, SKY_RNG_TEST, 5, 9, b);
	T_OK(memcmp(a, b, 16) != 0, "high bits of the seed count");
}

static void test_permute(void)
{
	static const uint64_t sizes[] = { 1, 2, 3, 4, 5, 16, 17, 1000, 4097 };
	uint8_t *seen = calloc(1, 5000);
	uint64_t i, to, moved = 0, far = 0;
	size_t k;
	int n_bad;

	for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		memset(seen, 0, 5000);
		for (i = 0, n_bad = 0; i < sizes[k]; i++) {
			to = sky_rng_permute(3, SKY_RNG_ORDER, k, i, sizes[k]);
			n_bad += to >= sizes[k] || seen[to]++;
			moved += to != i;
			far += to > i ? to - i : i - to;
		}
		T_I64(n_bad, 0, "permutation of %llu", (unsigned long long)sizes[k]);
	}
	T_OK(moved > 4000, "most elements move");
	/* Mean distance of a random permutation of n is n/3. */
	T_NEAR((double)far / (4097.0 * 4097 / 3 + 1000.0 * 1000 / 3), 1, 0.05, "and they move far");
	T_OK(sky_rng_permute(3, SKY_RNG_ORDER, 0, 5, UINT64_MAX) != 5, "the largest domain");
	free(seen);
}

int main(void)
{
	test_digests();
	test_crc32c();
	test_philox();
	test_draws();
	test_permute();
	return t_done();
}
