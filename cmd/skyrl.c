/* skyrl: one door to all programs. `skyrl delta list …` runs `skyrl-delta list …`.
 *
 *	skyrl help plot */
#include "cmd/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"

static const struct opt_row rows[] = { OPT_END };

static const char *const programs[][2] = {
	{ "pretok", "corpora to token datasets" },
	{ "sft", "supervised training on token datasets" },
	{ "rollout", "prompts, weights and an environment to trajectories" },
	{ "train", "reinforcement learning on trajectories" },
	{ "delta", "delta checkpoints on disk, S3 and GCS" },
	{ "sync", "live weight transfer between trainers and rollout engines" },
	{ "serve", "Tinker-compatible server" },
	{ "env", "built-in environments" },
	{ "convert", "dtypes, quantisation, adapters, shards" },
	{ "inspect", "identify, print and check files" },
	{ "plot", "draw metrics" },
	{ NULL, NULL }
};

/* Folder of this very program, so that a build tree runs its own; empty when unknown (then PATH decides). */
static void own_folder(char *out, size_t cap)
{
	ssize_t n = readlink("/proc/self/exe", out, cap - 1);
	char *slash;

	out[n > 0 ? n : 0] = '\0';
	slash = strrchr(out, '/');
	if (slash) {
		slash[1] = '\0';
	} else {
		out[0] = '\0';
	}
}

static bool exists(const char *name)
{
	char dir[SKY_MAX_PATH], path[SKY_MAX_PATH + 64];

	own_folder(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%sskyrl-%s", dir, name);
	return access(path, X_OK) == 0;
}

static int list(struct sky_err *err)
{
	int i, rc = cmd_outs("usage: skyrl NAME [ARGUMENT]…, skyrl help [NAME], skyrl version\n\n", err);

	for (i = 0; rc >= 0 && programs[i][0]; i++) {
		if (exists(programs[i][0])) {
			rc = cmd_outf(err, "  %-10s %s\n", programs[i][0], programs[i][1]);
		}
	}
	return rc;
}

static int unknown(const char *name, struct sky_err *err)
{
	const char *names[sizeof(programs) / sizeof(programs[0]) + 1], *near;
	int i, n = 0;

	for (i = 0; programs[i][0]; i++) {
		if (exists(programs[i][0])) {
			names[n++] = programs[i][0];
		}
	}
	names[n] = NULL;
	near = opt_nearest(name, names);
	return sky_fail(err, SKY_E_USAGE, "no program skyrl-%s%s%s%s (skyrl help lists them)", name,
	                near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Replaces this process by skyrl-NAME with argv[1…]. Returns only on failure. */
static int become(const char *name, char **argv, struct sky_err *err)
{
	char dir[SKY_MAX_PATH], path[SKY_MAX_PATH + 256], word[256];

	if (strlen(name) > 64 || strchr(name, '/')) {
		return unknown("?", err);
	}
	snprintf(word, sizeof(word), "skyrl-%s", name);
	argv[0] = word;
	own_folder(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s%s", dir, word);
	if (cmd_out_flush(err) < 0 || dup2(cmd_out_fd(), 1) < 0) {
		return sky_fail_sys(err, "standard output");
	}
	if (dir[0]) {
		execv(path, argv);
	}
	if (!dir[0] || errno == ENOENT) {
		execvp(word, argv);
	}
	dup2(2, 1);
	return errno == ENOENT ? unknown(name, err) : sky_fail_sys(err, "%s", word);
}

static int skyrl_run(int argc, char **argv, struct sky_err *err)
{
	char help[] = "--help", version[] = "--version";
	char *shown[] = { NULL, help, NULL };

	if (argc == 0 || (strcmp(argv[0], "help") == 0 && argc == 1)) {
		return list(err);
	}
	if (strcmp(argv[0], "help") == 0) {
		return become(argv[1], shown, err);
	}
	if (strcmp(argv[0], "version") == 0) {
		shown[1] = version;
		return cmd_outf(err, "skyrl-tools %s\n", PACKAGE_VERSION);
	}
	return become(argv[0], argv, err);
}

const struct cmd_prog cmd_prog = {
	.name = "skyrl",
	.title = "run a program of the toolkit",
	.usage = "NAME [ARGUMENT]…\nhelp [NAME]\nversion",
	.example = "skyrl plot run/metrics.ndjson --terminal",
	.rows = rows,
	.run = skyrl_run,
	.flags = CMD_RAW_TAIL,
};
