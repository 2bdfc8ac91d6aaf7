/* One RL update: a batch of trajectories to new weights (SkyRL's synchronous step, parts 6 to 10). */
#ifndef SKY_LEARN_RL_H
#define SKY_LEARN_RL_H

#include <stdint.h>
#include "base/base.h"
#include "learn/learn.h"
#include "learn/optim.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* N sequences side by side, T tokens; arrays are borrowed. */
struct sky_rl_batch {
	int64_t n_seq;
	const int64_t *start;           /* [N+1] */
	const int32_t *ids;             /* [T] */
	const int32_t *prompt_len;      /* [N] ≥ 1 */
	const uint8_t *mask;            /* [T] 1 = sampled by the policy */
	const float *logprob;           /* [T] as sampled */
	const float *reward;            /* [T] token rewards */
	const int64_t *group;           /* [N] members of a group are neighbours */
	const int64_t *traj;            /* [N] or NULL, with */
	const uint8_t *last;            /* [N] or NULL */
};

struct sky_rl_opt {
	struct sky_algo algo;
	double temperature;             /* of the rollout; 0 counts as 1 */
	int64_t n_epoch;                /* passes over the batch, default 1 */
	int64_t mini_prompts;           /* groups of a mini-batch (one optimizer step each); 0 = all */
	int64_t micro_tokens;           /* tokens of a pass at most, default 4096; bounds memory, changes no result */
	double lr;
	uint64_t seed;
};

struct sky_rl;
/* ref: reference model for the KL, or NULL (use_kl_loss and use_kl_in_reward then must be off). All borrowed. */
int sky_rl_new(struct sky_model *m, struct sky_model *ref, struct sky_optim *opt, struct sky_rl **r_p,
               struct sky_err *err) SKY_MUST_CHECK;
void sky_rl_free(struct sky_rl *r);
/* kl_coef (in/out): value of the KL controller. Metrics by SkyRL's names. A batch with nothing to train on leaves the
 * weights as they are and says so in *trained_p. */
int sky_rl_update(struct sky_rl *r, const struct sky_rl_batch *b, const struct sky_rl_opt *o, int64_t step, double *kl_coef,
                  struct sky_metrics *met, int *trained_p, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
