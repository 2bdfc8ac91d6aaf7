/* engine: generation with a paged key/value cache. Layer 5.
 *
 * In: a model, token ids, sampling parameters. Out: sampled tokens with their log-probs and stop reasons.
 * Sequences run together in continuous batches: waiting ones are prefilled in chunks beside running ones; samples of one
 * prompt share its pages; a sequence that no longer fits is set back and recomputed later, which cannot change its tokens
 * because the arithmetic of a row does not depend on its neighbours. A token drawn at position p of a sequence depends on the
 * weights, the tokens before it, the parameters, the seed and the sequence's stream number: never on the batch.
 *
 * The engine owns its sequences; a finished one stays readable (and may go on with more tokens, its cache kept) until it is
 * freed. One thread at a time. */
#ifndef SKY_ENGINE_ENGINE_H
#define SKY_ENGINE_ENGINE_H

#include <stdint.h>
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_sampling {
	double temperature;             /* 0 = greedy: the largest logit, lowest id at a tie */
	double top_p;                   /* (0, 1]; 1 = off */
	double min_p;                   /* [0, 1]; 0 = off */
	int64_t top_k;                  /* ≤ 0 = off */
	uint64_t seed;
	int64_t max_new;                /* tokens a call of sky_seq_run may add */
	int64_t max_len;                /* tokens of the whole sequence; 0 = max_position_embeddings of the model */
	const int32_t *stop_ids;        /* [n_stop_id] besides the model's end-of-text ids */
	int n_stop_id;
	int ignore_eos;                 /* the model's end-of-text ids do not stop */
	const char *const *stop;        /* [n_stop] strings; generation ends after the token that completes one */
	int n_stop;
};
void sky_sampling_defaults(struct sky_sampling *s);
int sky_sampling_check(const struct sky_sampling *s, struct sky_err *err) SKY_MUST_CHECK;

/* Values of `stop` in trajectories (skyrl-traj(5)). */
enum sky_stop { SKY_END_STOP = 0, SKY_END_LENGTH = 1, SKY_END_ABORT = 3, SKY_END_ERROR = 4 };

struct sky_engine;
struct sky_seq;

struct sky_engine_opt {                 /* zero = default */
	int64_t n_batch;                /* sequences that run together, default 64 */
	int64_t n_chunk;                /* rows of a pass at most, default 512 */
	uint64_t kv_bytes;              /* of the page pool, default 1 GiB */
};

/* tok (borrowed) is needed for stop strings and text; may be NULL without them. */
int sky_engine_new(struct sky_model *m, const struct sky_device *d, const struct sky_tokenizer *tok,
                   const struct sky_engine_opt *opt, struct sky_engine **e_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_engine_free(struct sky_engine *e);     /* and every sequence */
/* After the weights changed: every cached page is stale and is dropped. */
void sky_engine_flush(struct sky_engine *e);

/* n sequences that start with the same prompt [n_prompt ≥ 1], streams stream0, stream0 + 1, … */
int sky_engine_group(struct sky_engine *e, const int32_t *prompt, int64_t n_prompt, uint64_t stream0, int n,
                     struct sky_seq **seqs, struct sky_err *err) SKY_MUST_CHECK;
/* More tokens that were not sampled (an observation). Only while the sequence rests. */
int sky_seq_append(struct sky_seq *s, const int32_t *ids, int64_t n, struct sky_err *err) SKY_MUST_CHECK;
/* Queue for generation; sampling is borrowed until the sequence rests again. */
int sky_seq_run(struct sky_seq *s, const struct sky_sampling *sampling, struct sky_err *err) SKY_MUST_CHECK;
void sky_seq_free(struct sky_seq *s);
void sky_seq_set_user(struct sky_seq *s, void *user);
void *sky_seq_user(const struct sky_seq *s);

/* One pass over the model. *done_p: NULL-terminated view of the sequences that came to rest in it, valid until the next call.
 * SKY_EOF when nothing is queued. */
int sky_engine_step(struct sky_engine *e, struct sky_seq *const **done_p, struct sky_err *err) SKY_MUST_CHECK;

/* What a resting sequence holds. Views until it runs or is freed. */
int64_t sky_seq_len(const struct sky_seq *s);
const int32_t *sky_seq_ids(const struct sky_seq *s);            /* [len] prompt, samples, observations in order */
const float *sky_seq_logprob(const struct sky_seq *s);          /* [len] under the sampling distribution; 0 where not sampled */
const uint8_t *sky_seq_sampled(const struct sky_seq *s);        /* [len] 1 = sampled here */
int64_t sky_seq_turn(const struct sky_seq *s);                  /* where the last run began */
enum sky_stop sky_seq_stop(const struct sky_seq *s);            /* why the last run ended */
/* Text of [from, len); a stop string that ended the run is cut off when cut_stop. */
int sky_seq_text(const struct sky_seq *s, int64_t from, int cut_stop, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

struct sky_engine_stats { int64_t n_prefill, n_decode, n_pass, n_setback; };
void sky_engine_stats(const struct sky_engine *e, struct sky_engine_stats *st);

/* ---- one draw, for tests and other servers ---- */
/* Draws from logits [V] f32 with uniform u in [0, 1); *logprob_p is the log-prob under the sampling distribution, that is
 * after temperature and renormalised over the tokens that top-k, top-p and min-p keep. scratch: 2·V floats.
 * full_logprob: log-probs of the whole distribution at this temperature as the kernel computed them for any id, used
 * when nothing is cut so that training finds the same bits; the caller passes lse from the kernel. */
int32_t sky_sample(const float *logits, int64_t V, const struct sky_sampling *s, double u, float *scratch, int *cut_p,
                   double *logprob_p);
int32_t sky_argmax(const float *x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
