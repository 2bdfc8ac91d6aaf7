/* skyrl-rollout: prompts, a policy and an environment to trajectories.
 *
 *	skyrl-rollout --model run/model --prompts train.jsonl --env gsm8k -n 8 -o out >refs.ndjson
 *
 * One reference record a group goes to standard output once the file it points into is whole. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/rollout_cmd.h"
#include "base/base.h"
#include "rollout/rollout.h"
#include "rollout/traj.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	const char *prompts, *env, *env_cmd;
	int64_t n_sample, max_turns, max_input, first, count, n_worker, n_active, segment, version;
	double env_timeout;
	bool zero_non_stop;
} o;

static const struct opt_row rows[] = {
	OPT_HEAD("Input"),
	OPT_FILE(0, "prompts", &o.prompts, "FILE", NULL,
	         "prompt rows as JSON lines: {\"prompt\":[messages],\"env_class\":…,\"reward_spec\":{…}}; - reads standard input",
	         .ext = "jsonl"),
	OPT_COUNT(0, "first-row", &o.first, "N", "0", "skip this many rows"),
	OPT_COUNT(0, "rows", &o.count, "N", "0", "rows to use; 0 uses all"),
	OPT_TABLE(cmd_model_rows),
	OPT_HEAD("Environment"),
	OPT_TEXT(0, "env", &o.env, "NAME", NULL, "built-in environment (skyrl-env --list); default: env_class of the first row"),
	OPT_TEXT(0, "env-cmd", &o.env_cmd, "CMD", NULL, "shell command that speaks the protocol of skyrl-env(7)"),
	OPT_TIME(0, "env-timeout", &o.env_timeout, "TIME", "30s", "longest wait for one answer", .min = 0.001),
	OPT_COUNT(0, "env-workers", &o.n_worker, "N", "1", "children that serve episodes", .min = 1, .max = 256),
	OPT_COUNT('n', "samples", &o.n_sample, "N", "5", "trajectories a prompt", .min = 1, .max = 65536),
	OPT_COUNT(0, "max-turns", &o.max_turns, "N", "1", "turns of an episode at most", .min = 1),
	OPT_COUNT(0, "max-input-length", &o.max_input, "N", "0",
	          "an input longer than this ends the episode; 0: the model's limit"),
	OPT_FLAG(0, "zero-reward-on-non-stop", &o.zero_non_stop, NULL, "no reward where generation did not end by itself"),
	OPT_TABLE(cmd_sampling_rows),
	OPT_HEAD("Output"),
	CMD_OPT_OUTPUT("OUTDIR", "folder for trajectory files"),
	OPT_COUNT(0, "active", &o.n_active, "N", "256", "episodes in flight", .min = 1),
	OPT_COUNT(0, "segment", &o.segment, "N", "4096", "trajectories a file, rounded up to whole groups", .min = 1),
	OPT_COUNT(0, "weight-version", &o.version, "N", "0", "recorded with every sampled token"),
	CMD_OPT_SEED, CMD_OPT_THREADS, CMD_OPT_FORCE, CMD_OPT_JSON,
	OPT_END
};

struct job {
	struct cmd_runtime rt;
	struct sky_lines in;
	int fd;
	int64_t n_row;          /* rows given to the rollout */
	char *ahead;            /* a row that was read to learn its env_class */
	size_t n_ahead;
	struct sky_buf line;
	/* the file being filled */
	struct sky_traj_build *build;
	int64_t n_file, group, group_first, n_in_group;
	double group_reward;
	struct sky_buf refs;    /* records of groups that are not on disk yet */
	char name[SKY_MAX_PATH];
	int32_t *version;
	float *zeros;
	int64_t version_cap;
	/* totals */
	int64_t n_traj, n_gen, n_tok, n_error;
	double reward;
	struct cmd_meter meter;
};

/* Next row that is not blank and not skipped. Checks that it is a JSON object. */
static int read_row(struct job *j, const char **text_p, size_t *n_p, struct sky_err *err)
{
	for (;;) {
		struct sky_json *doc = NULL;
		int rc = sky_lines_next(&j->in, -1, text_p, n_p, err);
		bool object;

		if (rc != 0) {
			return rc;
		}
		if (*n_p == 0 || (o.first > 0 && o.first-- > 0)) {
			continue;
		}
		rc = sky_json_parse(*text_p, *n_p, j->in.name, SKY_JSON_PYTHON, &doc, err);
		object = rc == 0 && sky_j_type(sky_json_root(doc)) == SKY_J_OBJECT;
		sky_json_free(doc);
		if (rc == 0 && !object) {
			rc = sky_fail(err, SKY_E_DATA, "a JSON object expected");
		}
		return sky_while(err, rc, "%s: line %lld", j->in.name, (long long)j->in.n_line);
	}
}

static int source(void *ctx, int64_t row, const char **text_p, size_t *n_p, struct sky_err *err)
{
	struct job *j = ctx;

	(void)row;
	if (o.count > 0 && j->n_row >= o.count) {
		return SKY_EOF;
	}
	j->n_row++;
	if (j->ahead) {
		sky_buf_clear(&j->line);
		*n_p = j->n_ahead;
		int rc = sky_buf_add(&j->line, j->ahead, j->n_ahead, err);

		free(j->ahead);
		j->ahead = NULL;
		*text_p = j->line.ptr;
		return rc;
	}
	return read_row(j, text_p, n_p, err);
}

/* The file is whole: its records may be told. */
static int finish_file(struct job *j, struct sky_err *err)
{
	int rc;

	if (!j->build || sky_traj_build_count(j->build) == 0) {
		return 0;
	}
	rc = sky_traj_build_write(j->build, j->name, cmd.force ? SKY_OUT_REPLACE : 0, err);
	rc = rc < 0 ? rc : cmd_out(j->refs.ptr, j->refs.n, err);
	rc = rc < 0 ? rc : cmd_out_flush(err);
	sky_buf_clear(&j->refs);
	j->n_file++;
	return rc;
}

static int end_group(struct job *j, struct sky_err *err)
{
	struct sky_jw w;
	int rc;

	if (j->n_in_group == 0) {
		return 0;
	}
	sky_jw_init(&w, &j->refs, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "trajectories");
	sky_jw_ki64(&w, "v", 1);
	sky_jw_kstr(&w, "file", j->name);
	sky_jw_ki64(&w, "first", j->group_first);
	sky_jw_ki64(&w, "count", j->n_in_group);
	sky_jw_ki64(&w, "group", j->group);
	sky_jw_kf64(&w, "reward_mean", j->group_reward / (double)j->n_in_group);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc < 0 ? rc : sky_buf_addc(&j->refs, '\n', err);
	j->n_in_group = 0;
	j->group_reward = 0;
	if (rc == 0 && sky_traj_build_count(j->build) >= o.segment) {
		rc = finish_file(j, err);
	}
	return rc;
}

/* {"env":…,"row":…,"sample":…,"turns":…,"info":{…}} of one trajectory. */
static int env_line(struct job *j, const struct sky_episode_out *ep, struct sky_err *err)
{
	struct sky_jw w;

	sky_buf_clear(&j->line);
	sky_jw_init(&w, &j->line, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "env", o.env ? o.env : "");
	sky_jw_ki64(&w, "row", ep->row);
	sky_jw_ki64(&w, "sample", ep->sample);
	sky_jw_ki64(&w, "turns", ep->n_turn);
	sky_jw_key(&w, "info");
	sky_jw_raw(&w, ep->info, strlen(ep->info));
	if (*ep->why) {
		sky_jw_kstr(&w, "error", ep->why);
	}
	sky_jw_close_obj(&w);
	return sky_jw_end(&w);
}

static int reserve(struct job *j, int64_t n, struct sky_err *err)
{
	if (n > j->version_cap) {
		free(j->version);
		free(j->zeros);
		j->version_cap = n + n / 2;
		j->version = sky_malloc_array((size_t)j->version_cap, sizeof(int32_t));
		j->zeros = sky_calloc_array((size_t)j->version_cap, sizeof(float));
	}
	return j->version && j->zeros ? 0 : sky_fail_mem(err, "trajectory");
}

static int sink(void *ctx, const struct sky_episode_out *ep, struct sky_err *err)
{
	const struct sky_config *c;
	struct job *j = ctx;
	struct sky_traj_row row = { .last = 1 };
	int32_t filler;
	uint8_t none = 0;
	int rc = 0;

	c = sky_model_config(j->rt.model);
	filler = c->n_eos > 0 ? c->eos[0] : 0;
	if (ep->sample == 0) {
		rc = end_group(j, err);
		if (rc == 0 && sky_traj_build_count(j->build) == 0) {
			snprintf(j->name, sizeof(j->name), "%s/rollout-%06lld.traj", cmd.output, (long long)j->n_file);
		}
		j->group = ep->row;
		j->group_first = sky_traj_build_count(j->build);
	}
	rc = rc < 0 ? rc : env_line(j, ep, err);
	rc = rc < 0 ? rc : reserve(j, ep->n + 1, err);
	if (rc < 0) {
		return rc;
	}
	row.n_tok = ep->n > 0 ? ep->n : 1;      /* an episode lost before its prompt was known holds one filler */
	row.prompt_len = ep->n > 0 ? ep->n_prompt : 1;
	row.tokens = ep->n > 0 ? ep->ids : &filler;
	row.loss_mask = ep->n > 0 ? ep->mask : &none;
	row.logprob = ep->n > 0 ? ep->logprob : j->zeros;
	row.reward = ep->n > 0 ? ep->reward : j->zeros;
	for (int64_t t = 0; t < row.n_tok; t++) {
		row.n_gen += row.loss_mask[t];
		j->version[t] = row.loss_mask[t] ? (int32_t)o.version : -1;
	}
	row.version = j->version;
	row.group = ep->row;
	row.stop = (int)ep->stop;
	row.done = ep->done;
	row.env = j->line.ptr;
	row.env_bytes = j->line.n;
	rc = sky_traj_build_add(j->build, &row, err);
	j->n_in_group++;
	j->group_reward += ep->reward_sum;
	j->n_traj++;
	j->n_gen += row.n_gen;
	j->n_tok += row.n_tok;
	j->n_error += ep->stop == SKY_END_ERROR;
	j->reward += ep->reward_sum;
	if (*ep->why) {
		cmd_verbose(1, "row %lld sample %lld: %s", (long long)ep->row, (long long)ep->sample, ep->why);
	}
	cmd_meter(&j->meter, (double)j->n_traj, "mean reward %.3f, %.0f tokens/s", j->reward / (double)j->n_traj,
	          (double)j->n_gen / (sky_now() - j->meter.t_start + 1e-9));
	return rc;
}

/* The environment's command: --env-cmd, or skyrl-env beside this program. */
static int env_command(char *out, size_t cap, struct sky_err *err)
{
	char self[SKY_MAX_PATH];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	for (const char *p = o.env; *p; p++) {
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", *p)) {
			return sky_fail(err, SKY_E_USAGE, "environment name %s: letters, digits, - _ . only", o.env);
		}
	}
	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash) {
		snprintf(slash, (size_t)(self + sizeof(self) - slash), "/skyrl-env");
	}
	if (slash && access(self, X_OK) == 0) {
		snprintf(out, cap, "exec '%s' %s", self, o.env);
	} else {
		snprintf(out, cap, "exec skyrl-env %s", o.env);
	}
	return 0;
}

/* Without --env the first row tells. */
static int choose_env(struct job *j, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const char *text;
	size_t n;
	int rc;

	if (o.env && o.env_cmd) {
		return sky_fail(err, SKY_E_USAGE, "--env and --env-cmd exclude each other");
	}
	if (o.env || o.env_cmd) {
		return 0;
	}
	rc = read_row(j, &text, &n, err);
	if (rc == SKY_EOF) {
		return sky_fail(err, SKY_E_DATA, "%s: no prompt rows", j->in.name);
	}
	rc = rc < 0 ? rc : sky_json_parse(text, n, j->in.name, SKY_JSON_PYTHON, &doc, err);
	if (rc == 0 && !sky_j_str(sky_j_get(sky_json_root(doc), "env_class"))) {
		rc = sky_fail(err, SKY_E_USAGE, "--env or --env-cmd is required: the rows have no env_class");
	}
	if (rc == 0) {
		o.env = strdup(sky_j_str(sky_j_get(sky_json_root(doc), "env_class")));
		j->ahead = malloc(n + 1);
		if (!o.env || !j->ahead) {
			rc = sky_fail_mem(err, "prompt row");
		} else {
			memcpy(j->ahead, text, n);
			j->n_ahead = n;
		}
	}
	sky_json_free(doc);
	return rc;
}

static int new_builder(struct job *j, const struct sky_sampling *s, struct sky_err *err)
{
	char model[65], sampling[256], t[64], p[64], m[64];
	struct sky_traj_build_opts bo = { .model = model, .sampling = sampling, .env_name = o.env ? o.env : o.env_cmd,
	                                  .arrays = SKY_TRAJ_LOGPROB | SKY_TRAJ_VERSION | SKY_TRAJ_REWARD | SKY_TRAJ_GROUP |
	                                            SKY_TRAJ_STOP | SKY_TRAJ_DONE | SKY_TRAJ_ENV };

	sky_model_fingerprint(j->rt.model, model);
	snprintf(sampling, sizeof(sampling), "{\"temperature\":%s,\"top_p\":%s,\"top_k\":%lld,\"min_p\":%s,\"seed\":%lld}",
	         sky_fmt_f64(t, sizeof(t), s->temperature), sky_fmt_f64(p, sizeof(p), s->top_p), (long long)s->top_k,
	         sky_fmt_f64(m, sizeof(m), s->min_p), (long long)s->seed);
	return sky_traj_build_new(&bo, &j->build, err);
}

static int run(struct job *j, const struct sky_sampling *s, struct sky_err *err)
{
	struct sky_rollout_opt ro = { .sampling = *s, .n_sample = (int)o.n_sample, .max_turns = o.max_turns,
	                             .max_input = o.max_input,
	                              .n_active = o.n_active, .zero_reward_on_non_stop = o.zero_non_stop };
	struct sky_env_opt eo = { .name = o.env, .n_worker = (int)o.n_worker, .timeout_s = o.env_timeout };
	char command[2 * SKY_MAX_PATH];
	struct sky_envs *envs = NULL;
	struct sky_rollout *r = NULL;
	int64_t first = o.first;
	int rc = choose_env(j, err);

	if (rc == 0 && !o.env_cmd) {
		rc = env_command(command, sizeof(command), err);
	}
	eo.cmd = o.env_cmd ? o.env_cmd : command;
	eo.name = o.env ? o.env : o.env_cmd;
	rc = rc < 0 ? rc : cmd_runtime_open(&j->rt, CMD_PART_CHAT | CMD_PART_ENGINE, err);
	rc = rc < 0 ? rc : sky_mkdirs(cmd.output, err);
	rc = rc < 0 ? rc : new_builder(j, s, err);
	rc = rc < 0 ? rc : sky_envs_start(&eo, &envs, err);
	rc = rc < 0 ? rc : sky_rollout_new(j->rt.engine, j->rt.tok, j->rt.tmpl, envs, sky_model_config(j->rt.model), &ro, &r, err);
	if (rc == 0) {
		cmd_meter_start(&j->meter, "rollout", "trajectories", o.count > 0 ? (double)(o.count * o.n_sample) : 0, 0);
		rc = sky_rollout_run(r, first, source, sink, j, cmd_stopping, err);
		cmd_meter_stop(&j->meter);
		/* What is finished is kept, also when the run was stopped. */
		if (rc == 0 || rc == SKY_E_STOP) {
			struct sky_err later;
			int rc2 = end_group(j, &later);

			rc2 = rc2 < 0 ? rc2 : finish_file(j, &later);
			if (rc2 < 0 && rc == 0) {
				*err = later;
				rc = rc2;
			}
		}
	}
	sky_rollout_free(r);
	sky_envs_stop(envs);
	return rc;
}

static int result(const struct job *j, struct sky_err *err)
{
	struct sky_jw *w;
	double s = sky_now() - j->meter.t_start;

	if (j->n_error > 0) {
		cmd_warn("%lld of %lld episodes were lost to their environment (-v tells why)", (long long)j->n_error,
		         (long long)j->n_traj);
	}
	cmd_note("%lld trajectories, mean reward %.4f, %lld sampled tokens, %.0f tokens/s", (long long)j->n_traj,
	         j->n_traj ? j->reward / (double)j->n_traj : 0, (long long)j->n_gen, (double)j->n_gen / (s + 1e-9));
	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", "rollout");
	sky_jw_ki64(w, "trajectories", j->n_traj);
	sky_jw_ki64(w, "tokens", j->n_tok);
	sky_jw_ki64(w, "sampled", j->n_gen);
	sky_jw_ki64(w, "lost", j->n_error);
	sky_jw_kf64(w, "reward_mean", j->n_traj ? j->reward / (double)j->n_traj : 0);
	sky_jw_kf64(w, "elapsed_s", s);
	return cmd_rec_end(err);
}

static int rollout_run(int argc, char **argv, struct sky_err *err)
{
	struct job j = { .fd = STDIN_FILENO, .line = SKY_BUF_INIT(SKY_MAX_LINE_BYTES), .refs = SKY_BUF_INIT(SKY_MAX_LINE_BYTES) };
	struct sky_lock lock = SKY_LOCK_INIT;
	struct sky_sampling s;
	int rc = cmd_sampling_get(&s, err);

	(void)argv;
	if (rc == 0 && (argc > 0 || !o.prompts || !cmd.output)) {
		rc = sky_fail(err, SKY_E_USAGE, argc > 0 ? "no operands expected (prompts: --prompts FILE)"
		                                         : "--prompts FILE and -o OUTDIR are required");
	}
	rc = rc < 0 ? rc : sky_mkdirs(cmd.output, err);
	rc = rc < 0 ? rc : sky_lock_take(&lock, cmd.output, 0, err);
	if (rc == 0 && strcmp(o.prompts, "-") && (j.fd = open(o.prompts, O_RDONLY | O_CLOEXEC)) < 0) {
		rc = sky_fail_sys(err, "%s", o.prompts);
	}
	if (rc == 0) {
		sky_lines_init(&j.in, j.fd, strcmp(o.prompts, "-") ? o.prompts : "standard input", SKY_MAX_LINE_BYTES);
		rc = run(&j, &s, err);
		rc = rc < 0 ? rc : result(&j, err);
		sky_lines_release(&j.in);
	}
	if (j.fd > STDIN_FILENO) {
		close(j.fd);
	}
	sky_traj_build_free(j.build);
	sky_buf_release(&j.line);
	sky_buf_release(&j.refs);
	free(j.ahead);
	free(j.version);
	free(j.zeros);
	cmd_runtime_close(&j.rt);
	sky_lock_drop(&lock);
	return rc;
}

static const struct cmd_sub subs[] = {
	{ .name = "complete", .title = "continue a prompt or answer a message", .usage = "--model DIR [--chat] [--prompt TEXT|-]",
	  .example = "skyrl-rollout complete --model run/model --chat --prompt 'What is 2+2?' --temperature 0",
		.rows = complete_rows,
	  .run = complete_run, .flags = CMD_STOP_SOFT | CMD_NO_OPERANDS },
	{ .name = "score", .title = "log-prob of every given token", .usage = "--model DIR [--json] PREFIX|IDS.ndjson…",
	  .example = "skyrl-rollout score --model run/model --json ids.ndjson", .rows = score_rows, .run = score_run,
	  .flags = CMD_STOP_SOFT },
	{ .name = NULL }
};

const struct cmd_prog cmd_prog = {
	.name = "skyrl-rollout",
	.title = "sample trajectories from a policy in an environment",
	.usage = "--model DIR --prompts FILE.jsonl --env NAME|--env-cmd CMD -o OUTDIR [OPTION]…",
	.example = "skyrl-rollout --model run/model --prompts train.jsonl --env gsm8k -n 8 -o out >refs.ndjson",
	.rows = rows,
	.subs = subs,
	.run = rollout_run,
	.flags = CMD_NEEDS_ARGS | CMD_STOP_SOFT | CMD_NO_SIGPIPE,
	.describe = cmd_dev_describe,
};
