/* The commands of skyrl-rollout; one file each. */
#ifndef SKY_CMD_ROLLOUT_CMD_H
#define SKY_CMD_ROLLOUT_CMD_H

#include "base/err.h"
#include "cmd/opt.h"

extern const struct opt_row complete_rows[], score_rows[];
int complete_run(int argc, char **argv, struct sky_err *err);
int score_run(int argc, char **argv, struct sky_err *err);

#endif
