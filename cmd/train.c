/* skyrl-train: reinforcement learning on trajectories.
 *
 *	skyrl-rollout --model base --prompts p.jsonl --env gsm8k -n 8 -o out | skyrl-train step --model base -o next -
 *	skyrl-train run --model base --prompts p.jsonl --env gsm8k -o run --steps 100 --prompts-per-step 16 -n 8 --lr 1e-6
 *	skyrl-train --resume run
 */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/train_cmd.h"

static const char *resume;

/* skyrl-train --resume RUN takes every option of run, to change one of them. */
static const struct opt_row rows[] = {
	OPT_DIR(0, "resume", &resume, "RUN", NULL, "go on from the newest checkpoint of RUN, with its options"),
	OPT_TABLE(train_run_rows),
	OPT_END
};

static int train_run(int argc, char **argv, struct sky_err *err)
{
	(void)argv;
	if (!resume || argc > 0) {
		return sky_fail(err, SKY_E_USAGE, "a command is expected: step, run, or --resume RUN");
	}
	return resume_run(resume, err);
}

static const struct cmd_sub subs[] = {
	{ .name = "step", .title = "one update: trajectories in, weights out",
	  .usage = "--model DIR [--state DIR] -o DIR REFS.ndjson|FILE.traj|-…",
	  .example = "skyrl-train step --model base --state opt -o next --lr 1e-6 out/rollout-000000.traj", .rows = train_step_rows,
	  .run = step_run, .flags = 0 },
	{ .name = "run", .title = "the whole loop, with skyrl-rollout as its child",
	  .usage = "--model DIR --prompts FILE.jsonl --env NAME -o RUN [OPTION]…",
	  .example = "skyrl-train run --model base --prompts p.jsonl --env gsm8k -o run --steps 100 -n 8 --lr 1e-6",
	  .rows = train_run_rows, .run = run_run, .flags = CMD_STOP_SOFT | CMD_NO_SIGPIPE | CMD_NO_OPERANDS },
	{ .name = NULL }
};

const struct cmd_prog cmd_prog = {
	.name = "skyrl-train",
	.title = "reinforcement learning on trajectories",
	.usage = "--resume RUN [OPTION]…",
	.example = "skyrl-train --resume run --steps 200",
	.rows = rows,
	.subs = subs,
	.run = train_run,
	.flags = CMD_NEEDS_ARGS | CMD_STOP_SOFT | CMD_NO_SIGPIPE,
	.dotted = train_dotted,
	.describe = cmd_dev_describe,
};
