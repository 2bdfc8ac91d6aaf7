/* skyrl-train run: the whole loop. Each step samples with skyrl-rollout as a child on the very weights that are trained, updates,
 * checkpoints, and publishes the new version if asked to. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/runconf.h"
#include "cmd/train_cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
	const char *prompts, *env, *env_cmd, *publish;
	int64_t per_step, n_sample, max_turns, max_input, ckpt_every, keep, keep_rollouts, n_worker;
	double env_timeout, rollout_timeout;
} o;

const struct opt_row train_run_rows[] = {
	OPT_TABLE(cmd_model_rows),
	OPT_HEAD("Rollout"),
	OPT_FILE(0, "prompts", &o.prompts, "FILE", NULL, "prompt rows as JSON lines", .ext = "jsonl"),
	OPT_COUNT(0, "prompts-per-step", &o.per_step, "N", "8", "prompts sampled a step", .min = 1),
	OPT_COUNT('n', "samples", &o.n_sample, "N", "5", "trajectories a prompt", .min = 1, .max = 65536),
	OPT_TEXT(0, "env", &o.env, "NAME", NULL, "built-in environment (skyrl-env --list)"),
	OPT_TEXT(0, "env-cmd", &o.env_cmd, "CMD", NULL, "shell command that speaks the protocol of skyrl-env(7)"),
	OPT_TIME(0, "env-timeout", &o.env_timeout, "TIME", "30s", "longest wait for one answer of the environment", .min = 0.001),
	OPT_COUNT(0, "env-workers", &o.n_worker, "N", "1", "children that serve episodes", .min = 1, .max = 256),
	OPT_COUNT(0, "max-turns", &o.max_turns, "N", "1", "turns of an episode at most", .min = 1),
	OPT_COUNT(0, "max-input-length", &o.max_input, "N", "0",
	          "an input longer than this ends the episode; 0: the model's limit"),
	OPT_TIME(0, "rollout-timeout", &o.rollout_timeout, "TIME", "6h", "longest wait for the rollout of one step", .min = 1),
	OPT_TABLE(cmd_sampling_rows), OPT_TABLE(train_update_rows),
	OPT_COUNT(0, "steps", &train.n_step, "N", "100", "rollouts with their updates", .min = 1),
	OPT_REAL(0, "min-lr", &train.min_lr, "X", "0", "learning rate at the end of a schedule that falls", .min = 0, .max = 100),
	OPT_CHOICE(0, "schedule", &train.schedule, "cosine|linear|constant", "constant", "shape of the learning rate"),
	OPT_COUNT(0, "warmup-steps", &train.n_warmup, "N", "0", "steps of linear rise"),
	OPT_HEAD("Run"),
	CMD_OPT_OUTPUT("RUN", "run directory: config.json, metrics.ndjson, global_step_N/, policy/, rollout/, model/"),
	OPT_TEXT(0, "publish", &o.publish, "URL", NULL, "publish every version there as a delta (skyrl-delta)"),
	OPT_COUNT(0, "checkpoint-every", &o.ckpt_every, "N", "0",
	          "steps between checkpoints; 0 writes one at the end only", .min = 0),
	OPT_COUNT(0, "keep", &o.keep, "N", "2", "newest checkpoints that stay; 0 keeps all", .min = 0),
	OPT_COUNT(0, "keep-rollouts", &o.keep_rollouts, "N", "2", "newest steps whose trajectories stay; 0 keeps all", .min = 0),
	CMD_OPT_SEED, CMD_OPT_THREADS, CMD_OPT_FORCE, CMD_OPT_JSON,
	OPT_END
};

static const struct runconf_row kept[] = {
	{ "model", RUNCONF_TEXT, &cmd_model.dir }, { "dtype", RUNCONF_CHOICE, &cmd_model.dtype },
	{ "prompts", RUNCONF_TEXT, &o.prompts }, { "env", RUNCONF_TEXT, &o.env }, { "env-cmd", RUNCONF_TEXT, &o.env_cmd },
	{ "publish", RUNCONF_TEXT, &o.publish }, { "ref-model", RUNCONF_TEXT, &train.ref_dir },
	{ "prompts-per-step", RUNCONF_INT, &o.per_step }, { "samples", RUNCONF_INT, &o.n_sample },
	{ "max-turns", RUNCONF_INT, &o.max_turns }, { "max-input-length", RUNCONF_INT, &o.max_input },
	{ "env-workers", RUNCONF_INT, &o.n_worker }, { "steps", RUNCONF_INT, &train.n_step },
	{ "epochs", RUNCONF_INT, &train.n_epoch }, { "mini-batch-prompts", RUNCONF_INT, &train.mini_prompts },
	{ "micro-tokens", RUNCONF_INT, &train.micro_tokens }, { "warmup-steps", RUNCONF_INT, &train.n_warmup },
	{ "checkpoint-every", RUNCONF_INT, &o.ckpt_every }, { "keep", RUNCONF_INT, &o.keep },
	{ "keep-rollouts", RUNCONF_INT, &o.keep_rollouts }, { "seed", RUNCONF_INT, &cmd.seed },
	{ "max-new-tokens", RUNCONF_INT, &cmd_sampling.max_new }, { "top-k", RUNCONF_INT, &cmd_sampling.top_k },
	{ "batch", RUNCONF_INT, &cmd_sampling.batch }, { "stop", RUNCONF_TEXTS, &cmd_sampling.stop },
	{ "temperature", RUNCONF_REAL, &cmd_sampling.temperature }, { "top-p", RUNCONF_REAL, &cmd_sampling.top_p },
	{ "min-p", RUNCONF_REAL, &cmd_sampling.min_p }, { "env-timeout", RUNCONF_REAL, &o.env_timeout },
	{ "rollout-timeout", RUNCONF_REAL, &o.rollout_timeout }, { "lr", RUNCONF_REAL, &train.lr },
	{ "min-lr", RUNCONF_REAL, &train.min_lr }, { "weight-decay", RUNCONF_REAL, &train.weight_decay },
	{ "grad-clip", RUNCONF_REAL, &train.grad_clip }, { "adam-beta1", RUNCONF_REAL, &train.beta1 },
	{ "adam-beta2", RUNCONF_REAL, &train.beta2 }, { "adam-eps", RUNCONF_REAL, &train.eps },
	{ "overlong-filter", RUNCONF_FLAG, &train.overlong_filter }, { "compat-skyrl", RUNCONF_FLAG, &train.compat },
	{ "optimizer", RUNCONF_CHOICE, &train.optimizer }, { "schedule", RUNCONF_CHOICE, &train.schedule },
	{ "algorithm", RUNCONF_TEXTS, &train.algo },
	{ NULL, RUNCONF_END, NULL }
};

struct run {
	const char *dir;
	bool resumed;
	struct cmd_runtime rt;
	struct sky_model *ref;
	struct sky_optim *opt;
	struct sky_rl *rl;
	struct sky_rl_opt ro;
	struct sky_metrics_file log;
	struct train_batch batch;
	/* prompt rows: the text and where each begins */
	struct sky_buf text;
	int64_t *row_at, n_row;
	int64_t step, n_tok;            /* steps done, sampled tokens so far */
	double kl_coef;
	char self[SKY_MAX_PATH];        /* folder of the programs */
};

/* ---- prompts ---- */

static int load_prompts(struct run *r, struct sky_err *err)
{
	int64_t cap = 0;
	size_t at = 0;
	int rc = sky_file_read(o.prompts, &r->text, err);

	while (rc == 0 && at < r->text.n) {
		char *nl = memchr(r->text.ptr + at, '\n', r->text.n - at);
		size_t end = nl ? (size_t)(nl - r->text.ptr) : r->text.n;

		if (end > at) {
			if (r->n_row + 2 > cap) {
				cap = 2 * r->n_row + 64;
				r->row_at = sky_realloc_array(r->row_at, (size_t)cap, sizeof(int64_t));
				if (!r->row_at) {
					return sky_fail_mem(err, "%s", o.prompts);
				}
			}
			r->row_at[r->n_row++] = (int64_t)at;
		}
		at = end + 1;
	}
	if (rc == 0 && r->n_row == 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no prompt rows", o.prompts);
	}
	return rc;
}

/* The rows of a step, in an order that is a function of (seed, epoch, place), into RUN/rollout/step_N/prompts.jsonl. */
static int write_prompts(const struct run *r, const char *path, struct sky_err *err)
{
	struct sky_out out = { .fd = -1 };
	int rc = sky_out_open(&out, path, SKY_OUT_REPLACE, err);

	for (int64_t i = 0; i < o.per_step && rc == 0; i++) {
		int64_t k = r->step * o.per_step + i;
		uint64_t at = sky_rng_permute((uint64_t)cmd.seed, SKY_RNG_ORDER, (uint64_t)(k / r->n_row), (uint64_t)(k % r->n_row),
		                              (uint64_t)r->n_row);
		const char *row = r->text.ptr + r->row_at[at];

		rc = sky_out_write(&out, row, strcspn(row, "\n"), err);
		rc = rc < 0 ? rc : sky_out_write(&out, "\n", 1, err);
	}
	if (rc == 0) {
		return sky_out_commit(&out, err);
	}
	sky_out_abort(&out);
	return rc;
}

/* ---- the child ---- */

struct args {
	char *v[96];
	char text[96][64];
	int n;
};

static void arg(struct args *a, const char *name, const char *value)
{
	if (value && a->n + 3 < 96) {
		a->v[a->n++] = (char *)(uintptr_t)name;
		a->v[a->n++] = (char *)(uintptr_t)value;
		a->v[a->n] = NULL;
	}
}

static void arg_int(struct args *a, const char *name, int64_t v)
{
	snprintf(a->text[a->n], sizeof(a->text[0]), "%lld", (long long)v);
	arg(a, name, a->text[a->n]);
}

static void arg_real(struct args *a, const char *name, double v)
{
	sky_fmt_f64(a->text[a->n], sizeof(a->text[0]), v);
	arg(a, name, a->text[a->n]);
}

static const char *program(const struct run *r, const char *name, char *out, size_t cap)
{
	snprintf(out, cap, "%s/%s", r->self, name);
	return access(out, X_OK) == 0 ? out : name;
}

/* Reads references until the child ends; looks for a stop between them. */
static int read_refs(struct run *r, struct sky_proc *p, struct sky_err *err)
{
	double until = sky_now() + o.rollout_timeout;
	int64_t vocab = sky_model_config(r->rt.model)->vocab;
	struct sky_lines in;
	const char *line;
	size_t n;
	int rc = 0;

	sky_lines_init(&in, p->out, "skyrl-rollout", SKY_MAX_RECORD_BYTES);
	while (rc == 0) {
		rc = sky_lines_next(&in, 0.5, &line, &n, err);
		if (rc == 0 && n > 0) {
			rc = train_batch_ref(&r->batch, line, n, vocab, err);
		} else if (rc == SKY_E_AGAIN) {
			rc = cmd_stopping() ? cmd_stop_err(err, "the rollout of this step is dropped; --resume goes on")
			     : sky_now() > until ? sky_fail(err, SKY_E_AGAIN,
			                                    "skyrl-rollout took longer than %g s (--rollout-timeout)",
			                                    o.rollout_timeout)
			                         : 0;
		}
	}
	sky_lines_release(&in);
	return rc == SKY_EOF ? 0 : rc;
}

static int run_child(struct run *r, const char *dir, const char *prompts, const char *policy, struct sky_err *err)
{
	char exe[SKY_MAX_PATH + 32], state[128];
	struct sky_proc p = { .in = -1, .out = -1 };
	struct args a = { .n = 0 };
	int rc, status = 0;

	a.v[a.n++] = (char *)(uintptr_t)program(r, "skyrl-rollout", exe, sizeof(exe));
	arg(&a, "--model", policy);
	arg(&a, "--prompts", prompts);
	arg(&a, o.env_cmd ? "--env-cmd" : "--env", o.env_cmd ? o.env_cmd : o.env);
	arg(&a, "--output", dir);
	arg(&a, "--dtype", cmd_model.dtype == 1 ? "f32" : "bf16");
	arg_int(&a, "--samples", o.n_sample);
	arg_int(&a, "--max-turns", o.max_turns);
	arg_int(&a, "--max-input-length", o.max_input);
	arg_int(&a, "--env-workers", o.n_worker);
	arg_real(&a, "--env-timeout", o.env_timeout);
	arg_real(&a, "--temperature", cmd_sampling.temperature);
	arg_real(&a, "--top-p", cmd_sampling.top_p);
	arg_real(&a, "--min-p", cmd_sampling.min_p);
	arg_int(&a, "--top-k", cmd_sampling.top_k);
	arg_int(&a, "--max-new-tokens", cmd_sampling.max_new);
	arg_int(&a, "--batch", cmd_sampling.batch);
	arg_int(&a, "--kv-cache", (int64_t)cmd_sampling.kv_bytes);
	arg_int(&a, "--threads", cmd.threads);
	arg_int(&a, "--weight-version", r->step);
	/* Every step draws anew; a resumed run draws what the cut one would have drawn. */
	arg_int(&a, "--seed", (int64_t)(((uint64_t)cmd.seed * 1000003u + (uint64_t)r->step) & INT64_MAX));
	for (int64_t i = 0; i < cmd_sampling.stop.n && i < 16; i++) {
		arg(&a, "--stop", cmd_sampling.stop.v[i]);
	}
	arg(&a, "--progress", "never");
	a.v[a.n++] = (char *)(uintptr_t)"--force";
	if (cmd.verbose == 0) {
		a.v[a.n++] = (char *)(uintptr_t)"--quiet";
	}
	a.v[a.n] = NULL;
	rc = sky_proc_start(&p, a.v, NULL, SKY_PROC_STDOUT, err);
	rc = rc < 0 ? rc : read_refs(r, &p, err);
	if (rc < 0) {
		sky_proc_kill(&p, 2);
		return rc;
	}
	rc = sky_proc_wait(&p, 60, &status, err);
	if (rc < 0) {
		sky_proc_kill(&p, 2);
	} else if (status != 0) {
		rc = sky_fail(err, WIFEXITED(status) && WEXITSTATUS(status) < 11 ? -WEXITSTATUS(status) : SKY_E_SYS,
		              "skyrl-rollout %s",
		              sky_proc_status_text(status, state, sizeof(state)));
	}
	if (p.out >= 0) {
		close(p.out);
	}
	free(p.name);
	return rc;
}

/* ---- weights ---- */

/* RUN/policy: what the next rollout samples with, in a type that rounds to the very weights in use. */
static int save_policy(const struct run *r, char *path, struct sky_err *err)
{
	enum sky_dtype t = SKY_DT_NONE;
	int rc = sky_path_join(path, SKY_MAX_PATH, r->dir, "policy", err);

	for (int64_t i = 0; i < sky_model_n_param(r->rt.model); i++) {
		enum sky_dtype have = sky_model_param(r->rt.model, i)->dtype;

		if (cmd_model_dtype() == KN_F32 ? have != SKY_F32 : have != SKY_F32 && have != SKY_BF16) {
			t = SKY_F32;
		}
	}
	return rc < 0 ? rc : sky_model_save(r->rt.model, path, t, SKY_OUT_REPLACE, err);
}

static int run_quiet(char *const argv[], const char *what, struct sky_err *err)
{
	struct sky_proc p = { .in = -1, .out = -1 };
	char state[128];
	int status = 0, rc = sky_proc_start(&p, argv, NULL, 0, err);

	rc = rc < 0 ? rc : sky_proc_wait(&p, 3600, &status, err);
	if (rc < 0) {
		sky_proc_kill(&p, 2);
		return rc;
	}
	free(p.name);
	if (status != 0) {
		return sky_fail(err, WIFEXITED(status) && WEXITSTATUS(status) < 11 ? -WEXITSTATUS(status) : SKY_E_SYS,
		                "%s %s", what,
		                sky_proc_status_text(status, state, sizeof(state)));
	}
	return 0;
}

/* skyrl-delta publish of the model as it would be exported. */
static int publish(const struct run *r, struct sky_err *err)
{
	char exe[SKY_MAX_PATH + 32], state[SKY_MAX_PATH], export_dir[SKY_MAX_PATH];
	struct args a = { .n = 0 };
	int rc = sky_path_join(state, sizeof(state), r->dir, "publish", err);

	rc = rc < 0 ? rc : sky_path_join(export_dir, sizeof(export_dir), r->dir, "export", err);
	rc = rc < 0 ? rc : sky_model_save(r->rt.model, export_dir, SKY_DT_NONE, SKY_OUT_REPLACE, err);
	if (rc < 0) {
		return rc;
	}
	a.v[a.n++] = (char *)(uintptr_t)program(r, "skyrl-delta", exe, sizeof(exe));
	a.v[a.n++] = (char *)(uintptr_t)"publish";
	arg(&a, "--store", o.publish);
	arg(&a, "--state", state);
	arg(&a, "--base", cmd_model.dir);
	a.v[a.n++] = (char *)(uintptr_t)"--quiet";
	a.v[a.n++] = export_dir;
	a.v[a.n] = NULL;
	return run_quiet(a.v, "skyrl-delta publish", err);
}

/* ---- steps ---- */

static int rollout(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	char root[SKY_MAX_PATH], dir[SKY_MAX_PATH], prompts[SKY_MAX_PATH], policy[SKY_MAX_PATH], name[64];
	double t0 = sky_now(), t1;
	int rc = save_policy(r, policy, err);

	t1 = sky_now();
	snprintf(name, sizeof(name), "step_%lld", (long long)r->step + 1);
	rc = rc < 0 ? rc : sky_path_join(root, sizeof(root), r->dir, "rollout", err);
	rc = rc < 0 ? rc : sky_path_join(dir, sizeof(dir), root, name, err);
	rc = rc < 0 ? rc : sky_mkdirs(dir, err);
	rc = rc < 0 ? rc : sky_path_join(prompts, sizeof(prompts), dir, "prompts.jsonl", err);
	rc = rc < 0 ? rc : write_prompts(r, prompts, err);
	train_batch_clear(&r->batch);
	rc = rc < 0 ? rc : run_child(r, dir, prompts, policy, err);
	rc = rc < 0 ? rc : train_batch_done(&r->batch, err);
	if (rc == 0 && o.keep_rollouts > 0 && r->step >= o.keep_rollouts) {
		snprintf(name, sizeof(name), "step_%lld", (long long)(r->step + 1 - o.keep_rollouts));
		rc = sky_path_join(dir, sizeof(dir), root, name, err);
		rc = rc < 0 ? rc : sky_remove_tree(dir, err);
	}
	if (rc == 0) {
		train_batch_metrics(&r->batch, m);
		sky_metric_set(m, "timing/sync_weights", t1 - t0);
		sky_metric_set(m, "timing/generate", sky_now() - t1);
	}
	return rc;
}

static int one_step(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	double t0 = sky_now(), t1, lr = 0;
	int trained = 0;
	int rc = rollout(r, m, err);

	t1 = sky_now();
	rc = rc < 0 ? rc : sky_schedule(sky_schedule_name(train.schedule), train.lr, train.min_lr, r->step,
	                                train.n_warmup, train.n_step,
	                                &lr, err);
	r->ro.lr = lr;
	r->ro.temperature = r->batch.temperature;
	rc = rc < 0 ? rc : sky_rl_update(r->rl, &r->batch.b, &r->ro, r->step, &r->kl_coef, m, &trained, err);
	if (rc < 0) {
		return rc;
	}
	r->step++;
	for (int64_t t = 0; t < r->batch.b.start[r->batch.b.n_seq]; t++) {
		r->n_tok += r->batch.b.mask[t];
	}
	sky_metric_set(m, "timing/policy_train", sky_now() - t1);
	if (o.publish) {
		double t2 = sky_now();

		rc = publish(r, err);
		sky_metric_set(m, "timing/publish", sky_now() - t2);
	}
	sky_metric_set(m, "trainer/global_step", (double)r->step);
	sky_metric_set(m, "trainer/epoch", floor((double)((r->step - 1) * o.per_step) / (double)r->n_row));
	sky_metric_set(m, "timing/step", sky_now() - t0);
	return rc;
}

static int checkpoint(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	char state[256], kl[64];
	double t0 = sky_now();
	int rc;

	snprintf(state, sizeof(state), "{\"global_step\":%lld,\"kl_coef\":%s,\"sampled_tokens\":%lld}\n", (long long)r->step,
	         sky_fmt_f64(kl, sizeof(kl), r->kl_coef), (long long)r->n_tok);
	rc = sky_ckpt_save(r->dir, r->step, r->rt.model, r->opt, state, o.keep, err);
	sky_metric_set(m, "timing/save_checkpoints", sky_now() - t0);
	return rc;
}

static int restore(struct run *r, struct sky_err *err)
{
	struct sky_json *state = NULL;
	int rc = sky_ckpt_latest(r->dir, &r->step, err);

	rc = rc < 0 ? rc : sky_ckpt_load(r->dir, r->step, r->rt.model, r->opt, &state, err);
	rc = rc < 0 ? rc : sky_j_get_f64(sky_json_root(state), "kl_coef", r->kl_coef, &r->kl_coef, err);
	rc = rc < 0 ? rc : sky_j_get_i64(sky_json_root(state), "sampled_tokens", 0, &r->n_tok, err);
	sky_json_free(state);
	return rc;
}

static int steps(struct run *r, struct sky_err *err)
{
	struct cmd_meter meter;
	int rc = 0;

	cmd_meter_start(&meter, "train", "steps", (double)train.n_step, (double)r->step);
	while (r->step < train.n_step && rc == 0) {
		struct sky_metrics m = { 0 };
		bool last, stopping;

		rc = one_step(r, &m, err);
		if (rc < 0) {
			break;
		}
		cmd_note("step %lld: mean reward %.3f, loss %.4f, log-prob gap %g", (long long)r->step,
		         sky_metric_get(&m, "reward/avg_raw_reward"), sky_metric_get(&m, "policy/policy_loss"),
		         sky_metric_get(&m, "policy/rollout_train_logprobs_abs_diff_max"));
		cmd_meter(&meter, (double)r->step, "mean reward %.3f", sky_metric_get(&m, "reward/avg_raw_reward"));
		last = r->step == train.n_step;
		stopping = cmd_stopping();
		if (last || stopping || cmd_sig_usr2() || (o.ckpt_every > 0 && r->step % o.ckpt_every == 0)) {
			rc = checkpoint(r, &m, err);
		}
		rc = rc < 0 ? rc : sky_metrics_write(&r->log, r->step, &m, err);
		if (rc == 0 && stopping && !last) {
			rc = cmd_stop_err(err, "the state is saved: --resume goes on from it");
		}
	}
	cmd_meter_stop(&meter);
	return rc;
}

static int check_options(struct run *r, struct sky_err *err)
{
	ssize_t n = readlink("/proc/self/exe", r->self, sizeof(r->self) - 1);
	char *slash;
	int rc;

	r->self[n > 0 ? n : 0] = '\0';
	slash = strrchr(r->self, '/');
	if (slash) {
		*slash = '\0';
	}
	if (!o.prompts || !cmd_model.dir) {
		return sky_fail(err, SKY_E_USAGE, "--model and --prompts are required");
	}
	if (!o.env == !o.env_cmd) {
		return sky_fail(err, SKY_E_USAGE, "one of --env and --env-cmd is required");
	}
	rc = train_algo(&r->ro.algo, err);
	if (rc == 0 && (r->ro.algo.use_kl_loss || r->ro.algo.use_kl_in_reward) && !train.ref_dir) {
		train.ref_dir = cmd_model.dir;
	}
	r->ro.n_epoch = train.n_epoch;
	r->ro.mini_prompts = train.mini_prompts;
	r->ro.micro_tokens = train.micro_tokens;
	r->ro.seed = (uint64_t)cmd.seed;
	r->kl_coef = r->ro.algo.kl_loss_coef;
	return rc;
}

static int open_run(struct run *r, struct sky_err *err)
{
	struct sky_model_opt mo = { .compute = cmd_model_dtype() };
	struct sky_optim_opt oo;
	char path[SKY_MAX_PATH];
	int rc = check_options(r, err);

	rc = rc < 0 ? rc : load_prompts(r, err);
	rc = rc < 0 ? rc : cmd_runtime_open(&r->rt, CMD_PART_TRAIN, err);
	if (rc == 0 && train.ref_dir) {
		rc = sky_model_open(&r->rt.device, train.ref_dir, &mo, &r->ref, err);
	}
	train_optim_opt(&oo);
	rc = rc < 0 ? rc : sky_optim_new(r->rt.model, &r->rt.device, &oo, &r->opt, err);
	rc = rc < 0 ? rc : sky_rl_new(r->rt.model, r->ref, r->opt, &r->rl, err);
	rc = rc < 0 || !r->resumed ? rc : restore(r, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), r->dir, "config.json", err);
	rc = rc < 0 ? rc : runconf_save(kept, path, err);
	return rc < 0 ? rc : sky_metrics_open(&r->log, r->dir, r->step, err);
}

static void close_run(struct run *r)
{
	sky_metrics_close(&r->log);
	sky_rl_free(r->rl);
	sky_optim_free(r->opt);
	sky_model_close(r->ref);
	cmd_runtime_close(&r->rt);
	train_batch_release(&r->batch);
	sky_buf_release(&r->text);
	free(r->row_at);
}

static int result_record(const struct run *r, const char *model, struct sky_err *err)
{
	struct sky_jw *w;

	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", "train");
	sky_jw_kstr(w, "run", r->dir);
	sky_jw_kstr(w, "model", model);
	sky_jw_ki64(w, "steps", r->step);
	sky_jw_ki64(w, "sampled_tokens", r->n_tok);
	sky_jw_kf64(w, "elapsed_s", cmd_since_start());
	return cmd_rec_end(err);
}

static int drive(const char *resume, struct sky_err *err)
{
	struct run r = { .log = { .fd = -1 }, .text = SKY_BUF_INIT(SKY_MAX_JSON_BYTES), .resumed = resume != NULL };
	struct sky_lock lock = SKY_LOCK_INIT;
	char path[SKY_MAX_PATH];
	int rc = runconf_open_dir(&lock, resume, "metrics.ndjson", err);

	r.dir = resume ? resume : cmd.output;
	if (rc == 0 && resume) {
		struct opt_list given = { NULL, 0 };

		rc = sky_path_join(path, sizeof(path), r.dir, "config.json", err);
		rc = rc < 0 ? rc : runconf_load(kept, path, err);
		given = train.algo;
		train.algo = (struct opt_list){ NULL, 0 };
		for (int64_t i = 0; i < given.n && rc == 0; i++) {
			char key[256];
			const char *eq = strchr(given.v[i], '=');

			snprintf(key, sizeof(key), "%.*s", eq ? (int)(eq - given.v[i]) : 0, given.v[i]);
			rc = eq ? train_dotted(key, eq + 1, err) : 0;
			rc = rc == SKY_EOF ? 0 : rc;
		}
	}
	rc = rc < 0 ? rc : open_run(&r, err);
	rc = rc < 0 ? rc : steps(&r, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), r.dir, "model", err);
	rc = rc < 0 ? rc : sky_model_save(r.rt.model, path, SKY_DT_NONE, SKY_OUT_REPLACE, err);
	rc = rc < 0 ? rc : result_record(&r, path, err);
	close_run(&r);
	sky_lock_drop(&lock);
	return rc;
}

int run_run(int argc, char **argv, struct sky_err *err)
{
	(void)argc;
	(void)argv;
	return drive(NULL, err);
}

int resume_run(const char *dir, struct sky_err *err)
{
	return drive(dir, err);
}
