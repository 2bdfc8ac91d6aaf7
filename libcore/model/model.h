/* model: layer plans over the kernel table: configuration, parameters, forward, backward, decode.
 * Layer 4.
 *
 * In: a Hugging Face directory and a kernel table. Out: log-probs, logits, gradients.
 * A family (families/NAME.c) turns config.json into a layer plan (which blocks with which sizes) and a
 * name table (which checkpoint tensor feeds which parameter); rollout and training walk the same plan
 * with the same members of the table, so their log-probs are bitwise equal on one backend and
 * precision. Adding a family touches nothing outside families/.
 *
 * Residual stream, norms, softmax and logits are f32; products take the compute type (f32 or bf16). A
 * model is used by one thread at a time; weights are replaced only between calls. */
#ifndef SKY_MODEL_MODEL_H
#define SKY_MODEL_MODEL_H

#include <stdint.h>
#include "base/base.h"
#include "kernels/kernels.h"
#include "weights/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_device { /* made by cmd/, borrowed here */
	const struct kn_ops *ops;
	kn_dev *dev;
	kn_stream *stream;
};

/* ---- configuration ---- */
struct sky_config {      /* what other folders need to know; the plan itself is private */
	char family[64]; /* model_type */
	int64_t vocab, d_model, n_layer, n_head, n_kv_head, d_head, d_ff, max_pos;
	int tied; /* output head shares the embedding */
	int64_t n_param;
	int32_t eos[16]; /* union of generation_config.json and config.json */
	int n_eos;
	int32_t bos, pad; /* −1 when none */
};

/* ---- model ---- */
struct sky_model;
struct sky_model_opt {
	enum kn_dtype compute; /* KN_F32 or KN_BF16 */
	int train;             /* pack for backward too, keep f32 master weights and gradients */
};
int sky_model_open(const struct sky_device *d, const char *dir, const struct sky_model_opt *opt,
		   struct sky_model **m_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_model_close(struct sky_model *m);
/* Writes a Hugging Face directory with random weights for the config.json of config_dir (side files
 * copied): matrices normal with deviation initializer_range (0.02 when absent), norms 1, biases 0. A
 * weight is a function of (seed, its name, its place). */
int sky_model_init(const char *config_dir, const char *dir, uint64_t seed, unsigned out_flags,
		   struct sky_err *err) SKY_MUST_CHECK;
const struct sky_config *sky_model_config(const struct sky_model *m);
const char *sky_model_dir(const struct sky_model *m);
/* Read the tensors again from another directory of the same configuration (a new weight version). A
 * directory that does not fit (SKY_E_DATA, SKY_E_MISSING) leaves the old weights in use; after any
 * other failure close the model. */
int sky_model_reload(struct sky_model *m, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
/* SHA-256 over names, shapes and bytes of the weights as loaded, hex. */
void sky_model_fingerprint(const struct sky_model *m, char out[65]);

/* Parameters in a fixed order, one a checkpoint tensor (tied heads once). In train mode master and grad
 * are device f32 arrays of n elements owned by the model; otherwise NULL. */
struct sky_param {
	const char *name; /* checkpoint name */
	int n_dim;
	int64_t shape[SKY_MAX_DIMS], n;
	int decay;            /* 1: weight decay applies (matrices), 0: norms and biases */
	enum sky_dtype dtype; /* as in the checkpoint: exports keep it */
	float *master, *grad;
};
int64_t sky_model_n_param(const struct sky_model *m); /* number of tensors */
const struct sky_param *sky_model_param(const struct sky_model *m, int64_t i);
/* Round every master to the compute type and pack again: after an optimizer step. */
int sky_model_sync(struct sky_model *m, struct sky_err *err) SKY_MUST_CHECK;
int sky_model_zero_grad(struct sky_model *m, struct sky_err *err) SKY_MUST_CHECK;
/* Write a Hugging Face directory: masters (or loaded weights) rounded to the checkpoint's types (dtype
 * SKY_DT_NONE) or to one type; side files copied, tensors that no block uses passed through. Who trains
 * in f32 from a bf16 checkpoint and wants a rollout with the very same weights saves as SKY_F32. */
int sky_model_save(const struct sky_model *m, const char *dir, enum sky_dtype dtype, unsigned out_flags,
		   struct sky_err *err) SKY_MUST_CHECK;

/* ---- key/value pages of running sequences ---- */
struct sky_kvpool; /* pages of all layers; page i means page i of every layer */
int sky_kvpool_new(struct sky_model *m, int64_t n_page, struct sky_kvpool **p_p,
		   struct sky_err *err) SKY_MUST_CHECK;
void sky_kvpool_free(struct sky_kvpool *p);
int32_t sky_kvpool_take(struct sky_kvpool *p); /* −1 when none is left; reference count 1 */
void sky_kvpool_ref(struct sky_kvpool *p, int32_t page);
void sky_kvpool_drop(struct sky_kvpool *p, int32_t page);
/* Copy of a page (count 1), for a sequence that writes where others read. */
int32_t sky_kvpool_fork(struct sky_kvpool *p, int32_t page);
int64_t sky_kvpool_n_free(const struct sky_kvpool *p);

/* ---- passes ---- */
struct sky_rows { /* a ragged batch: sequence s owns rows [start[s], start[s+1]) at positions pos0[s] +
		     … */
	int64_t n_seq;
	const int32_t *start; /* [n_seq + 1] */
	const int32_t *pos0;  /* [n_seq]; all 0 in training */
	const int32_t *ids;   /* [T] */
};
struct sky_kvview { /* page tables of the sequences of a batch */
	struct sky_kvpool *pool;
	const int32_t *table; /* [n_seq, stride] */
	int64_t stride;
};

/* Inference: runs all rows, keys and values go to kv. logits [n_want, V] f32 (host) of rows want[i]
 * (ascending). */
int sky_model_infer(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		    const int32_t *want, int64_t n_want, float *logits,
		    struct sky_err *err) SKY_MUST_CHECK;

/* Log-probs of target[i] at the i-th row that the last infer gave logits of, bitwise those of
 * sky_model_score. inv_temp [n_want] divides the temperature out, row by row. */
int sky_model_logprob(struct sky_model *m, const int32_t *target, const float *inv_temp, float *logprob,
		      struct sky_err *err) SKY_MUST_CHECK;

/* Scoring and training. target [T]: the next token of each row, −1 = not asked for. inv_temp divides
 * the temperature out. logprob, entropy [T] f32 host arrays (entropy may be NULL), 0 where not asked
 * for. With keep != 0 the activations stay in the model until sky_model_backward or the next pass.
 * Sequences start at position 0. */
int sky_model_score(struct sky_model *m, const struct sky_rows *rows, const int32_t *target,
		    float inv_temp, int keep, float *logprob, float *entropy,
		    struct sky_err *err) SKY_MUST_CHECK;
/* Gradients of Σ dlogprob[r]·logprob[r] + dentropy[r]·entropy[r] added to every param's grad. dentropy
 * may be NULL. */
int sky_model_backward(struct sky_model *m, const float *dlogprob, const float *dentropy,
		       struct sky_err *err) SKY_MUST_CHECK;
/* Score with keep and backward in one, for losses whose gradient is known before the log-probs are
 * (supervised training: −weight of the token): the logits are made once instead of twice. Same bits as
 * the two calls. */
int sky_model_score_backward(struct sky_model *m, const struct sky_rows *rows, const int32_t *target,
			     float inv_temp, const float *dlogprob, float *logprob,
			     struct sky_err *err) SKY_MUST_CHECK;
/* Residual stream for tests: after the embedding (layer −1), after layer l, after the final norm (layer
 * n_layer): [T, d] f32 of the last pass with keep. */
int sky_model_hidden(struct sky_model *m, int64_t layer, float *out,
		     struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
