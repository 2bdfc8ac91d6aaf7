/* model: grouped-query attention as a block: norm, fused q/k/v product, norm of heads, rotation, pages,
 * attention, output product. T rows, D model width, H query heads, G key/value heads, d head width, W =
 * (H + 2G)·d. */
#include "model/model_int.h"

struct act {
	float *rstd; /* [T] of the norm */
	void *h;     /* [T, D] normed input */
	void *raw;   /* [T, W] as the product gave it; the same array as qkv unless heads are normed and
			kept */
	void *qkv;   /* [T, W] as attention reads it */
	void *out;   /* [T, H·d] */
	float *lse;  /* [T, H] */
	/* backward */
	void *qkv_bwd; /* [T, W] qkv, made again where heads are normed */
	void *dout;    /* [T, H·d] */
	void *dqkv;    /* [T, W] */
	void *dh;      /* [T, D] h made again, then its gradient */
};

static int64_t width(const struct sky_attn_spec *s)
{
	return (s->a.n_head + 2 * s->a.n_kv_head) * s->a.d_head;
}

static uint64_t attn_page_bytes(const struct sky_model *m, const struct sky_block *b)
{
	const struct sky_attn_spec *s = b->spec;

	return m->d.ops->kv_page_bytes(m->d.dev, m->opt.compute, s->a.n_kv_head, s->a.d_head);
}

/* Normed heads are kept as they were before the norm: backward makes qkv again. */
static void attn_layout(const struct sky_pass *p, struct sky_block *b, struct sky_ws *kept,
			struct sky_ws *tmp)
{
	const struct sky_attn_spec *s = b->spec;
	uint64_t T = (uint64_t)p->T, H = (uint64_t)s->a.n_head, W = (uint64_t)width(s);
	struct act *a = b->act;

	a->rstd = sky_ws_take(kept, T * sizeof(float));
	a->h = sky_ws_take(tmp, T * (uint64_t)p->D * p->esz);
	a->raw = sky_ws_take(kept, T * W * p->esz);
	a->qkv = s->q_norm >= 0 ? sky_ws_take(tmp, T * W * p->esz) : a->raw;
	a->out = sky_ws_take(kept, T * H * (uint64_t)s->a.d_head * p->esz);
	a->lse = sky_ws_take(kept, T * H * sizeof(float));
}

static void attn_layout_bwd(const struct sky_pass *p, struct sky_block *b, struct sky_ws *tmp)
{
	const struct sky_attn_spec *s = b->spec;
	uint64_t T = (uint64_t)p->T, W = (uint64_t)width(s);
	struct act *a = b->act;

	a->dout = sky_ws_take(tmp, T * (uint64_t)(s->a.n_head * s->a.d_head) * p->esz);
	a->dqkv = sky_ws_take(tmp, T * W * p->esz);
	a->dh = sky_ws_take(tmp, T * (uint64_t)p->D * p->esz);
	a->qkv_bwd = s->q_norm >= 0 ? sky_ws_take(tmp, T * W * p->esz) : NULL;
}

static const void *elem(const struct sky_pass *p, const void *x, int64_t i)
{
	return (const char *)x + (uint64_t)i * p->esz;
}

static int turn(const struct sky_pass *p, const struct sky_attn_spec *s, const struct act *a, void *qkv)
{
	const struct sky_model *m = p->m;
	const struct sky_slot *q = sky_slot_at(m, s->q_norm), *k = sky_slot_at(m, s->k_norm);

	return p->ops->qk_rope(p->s, p->t, p->T, s->a.n_head, s->a.n_kv_head, s->a.d_head, a->raw,
			       q ? q->vec : NULL, k ? k->vec : NULL, s->eps, m->plan.rope_pairs, p->pos,
			       m->cos, m->sin, qkv);
}

static int norm_forward(struct sky_pass *p, const struct sky_attn_spec *s, void *h, float *rstd)
{
	return p->ops->rmsnorm(p->s, p->T, p->D, KN_F32, p->x_in, sky_slot_at(p->m, s->norm)->vec,
			       s->eps, p->t, h, rstd);
}

static int attn_forward(struct sky_pass *p, struct sky_block *b)
{
	const struct sky_attn_spec *s = b->spec;
	const struct sky_slot *bias = sky_slot_at(p->m, s->qkv_bias);
	const struct act *a = b->act;
	int64_t H = s->a.n_head, G = s->a.n_kv_head, d = s->a.d_head, W = width(s);
	struct kn_kv kv = {
		.dtype = p->t,
		.n_kv_head = G,
		.d_head = d,
		.pages = sky_pass_pages(p, b),
		.page_bytes = b->page_bytes,
		.table = p->table,
		.table_stride = p->table_stride,
	};
	int rc = norm_forward(p, s, a->h, p->keep ? a->rstd : NULL);

	KN_TRY(rc, p->ops->linear(p->s, sky_slot_at(p->m, s->qkv)->w, p->T, a->h,
				  bias ? bias->vec : NULL, p->t, a->raw, 0));
	KN_TRY(rc, turn(p, s, a, a->qkv));
	KN_TRY(rc, p->ops->kv_write(p->s, &kv, &p->rows, W, elem(p, a->qkv, H * d),
				    elem(p, a->qkv, (H + G) * d)));
	KN_TRY(rc,
	       p->ops->attn(p->s, &s->a, &kv, &p->rows, W, a->qkv, a->out, p->keep ? a->lse : NULL));
	KN_TRY(rc, sky_pass_carry(p));
	KN_TRY(rc, p->ops->linear(p->s, sky_slot_at(p->m, s->o)->w, p->T, a->out, NULL, KN_F32,
				  p->x_out, 1));
	return rc;
}

static int turn_back(const struct sky_pass *p, const struct sky_attn_spec *s, const struct act *a)
{
	const struct sky_model *m = p->m;
	const struct sky_slot *q = sky_slot_at(m, s->q_norm), *k = sky_slot_at(m, s->k_norm);

	return p->ops->qk_rope_bwd(p->s, p->t, p->T, s->a.n_head, s->a.n_kv_head, s->a.d_head,
				   q ? a->raw : NULL, q ? q->vec : NULL, k ? k->vec : NULL, s->eps,
				   m->plan.rope_pairs, p->pos, m->cos, m->sin, a->dqkv,
				   q ? q->grad : NULL, k ? k->grad : NULL);
}

static int attn_backward(struct sky_pass *p, struct sky_block *b)
{
	const struct sky_attn_spec *s = b->spec;
	const struct sky_slot *norm = sky_slot_at(p->m, s->norm), *qkv = sky_slot_at(p->m, s->qkv);
	const struct sky_slot *o = sky_slot_at(p->m, s->o), *bias = sky_slot_at(p->m, s->qkv_bias);
	const struct act *a = b->act;
	int64_t Hd = s->a.n_head * s->a.d_head;
	void *turned = s->q_norm >= 0 ? a->qkv_bwd : a->qkv;
	int rc = s->q_norm >= 0 ? turn(p, s, a, turned) : 0;

	KN_TRY(rc, p->ops->linear_bwd_w(p->s, p->t, p->T, p->D, Hd, p->dy, a->out, o->grad, NULL));
	KN_TRY(rc, p->ops->linear_bwd_x(p->s, o->w, p->T, p->dy, p->t, a->dout, 0));
	KN_TRY(rc,
	       p->ops->attn_bwd(p->s, &s->a, p->t, &p->rows, turned, a->out, a->lse, a->dout, a->dqkv));
	KN_TRY(rc, turn_back(p, s, a));
	KN_TRY(rc, norm_forward(p, s, a->dh, NULL));
	KN_TRY(rc, p->ops->linear_bwd_w(p->s, p->t, p->T, width(s), p->D, a->dqkv, a->dh, qkv->grad,
					bias ? bias->grad : NULL));
	KN_TRY(rc, p->ops->linear_bwd_x(p->s, qkv->w, p->T, a->dqkv, p->t, a->dh, 0));
	KN_TRY(rc, p->ops->rmsnorm_bwd(p->s, p->T, p->D, KN_F32, p->x_in, norm->vec, a->rstd, p->t,
				       a->dh, KN_F32, p->dx, 1, norm->grad));
	return rc;
}

const struct sky_block_kind sky_blk_attn = {
	.name = "attention",
	.spec_bytes = sizeof(struct sky_attn_spec),
	.act_bytes = sizeof(struct act),
	.page_bytes = attn_page_bytes,
	.layout = attn_layout,
	.layout_bwd = attn_layout_bwd,
	.forward = attn_forward,
	.backward = attn_backward,
};
