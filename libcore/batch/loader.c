/* The loader: order of documents, packing into batch rows, ragged micro-batches. */
#include "batch/batch.h"

#include <stdlib.h>

struct doc {
	int set;
	int64_t row, n;         /* n: tokens used */
};

struct sky_loader {
	struct sky_tokens *const *sets;
	int n_set;
	int64_t *first;         /* [n_set + 1] number of the first row of each set */
	struct sky_loader_opt opt;
	struct sky_cursor cur;
	struct doc *docs;       /* the draw, [n_doc] */
	int64_t n_doc, doc_cap;
	int64_t *row_at;        /* [n_row + 1] first document of each batch row */
	int64_t n_row, row_cap;
	int32_t *start, *pos0, *ids, *target;
	int64_t seq_cap, tok_cap;
};

int sky_loader_new(struct sky_tokens *const *sets, int n_set, const struct sky_loader_opt *opt, struct sky_loader **l_p,
                   struct sky_err *err)
{
	struct sky_loader *l = sky_calloc_array(1, sizeof(*l));

	if (!l || !(l->first = sky_calloc_array((size_t)n_set + 1, sizeof(int64_t)))) {
		free(l);
		return sky_fail_mem(err, "loader");
	}
	l->sets = sets;
	l->n_set = n_set;
	l->opt = *opt;
	for (int i = 0; i < n_set; i++) {
		l->first[i + 1] = l->first[i] + sky_tokens_rows(sets[i]);
	}
	if (l->first[n_set] == 0) {
		sky_loader_free(l);
		return sky_fail(err, SKY_E_DATA, "the training data hold no rows");
	}
	if (opt->pack && opt->max_length <= 0) {
		sky_loader_free(l);
		return sky_fail(err, SKY_E_USAGE, "--pack needs --max-length");
	}
	*l_p = l;
	return 0;
}

void sky_loader_free(struct sky_loader *l)
{
	if (l) {
		free(l->first);
		free(l->docs);
		free(l->row_at);
		free(l->start);
		free(l->pos0);
		free(l->ids);
		free(l->target);
		free(l);
	}
}

int64_t sky_loader_rows(const struct sky_loader *l)
{
	return l->first[l->n_set];
}

struct sky_cursor sky_loader_cursor(const struct sky_loader *l)
{
	return l->cur;
}

void sky_loader_seek(struct sky_loader *l, struct sky_cursor c)
{
	l->cur = c;
}

int sky_loader_epoch_ended(const struct sky_loader *l)
{
	return l->cur.index == 0;
}

/* The document at the cursor; the cursor moves on. */
static struct doc next_doc(struct sky_loader *l)
{
	int64_t n = sky_loader_rows(l), i = l->cur.index;
	struct doc d = { 0, 0, 0 };

	if (!l->opt.sequential) {
		i = (int64_t)sky_rng_permute(l->opt.seed, SKY_RNG_ORDER, (uint64_t)l->cur.epoch, (uint64_t)i, (uint64_t)n);
	}
	while (i >= l->first[d.set + 1]) {
		d.set++;
	}
	d.row = i - l->first[d.set];
	d.n = sky_tokens_row_len(l->sets[d.set], d.row);
	if (l->opt.max_length > 0 && d.n > l->opt.max_length) {
		d.n = l->opt.max_length;
	}
	if (++l->cur.index == n) {
		l->cur.index = 0;
		l->cur.epoch++;
	}
	return d;
}

/* Trained tokens of a document: position 0 has nothing before it. */
static int64_t count_targets(const struct sky_loader *l, const struct doc *d)
{
	const uint8_t *mask = sky_tokens_mask(l->sets[d->set], d->row);
	int64_t k = 0;

	for (int64_t t = 1; t < d->n; t++) {
		k += !mask || mask[t];
	}
	return k;
}

static int add_doc(struct sky_loader *l, struct doc d, struct sky_err *err)
{
	if (l->n_doc == l->doc_cap) {
		int64_t cap = l->doc_cap ? 2 * l->doc_cap : 64;
		void *p = sky_realloc_array(l->docs, (size_t)cap, sizeof(*l->docs));

		if (!p) {
			return sky_fail_mem(err, "batch");
		}
		l->docs = p;
		l->doc_cap = cap;
	}
	l->docs[l->n_doc++] = d;
	return 0;
}

/* Fills one batch row: one document, or with packing as many whole ones in order as fit. */
static int fill_row(struct sky_loader *l, int64_t *n_target, int64_t *n_tok, struct sky_err *err)
{
	int64_t used = 0, tries = 0;

	for (;;) {
		struct sky_cursor before = l->cur;
		struct doc d = next_doc(l);
		int64_t k = count_targets(l, &d);
		int rc;

		if (k == 0) {
			if (++tries > 2 * sky_loader_rows(l)) {
				return sky_fail(err, SKY_E_DATA, "no row of the training data has a trained token");
			}
			continue;
		}
		if (used > 0 && used + d.n > l->opt.max_length) {
			l->cur = before;        /* begins the next row */
			return 0;
		}
		rc = add_doc(l, d, err);
		if (rc < 0) {
			return rc;
		}
		*n_target += k;
		*n_tok += d.n;
		used += d.n;
		/* A row ends with the epoch, so that an epoch's rows do not depend on the one before. */
		if (!l->opt.pack || used >= l->opt.max_length || l->cur.index == 0) {
			return 0;
		}
	}
}

int sky_loader_draw(struct sky_loader *l, int64_t n_row, int64_t *n_target_p, int64_t *n_tok_p, struct sky_err *err)
{
	if (n_row + 1 > l->row_cap) {
		void *p = sky_realloc_array(l->row_at, (size_t)n_row + 1, sizeof(int64_t));

		if (!p) {
			return sky_fail_mem(err, "batch");
		}
		l->row_at = p;
		l->row_cap = n_row + 1;
	}
	l->n_doc = 0;
	*n_target_p = *n_tok_p = 0;
	for (l->n_row = 0; l->n_row < n_row; l->n_row++) {
		int rc;

		l->row_at[l->n_row] = l->n_doc;
		rc = fill_row(l, n_target_p, n_tok_p, err);
		if (rc < 0) {
			return rc;
		}
	}
	l->row_at[l->n_row] = l->n_doc;
	return 0;
}

static int reserve(struct sky_loader *l, int64_t n_seq, int64_t n_tok, struct sky_err *err)
{
	if (n_seq + 1 > l->seq_cap) {
		l->seq_cap = 2 * (n_seq + 1);
		l->start = sky_realloc_array(l->start, (size_t)l->seq_cap, sizeof(int32_t));
		l->pos0 = sky_realloc_array(l->pos0, (size_t)l->seq_cap, sizeof(int32_t));
	}
	if (n_tok > l->tok_cap) {
		l->tok_cap = n_tok + n_tok / 4;
		l->ids = sky_realloc_array(l->ids, (size_t)l->tok_cap, sizeof(int32_t));
		l->target = sky_realloc_array(l->target, (size_t)l->tok_cap, sizeof(int32_t));
	}
	return l->start && l->pos0 && (l->ids || !n_tok) && (l->target || !n_tok) ? 0 : sky_fail_mem(err, "batch");
}

static int copy_doc(struct sky_loader *l, const struct doc *d, struct sky_batch *b, struct sky_err *err)
{
	const uint8_t *mask = sky_tokens_mask(l->sets[d->set], d->row);
	int32_t *ids = l->ids + b->n, *target = l->target + b->n;
	int rc = sky_tokens_ids(l->sets[d->set], d->row, 0, d->n, ids, err);

	for (int64_t t = 0; t < d->n && rc == 0; t++) {
		if (ids[t] < 0 || ids[t] > l->opt.max_id) {
			rc = sky_fail(err, SKY_E_DATA,
			              "row %lld of data set %d: token id %d at position %lld, the model knows 0 to "
			              "%lld: was it made with another tokenizer?", (long long)d->row, d->set + 1, ids[t],
			              (long long)t, (long long)l->opt.max_id);
		}
	}
	for (int64_t t = 0; t < d->n && rc == 0; t++) {
		bool trained = t + 1 < d->n && (!mask || mask[t + 1]);

		target[t] = trained ? ids[t + 1] : -1;
		b->n_target += trained;
	}
	l->start[b->n_seq] = (int32_t)b->n;
	l->pos0[b->n_seq++] = 0;
	b->n += d->n;
	l->start[b->n_seq] = (int32_t)b->n;
	return rc;
}

int sky_loader_micro(struct sky_loader *l, int64_t i, int64_t micro, struct sky_batch *b, struct sky_err *err)
{
	int64_t from = i * micro, to = from + micro < l->n_row ? from + micro : l->n_row, n_tok = 0;
	int rc;

	if (from >= l->n_row) {
		return SKY_EOF;
	}
	for (int64_t d = l->row_at[from]; d < l->row_at[to]; d++) {
		n_tok += l->docs[d].n;
	}
	rc = reserve(l, l->row_at[to] - l->row_at[from], n_tok, err);
	*b = (struct sky_batch){ 0 };
	for (int64_t d = l->row_at[from]; d < l->row_at[to] && rc == 0; d++) {
		rc = copy_doc(l, &l->docs[d], b, err);
	}
	b->start = l->start;
	b->pos0 = l->pos0;
	b->ids = l->ids;
	b->target = l->target;
	return rc;
}
