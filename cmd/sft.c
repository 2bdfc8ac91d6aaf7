/* skyrl-sft: supervised fine-tuning of a model on token datasets.
 *
 *	skyrl-sft --model Qwen3-0.6B --data chats -o run --steps 1000 --batch-size 16 --max-length 4096 --lr 1e-5
 *	skyrl-sft --resume run
 *
 * The loss of a step is the mean of −log-prob over the trained tokens of its batch, however it is cut into micro-batches. A run
 * that was cut and resumed gives the numbers of one that was not. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/runconf.h"
#include "base/base.h"
#include "batch/batch.h"
#include "learn/optim.h"

#include <stdlib.h>

static struct {
	struct opt_list data, eval_data;
	const char *resume;
	int64_t n_step, batch, micro, max_length, n_warmup, ckpt_every, keep, eval_every, init_seed;
	double lr, min_lr, weight_decay, grad_clip, beta1, beta2, eps;
	bool pack, init;
	int optimizer, schedule, sampler;
} o;

static const struct opt_row rows[] = {
	OPT_HEAD("Data"),
	OPT_TEXTS('d', "data", &o.data, "PREFIX", "token dataset; may be repeated, and further ones may follow as operands"),
	OPT_TEXTS(0, "eval-data", &o.eval_data, "PREFIX", "token dataset for evaluation; may be repeated"),
	OPT_COUNT(0, "max-length", &o.max_length, "N", "2048", "tokens of a row at most, the rest is cut off", .min = 2),
	OPT_FLAG(0, "pack", &o.pack, NULL, "fill each row up to --max-length with whole documents"),
	OPT_CHOICE(0, "sampler", &o.sampler, "random|sequential", "random", "order of rows"),
	OPT_TABLE(cmd_model_rows),
	OPT_FLAG(0, "init-random", &o.init, NULL, "--model holds no weights: begin with random ones (drawn from --seed)"),
	OPT_HEAD("Training"),
	OPT_COUNT(0, "steps", &o.n_step, "N", "100", "optimizer steps", .min = 1),
	OPT_COUNT(0, "batch-size", &o.batch, "N", "4", "rows a step", .min = 1),
	OPT_COUNT(0, "micro-batch-size", &o.micro, "N", "2", "rows of a pass: bounds the memory, changes no result", .min = 1),
	OPT_CHOICE(0, "optimizer", &o.optimizer, "adamw|sgd", "adamw", "how weights are updated"),
	OPT_REAL(0, "lr", &o.lr, "X", "1e-6", "learning rate at its highest", .min = 0, .max = 100),
	OPT_REAL(0, "min-lr", &o.min_lr, "X", "0", "learning rate at the end of a schedule that falls", .min = 0, .max = 100),
	OPT_CHOICE(0, "schedule", &o.schedule, "cosine|linear|constant", "constant",
	           "shape of the learning rate behind the warm-up"),
	OPT_COUNT(0, "warmup-steps", &o.n_warmup, "N", "0", "steps of linear rise", .min = 0),
	OPT_REAL(0, "weight-decay", &o.weight_decay, "X", "0.01", "decoupled decay of matrices (not of norms and biases)", .min = 0,
	         .max = 100),
	OPT_REAL(0, "grad-clip", &o.grad_clip, "X", "1", "largest norm of a gradient; 0 does not clip", .min = 0, .max = 1e9),
	OPT_REAL(0, "adam-beta1", &o.beta1, "X", "0.9", "decay of the first moment", .min = 0, .max = 0.999999),
	OPT_REAL(0, "adam-beta2", &o.beta2, "X", "0.999", "decay of the second moment", .min = 0, .max = 0.999999),
	OPT_REAL(0, "adam-eps", &o.eps, "X", "1e-8", "added to the root of the second moment", .min = 0, .max = 1),
	OPT_HEAD("Run"),
	CMD_OPT_OUTPUT("RUN", "run directory: config.json, metrics.ndjson, global_step_N/, model/"),
	OPT_DIR(0, "resume", &o.resume, "RUN", NULL, "go on from the newest checkpoint of RUN, with its options"),
	OPT_COUNT(0, "checkpoint-every", &o.ckpt_every, "N", "0",
	          "steps between checkpoints; 0 writes one at the end only", .min = 0),
	OPT_COUNT(0, "keep", &o.keep, "N", "2", "newest checkpoints that stay; 0 keeps all", .min = 0),
	OPT_COUNT(0, "eval-every", &o.eval_every, "N", "0", "steps between evaluations; 0 evaluates at the end only", .min = 0),
	CMD_OPT_SEED, CMD_OPT_THREADS, CMD_OPT_FORCE, CMD_OPT_JSON,
	OPT_END
};

/* What config.json of a run keeps, so that --resume needs nothing else. */
static const struct runconf_row kept[] = {
	{ "model", RUNCONF_TEXT, &cmd_model.dir }, { "dtype", RUNCONF_CHOICE, &cmd_model.dtype },
	{ "data", RUNCONF_TEXTS, &o.data }, { "eval-data", RUNCONF_TEXTS, &o.eval_data },
	{ "steps", RUNCONF_INT, &o.n_step }, { "batch-size", RUNCONF_INT, &o.batch },
	{ "micro-batch-size", RUNCONF_INT, &o.micro }, { "max-length", RUNCONF_INT, &o.max_length },
	{ "warmup-steps", RUNCONF_INT, &o.n_warmup }, { "checkpoint-every", RUNCONF_INT, &o.ckpt_every },
	{ "keep", RUNCONF_INT, &o.keep }, { "eval-every", RUNCONF_INT, &o.eval_every }, { "seed", RUNCONF_INT, &cmd.seed },
	{ "lr", RUNCONF_REAL, &o.lr }, { "min-lr", RUNCONF_REAL, &o.min_lr }, { "weight-decay", RUNCONF_REAL, &o.weight_decay },
	{ "grad-clip", RUNCONF_REAL, &o.grad_clip }, { "adam-beta1", RUNCONF_REAL, &o.beta1 },
	{ "adam-beta2", RUNCONF_REAL, &o.beta2 }, { "adam-eps", RUNCONF_REAL, &o.eps },
	{ "pack", RUNCONF_FLAG, &o.pack }, { "init-random", RUNCONF_FLAG, &o.init },
	{ "optimizer", RUNCONF_CHOICE, &o.optimizer }, { "schedule", RUNCONF_CHOICE, &o.schedule },
	{ "sampler", RUNCONF_CHOICE, &o.sampler },
	{ NULL, RUNCONF_END, NULL }
};

struct run {
	const char *dir;
	struct cmd_runtime rt;
	struct sky_optim *opt;
	struct sky_tokens *set[64], *eval_set[64];
	struct sky_loader *loader;
	struct sky_metrics_file log;
	int64_t step, n_tok;            /* steps done, tokens seen */
	float *logprob, *dlogprob;      /* [cap] of a micro-batch */
	int64_t cap;
};

static int open_sets(const struct opt_list *names, struct sky_tokens **sets, int64_t vocab, struct sky_err *err)
{
	int rc = 0;

	if (names->n > 64) {
		return sky_fail(err, SKY_E_USAGE, "at most 64 data sets; skyrl-pretok merge joins them");
	}
	for (int64_t i = 0; i < names->n && rc == 0; i++) {
		rc = sky_tokens_open(names->v[i], &sets[i], err);
		if (rc == 0 && sky_tokens_max_id(sets[i]) >= vocab) {
			rc = sky_fail(err, SKY_E_DATA,
			              "%s holds token id %lld, the model's vocabulary ends at %lld: it was made with "
			              "another tokenizer", names->v[i], (long long)sky_tokens_max_id(sets[i]),
				(long long)vocab - 1);
		}
	}
	return rc;
}

static int new_loader(struct run *r, struct sky_tokens *const *sets, int n, bool eval, struct sky_loader **l_p,
                      struct sky_err *err)
{
	struct sky_loader_opt lo = { .seed = (uint64_t)cmd.seed, .sequential = eval || o.sampler == 1, .max_length = o.max_length,
	                             .pack = o.pack && !eval, .max_id = sky_model_config(r->rt.model)->vocab - 1 };

	return sky_loader_new(sets, n, &lo, l_p, err);
}

static int reserve(struct run *r, int64_t n, struct sky_err *err)
{
	if (n > r->cap) {
		r->cap = n + n / 4;
		free(r->logprob);
		free(r->dlogprob);
		r->logprob = sky_malloc_array((size_t)r->cap, sizeof(float));
		r->dlogprob = sky_malloc_array((size_t)r->cap, sizeof(float));
	}
	return r->logprob && r->dlogprob ? 0 : sky_fail_mem(err, "micro-batch of %lld tokens", (long long)n);
}

/* Σ −log-prob over the targets of a micro-batch; with train the gradient of that sum divided by n_target is added. */
static int pass(struct run *r, const struct sky_batch *b, int64_t n_target, bool train, double *nll, struct sky_err *err)
{
	struct sky_rows rows_in = { .n_seq = b->n_seq, .start = b->start, .pos0 = b->pos0, .ids = b->ids };
	int rc = reserve(r, b->n, err);

	for (int64_t t = 0; t < b->n && rc == 0 && train; t++) {
		r->dlogprob[t] = b->target[t] >= 0 ? (float)(-1.0 / (double)n_target) : 0;
	}
	if (rc == 0 && train) {
		rc = sky_model_score_backward(r->rt.model, &rows_in, b->target, 1, r->dlogprob, r->logprob, err);
	} else if (rc == 0) {
		rc = sky_model_score(r->rt.model, &rows_in, b->target, 1, 0, r->logprob, NULL, err);
	}
	for (int64_t t = 0; t < b->n && rc == 0; t++) {
		*nll -= b->target[t] >= 0 ? (double)r->logprob[t] : 0;
	}
	return rc;
}

static int train_step(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	double t0 = sky_now(), t1, t2, nll = 0, norm = 0, lr = 0;
	int64_t n_target, n_tok;
	struct sky_batch b;
	int rc = sky_loader_draw(r->loader, o.batch, &n_target, &n_tok, err);

	t1 = sky_now();
	for (int64_t i = 0; rc == 0; i++) {
		rc = sky_loader_micro(r->loader, i, o.micro, &b, err);
		if (rc == SKY_EOF) {
			break;
		}
		rc = rc < 0 ? rc : pass(r, &b, n_target, true, &nll, err);
	}
	t2 = sky_now();
	rc = rc < 0 ? rc : sky_schedule(sky_schedule_name(o.schedule), o.lr, o.min_lr, r->step, o.n_warmup, o.n_step, &lr, err);
	rc = rc < 0 ? rc : sky_optim_step(r->opt, lr, &norm, err);
	if (rc < 0) {
		return rc;
	}
	r->step++;
	r->n_tok += n_tok;
	sky_metric_set(m, "train/loss", nll / (double)n_target);
	sky_metric_set(m, "train/grad_norm", norm);
	sky_metric_set(m, "train/lr", lr);
	sky_metric_set(m, "train/actual_num_tokens", (double)n_tok);
	sky_metric_set(m, "train/total_tokens_processed", (double)r->n_tok);
	sky_metric_set(m, "train/epoch", (double)sky_loader_cursor(r->loader).epoch);
	sky_metric_set(m, "train/global_step", (double)r->step);
	sky_metric_set(m, "train/tokens_per_second", (double)n_tok / (sky_now() - t0));
	sky_metric_set(m, "timing/data_loading", t1 - t0);
	sky_metric_set(m, "timing/forward_backward", t2 - t1);
	sky_metric_set(m, "timing/optim_step", sky_now() - t2);
	sky_metric_set(m, "timing/step", sky_now() - t0);
	return 0;
}

/* Token-weighted mean of −log-prob over all evaluation sets. */
static int evaluate(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	double nll = 0, t0 = sky_now();
	int64_t n_target = 0, k, n_tok;
	struct sky_loader *l = NULL;
	struct sky_batch b;
	int rc;

	if (o.eval_data.n == 0) {
		return 0;
	}
	rc = new_loader(r, r->eval_set, (int)o.eval_data.n, true, &l, err);
	do {
		rc = rc < 0 ? rc : sky_loader_draw(l, 1, &k, &n_tok, err);
		rc = rc < 0 ? rc : sky_loader_micro(l, 0, 1, &b, err);
		rc = rc < 0 ? rc : pass(r, &b, 1, false, &nll, err);
		n_target += k;
	} while (rc == 0 && !sky_loader_epoch_ended(l));
	sky_loader_free(l);
	if (rc == 0) {
		sky_metric_set(m, "eval/loss", nll / (double)n_target);
		sky_metric_set(m, "timing/eval", sky_now() - t0);
		cmd_note("step %lld: eval loss %.4f", (long long)r->step, nll / (double)n_target);
	}
	return rc;
}

static int checkpoint(struct run *r, struct sky_metrics *m, struct sky_err *err)
{
	struct sky_cursor c = sky_loader_cursor(r->loader);
	double t0 = sky_now();
	char state[256];
	int rc;

	snprintf(state, sizeof(state), "{\"global_step\":%lld,\"epoch\":%lld,\"index\":%lld,\"total_tokens_processed\":%lld}\n",
	         (long long)r->step, (long long)c.epoch, (long long)c.index, (long long)r->n_tok);
	rc = sky_ckpt_save(r->dir, r->step, r->rt.model, r->opt, state, o.keep, err);
	if (rc == 0 && m) {
		sky_metric_set(m, "timing/save_checkpoint", sky_now() - t0);
	}
	return rc;
}

static int restore(struct run *r, struct sky_err *err)
{
	struct sky_json *state = NULL;
	const struct sky_jnode *v;
	struct sky_cursor c = { 0, 0 };
	int rc = sky_ckpt_latest(r->dir, &r->step, err);

	rc = rc < 0 ? rc : sky_ckpt_load(r->dir, r->step, r->rt.model, r->opt, &state, err);
	if (rc < 0) {
		return rc;
	}
	v = sky_json_root(state);
	rc = sky_j_get_i64(v, "epoch", 0, &c.epoch, err);
	rc = rc < 0 ? rc : sky_j_get_i64(v, "index", 0, &c.index, err);
	rc = rc < 0 ? rc : sky_j_get_i64(v, "total_tokens_processed", 0, &r->n_tok, err);
	sky_loader_seek(r->loader, c);
	sky_json_free(state);
	return rc;
}

static int steps(struct run *r, struct sky_err *err)
{
	struct cmd_meter meter;
	int rc = 0;

	cmd_meter_start(&meter, "sft", "steps", (double)o.n_step, (double)r->step);
	while (r->step < o.n_step && rc == 0) {
		struct sky_metrics m = { 0 };
		bool last, stopping;

		rc = train_step(r, &m, err);
		if (rc < 0) {
			break;
		}
		cmd_meter(&meter, (double)r->step, "loss %.4f, %.0f tokens/s", sky_metric_get(&m, "train/loss"),
		          sky_metric_get(&m, "train/tokens_per_second"));
		last = r->step == o.n_step;
		stopping = cmd_stopping();
		if (last || (o.eval_every > 0 && r->step % o.eval_every == 0)) {
			rc = evaluate(r, &m, err);
		}
		if (rc == 0 && (last || stopping || cmd_sig_usr2() || (o.ckpt_every > 0 && r->step % o.ckpt_every == 0))) {
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

/* RUN/init takes the place of --model: the configuration and tokenizer of it with random weights. */
static int begin_random(struct run *r, struct sky_err *err)
{
	static char dir[SKY_MAX_PATH];
	int rc = sky_path_join(dir, sizeof(dir), r->dir, "init", err);

	if (rc == 0 && !cmd_model.dir) {
		rc = sky_fail(err, SKY_E_USAGE, "--model is required");
	}
	rc = rc < 0 ? rc : sky_model_init(cmd_model.dir, dir, (uint64_t)cmd.seed, SKY_OUT_REPLACE, err);
	cmd_model.dir = dir;
	o.init = false;         /* a resumed run finds the directory */
	return rc;
}

static int open_run(struct run *r, struct sky_err *err)
{
	struct sky_optim_opt oo;
	char path[SKY_MAX_PATH];
	int rc = o.init ? begin_random(r, err) : 0;
	int64_t vocab;

	rc = rc < 0 ? rc : cmd_runtime_open(&r->rt, CMD_PART_TRAIN, err);
	vocab = rc < 0 ? 0 : sky_model_config(r->rt.model)->vocab;

	rc = rc < 0 ? rc : open_sets(&o.data, r->set, vocab, err);
	rc = rc < 0 ? rc : open_sets(&o.eval_data, r->eval_set, vocab, err);
	rc = rc < 0 ? rc : new_loader(r, r->set, (int)o.data.n, false, &r->loader, err);
	sky_optim_defaults(&oo);
	oo.sgd = o.optimizer == 1;
	oo.beta1 = o.beta1;
	oo.beta2 = o.beta2;
	oo.eps = o.eps;
	oo.weight_decay = o.weight_decay;
	oo.grad_clip = o.grad_clip;
	rc = rc < 0 ? rc : sky_optim_new(r->rt.model, &r->rt.device, &oo, &r->opt, err);
	rc = rc < 0 || !o.resume ? rc : restore(r, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), r->dir, "config.json", err);
	rc = rc < 0 ? rc : runconf_save(kept, path, err);
	return rc < 0 ? rc : sky_metrics_open(&r->log, r->dir, r->step, err);
}

static void close_run(struct run *r)
{
	sky_metrics_close(&r->log);
	sky_optim_free(r->opt);
	sky_loader_free(r->loader);
	for (int i = 0; i < 64; i++) {
		sky_tokens_close(r->set[i]);
		sky_tokens_close(r->eval_set[i]);
	}
	cmd_runtime_close(&r->rt);
	free(r->logprob);
	free(r->dlogprob);
}

static int result_record(const struct run *r, const char *model, struct sky_err *err)
{
	struct sky_jw *w;

	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", "sft");
	sky_jw_kstr(w, "run", r->dir);
	sky_jw_kstr(w, "model", model);
	sky_jw_ki64(w, "steps", r->step);
	sky_jw_ki64(w, "tokens", r->n_tok);
	sky_jw_kf64(w, "elapsed_s", cmd_since_start());
	return cmd_rec_end(err);
}

static int sft_run(int argc, char **argv, struct sky_err *err)
{
	struct run r = { .log = { .fd = -1 } };
	struct sky_lock lock = SKY_LOCK_INIT;
	char path[SKY_MAX_PATH];
	int rc;

	rc = runconf_open_dir(&lock, o.resume, "metrics.ndjson", err);
	r.dir = o.resume ? o.resume : cmd.output;
	if (rc == 0 && o.resume) {
		rc = sky_path_join(path, sizeof(path), r.dir, "config.json", err);
		rc = rc < 0 ? rc : runconf_load(kept, path, err);
	}
	rc = rc < 0 ? rc : runconf_append(&o.data, argc, argv, err);
	if (rc == 0 && o.data.n == 0) {
		rc = sky_fail(err, SKY_E_USAGE, "--data is required: a token dataset made by skyrl-pretok");
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

const struct cmd_prog cmd_prog = {
	.name = "skyrl-sft",
	.title = "supervised fine-tuning on token datasets",
	.usage = "--model DIR --data PREFIX -o RUN [OPTION]… [PREFIX]…\n--resume RUN [OPTION]…",
	.example = "skyrl-sft --model base --data chats -o run --steps 1000 --batch-size 16 --lr 1e-5",
	.rows = rows,
	.run = sft_run,
	.flags = CMD_NEEDS_ARGS | CMD_STOP_SOFT | CMD_NO_SIGPIPE,
	.describe = cmd_dev_describe,
};
