/* kernels/cpu: drivers of the norm and rotation of heads between the fused product and attention. */
#include "kernels/cpu/cpu_ops.h"

#define QK_CHUNKS 64    /* of rows, for sums over rows; their number depends on T alone */

struct qk {
	const struct cpu_vec *vec;
	struct cpu_qk o;
	int64_t T, step;
	float *dw;      /* [chunks, 2, d]: of qw, of kw */
};

static int need_qk(kn_dev *dev, const char *op, int64_t T, const struct cpu_qk *o)
{
	int rc = cpu_need(dev, op, o->t, T | o->H | o->G | o->d | o->R);

	if (!rc && (2 * o->R > o->d || !o->qw != !o->kw))
		rc = cpu_fail(dev, KN_E_ARG, "%s: 2·%lld dims of %lld turn, norms %d and %d", op, (long long)o->R,
		              (long long)o->d, o->qw != NULL, o->kw != NULL);
	return rc;
}

static void qk_rows(void *ctx, int64_t r0, int64_t r1)
{
	struct qk *c = ctx;

	c->vec->qk_rope(&c->o, r0, r1);
}

int cpu_qk_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                const float *sin, void *out)
{
	struct qk c = {.vec = s->dev->vec, .o = {.t = t, .H = H, .G = G, .d = d, .R = R, .qkv = qkv, .qw = qw, .kw = kw,
		.eps = eps, .pos = pos, .cos = cos, .sin = sin, .out = out}};
	int rc = need_qk(s->dev, "qk_rope", T, &c.o);

	if (!rc)
		cpu_rows(s->dev, T, (H + 2 * G) * d, qk_rows, &c);
	return rc;
}

static void qk_bwd_chunk(void *ctx, int64_t i, int thread)
{
	struct qk *c = ctx;
	int64_t r0 = i * c->step, r1 = r0 + c->step;
	float *dw = c->dw + i * 2 * c->o.d;

	(void)thread;
	memset(dw, 0, (size_t)(2 * c->o.d) * sizeof *dw);
	c->vec->qk_rope_bwd(&c->o, r0, r1 < c->T ? r1 : c->T, dw);
}

int cpu_qk_rope_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                    const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                    const float *sin, void *dqkv, float *dqw, float *dkw)
{
	struct qk c = {.vec = s->dev->vec, .T = T, .o = {.t = t, .H = H, .G = G, .d = d, .R = R, .qkv = qkv, .qw = qw,
		.kw = kw, .eps = eps, .pos = pos, .cos = cos, .sin = sin, .out = dqkv}};
	int rc = need_qk(s->dev, "qk_rope_bwd", T, &c.o);
	int64_t n;

	if (rc || T == 0)
		return rc;
	c.step = cpu_div_up(T, QK_CHUNKS);
	n = cpu_div_up(T, c.step);
	c.dw = cpu_scratch(s->dev, (uint64_t)(n * 2 * d) * sizeof *c.dw);
	if (!c.dw)
		return KN_E_MEMORY;
	cpu_par(s->dev, n, qk_bwd_chunk, &c);
	for (int64_t i = 0; qw && i < n; i++) {
		c.vec->add(KN_F32, d, c.dw + i * 2 * d, dqw);
		c.vec->add(KN_F32, d, c.dw + (i * 2 + 1) * d, dkw);
	}
	return KN_OK;
}
