/* The row operations, once per instruction set. The including file has defined:
 *
 *	VEC(name)       name with the suffix of the instruction set; VEC_NAME the same as text
 *	FN              `static` with the target attribute
 *	W               lanes of f32 in a vector register
 *	LIM             registers for the sums of a tile of a product (12 of 16, 24 of 32)
 *	BF16_DOT, DOT   whether there is an instruction acc + a·b on pairs of bf16, and that instruction
 *	FMA MAX MIN SQRT POW2(p, n)     vector operations; MAX(a, b) is b when one is a NaN; POW2 is p·2ⁿ for whole n
 *
 * Vectors are GCC's generic ones, so that W alone decides what they become. */
#define INL FN inline __attribute__((always_inline))

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vec_gemm.h"
#include "kernels/cpu/vec_rows.h"
#include "kernels/cpu/vec_qk.h"
#include "kernels/cpu/vec_optim.h"
#include "kernels/cpu/vec_soft.h"

const struct cpu_vec VEC(cpu_vec) = {
	.name = VEC_NAME, .bf16_dot = BF16_DOT,
	.gemm_f32 = gemm_f32, .gemm_bf16 = gemm_bf16, .pair = pair, .store = store,
	.norm = norm, .norm_bwd = norm_bwd, .rope = rope,
	.qk_rope = qk_rope, .qk_rope_bwd = qk_rope_bwd,
	.silu_mul = silu_mul, .silu_mul_bwd = silu_mul_bwd, .add = add, .cast = cast,
	.scale = scale, .sumsq = sumsq, .adamw = adamw,
	.logprob = logprob, .logprob_bwd = logprob_bwd,
	.soft_f32 = soft_f32, .soft_bf16 = soft_bf16,
	.soft_bwd_f32 = soft_bwd_f32, .soft_bwd_bf16 = soft_bwd_bf16,
	.divide = divide, .scale_rows = scale_rows, .dot = dot,
};
