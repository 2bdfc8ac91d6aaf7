/* kernels/cpu: the row operations for AVX-512 (F, BW, DQ, VL). */
#include <immintrin.h>
#define VEC(name) name##_avx512
#define VEC_NAME "avx512"
#define FN __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) static
#define W 16
#define LIM 24
#define BF16_DOT 0
#define FMA(a, b, c) ((vf)_mm512_fmadd_ps(a, b, c))
#define MAX(a, b) ((vf)_mm512_max_ps(a, b))
#define MIN(a, b) ((vf)_mm512_min_ps(a, b))
#define RECIP(x) recip(x)
#define SQRT(x) ((vf)_mm512_sqrt_ps(x))
#define POW2(p, n) ((vf)_mm512_scalef_ps(p, n))
#include "kernels/cpu/vec_impl.h"
