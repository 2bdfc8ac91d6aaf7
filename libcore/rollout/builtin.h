/* Built-in environments, one row of a table each; skyrl-env serves them behind the protocol of skyrl-env(7). */
#ifndef SKY_ROLLOUT_BUILTIN_H
#define SKY_ROLLOUT_BUILTIN_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_episode {                    /* state of one episode; zeroed, then filled by init */
	int64_t turns, max_turns;
	char *truth;                    /* owned: the expected answer */
};

struct sky_env_result {
	double reward;
	int done;
	struct sky_buf obs;             /* JSON: an array of messages */
	struct sky_buf info;            /* JSON: an object of metrics */
};

struct sky_env_kind {
	const char *name, *summary;
	int64_t max_turns;              /* when the row names none */
	/* Where the truth stands in a row: a member of this object, named ground_truth. */
	const char *truth_in;
	int (*step)(struct sky_episode *ep, const char *action, size_t n, struct sky_env_result *out, struct sky_err *err);
};

const struct sky_env_kind *sky_env_kind_at(int i);              /* NULL after the last */
const struct sky_env_kind *sky_env_kind_find(const char *name); /* NULL when unknown */
int sky_episode_init(const struct sky_env_kind *k, struct sky_episode *ep, const struct sky_jnode *row,
                     struct sky_err *err) SKY_MUST_CHECK;
void sky_episode_release(struct sky_episode *ep);

/* The answer behind the first "#### " (SkyRL's strict gsm8k rule): optional minus, digits, dots and commas; commas are
 * removed. Appended to out; 0, or SKY_EOF when there is none. */
int sky_gsm8k_answer(const char *s, size_t n, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;
/* Content of the first \boxed{…} without inner braces, white space trimmed at both ends. */
int sky_boxed_answer(const char *s, size_t n, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
