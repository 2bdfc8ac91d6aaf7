/* families: Llama 2 and 3, SmolLM2 and others of that shape: no biases, no norm of heads. ref:
 * models.md §2. */
#include "model/families/dense.h"

static int plan(struct sky_conf *c, struct sky_plan *p, struct sky_err *err)
{
	return sky_dense_plan(c, 0, p, err);
}

const struct sky_family sky_family_llama = { "llama", "LlamaForCausalLM", plan };
