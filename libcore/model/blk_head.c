/* model: the end of the model: final norm, output product, log-probs of given tokens, and back. Works
 * in chunks of rows, so that logits exist for one chunk at a time; backward makes them again. n rows of
 * a chunk (at most C), D model width, V vocabulary. */
#include "model/model_int.h"

#include <string.h>

struct scratch {
	int32_t *row, *target;                                /* [C] */
	float *logprob, *entropy, *lse, *dlogprob, *dentropy; /* [C] */
	float *rstd;                                          /* [C] */
	float *x, *dx;                                        /* [C, D], where rows are scattered */
	void *h, *dh;                                         /* [C, D] of the compute type */
	float *logits;                                        /* [C, V] */
	void *dlogits; /* [C, V] of the compute type; logits itself in f32 */
};

static int64_t chunk_rows(const struct sky_pass *p)
{
	return p->m->head_rows < p->T ? p->m->head_rows : p->T;
}

static uint64_t lay_out(const struct sky_pass *p, struct sky_ws *w, struct scratch *s)
{
	uint64_t C = (uint64_t)chunk_rows(p), D = (uint64_t)p->D, V = (uint64_t)p->m->plan.vocab;
	uint64_t begin = w->off;

	s->row = sky_ws_take(w, C * sizeof(int32_t));
	s->target = sky_ws_take(w, C * sizeof(int32_t));
	s->logprob = sky_ws_take(w, C * sizeof(float));
	s->entropy = sky_ws_take(w, C * sizeof(float));
	s->lse = sky_ws_take(w, C * sizeof(float));
	s->dlogprob = sky_ws_take(w, C * sizeof(float));
	s->dentropy = sky_ws_take(w, C * sizeof(float));
	s->rstd = sky_ws_take(w, C * sizeof(float));
	s->x = sky_ws_take(w, C * D * sizeof(float));
	s->h = sky_ws_take(w, C * D * p->esz);
	s->dx = p->keep ? sky_ws_take(w, C * D * sizeof(float)) : NULL;
	s->dh = p->keep ? sky_ws_take(w, C * D * p->esz) : NULL;
	s->logits = p->pool ? NULL : sky_ws_take(w, C * V * sizeof(float));
	s->dlogits = p->keep && p->t != KN_F32 ? sky_ws_take(w, C * V * p->esz) : s->logits;
	return w->off - begin;
}

uint64_t sky_head_bytes(const struct sky_pass *p)
{
	struct sky_ws w = { NULL, 0 };
	struct scratch s;

	return lay_out(p, &w, &s);
}

static void take_scratch(const struct sky_pass *p, struct scratch *s)
{
	struct sky_ws w = p->tmp;

	lay_out(p, &w, s);
}

/* Rows that follow each other are read and written in place. */
static bool is_run(const int32_t *row, int64_t n)
{
	return row[n - 1] - row[0] == n - 1;
}

/* *x_p [n, D]: the last residual stream at the rows; s->h its norm. */
static int norm_rows(struct sky_pass *p, struct scratch *s, const int32_t *row, int64_t n,
		     const float **x_p)
{
	const struct sky_head_spec *spec = &p->m->plan.head;
	const float *last = p->x[p->m->plan.n_block];
	int rc = 0;

	*x_p = last + row[0] * p->D;
	if (!is_run(row, n)) { /* a row of the stream is looked up as a row of a table is */
		*x_p = s->x;
		KN_TRY(rc, p->ops->copy(p->s, s->row, row, (uint64_t)n * sizeof(int32_t)));
		KN_TRY(rc, p->ops->embed(p->s, KN_F32, n, p->D, s->row, last, s->x));
	}
	KN_TRY(rc, p->ops->rmsnorm(p->s, n, p->D, KN_F32, *x_p, sky_slot_at(p->m, spec->norm)->vec,
				   spec->eps, p->t, s->h, s->rstd));
	return rc;
}

static int product(struct sky_pass *p, struct scratch *s, int64_t n, float *logits)
{
	return p->ops->linear(p->s, sky_slot_at(p->m, p->m->plan.head.out)->w, n, s->h, NULL, KN_F32,
			      logits, 0);
}

int sky_head_logits(struct sky_pass *p, const int32_t *row, int64_t n, float *logits)
{
	int64_t C = chunk_rows(p);
	struct scratch s;
	const float *x;
	int rc = 0;

	take_scratch(p, &s);
	for (int64_t i = 0; rc == 0 && i < n; i += C) {
		int64_t k = n - i < C ? n - i : C;

		rc = norm_rows(p, &s, row + i, k, &x);
		KN_TRY(rc, product(p, &s, k, logits + i * p->m->plan.vocab));
	}
	return rc;
}

int sky_head_score(struct sky_pass *p, struct sky_head_rows *q)
{
	int64_t C = chunk_rows(p), V = p->m->plan.vocab;
	struct scratch s;
	const float *x;
	int rc = 0;

	take_scratch(p, &s);
	for (int64_t i = 0; rc == 0 && i < q->n; i += C) {
		int64_t n = q->n - i < C ? q->n - i : C;
		uint64_t bytes = (uint64_t)n * sizeof(float);

		rc = norm_rows(p, &s, q->row + i, n, &x);
		KN_TRY(rc, product(p, &s, n, s.logits));
		KN_TRY(rc, p->ops->copy(p->s, s.target, q->target + i, bytes));
		KN_TRY(rc, p->ops->logprob(p->s, n, V, s.logits, s.target, q->inv_temp, s.logprob,
					   q->has_entropy ? s.entropy : NULL, s.lse));
		KN_TRY(rc, p->ops->copy(p->s, q->logprob + i, s.logprob, bytes));
		KN_TRY(rc, p->ops->copy(p->s, q->lse + i, s.lse, bytes));
		if (q->has_entropy) {
			KN_TRY(rc, p->ops->copy(p->s, q->entropy + i, s.entropy, bytes));
		}
	}
	return rc;
}

/* What logprob_bwd reads besides the logits: lse and entropy as the pass left them, or lse made now. */
static int put_chunk(struct sky_pass *p, struct scratch *s, struct sky_head_rows *q, int64_t i,
		     int64_t n, enum sky_head_mode mode)
{
	uint64_t bytes = (uint64_t)n * sizeof(float);
	int rc = p->ops->copy(p->s, s->target, q->target + i, bytes);

	KN_TRY(rc, p->ops->copy(p->s, s->dlogprob, q->dlogprob + i, bytes));
	if (mode == SKY_HEAD_FIRST) {
		KN_TRY(rc, p->ops->logprob(p->s, n, p->m->plan.vocab, s->logits, s->target, q->inv_temp,
					   s->logprob, NULL, s->lse));
		KN_TRY(rc, p->ops->copy(p->s, q->logprob + i, s->logprob, bytes));
		return rc;
	}
	KN_TRY(rc, p->ops->copy(p->s, s->lse, q->lse + i, bytes));
	if (mode == SKY_HEAD_AGAIN_ENTROPY) {
		KN_TRY(rc, p->ops->copy(p->s, s->entropy, q->entropy + i, bytes));
		KN_TRY(rc, p->ops->copy(p->s, s->dentropy, q->dentropy + i, bytes));
	}
	return rc;
}

/* Gradient of the norm's input into p->dx at the rows. */
static int norm_back(struct sky_pass *p, struct scratch *s, const int32_t *row, int64_t n,
		     const float *x)
{
	const struct sky_slot *norm = sky_slot_at(p->m, p->m->plan.head.norm);
	bool run = is_run(row, n);
	float *dx = run ? p->dx + row[0] * p->D : s->dx;
	int rc = p->ops->rmsnorm_bwd(p->s, n, p->D, KN_F32, x, norm->vec, s->rstd, p->t, s->dh, KN_F32,
				     dx, 0, norm->grad);

	if (!run) {
		KN_TRY(rc, p->ops->embed_bwd(p->s, n, p->D, s->row, s->dx, p->dx));
	}
	return rc;
}

int sky_head_backward(struct sky_pass *p, struct sky_head_rows *q, enum sky_head_mode mode)
{
	bool use_entropy = mode == SKY_HEAD_AGAIN_ENTROPY;
	const struct sky_slot *out = sky_slot_at(p->m, p->m->plan.head.out);
	int64_t C = chunk_rows(p), V = p->m->plan.vocab;
	struct scratch s;
	const float *x;
	int rc = p->ops->zero(p->s, p->dx, (uint64_t)(p->T * p->D) * sizeof(float));

	take_scratch(p, &s);
	for (int64_t i = 0; rc == 0 && i < q->n; i += C) {
		int64_t n = q->n - i < C ? q->n - i : C;

		rc = norm_rows(p, &s, q->row + i, n, &x);
		KN_TRY(rc, product(p, &s, n, s.logits));
		KN_TRY(rc, put_chunk(p, &s, q, i, n, mode));
		KN_TRY(rc, p->ops->logprob_bwd(p->s, n, V, s.logits, s.target, q->inv_temp, s.lse,
					       s.dlogprob, use_entropy ? s.dentropy : NULL,
					       use_entropy ? s.entropy : NULL, p->t, s.dlogits));
		KN_TRY(rc,
		       p->ops->linear_bwd_w(p->s, p->t, n, V, p->D, s.dlogits, s.h, out->grad, NULL));
		KN_TRY(rc, p->ops->linear_bwd_x(p->s, out->w, n, s.dlogits, p->t, s.dh, 0));
		KN_TRY(rc, norm_back(p, &s, q->row + i, n, x));
	}
	return rc;
}
