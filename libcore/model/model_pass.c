/* model: one pass over a ragged batch of rows: checks, workspace, embedding, blocks; and the way back.
 *
 * The workspace is one slab. In front stand row arrays, residual streams, temporary pages and kept
 * activations, behind them the part that blocks reuse one after the other. Its size is found by laying
 * it out with a NULL base first; it only ever grows, so that nothing is allocated once the largest
 * batch has been seen. */
#include "model/model_int.h"

#include <stdio.h>
#include <stdlib.h>

void *sky_pass_pages(const struct sky_pass *p, const struct sky_block *b)
{
	return p->pool ? sky_kvpool_pages(p->pool, b) : p->temp_pages;
}

int sky_pass_carry(struct sky_pass *p)
{
	return p->x_out == p->x_in
		       ? 0
		       : p->ops->copy(p->s, p->x_out, p->x_in, (uint64_t)(p->T * p->D) * sizeof(float));
}

/* ---- checks ---- */
static int64_t seq_end(const struct sky_rows *rows, int64_t s)
{
	return (int64_t)rows->pos0[s] + rows->start[s + 1] - rows->start[s];
}

static int check_rows(const struct sky_model *m, const struct sky_rows *rows, struct sky_err *err)
{
	if (rows->n_seq < 1 || rows->start[0] != 0) {
		return sky_fail(err, SKY_E_USAGE,
				"a batch needs at least one sequence, the first at row 0");
	}
	for (int64_t s = 0; s < rows->n_seq; s++) {
		if (rows->start[s + 1] < rows->start[s] || rows->pos0[s] < 0) {
			return sky_fail(err, SKY_E_USAGE,
					"sequence %lld of the batch has negative length or position",
					(long long)s);
		}
		if (seq_end(rows, s) > m->cfg.max_pos) {
			return sky_fail(
				err, SKY_E_LIMIT,
				"sequence %lld of the batch reaches %lld tokens, but %s allows %lld "
				"(max_position_embeddings)",
				(long long)s, (long long)seq_end(rows, s), m->dir,
				(long long)m->cfg.max_pos);
		}
	}
	for (int64_t r = 0; r < rows->start[rows->n_seq]; r++) {
		if (rows->ids[r] < 0 || rows->ids[r] >= m->cfg.vocab) {
			return sky_fail(
				err, SKY_E_DATA,
				"token id %d at row %lld of the batch is outside the vocabulary of %s (%lld)",
				rows->ids[r], (long long)r, m->dir, (long long)m->cfg.vocab);
		}
	}
	return 0;
}

static int check_pages(const struct sky_rows *rows, const struct sky_kvview *kv, struct sky_err *err)
{
	for (int64_t s = 0; s < rows->n_seq; s++) {
		int64_t n = (seq_end(rows, s) + KN_PAGE - 1) / KN_PAGE;

		for (int64_t i = 0; i < n; i++) {
			int32_t page = i < kv->stride ? kv->table[s * kv->stride + i] : -1;

			if (page < 0 || page >= kv->pool->n_page) {
				return sky_fail(
					err, SKY_E_USAGE,
					"sequence %lld of the batch has no page for position %lld",
					(long long)s, (long long)i * KN_PAGE);
			}
		}
	}
	return 0;
}

/* ---- layout ---- */
/* Blocks behind *w: kept arrays one after the other, then the part that they share. Returns the end of
 * the slab. */
static uint64_t lay_out_blocks(struct sky_model *m, struct sky_ws *w)
{
	struct sky_pass *p = &m->pass;
	struct sky_ws kept = { NULL, 0 }, t;
	uint64_t most;

	for (int32_t i = 0; p->keep && i < m->plan.n_block; i++) {
		t = (struct sky_ws){ NULL, 0 };
		m->plan.block[i].kind->layout(p, &m->plan.block[i], &kept, &t);
	}
	p->tmp = (struct sky_ws){ w->base, w->off + kept.off };
	most = p->tmp.off + sky_head_bytes(p);
	for (int32_t i = 0; i < m->plan.n_block; i++) {
		struct sky_block *b = &m->plan.block[i];

		if (p->keep) {
			t = p->tmp;
			b->kind->layout_bwd(p, b, &t);
			most = t.off > most ? t.off : most;
		}
		t = p->tmp;
		b->kind->layout(p, b, p->keep ? w : &t, &t);
		most = t.off > most ? t.off : most;
	}
	return most;
}

/* Lays everything out behind base (NULL: measures only); returns the bytes it takes. */
static uint64_t lay_out(struct sky_model *m, uint8_t *base)
{
	struct sky_pass *p = &m->pass;
	struct sky_ws w = { base, 0 };
	uint64_t row = (uint64_t)(p->T * p->D), i32 = sizeof(int32_t), page = 0;
	int64_t n_seq = p->rows.n_seq;

	p->ids = sky_ws_take(&w, (uint64_t)p->T * i32);
	p->pos = sky_ws_take(&w, (uint64_t)p->T * i32);
	p->start = sky_ws_take(&w, (uint64_t)(n_seq + 1) * i32);
	p->pos0 = sky_ws_take(&w, (uint64_t)n_seq * i32);
	p->table = sky_ws_take(&w, (uint64_t)(n_seq * p->table_stride) * i32);
	p->rows.start = p->start;
	p->rows.pos0 = p->pos0;
	for (int32_t i = 0; i <= m->plan.n_block; i++) {
		p->x[i] = i == 0 || p->keep ? sky_ws_take(&w, row * sizeof(float)) : p->x[0];
	}
	for (int32_t i = 0; i < m->plan.n_block; i++) {
		page = m->plan.block[i].page_bytes > page ? m->plan.block[i].page_bytes : page;
	}
	p->temp_pages = sky_ws_take(&w, (uint64_t)p->n_temp_page * page);
	p->dx = p->keep ? sky_ws_take(&w, row * sizeof(float)) : NULL;
	p->dy = p->keep && p->t != KN_F32 ? sky_ws_take(&w, row * p->esz) : p->dx;
	return lay_out_blocks(m, &w);
}

static int fit_workspace(struct sky_model *m, struct sky_err *err)
{
	uint64_t need = lay_out(m, NULL);
	void *q = NULL;
	int rc;

	if (need > m->ws_bytes) {
		m->d.ops->free(m->d.dev, m->ws);
		m->ws = NULL;
		m->ws_bytes = 0;
		need += need /
			16; /* page tables lengthen with the sequences: not a new slab for each page */
		rc = m->d.ops->alloc(m->d.dev, need, &q);
		if (rc) {
			return sky_kn_fail(m, rc, "allocating the workspace of a batch", err);
		}
		m->ws = q;
		m->ws_bytes = need;
	}
	lay_out(m, m->ws);
	return 0;
}

/* ---- row arrays ---- */
static int fit_host(struct sky_model *m, int64_t n, struct sky_err *err)
{
	int32_t *q;

	if (n <= m->host_cap) {
		return 0;
	}
	q = sky_realloc_array(m->host_i32, (size_t)(n + n / 4), sizeof *q);
	if (!q) {
		return sky_fail_mem(err, "arranging a batch of %lld numbers", (long long)n);
	}
	m->host_i32 = q;
	m->host_cap = n + n / 4;
	return 0;
}

/* Positions and page table to the device, ids, start and pos0 as they are. */
static int put_rows(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		    struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	int64_t T = p->T, n_seq = rows->n_seq, n_table = n_seq * p->table_stride;
	int32_t *pos, *table, page = 0;
	int rc = fit_host(m, T + n_table, err);

	if (rc < 0) {
		return rc;
	}
	pos = m->host_i32;
	table = pos + T;
	for (int64_t s = 0; s < n_seq; s++) {
		for (int64_t r = rows->start[s]; r < rows->start[s + 1]; r++) {
			pos[r] = rows->pos0[s] + (int32_t)(r - rows->start[s]);
		}
		for (int64_t i = 0; i < p->table_stride; i++) {
			int64_t at = i * KN_PAGE;

			table[s * p->table_stride + i] = at >= seq_end(rows, s) ? 0
							 : kv ? kv->table[s * kv->stride + i]
							      : page++;
		}
	}
	KN_TRY(rc, p->ops->copy(p->s, p->ids, rows->ids, (uint64_t)T * 4));
	KN_TRY(rc, p->ops->copy(p->s, p->pos, pos, (uint64_t)T * 4));
	KN_TRY(rc, p->ops->copy(p->s, p->start, rows->start, (uint64_t)(n_seq + 1) * 4));
	KN_TRY(rc, p->ops->copy(p->s, p->pos0, rows->pos0, (uint64_t)n_seq * 4));
	KN_TRY(rc, p->ops->copy(p->s, p->table, table, (uint64_t)n_table * 4));
	return rc ? sky_kn_fail(m, rc, "copying the rows of a batch", err) : 0;
}

static int begin(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		 int keep, struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	int64_t reach = 1;
	int rc = check_rows(m, rows, err);

	if (rc < 0 || (kv && (rc = check_pages(rows, kv, err)) < 0)) {
		return rc;
	}
	if (!p->x && !(p->x = sky_calloc_array((size_t)m->plan.n_block + 1, sizeof *p->x))) {
		return sky_fail_mem(err, "beginning a pass");
	}
	for (int64_t s = 0; s < rows->n_seq; s++) {
		reach = seq_end(rows, s) > reach ? seq_end(rows, s) : reach;
	}
	m->kept = false;
	p->m = m;
	p->ops = m->d.ops;
	p->s = m->d.stream;
	p->t = m->opt.compute;
	p->esz = m->esz;
	p->T = rows->start[rows->n_seq];
	p->D = m->plan.d_model;
	p->keep = keep;
	p->rows.n_seq = rows->n_seq;
	p->pool = kv ? kv->pool : NULL;
	p->table_stride = (reach + KN_PAGE - 1) / KN_PAGE;
	p->n_temp_page = 0;
	for (int64_t s = 0; !kv && s < rows->n_seq; s++) {
		p->n_temp_page += (seq_end(rows, s) + KN_PAGE - 1) / KN_PAGE;
	}
	rc = sky_rope_fit(m, reach, err);
	if (rc < 0 || (rc = fit_workspace(m, err)) < 0) {
		return rc;
	}
	return put_rows(m, rows, kv, err);
}

/* ---- there and back ---- */
static int block_fail(const struct sky_model *m, int status, const struct sky_block *b, const char *way,
		      struct sky_err *err)
{
	char what[96];

	snprintf(what, sizeof what, "layer %d, %s, %s", b->layer, b->kind->name, way);
	return sky_kn_fail(m, status, what, err);
}

int sky_pass_forward(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		     int keep, struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	int rc = begin(m, rows, kv, keep, err);

	if (rc < 0 || p->T == 0) {
		return rc;
	}
	rc = p->ops->embed(p->s, p->t, p->T, p->D, p->ids, sky_slot_at(m, m->plan.embed.table)->table,
			   p->x[0]);
	if (rc) {
		return sky_kn_fail(m, rc, "embedding", err);
	}
	for (int32_t i = 0; i < m->plan.n_block; i++) {
		struct sky_block *b = &m->plan.block[i];

		p->x_in = p->x[i];
		p->x_out = p->x[i + 1];
		rc = b->kind->forward(p, b);
		if (rc) {
			return block_fail(m, rc, b, "forward", err);
		}
	}
	return 0;
}

/* dy follows dx where products want another type. */
static int round_dx(struct sky_pass *p)
{
	return p->t == KN_F32 ? 0 : p->ops->cast(p->s, p->T * p->D, KN_F32, p->dx, p->t, p->dy);
}

int sky_pass_backward(struct sky_model *m, struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	int rc;

	for (int32_t i = m->plan.n_block - 1; i >= 0; i--) {
		struct sky_block *b = &m->plan.block[i];

		p->x_in = p->x[i];
		p->x_out = p->x[i + 1];
		rc = round_dx(p);
		KN_TRY(rc, b->kind->backward(p, b));
		if (rc) {
			return block_fail(m, rc, b, "backward", err);
		}
	}
	rc = p->ops->embed_bwd(p->s, p->T, p->D, p->ids, p->dx,
			       sky_slot_at(m, m->plan.embed.table)->grad);
	return rc ? sky_kn_fail(m, rc, "gradient of the embedding", err) : 0;
}

static void release_rows(struct sky_head_rows *q)
{
	free(q->row);
	free(q->value);
}

void sky_pass_release(struct sky_model *m)
{
	m->d.ops->free(m->d.dev, m->ws);
	m->d.ops->free(m->d.dev, m->logits);
	release_rows(&m->ask);
	release_rows(&m->back);
	free(m->pass.x);
	free(m->host_i32);
}
