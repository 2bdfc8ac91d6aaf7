/* Environments as child processes: the protocol of skyrl-env(7) over NDJSON, many episodes in flight.
 *
 * A set runs a few equal children; an episode belongs to one of them. Writing and reading go on together, so neither side can
 * block the other. A child that crashes, hangs beyond the deadline of a call or prints what is no reply is killed and costs
 * its episodes; a fresh one serves the next. */
#ifndef SKY_ROLLOUT_ENV_H
#define SKY_ROLLOUT_ENV_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_envs;

struct sky_env_opt {
	const char *cmd;                /* shell command of a child */
	const char *name;               /* for messages */
	int n_worker;                   /* children, default 1 */
	double timeout_s;               /* of one call, default 30 */
	size_t max_line;                /* of a reply, default 16 MiB */
};

enum sky_env_event {
	SKY_ENV_PROMPT,                 /* reply to init: doc holds "prompt" */
	SKY_ENV_STEP,                   /* reply to step: doc holds "obs", "reward", "done", "info" */
	SKY_ENV_LOST,                   /* the episode failed: why tells */
};

struct sky_env_reply {
	enum sky_env_event event;
	int64_t id;
	const struct sky_jnode *doc;    /* borrowed until the next poll; NULL when lost */
	char why[512];
};

int sky_envs_start(const struct sky_env_opt *opt, struct sky_envs **e_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_envs_stop(struct sky_envs *e);         /* closes stdin, waits a moment, kills */
/* Queue a call; row is a JSON object as text. An id is used by one episode at a time. */
int sky_env_init(struct sky_envs *e, int64_t id, const char *row, size_t n_row, struct sky_err *err) SKY_MUST_CHECK;
int sky_env_step(struct sky_envs *e, int64_t id, const char *action, size_t n, struct sky_err *err) SKY_MUST_CHECK;
int sky_env_close(struct sky_envs *e, int64_t id, struct sky_err *err) SKY_MUST_CHECK;
/* Next event; waits at most wait_s for one. SKY_EOF: none yet (or nothing is outstanding). A child that ends before it ever
 * answered is an error of the run: the command is wrong. */
int sky_env_poll(struct sky_envs *e, double wait_s, struct sky_env_reply *r, struct sky_err *err) SKY_MUST_CHECK;
int64_t sky_envs_outstanding(const struct sky_envs *e);         /* calls without an answer */

#ifdef __cplusplus
}
#endif
#endif
