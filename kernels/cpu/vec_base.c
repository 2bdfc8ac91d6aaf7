/* kernels/cpu: the row operations for any processor. */
#define VEC(name) name##_base
#define VEC_NAME "scalar"
#define FN static
#define W 4
#define LIM 12
#define BF16_DOT 0
#define FMA(a, b, c) ((a) * (b) + (c))
#define MAX(a, b) ((vf)sel((a) > (b), a, b))
#define MIN(a, b) ((vf)sel((a) < (b), a, b))
#define SQRT(x) vsqrt(x)
#define POW2(p, n) pow2(p, n)
#include "kernels/cpu/vec_impl.h"
