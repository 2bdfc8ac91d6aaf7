/* families: Qwen3 dense: norm of every query and key head before rotation. ref: models.md §2. */
#include "model/families/dense.h"

static int plan(struct sky_conf *c, struct sky_plan *p, struct sky_err *err)
{
	return sky_dense_plan(c, SKY_DENSE_QK_NORM, p, err);
}

const struct sky_family sky_family_qwen3 = { "qwen3", "Qwen3ForCausalLM", plan };
