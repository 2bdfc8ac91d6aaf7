/* Optimizer over the parameters of a model, and run directories: checkpoints that resume exactly, metrics. */
#ifndef SKY_LEARN_OPTIM_H
#define SKY_LEARN_OPTIM_H

#include <stdint.h>
#include "base/base.h"
#include "learn/learn.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_optim_opt {
	int sgd;                        /* 0: AdamW */
	double beta1, beta2, eps, weight_decay, grad_clip;      /* grad_clip ≤ 0: none */
};
void sky_optim_defaults(struct sky_optim_opt *o);

struct sky_optim;
int sky_optim_new(struct sky_model *m, const struct sky_device *d, const struct sky_optim_opt *opt, struct sky_optim **o_p,
                  struct sky_err *err) SKY_MUST_CHECK;
void sky_optim_free(struct sky_optim *o);
/* Clips the gradients to grad_clip by their global norm (*norm_p: before clipping), updates the masters, packs the weights
 * again and clears the gradients. A norm that is not finite is SKY_E_DATA and changes nothing. */
int sky_optim_step(struct sky_optim *o, double lr, double *norm_p, struct sky_err *err) SKY_MUST_CHECK;
int64_t sky_optim_count(const struct sky_optim *o);             /* steps taken */
/* optimizer.safetensors in dir: m/NAME and v/NAME in f32, the count in its metadata. */
int sky_optim_save(const struct sky_optim *o, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
int sky_optim_load(struct sky_optim *o, const char *dir, struct sky_err *err) SKY_MUST_CHECK;

/* ---- run directory: config.json metrics.ndjson global_step_N/ latest_ckpt_global_step.txt model/ ---- */
/* State of a run besides weights and optimizer, as JSON members the program owns. */
/* Writes RUN/global_step_N/{policy/,optimizer.safetensors,trainer_state.json}; the pointer file last, atomically. The masters are
 * saved in f32. keep > 0: older checkpoints beyond that many are removed afterwards. state: text of a JSON object. */
int sky_ckpt_save(const char *run, int64_t step, const struct sky_model *m, const struct sky_optim *o, const char *state,
                  int64_t keep, struct sky_err *err) SKY_MUST_CHECK;
/* Step of the newest complete checkpoint; SKY_E_MISSING when there is none. */
int sky_ckpt_latest(const char *run, int64_t *step_p, struct sky_err *err) SKY_MUST_CHECK;
/* Loads weights and optimizer of a step; *state_p (the caller frees it) is trainer_state.json. */
int sky_ckpt_load(const char *run, int64_t step, struct sky_model *m, struct sky_optim *o, struct sky_json **state_p,
                  struct sky_err *err) SKY_MUST_CHECK;

/* metrics.ndjson: one object a step. On resume, lines of later steps (of the run that was cut) are dropped. */
struct sky_metrics_file { int fd; char *path; };
int sky_metrics_open(struct sky_metrics_file *f, const char *run, int64_t after_step, struct sky_err *err) SKY_MUST_CHECK;
int sky_metrics_write(struct sky_metrics_file *f, int64_t step, const struct sky_metrics *m, struct sky_err *err) SKY_MUST_CHECK;
void sky_metrics_close(struct sky_metrics_file *f);

#ifdef __cplusplus
}
#endif
#endif
