/* families: the decoder that Llama, Qwen2 and Qwen3 share: x += attn(norm(x)); x += mlp(norm(x)). Sizes
 * and switches differ. */
#ifndef SKY_MODEL_FAMILIES_DENSE_H
#define SKY_MODEL_FAMILIES_DENSE_H

#include "model/model_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sky_dense_flags {
	SKY_DENSE_QKV_BIAS = 1u << 0,
	SKY_DENSE_QK_NORM = 1u << 1,
};

/* Refuses the keys that change the arithmetic of all three, then lays out the plan. */
int sky_dense_plan(struct sky_conf *c, unsigned flags, struct sky_plan *p,
		   struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
