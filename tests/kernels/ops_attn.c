/* Operations under test: attention. Sizes: H, G, d, sequences, length of the longest, window. Sequence s is 5·s shorter.
 * Rows of a run are positions of every sequence, so a part of them is a prefill that starts late, or one decode step. */
#include "tests/kernels/ops.h"

#include <math.h>

static const int64_t shapes[][DIMS_MAX] = {
	{1, 1, 2, 1, 1, 0}, {3, 1, 64, 1, 3, 0}, {2, 2, 17, 2, 64, 0}, {4, 2, 32, 1, 65, 0}, {9, 3, 64, 2, 131, 0},
	{6, 1, 72, 1, 70, 0}, {4, 4, 128, 1, 33, 0}, {4, 2, 64, 2, 150, 20}, {2, 1, 16, 1, 200, 64}, {40, 1, 8, 1, 20, 7}, {-1},
};
static const int64_t perf_fwd[][DIMS_MAX] = {
	{9, 3, 64, 4, 1024, 0}, {9, 3, 64, 1, 4096, 0}, {32, 8, 128, 1, 2048, 0}, {-1},
};
static const int64_t perf_bwd[][DIMS_MAX] = {{9, 3, 64, 4, 1024, 0}, {32, 8, 128, 1, 2048, 0}, {-1}};
/* decode: d[4] tokens before, one new token of each sequence */
static const int64_t perf_decode[][DIMS_MAX] = {{9, 3, 64, 1, 1024, 0}, {9, 3, 64, 32, 512, 0}, {-1}};

static int64_t n_rows(const int64_t *d)
{
	int64_t n = d[4] - 5 * (d[3] - 1);

	return n > 0 ? n : 1;
}

static int64_t length(const int64_t *d, int64_t s)
{
	int64_t n = d[4] - 5 * s;

	return n > 0 ? n : 1;
}

static double flops(const int64_t *d)
{
	double sum = 0;

	for (int64_t s = 0; s < d[3]; s++)
		sum += (double)length(d, s) * (double)(length(d, s) + 1) / 2;
	return 4 * sum * (double)(d[0] * d[2]);
}

static double flops_bwd(const int64_t *d)
{
	return 2.5 * flops(d);
}

static double bytes(const int64_t *d, enum kn_dtype t)
{
	double sum = 0;

	for (int64_t s = 0; s < d[3]; s++)
		sum += (double)length(d, s);
	return sum * (double)(2 * (d[0] + d[1]) * d[2]) * (t == KN_F32 ? 4 : 2);
}

static double bytes_decode(const int64_t *d, enum kn_dtype t)
{
	return (double)(d[3] * d[4] * 2 * d[1] * d[2]) * (t == KN_F32 ? 4 : 2);
}

/* Keys and values of every sequence in pages dealt out in a scattered order; what is not written is NaN. */
struct cache {
	struct kn_kv kv;
	struct kn_rows rows;
	int32_t start[64], pos0[64];
};

static void cache_fill(struct run *r, struct cache *c, const void *qkv, const int64_t *len)
{
	int64_t H = r->d[0], G = r->d[1], d = r->d[2], S = r->d[3], per = r->d[4] / KN_PAGE + 2, w = (H + 2 * G) * d;
	uint64_t page = r->be->o->kv_page_bytes(r->be->dev, r->t, G, d);
	int32_t *table = run_buf(r, KN_I32, S * per);

	c->kv = (struct kn_kv){.dtype = r->t, .n_kv_head = G, .d_head = d, .page_bytes = page, .table = table,
		.table_stride = per};
	c->kv.pages = run_buf(r, KN_U8, (int64_t)page * S * per);
	memset(c->kv.pages, 0xff, (size_t)page * (size_t)(S * per));
	for (int64_t i = 0; i < S * per; i++)
		table[i] = (int32_t)(S * per - 1 - i);
	c->rows = (struct kn_rows){S, c->start, c->pos0};
	c->start[0] = 0;
	for (int64_t s = 0; s < S; s++) {
		c->start[s + 1] = c->start[s] + (int32_t)len[s];
		c->pos0[s] = 0;
	}
	r->rc = r->be->o->kv_write(r->be->s, &c->kv, &c->rows, w, ops_at(r->t, (void *)(uintptr_t)qkv, H * d),
	                           ops_at(r->t, (void *)(uintptr_t)qkv, (H + G) * d));
}

static void attn(struct run *r)
{
	int64_t H = r->d[0], G = r->d[1], d = r->d[2], S = r->d[3], w = (H + 2 * G) * d, len[64], total = 0;
	struct kn_attn a = {H, G, d, 1 / sqrtf((float)d), r->d[5]};
	struct cache c;
	void *qkv, *out, *q;
	float *lse;

	for (int64_t s = 0; s < S; s++)
		total += len[s] = length(r->d, s);
	qkv = run_in(r, r->t, total * w, 0, 0.7f);
	out = run_buf(r, r->t, total * H * d);
	lse = run_buf(r, KN_F32, total * H);
	q = run_buf(r, r->t, total * w);
	cache_fill(r, &c, qkv, len);
	if (r->r1 < 0) {
		memcpy(q, qkv, (size_t)(total * w) * (r->t == KN_F32 ? 4 : 2));
	} else { /* the chosen positions of each sequence, side by side */
		size_t row = (size_t)w * (r->t == KN_F32 ? 4 : 2);
		int64_t n = r->r1 - r->r0, at = 0;

		for (int64_t s = 0; s < S; at += len[s++]) {
			memcpy(ops_at(r->t, q, s * n * w), ops_at(r->t, qkv, (at + r->r0) * w), (size_t)n * row);
			c.pos0[s] = (int32_t)r->r0;
			c.start[s + 1] = (int32_t)((s + 1) * n);
		}
	}
	if (!r->rc)
		RUN(r, r->be->o->attn(r->be->s, &a, &c.kv, &c.rows, w, q, out, lse));
	for (int64_t s = 0; s < S && s < 4; s++) {
		run_emit(r, r->t, ops_at(r->t, out, c.start[s] * H * d), c.start[s + 1] - c.start[s], H * d);
		run_emit(r, KN_F32, lse + c.start[s] * H, c.start[s + 1] - c.start[s], H);
	}
}

static void decode(struct run *r)
{
	r->r0 = n_rows(r->d) - 1;
	r->r1 = r->r0 + 1;
	attn(r);
}

static void attn_bwd(struct run *r)
{
	int64_t H = r->d[0], G = r->d[1], d = r->d[2], S = r->d[3], w = (H + 2 * G) * d, len[64], total = 0;
	struct kn_attn a = {H, G, d, 1 / sqrtf((float)d), r->d[5]};
	void *qkv, *out, *dout, *dqkv;
	struct cache c;
	float *lse;

	for (int64_t s = 0; s < S; s++)
		total += len[s] = length(r->d, s);
	qkv = run_in(r, r->t, total * w, 0, 0.7f);
	dout = run_in(r, r->t, total * H * d, 0, 1);
	out = run_buf(r, r->t, total * H * d);
	lse = run_buf(r, KN_F32, total * H);
	dqkv = run_buf(r, r->t, total * w);
	cache_fill(r, &c, qkv, len);
	if (!r->rc)
		r->rc = r->be->o->attn(r->be->s, &a, &c.kv, &c.rows, w, qkv, out, lse);
	if (!r->rc)
		RUN(r, r->be->o->attn_bwd(r->be->s, &a, r->t, &c.rows, qkv, out, lse, dout, dqkv));
	run_emit(r, r->t, dqkv, total, w);
}

const struct op ops_attn[] = {
	{"attn", attn, 2, true, shapes, n_rows, flops, bytes, perf_fwd},
	{"attn_bwd", attn_bwd, 3, false, shapes, n_rows, flops_bwd, bytes, perf_bwd},
	{"attn, decode step", decode, 2, false, shapes, n_rows, NULL, bytes_decode, perf_decode},
	{.name = NULL},
};
