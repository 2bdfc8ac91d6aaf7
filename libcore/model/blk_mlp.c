/* model: SwiGLU as a block: norm, fused gate and up product, silu(gate)·up, down product. T rows, D
 * model width, I inner width, C rows at a time. */
#include "model/model_int.h"

struct act {
	float *rstd; /* [T] */
	void *h;     /* [T, D] normed input */
	void *gu;    /* [T, 2I], or C rows when nothing is kept */
	void *y;     /* [C, I] */
	/* backward */
	void *dy, *y_all; /* [T, I] */
	void *dgu;        /* [T, 2I] */
	void *dh;         /* [T, D] h made again, then its gradient */
};

static int64_t chunk_rows(const struct sky_pass *p)
{
	return p->m->mlp_rows < p->T ? p->m->mlp_rows : p->T;
}

static void mlp_layout(const struct sky_pass *p, struct sky_block *b, struct sky_ws *kept,
		       struct sky_ws *tmp)
{
	const struct sky_mlp_spec *s = b->spec;
	uint64_t T = (uint64_t)p->T, I = (uint64_t)s->d_ff, C = (uint64_t)chunk_rows(p);
	struct act *a = b->act;

	a->rstd = sky_ws_take(kept, T * sizeof(float));
	a->h = sky_ws_take(tmp, T * (uint64_t)p->D * p->esz);
	a->gu = sky_ws_take(kept, (p->keep ? T : C) * 2 * I * p->esz);
	a->y = sky_ws_take(tmp, C * I * p->esz);
}

static void mlp_layout_bwd(const struct sky_pass *p, struct sky_block *b, struct sky_ws *tmp)
{
	const struct sky_mlp_spec *s = b->spec;
	uint64_t T = (uint64_t)p->T, I = (uint64_t)s->d_ff;
	struct act *a = b->act;

	a->dy = sky_ws_take(tmp, T * I * p->esz);
	a->y_all = sky_ws_take(tmp, T * I * p->esz);
	a->dgu = sky_ws_take(tmp, T * 2 * I * p->esz);
	a->dh = sky_ws_take(tmp, T * (uint64_t)p->D * p->esz);
}

static int norm_forward(struct sky_pass *p, const struct sky_mlp_spec *s, void *h, float *rstd)
{
	return p->ops->rmsnorm(p->s, p->T, p->D, KN_F32, p->x_in, sky_slot_at(p->m, s->norm)->vec,
			       s->eps, p->t, h, rstd);
}

static int mlp_forward(struct sky_pass *p, struct sky_block *b)
{
	const struct sky_mlp_spec *s = b->spec;
	const struct act *a = b->act;
	int64_t I = s->d_ff, C = chunk_rows(p);
	int rc = norm_forward(p, s, a->h, p->keep ? a->rstd : NULL);

	KN_TRY(rc, sky_pass_carry(p));
	for (int64_t r = 0; rc == 0 && r < p->T; r += C) {
		int64_t n = p->T - r < C ? p->T - r : C;
		char *h = (char *)a->h + (uint64_t)(r * p->D) * p->esz;
		char *gu = (char *)a->gu + (p->keep ? (uint64_t)(r * 2 * I) * p->esz : 0);

		KN_TRY(rc,
		       p->ops->linear(p->s, sky_slot_at(p->m, s->gate_up)->w, n, h, NULL, p->t, gu, 0));
		KN_TRY(rc, p->ops->silu_mul(p->s, p->t, n, I, gu, a->y));
		KN_TRY(rc, p->ops->linear(p->s, sky_slot_at(p->m, s->down)->w, n, a->y, NULL, KN_F32,
					  p->x_out + r * p->D, 1));
	}
	return rc;
}

static int mlp_backward(struct sky_pass *p, struct sky_block *b)
{
	const struct sky_mlp_spec *s = b->spec;
	const struct sky_slot *norm = sky_slot_at(p->m, s->norm),
			      *gate_up = sky_slot_at(p->m, s->gate_up);
	const struct sky_slot *down = sky_slot_at(p->m, s->down);
	const struct act *a = b->act;
	int64_t I = s->d_ff;
	int rc = p->ops->linear_bwd_x(p->s, down->w, p->T, p->dy, p->t, a->dy, 0);

	KN_TRY(rc, p->ops->silu_mul_bwd(p->s, p->t, p->T, I, a->gu, a->dy, a->dgu, a->y_all));
	KN_TRY(rc, p->ops->linear_bwd_w(p->s, p->t, p->T, p->D, I, p->dy, a->y_all, down->grad, NULL));
	KN_TRY(rc, norm_forward(p, s, a->dh, NULL));
	KN_TRY(rc,
	       p->ops->linear_bwd_w(p->s, p->t, p->T, 2 * I, p->D, a->dgu, a->dh, gate_up->grad, NULL));
	KN_TRY(rc, p->ops->linear_bwd_x(p->s, gate_up->w, p->T, a->dgu, p->t, a->dh, 0));
	KN_TRY(rc, p->ops->rmsnorm_bwd(p->s, p->T, p->D, KN_F32, p->x_in, norm->vec, a->rstd, p->t,
				       a->dh, KN_F32, p->dx, 1, norm->grad));
	return rc;
}

const struct sky_block_kind sky_blk_mlp = {
	.name = "mlp",
	.spec_bytes = sizeof(struct sky_mlp_spec),
	.act_bytes = sizeof(struct act),
	.layout = mlp_layout,
	.layout_bwd = mlp_layout_bwd,
	.forward = mlp_forward,
	.backward = mlp_backward,
};
