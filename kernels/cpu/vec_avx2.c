/* kernels/cpu: the row operations for AVX2 with FMA. */
#include <immintrin.h>
#define VEC(name) name##_avx2
#define VEC_NAME "avx2"
#define FN __attribute__((target("avx2,fma,f16c"))) static
#define W 8
#define LIM 12
#define BF16_DOT 0
#define FMA(a, b, c) ((vf)_mm256_fmadd_ps(a, b, c))
#define MAX(a, b) ((vf)_mm256_max_ps(a, b))
#define MIN(a, b) ((vf)_mm256_min_ps(a, b))
#define SQRT(x) ((vf)_mm256_sqrt_ps(x))
#define POW2(p, n) pow2(p, n)
#include "kernels/cpu/vec_impl.h"
