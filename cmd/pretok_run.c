/* skyrl-pretok: the run. One reader → any number of workers → one ordered writer, so the bytes do not depend on -j.
 *
 * The unit is a block of about 1 MiB of rows. The writer makes checkpoints, each with the position behind the last block
 * that it covers; a resumed run begins there. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_run.h"

struct reject {
	int64_t row;
	uint64_t byte;
	enum sky_reason why;
	size_t at, n;                   /* raw row inside the block */
	char *detail;                   /* owned, may be NULL */
};

struct item {
	struct sky_block *block;
	int32_t *ids;
	uint8_t *mask;
	int64_t n_tok, cap_tok;
	int64_t *len;                   /* rows to write, in order */
	int64_t n_row, cap_row;
	struct reject *reject;
	int64_t n_reject, cap_reject;
	int64_t n_text;                 /* bytes of rows */
	int64_t n_lost[3];              /* rows that lost content, reasoning, tool calls */
};

/* ---- workers ---- */

static int keep_reject(struct item *it, int64_t row, uint64_t byte, enum sky_reason why, size_t at, size_t n,
                       const char *detail, struct sky_err *err)
{
	if (it->n_reject == it->cap_reject) {
		int64_t cap = it->cap_reject ? 2 * it->cap_reject : 16;
		struct reject *r = sky_realloc_array(it->reject, (size_t)cap, sizeof *r);

		if (!r) {
			return sky_fail_mem(err, "rejected rows");
		}
		it->reject = r;
		it->cap_reject = cap;
	}
	it->reject[it->n_reject++] = (struct reject){ row, byte, why, at, n, detail && *detail ? strdup(detail) : NULL };
	return 0;
}

static int add_row(struct item *it, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	if (it->n_row == it->cap_row) {
		int64_t cap = it->cap_row ? 2 * it->cap_row : 256;
		int64_t *len = sky_realloc_array(it->len, (size_t)cap, sizeof *len);

		if (!len) {
			return sky_fail_mem(err, "a block of %lld rows", (long long)it->n_row);
		}
		it->len = len;
		it->cap_row = cap;
	}
	if (it->n_tok + n > it->cap_tok) {
		int64_t cap = it->n_tok + n > 2 * it->cap_tok ? it->n_tok + n : 2 * it->cap_tok;
		int32_t *p = sky_realloc_array(it->ids, (size_t)cap, sizeof *p);
		uint8_t *m;

		if (!p) {
			return sky_fail_mem(err, "a block of %lld tokens", (long long)cap);
		}
		it->ids = p;
		m = sky_realloc_array(it->mask, (size_t)cap, 1);
		if (!m) {
			return sky_fail_mem(err, "a block of %lld tokens", (long long)cap);
		}
		it->mask = m;
		it->cap_tok = cap;
	}
	if (n) {
		memcpy(it->ids + it->n_tok, ids, (size_t)n * sizeof *ids);
		memcpy(it->mask + it->n_tok, mask, (size_t)n);
	}
	it->n_tok += n;
	it->len[it->n_row++] = n;
	return 0;
}

static int64_t count_trained(const uint8_t *mask, int64_t n)
{
	int64_t sum = 0;

	for (int64_t i = 0; i < n; i++) {
		sum += mask[i];
	}
	return sum;
}

/* The row in w under --max-length and --min-trained; SKY_ROW_OK when something was kept. */
static int keep_row(struct run *run, struct pretok_worker *w, struct item *it, enum sky_reason *why, struct sky_err *err)
{
	int64_t n = w->ids.n, max = pt.max_length > 0 ? pt.max_length : n, from = 0, left = n, part, kept = 0;
	int rc = 0;

	if (n > max && (pt.overlong == OVERLONG_DROP || pt.overlong == OVERLONG_ERROR)) {
		*why = SKY_ROW_TOO_LONG;
		sky_fail(err, SKY_E_DATA, "%lld tokens, --max-length is %lld", (long long)n, (long long)max);
		return 0;
	}
	if (pt.overlong != OVERLONG_SPLIT) {
		left = n < max ? n : max;
		from = pt.overlong == OVERLONG_LEFT ? n - left : 0;
	}
	for (; !rc && left > 0; from += part, left -= part) {
		part = left < max ? left : max;
		if (run->with_mask) {
			w->mask[from] = 0;      /* first token of the row as it is written */
			if (count_trained(w->mask + from, part) < pt.min_trained) {
				continue;
			}
		}
		rc = add_row(it, w->ids.id + from, w->mask + from, part, err);
		kept++;
	}
	if (!rc && !kept) {
		*why = SKY_ROW_NO_TRAINED;
		sky_fail(err, SKY_E_DATA, "no token would be trained (--train-on, --min-trained)");
	}
	return rc;
}

static int one_row(struct run *run, struct pretok_worker *w, struct item *it, int64_t row, size_t at, size_t n,
                   struct sky_err *err)
{
	const struct sky_block *b = it->block;
	enum sky_reason why = SKY_ROW_OK;
	struct sky_err why_err = { 0 };
	int rc = pretok_row(w, b->kind, b->data.ptr + at, n, &why, &why_err);

	if (!rc && why == SKY_ROW_OK) {
		rc = keep_row(run, w, it, &why, &why_err);
	}
	if (rc < 0) {
		*err = why_err;
		return sky_while(err, rc, "%s:%lld", b->file, (long long)row);
	}
	if (why == SKY_ROW_EMPTY && pt.empty == EMPTY_KEEP) {
		int32_t eod = run->text.eod;
		uint8_t none = 0;

		return add_row(it, &eod, &none, pt.append_eod && eod >= 0, err);
	}
	if (why == SKY_ROW_OK) {
		it->n_text += (int64_t)n;
		for (int i = 0; i < 3; i++) {
			it->n_lost[i] += w->lost >> i & 1;
		}
		return 0;
	}
	return keep_reject(it, row, b->byte + at, why, at, n, why_err.msg, err);
}

static int work(void *ctx, void *item, int worker, struct sky_err *err)
{
	struct run *run = ctx;
	struct item *it = item;
	struct sky_block *b = it->block;
	const char *p = b->data.ptr, *end = p + b->data.n, *nl;
	int64_t row = b->row;
	size_t n;
	int rc = 0;

	if (b->kind == SKY_BLOCK_DOC) {
		return one_row(run, &run->worker[worker], it, row, 0, b->data.n, err);
	}
	for (; !rc && p < end; p = nl + 1, row++) {
		nl = memchr(p, '\n', (size_t)(end - p));
		nl = nl ? nl : end;
		n = (size_t)(nl - p);
		n -= n && p[n - 1] == '\r';
		rc = one_row(run, &run->worker[worker], it, row, (size_t)(p - b->data.ptr), n, err);
	}
	return rc;
}

/* ---- the reader ---- */

static int source(void *ctx, void **item_p, struct sky_err *err)
{
	struct run *run = ctx;
	struct item *it;
	int rc = 0;

	if (cmd_stopping()) {
		return cmd_stop_err(err, "--resume goes on");
	}
	it = calloc(1, sizeof *it);
	if (!it) {
		return sky_fail_mem(err, "a block of rows");
	}
	it->block = run->first;
	run->first = NULL;
	if (!it->block) {
		rc = sky_corpus_next(run->corpus, &it->block, err);
	}
	/* The end of a pipe may come from the signal that stops us too: never take a cut input for a whole one. */
	if (rc >= 0 && cmd_stopping()) {
		sky_block_free(it->block);
		rc = cmd_stop_err(err, "--resume goes on");
	}
	if (rc) {
		free(it);
		return rc;
	}
	*item_p = it;
	return 0;
}

/* ---- the writer ---- */

static void item_free(void *ctx, void *item)
{
	struct item *it = item;

	(void)ctx;
	for (int64_t i = 0; i < it->n_reject; i++) {
		free(it->reject[i].detail);
	}
	sky_block_free(it->block);
	free(it->ids);
	free(it->mask);
	free(it->len);
	free(it->reject);
	free(it);
}

static int checkpoint(struct run *run, struct sky_err *err)
{
	struct sky_buf state = SKY_BUF_INIT(1u << 20);
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &state, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "file", run->i_file);
	sky_jw_ki64(&w, "row", run->row);
	sky_jw_ki64(&w, "schema", run->schema);
	sky_jw_ki64(&w, "text", run->n_text);
	sky_jw_ki64(&w, "seen", run->rej.n_row);
	sky_jw_ki64(&w, "quarantine", (int64_t)run->rej.n_bytes);
	sky_jw_key(&w, "lost");
	sky_jw_arr(&w);
	for (int i = 0; i < 3; i++) {
		sky_jw_i64(&w, run->n_lost[i]);
	}
	sky_jw_close_arr(&w);
	sky_jw_key(&w, "counts");
	pretok_counts_json(&run->rej, &w);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_tokens_checkpoint(run->out, state.ptr, err);
	run->since_checkpoint = 0;
	sky_buf_release(&state);
	return rc;
}

static int write_item(struct run *run, const struct item *it, struct sky_err *err)
{
	const struct sky_block *b = it->block;
	int64_t at = 0;
	int rc = 0;

	for (int64_t i = 0; !rc && i < it->n_reject; i++) {
		const struct reject *r = &it->reject[i];

		rc = pretok_reject(&run->rej, r->why, b->file, r->row, r->byte, r->detail ? r->detail : "",
				   b->data.ptr + r->at, r->n, err);
	}
	for (int64_t i = 0; !rc && i < it->n_row; i++) {
		rc = sky_tokens_add(run->out, it->ids + at, it->mask + at, it->len[i], err);
		at += it->len[i];
	}
	return rc;
}

static int sink(void *ctx, void *item, struct sky_err *err)
{
	struct run *run = ctx;
	struct item *it = item;
	double now;
	int rc;

	run->rej.n_row += it->block->n_row;
	rc = write_item(run, it, err);
	run->n_text += it->n_text;
	for (int i = 0; i < 3; i++) {
		run->n_lost[i] += it->n_lost[i];
	}
	run->since_checkpoint += it->n_tok;
	run->i_file = it->block->i_file;
	run->row = it->block->row + it->block->n_row - 1;
	if (!rc && run->since_checkpoint >= pt.checkpoint_every) {
		rc = checkpoint(run, err);
	}
	now = sky_now() - run->meter.t_start;
	cmd_meter(&run->meter, (double)sky_corpus_read_bytes(run->corpus), "%.1fM tok/s, %lld rows",
		  now > 0 ? (double)sky_tokens_out_total(run->out) / now * 1e-6 : 0.0,
		  (long long)sky_tokens_out_rows(run->out));
	item_free(ctx, item);
	return rc;
}

int pretok_run(int argc, char **argv, struct sky_err *err)
{
	struct run run = { .options = SKY_BUF_INIT(1u << 24), .inputs = SKY_BUF_INIT(SKY_MAX_JSON_BYTES) };
	struct sky_pipe pipe = { .ctx = &run, .source = source, .work = work, .sink = sink, .drop = item_free };
	int64_t rows = 0, tokens = 0, trained = 0;
	int rc;

	if (!cmd.output) {
		return sky_fail(err, SKY_E_USAGE, "where to? -o PREFIX is missing");
	}
	rc = run_prepare(&run, argc, argv, err);
	if (!rc && !run.unchanged) {
		rc = run_go_to_start(&run, argc, argv, err);
		cmd_meter_start(&run.meter, "pretok", "B", (double)sky_corpus_total_bytes(run.corpus), 0);
		pipe.n_threads = run.n_worker;
		pipe.depth = 2 * run.n_worker + 2;
		rc = rc ? rc : sky_pipe_run(&pipe, err);
		if (!rc && cmd_stopping()) {    /* the signal may arrive a little behind the end that it made */
			rc = cmd_stop_err(err, "--resume goes on");
		}
		if (rc == SKY_E_STOP && run.i_file + run.row > 0) {
			struct sky_err ignored;

			(void)!checkpoint(&run, &ignored);
		}
		if (!rc) {
			rows = sky_tokens_out_rows(run.out);
			tokens = sky_tokens_out_total(run.out);
			trained = sky_tokens_out_trained(run.out);
			rc = run_finish(&run, err);
		}
		rc = rc ? rc : run_report(&run, rows, tokens, trained, err);
	}
	run_close(&run);
	return rc;
}
