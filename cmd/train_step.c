/* skyrl-train step: trajectories in, weights out; and the options that step and run share. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/train_cmd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct train_opt train;

const struct opt_row train_update_rows[] = {
	OPT_HEAD("Update"),
	OPT_REAL(0, "lr", &train.lr, "X", "1e-6", "learning rate at its highest", .min = 0, .max = 100),
	OPT_COUNT(0, "epochs", &train.n_epoch, "N", "1", "passes over a batch of trajectories", .min = 1),
	OPT_COUNT(0, "mini-batch-prompts", &train.mini_prompts, "N", "0", "prompts of one optimizer step; 0 takes the whole batch"),
	OPT_COUNT(0, "micro-tokens", &train.micro_tokens, "N", "4096", "tokens of a pass: bounds the memory, changes no result",
	          .min = 1),
	OPT_DIR(0, "ref-model", &train.ref_dir, "DIR", NULL, "reference model; switches the KL term on"),
	OPT_FLAG(0, "overlong-filter", &train.overlong_filter, NULL, "do not train on answers that were cut"),
	OPT_FLAG(0, "compat-skyrl", &train.compat, NULL, "SkyRL's numbers where they differ (groups of one, rounding)"),
	OPT_CHOICE(0, "optimizer", &train.optimizer, "adamw|sgd", "adamw", "how weights are updated"),
	OPT_REAL(0, "weight-decay", &train.weight_decay, "X", "0.01", "decoupled decay of matrices", .min = 0, .max = 100),
	OPT_REAL(0, "grad-clip", &train.grad_clip, "X", "1", "largest norm of a gradient; 0 does not clip", .min = 0, .max = 1e9),
	OPT_REAL(0, "adam-beta1", &train.beta1, "X", "0.9", "decay of the first moment", .min = 0, .max = 0.999999),
	OPT_REAL(0, "adam-beta2", &train.beta2, "X", "0.999", "decay of the second moment", .min = 0, .max = 0.999999),
	OPT_REAL(0, "adam-eps", &train.eps, "X", "1e-8", "added to the root of the second moment", .min = 0, .max = 1),
	OPT_END
};

static struct {
	const char *state;
} o;

const struct opt_row train_step_rows[] = {
	OPT_TABLE(cmd_model_rows), OPT_TABLE(train_update_rows),
	OPT_HEAD("State"),
	CMD_OPT_OUTPUT("DIR", "the new model directory"),
	OPT_DIR(0, "state", &o.state, "DIR", NULL, "optimizer state: read when it is there, written in any case"),
	CMD_OPT_SEED, CMD_OPT_THREADS, CMD_OPT_FORCE, CMD_OPT_JSON,
	OPT_END
};

static bool algo_ready;

int train_dotted(const char *key, const char *value, struct sky_err *err)
{
	static const char prefix[] = "trainer.algorithm.";
	char *pair;
	int rc;

	if (strncmp(key, prefix, sizeof(prefix) - 1)) {
		return SKY_EOF;
	}
	if (!algo_ready) {
		sky_algo_defaults(&train.a);
		algo_ready = true;
	}
	rc = sky_algo_set(&train.a, key + sizeof(prefix) - 1, value, err);
	if (rc == 0) {
		const char **v = sky_calloc_array((size_t)train.algo.n + 1, sizeof(*v));
		size_t n = strlen(key) + strlen(value) + 2;

		pair = malloc(n);
		if (!v || !pair) {
			free(v);
			free(pair);
			return sky_fail_mem(err, "options");
		}
		snprintf(pair, n, "%s=%s", key, value);
		for (int64_t i = 0; i < train.algo.n; i++) {
			v[i] = train.algo.v[i];
		}
		v[train.algo.n++] = pair;
		train.algo.v = v;
	}
	return rc;
}

int train_algo(struct sky_algo *a, struct sky_err *err)
{
	bool kl_given = false;

	if (!algo_ready) {
		sky_algo_defaults(&train.a);
		algo_ready = true;
	}
	for (int64_t i = 0; i < train.algo.n; i++) {
		kl_given = kl_given || strstr(train.algo.v[i], "use_kl_");
	}
	/* Without a reference model there is no KL term, unless it was asked for by name (then its absence is an error). */
	if (!train.ref_dir && !kl_given) {
		train.a.use_kl_loss = 0;
	}
	train.a.compat_skyrl = train.compat;
	*a = train.a;
	return sky_algo_check(a, err);
}

void train_optim_opt(struct sky_optim_opt *q)
{
	sky_optim_defaults(q);
	q->sgd = train.optimizer == 1;
	q->beta1 = train.beta1;
	q->beta2 = train.beta2;
	q->eps = train.eps;
	q->weight_decay = train.weight_decay;
	q->grad_clip = train.grad_clip;
}

static int read_refs(struct train_batch *t, int fd, const char *name, int64_t vocab, struct sky_err *err)
{
	struct sky_lines in;
	const char *line;
	size_t n;
	int rc;

	sky_lines_init(&in, fd, name, SKY_MAX_RECORD_BYTES);
	while ((rc = sky_lines_next(&in, -1, &line, &n, err)) == 0) {
		rc = n ? train_batch_ref(t, line, n, vocab, err) : 0;
		if (rc < 0) {
			sky_while(err, rc, "%s: line %lld", name, (long long)in.n_line);
			break;
		}
	}
	sky_lines_release(&in);
	return rc == SKY_EOF ? 0 : rc;
}

/* A trajectory file, a file of references, or - for references on standard input. */
static int read_operand(struct train_batch *t, const char *arg, int64_t vocab, struct sky_err *err)
{
	size_t n = strlen(arg);
	int fd, rc;

	if (!strcmp(arg, "-")) {
		return read_refs(t, STDIN_FILENO, "standard input", vocab, err);
	}
	if (n > 5 && !strcmp(arg + n - 5, ".traj")) {
		return train_batch_add(t, arg, 0, -1, vocab, err);
	}
	fd = open(arg, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "%s", arg);
	}
	rc = read_refs(t, fd, arg, vocab, err);
	close(fd);
	return rc;
}

static int print_metrics(const struct sky_metrics *m, struct sky_err *err)
{
	struct sky_jw *w;

	cmd_note("mean reward %.4f, loss %.5f, gradient norm %.4f, largest log-prob gap to the rollout %g",
	         sky_metric_get(m, "reward/avg_raw_reward"), sky_metric_get(m, "policy/policy_loss"),
	         sky_metric_get(m, "policy/grad_norm"), sky_metric_get(m, "policy/rollout_train_logprobs_abs_diff_max"));
	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", "step");
	for (int i = 0; i < m->n; i++) {
		sky_jw_kf64(w, m->m[i].name, m->m[i].v);
	}
	return cmd_rec_end(err);
}

/* The optimizer's folder as a whole: built beside it, renamed. */
static int save_state(const struct sky_optim *opt, struct sky_err *err)
{
	char tmp[SKY_MAX_PATH];
	int rc = snprintf(tmp, sizeof(tmp), "%s.part", o.state) < (int)sizeof(tmp) ? 0 : sky_fail(err, SKY_E_LIMIT,
	                                                                                          "path too long");

	rc = rc < 0 ? rc : sky_remove_tree(tmp, err);
	rc = rc < 0 ? rc : sky_mkdirs(tmp, err);
	rc = rc < 0 ? rc : sky_optim_save(opt, tmp, err);
	rc = rc < 0 ? rc : sky_remove_tree(o.state, err);
	if (rc == 0 && rename(tmp, o.state) < 0) {
		rc = sky_fail_sys(err, "renaming %s to %s", tmp, o.state);
	}
	return rc;
}

static int update(struct cmd_runtime *rt, struct sky_model *ref, struct sky_optim *opt, const struct train_batch *t,
                  struct sky_metrics *m, struct sky_err *err)
{
	struct sky_rl_opt ro = { .temperature = t->temperature, .n_epoch = train.n_epoch, .mini_prompts = train.mini_prompts,
	                         .micro_tokens = train.micro_tokens, .lr = train.lr, .seed = (uint64_t)cmd.seed };
	struct sky_rl *rl = NULL;
	double kl_coef;
	int trained = 0, rc = train_algo(&ro.algo, err);

	kl_coef = ro.algo.kl_loss_coef;
	rc = rc < 0 ? rc : sky_rl_new(rt->model, ref, opt, &rl, err);
	rc = rc < 0 ? rc : sky_rl_update(rl, &t->b, &ro, sky_optim_count(opt), &kl_coef, m, &trained, err);
	if (rc == 0 && !trained) {
		cmd_warn("no token of the batch is trained: the weights stay as they are");
	}
	sky_rl_free(rl);
	return rc;
}

int step_run(int argc, char **argv, struct sky_err *err)
{
	struct sky_model_opt mo = { .compute = cmd_model_dtype() };
	struct sky_lock lock = SKY_LOCK_INIT;
	struct sky_optim_opt oo;
	struct sky_model *ref = NULL;
	struct sky_optim *opt = NULL;
	struct train_batch t = { 0 };
	struct sky_metrics m = { 0 };
	struct cmd_runtime rt = { 0 };
	int rc = 0;

	if (argc < 1 || !cmd.output) {
		return sky_fail(err, SKY_E_USAGE,
		                argc < 1 ? "trajectories expected: REFS.ndjson, FILE.traj or -" : "-o DIR is required");
	}
	if (sky_file_exists(cmd.output) && !cmd.force) {
		return sky_fail(err, SKY_E_USAGE, "%s exists: --force replaces it", cmd.output);
	}
	rc = sky_lock_take(&lock, cmd.output, 0, err);
	rc = rc < 0 ? rc : cmd_runtime_open(&rt, CMD_PART_TRAIN, err);
	for (int i = 0; i < argc && rc == 0; i++) {
		rc = read_operand(&t, argv[i], sky_model_config(rt.model)->vocab, err);
	}
	rc = rc < 0 ? rc : train_batch_done(&t, err);
	train_optim_opt(&oo);
	rc = rc < 0 ? rc : sky_optim_new(rt.model, &rt.device, &oo, &opt, err);
	if (rc == 0 && o.state && sky_is_dir(o.state)) {
		rc = sky_optim_load(opt, o.state, err);
	}
	if (rc == 0 && train.ref_dir) {
		rc = sky_model_open(&rt.device, train.ref_dir, &mo, &ref, err);
	}
	if (rc == 0) {
		train_batch_metrics(&t, &m);
		rc = update(&rt, ref, opt, &t, &m, err);
	}
	rc = rc < 0 ? rc : sky_model_save(rt.model, cmd.output, SKY_DT_NONE, SKY_OUT_REPLACE, err);
	rc = rc < 0 || !o.state ? rc : save_state(opt, err);
	rc = rc < 0 ? rc : print_metrics(&m, err);
	train_batch_release(&t);
	sky_model_close(ref);
	sky_optim_free(opt);
	cmd_runtime_close(&rt);
	sky_lock_drop(&lock);
	return rc;
}
