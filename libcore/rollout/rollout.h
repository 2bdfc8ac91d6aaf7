/* rollout: prompts, policy and environments to trajectories. Layer 6.
 *
 * In: prompt rows (SkyRL's: {"prompt":[messages],"env_class":…,"reward_spec":{…},…}), an engine, a chat template, an
 * environment. Out: one trajectory a sample, whose tokens are exactly those that went through the model: actions are never
 * encoded again, observations are encoded once (the fixed-base trick: what the template puts between turns comes from a fixed
 * conversation).
 * The rollout owns episodes until they are handed to the sink, in the order of prompts and samples whatever finished first. */
#ifndef SKY_ROLLOUT_ROLLOUT_H
#define SKY_ROLLOUT_ROLLOUT_H

#include <stdint.h>
#include "base/base.h"
#include "engine/engine.h"
#include "rollout/env.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One finished trajectory; arrays [n] are borrowed for the call of the sink. */
struct sky_episode_out {
	int64_t row, sample;            /* index of the prompt (also the group), number of the sample */
	const int32_t *ids;
	const uint8_t *mask;            /* 1 = sampled by the policy */
	const float *logprob;           /* under the sampling distribution, 0 where not sampled */
	const float *reward;            /* token rewards */
	int64_t n, n_prompt;
	enum sky_stop stop;
	int done;                       /* the environment ended the episode */
	int64_t n_turn;
	double reward_sum;
	const char *info;               /* JSON object: metrics of the environment's last answer; "{}" when none */
	const char *why;                /* stop == SKY_END_ERROR: what went wrong, else "" */
};

struct sky_rollout_opt {
	struct sky_sampling sampling;
	int n_sample;                   /* a prompt */
	int64_t max_turns;              /* given to the environment; the loop stops there in any case */
	int64_t max_input;              /* an input longer than this ends the episode (stop = length); 0 = the model's limit */
	int64_t n_active;               /* episodes in flight, default 256 */
	int zero_reward_on_non_stop;
	const struct sky_jnode *template_args;
};

struct sky_rollout;
int sky_rollout_new(struct sky_engine *e, const struct sky_tokenizer *tok, const struct sky_template *tmpl, struct sky_envs *envs,
                    const struct sky_config *cfg, const struct sky_rollout_opt *opt, struct sky_rollout **r_p,
                    struct sky_err *err) SKY_MUST_CHECK;
void sky_rollout_free(struct sky_rollout *r);

/* Gives the next prompt row as JSON text (borrowed until the next call); SKY_EOF at the end. row is its index. */
typedef int sky_rollout_source(void *ctx, int64_t row, const char **text_p, size_t *n_p, struct sky_err *err);
typedef int sky_rollout_sink(void *ctx, const struct sky_episode_out *ep, struct sky_err *err);
/* Runs until the source ends and every trajectory was handed over. stop (may be NULL): polled between passes; true ends early
 * with SKY_E_STOP. row0: index of the first row, part of the random streams, so that a later batch draws anew. */
int sky_rollout_run(struct sky_rollout *r, int64_t row0, sky_rollout_source *source, sky_rollout_sink *sink, void *ctx,
                    bool (*stop)(void), struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
