/* The commands of skyrl-train and what they share. */
#ifndef SKY_CMD_TRAIN_CMD_H
#define SKY_CMD_TRAIN_CMD_H

#include "base/base.h"
#include "cmd/opt.h"
#include "learn/rl.h"

/* trainer.algorithm.* and the options of an update. */
struct train_opt {
	double lr, min_lr, weight_decay, grad_clip, beta1, beta2, eps;
	int64_t n_epoch, mini_prompts, micro_tokens, n_warmup, n_step;
	int schedule, optimizer;
	bool overlong_filter, compat;
	const char *ref_dir;
	struct opt_list algo;           /* key=value as given with -c, for config.json */
	struct sky_algo a;
};
extern struct train_opt train;
extern const struct opt_row train_update_rows[];        /* OPT_TABLE of step and run */
extern const struct opt_row train_step_rows[], train_run_rows[];

/* -c trainer.algorithm.KEY=VALUE; SKY_EOF for other keys. */
int train_dotted(const char *key, const char *value, struct sky_err *err);
/* Defaults of the algorithm and what the options say; call once after parsing. */
int train_algo(struct sky_algo *a, struct sky_err *err) SKY_MUST_CHECK;
void train_optim_opt(struct sky_optim_opt *o);

/* Trajectories of many files as one batch, groups together, lost episodes left out. */
struct train_batch {
	struct sky_rl_batch b;
	double temperature;
	int64_t n_lost;
	/* owned */
	int64_t *start, *group, *traj;
	int32_t *ids, *prompt_len, *version;
	uint8_t *mask, *last, *stop;
	float *logprob, *reward;
	int64_t seq_cap, tok_cap;
	char *sampling;         /* metadata of the first file; others must equal it in what matters */
};
void train_batch_clear(struct train_batch *t);
void train_batch_release(struct train_batch *t);
/* Samples [first, first + count) of a file; count < 0: all. */
int train_batch_add(struct train_batch *t, const char *path, int64_t first, int64_t count, int64_t vocab,
                    struct sky_err *err) SKY_MUST_CHECK;
/* One reference record {"file":…,"first":…,"count":…}; records of other types are passed over. */
int train_batch_ref(struct train_batch *t, const char *line, size_t n, int64_t vocab, struct sky_err *err) SKY_MUST_CHECK;
/* Sorts groups together and fills t->b; nothing to train on is SKY_E_DATA. */
int train_batch_done(struct train_batch *t, struct sky_err *err) SKY_MUST_CHECK;
/* The metrics below reward/ and generate/. */
void train_batch_metrics(const struct train_batch *t, struct sky_metrics *m);

int step_run(int argc, char **argv, struct sky_err *err);
int run_run(int argc, char **argv, struct sky_err *err);
int resume_run(const char *dir, struct sky_err *err);

#endif
