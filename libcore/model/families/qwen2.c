/* families: Qwen2 and Qwen2.5: biases on query, key and value. ref: models.md §2. */
#include "model/families/dense.h"

static int plan(struct sky_conf *c, struct sky_plan *p, struct sky_err *err)
{
	return sky_dense_plan(c, SKY_DENSE_QKV_BIAS, p, err);
}

const struct sky_family sky_family_qwen2 = { "qwen2", "Qwen2ForCausalLM", plan };
