/* batch: rows of token datasets in a reproducible order, put together as ragged micro-batches. Layer 3.
 *
 * In: token datasets, a seed. Out: micro-batches without padding, in which every document is a sequence of its own: attention
 * never crosses a document, so packing changes speed and not results.
 * The order is a function of (seed, epoch, position) alone; the cursor is all there is to save. A loader borrows its datasets. */
#ifndef SKY_BATCH_BATCH_H
#define SKY_BATCH_BATCH_H

#include <stdint.h>
#include "base/base.h"
#include "tokens/tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_batch {                      /* arrays are the loader's, valid until its next call */
	int64_t n_seq, n;               /* sequences, tokens */
	int32_t *start;                 /* [n_seq + 1] */
	int32_t *pos0;                  /* [n_seq], all 0 */
	int32_t *ids;                   /* [n] */
	int32_t *target;                /* [n] the next token where it is trained, else −1 */
	int64_t n_target;               /* trained tokens */
};

struct sky_loader_opt {
	uint64_t seed;
	int sequential;                 /* 0: a fresh permutation each epoch */
	int64_t max_length;             /* longer rows lose their end; 0 = no limit */
	int pack;                       /* a batch row is filled up to max_length with whole documents */
	int64_t max_id;                 /* ids above are refused (vocabulary − 1) */
};

struct sky_loader;
int sky_loader_new(struct sky_tokens *const *sets, int n_set, const struct sky_loader_opt *opt, struct sky_loader **l_p,
                   struct sky_err *err) SKY_MUST_CHECK;
void sky_loader_free(struct sky_loader *l);
int64_t sky_loader_rows(const struct sky_loader *l);            /* of an epoch */

/* Draw the documents of the next n_row batch rows (documents without a trained token are passed over). The draw is then
 * cut into micro-batches of micro rows each. *n_target_p: trained tokens of the whole draw, *n_tok_p: all tokens. */
int sky_loader_draw(struct sky_loader *l, int64_t n_row, int64_t *n_target_p, int64_t *n_tok_p, struct sky_err *err) SKY_MUST_CHECK;
/* Micro-batch i of the draw: rows [i·micro, (i+1)·micro). SKY_EOF behind the last. */
int sky_loader_micro(struct sky_loader *l, int64_t i, int64_t micro, struct sky_batch *b, struct sky_err *err) SKY_MUST_CHECK;
/* Batch rows that one pass over the data gives at most (for evaluation: draw until the epoch ends). */
int sky_loader_epoch_ended(const struct sky_loader *l);

struct sky_cursor { int64_t epoch, index; };                    /* next document: place index of the order of epoch */
struct sky_cursor sky_loader_cursor(const struct sky_loader *l);
void sky_loader_seek(struct sky_loader *l, struct sky_cursor c);

#ifdef __cplusplus
}
#endif
#endif
