/* skyrl-pretok: which share of the input is this process's? --worker i/n, or what Slurm and MPI put into the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

static bool env_i64(const char *name, int64_t *v_p)
{
	const char *s = getenv(name);

	return s && *s && !sky_parse_i64(s, v_p, NULL);
}

/* A Slurm array (ids from MIN in steps of 1), the tasks of a Slurm step, ranks of Open MPI, of MPICH and its relatives. */
static bool from_environment(int64_t *i, int64_t *n, const char **who)
{
	int64_t min = 0;

	if (env_i64("SLURM_ARRAY_TASK_ID", i) && env_i64("SLURM_ARRAY_TASK_COUNT", n) && *n > 1) {
		if (env_i64("SLURM_ARRAY_TASK_MIN", &min)) {
			*i -= min;
		}
		*who = "Slurm array";
		return true;
	}
	if (env_i64("OMPI_COMM_WORLD_RANK", i) && env_i64("OMPI_COMM_WORLD_SIZE", n) && *n > 1) {
		*who = "Open MPI";
		return true;
	}
	if (env_i64("PMI_RANK", i) && env_i64("PMI_SIZE", n) && *n > 1) {
		*who = "MPI";
		return true;
	}
	if (env_i64("SLURM_PROCID", i) && env_i64("SLURM_STEP_NUM_TASKS", n) && *n > 1) {
		*who = "Slurm step";
		return true;
	}
	return false;
}

int pretok_worker_share(int *i_p, int *n_p, char *text, size_t cap, struct sky_err *err)
{
	const char *slash = pt.worker ? strchr(pt.worker, '/') : NULL, *who = "--worker";
	int64_t i = 0, n = 1;
	char head[32];
	int rc = 0;

	if (pt.worker) {
		if (!slash || (size_t)(slash - pt.worker) >= sizeof head) {
			return sky_fail(err, SKY_E_USAGE, "--worker \"%s\": i/n is expected, i from 0", pt.worker);
		}
		memcpy(head, pt.worker, (size_t)(slash - pt.worker));
		head[slash - pt.worker] = '\0';
		rc = sky_parse_i64(head, &i, err);
		rc = rc ? rc : sky_parse_i64(slash + 1, &n, err);
	} else if (!from_environment(&i, &n, &who)) {
		n = 1;
		i = 0;
	}
	if (rc < 0 || n < 1 || n > 1000000 || i < 0 || i >= n) {
		return sky_fail(err, SKY_E_USAGE,
				"%s: worker %lld of %lld is impossible (i from 0 to n - 1; --worker 0/1 works alone)",
				who, (long long)i, (long long)n);
	}
	*i_p = (int)i;
	*n_p = (int)n;
	snprintf(text, cap, "%lld/%lld", (long long)i, (long long)n);
	if (n > 1) {
		cmd_note("worker %s (%s)", text, who);
	}
	return 0;
}
