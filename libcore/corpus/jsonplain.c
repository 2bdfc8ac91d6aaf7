/* The inner loop of the JSON scanner: runs of string bytes without quote, escape or control character, in 64- or 32-byte
 * steps where the CPU can, chosen at run time. */
#include <string.h>

#include "corpus/corpus_int.h"

size_t json_plain_scalar(char *dst, const char *src, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		unsigned char c = (unsigned char)src[i];

		if (c == '"' || c == '\\' || c < 0x20) {
			break;
		}
		if (dst) {
			dst[i] = src[i];
		}
	}
	return i;
}

#if defined __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw,bmi")))
static size_t plain_avx512(char *dst, const char *src, size_t n)
{
	const __m512i quote = _mm512_set1_epi8('"'), back = _mm512_set1_epi8('\\'), space = _mm512_set1_epi8(0x20);
	size_t i = 0;

	while (i < n) {
		__mmask64 take = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1, hit;
		__m512i v = _mm512_maskz_loadu_epi8(take, src + i);

		if (dst) {
			_mm512_storeu_si512(dst + i, v);
		}
		hit = _mm512_cmpeq_epi8_mask(v, quote) | _mm512_cmpeq_epi8_mask(v, back) | _mm512_cmplt_epu8_mask(v, space);
		if (hit) {
			i += _tzcnt_u64(hit);
			return i < n ? i : n;   /* a hit in the zeros behind the end is none */
		}
		i += 64;
	}
	return n;
}

__attribute__((target("avx2,bmi")))
static size_t plain_avx2(char *dst, const char *src, size_t n)
{
	const __m256i quote = _mm256_set1_epi8('"'), back = _mm256_set1_epi8('\\'), ctl = _mm256_set1_epi8(0x1f);
	size_t i = 0;

	for (; n - i >= 32; i += 32) {
		__m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(src + i)), m;
		unsigned hit;

		if (dst) {
			_mm256_storeu_si256((__m256i *)(void *)(dst + i), v);
		}
		m = _mm256_or_si256(_mm256_cmpeq_epi8(v, quote), _mm256_cmpeq_epi8(v, back));
		m = _mm256_or_si256(m, _mm256_cmpeq_epi8(_mm256_min_epu8(v, ctl), v));
		hit = (unsigned)_mm256_movemask_epi8(m);
		if (hit) {
			return i + _tzcnt_u32(hit);
		}
	}
	return i + json_plain_scalar(dst ? dst + i : NULL, src + i, n - i);
}

static size_t plain_choose(char *dst, const char *src, size_t n);
static size_t (*plain)(char *dst, const char *src, size_t n) = plain_choose;

/* Several threads may come here at once: all store the same pointer. */
static size_t plain_choose(char *dst, const char *src, size_t n)
{
	size_t (*f)(char *, const char *, size_t) = json_plain_scalar;

	if (__builtin_cpu_supports("avx512bw")) {
		f = plain_avx512;
	} else if (__builtin_cpu_supports("avx2")) {
		f = plain_avx2;
	}
	__atomic_store_n(&plain, f, __ATOMIC_RELAXED);
	return f(dst, src, n);
}

size_t json_copy_plain(char *dst, const char *src, size_t n)
{
	return __atomic_load_n(&plain, __ATOMIC_RELAXED)(dst, src, n);
}

size_t json_skip_plain(const char *src, size_t n)
{
	return __atomic_load_n(&plain, __ATOMIC_RELAXED)(NULL, src, n);
}
#else
size_t json_copy_plain(char *dst, const char *src, size_t n)
{
	return json_plain_scalar(dst, src, n);
}

size_t json_skip_plain(const char *src, size_t n)
{
	return json_plain_scalar(NULL, src, n);
}
#endif
