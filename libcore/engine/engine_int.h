/* Shared inside libcore/engine. */
#ifndef SKY_ENGINE_ENGINE_INT_H
#define SKY_ENGINE_ENGINE_INT_H

#include "engine/engine.h"

enum seq_state {
	SEQ_REST,       /* nothing to do; pages are kept as long as nobody needs them */
	SEQ_RUN,        /* queued or running: has tokens to cache, then to sample */
	SEQ_ROOT,       /* a shared prompt being cached for its children; never sampled */
};

struct sky_seq {
	struct sky_engine *e;
	enum seq_state state;
	struct sky_seq *root;           /* cached by this one first; NULL when free to go */
	int n_child;                    /* of a root: children that wait for it */
	uint64_t stream;
	int32_t *ids;                   /* [n], cap */
	float *logprob;
	uint8_t *sampled;
	int64_t n, cap;
	int64_t n_cached;               /* leading tokens whose keys and values lie in pages */
	int32_t *pages;                 /* [n_page] */
	int64_t n_page, page_cap;
	const struct sky_sampling *s;
	int64_t turn, n_new;            /* where this run began, tokens sampled in it */
	enum sky_stop stop;
	int stop_string;                /* index of the stop string that ended the run, −1 */
	struct sky_buf text;            /* bytes sampled in this run, for stop strings only */
	int64_t take;                   /* rows in the pass being built, 0 = not in it */
	void *user;
};

struct sky_engine {
	struct sky_model *m;
	const struct sky_config *cfg;
	const struct sky_tokenizer *tok;
	struct sky_kvpool *pool;
	int64_t n_batch, n_chunk, n_page;
	struct sky_seq **all;           /* [n_all] in order of arrival, roots before their children */
	int64_t n_all, all_cap;
	struct sky_seq **done;          /* [n_done + 1] of the last step, NULL-terminated; all_cap + 1 places */
	int64_t n_done;
	/* arrays of a pass: n_batch sequences, n_chunk rows */
	struct sky_seq **in;            /* [n_in] */
	int64_t n_in;
	int32_t *start, *pos0, *ids, *want, *pick, *table;
	int64_t stride;                 /* pages a table row has room for */
	struct sky_seq **want_seq;
	float *logits, *inv_temp, *logprob, *scratch;
	double *cut_logprob;
	uint8_t *cut;
	int64_t logits_cap;             /* rows */
	struct sky_engine_stats st;
};

/* seq.c */
int sky_seq_make(struct sky_engine *e, const int32_t *ids, int64_t n, uint64_t stream, struct sky_seq **s_p,
                 struct sky_err *err) SKY_MUST_CHECK;
int sky_seq_push(struct sky_seq *s, int32_t id, float logprob, int sampled, struct sky_err *err) SKY_MUST_CHECK;
void sky_seq_unmap(struct sky_seq *s);          /* gives its pages back; everything must be cached anew */
/* Room for n tokens in pages; false when the pool has not enough (nothing is kept of a failed try but pages already taken). */
bool sky_seq_map(struct sky_seq *s, int64_t n);
/* Takes over the cached prompt of root: whole pages are shared, the last, partly filled one is copied. */
int sky_seq_inherit(struct sky_seq *s, const struct sky_seq *root, struct sky_err *err) SKY_MUST_CHECK;
/* Did the token just pushed end the run? Sets stop and stop_string. */
int sky_seq_check_stop(struct sky_seq *s, int *ended_p, struct sky_err *err) SKY_MUST_CHECK;

#endif
