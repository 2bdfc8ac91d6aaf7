/* kernels/cpu: attention over pages of keys and values.
 *
 * A page holds, for each of G heads, the keys as units along d, [units(d), P], and the values as units along positions,
 * [units(P), dp], with dp = d rounded up to whole panels: both are right-hand operands of products as they lie.
 *
 * A task is a tile of up to TILE rows of one sequence, where a row is one query position of one of the H/G heads that share
 * a key head. It walks the key blocks of its rows in order (flash recurrence). A block that a row does not see adds exact
 * zeros to it, so the bits of a row do not depend on the tile it stands in. */
#include "kernels/cpu/cpu_ops.h"

#define TILE 36
#define LOG2E 1.44269504f
#define LN2 0.69314718055994531

static int64_t dim_units(enum kn_dtype t, int64_t d)
{
	return t == KN_F32 ? d : (d + 1) / 2;
}

static int64_t dim_padded(int64_t d)
{
	return cpu_div_up(d, CPU_PANEL) * CPU_PANEL;
}

/* Units of one head in a page. */
static int64_t head_units(enum kn_dtype t, int64_t d)
{
	return dim_units(t, d) * KN_PAGE + dim_units(t, KN_PAGE) * dim_padded(d);
}

uint64_t cpu_kv_page_bytes(kn_dev *dev, enum kn_dtype t, int64_t n_kv_head, int64_t d_head)
{
	(void)dev;
	return (uint64_t)(n_kv_head * head_units(t, d_head)) * sizeof(cpu_unit);
}

static cpu_unit *page_head(const struct kn_kv *kv, int64_t s, int64_t page, int64_t g)
{
	int64_t i = kv->table[s * kv->table_stride + page];

	return (cpu_unit *)((char *)kv->pages + (uint64_t)i * kv->page_bytes) + g * head_units(kv->dtype, kv->d_head);
}

static int need_kv(kn_dev *dev, const char *op, const struct kn_kv *kv, const struct kn_rows *rows)
{
	int rc = cpu_need(dev, op, kv->dtype, rows->n_seq);

	if (rc)
		return rc;
	if (kv->n_kv_head < 1 || kv->d_head < 1 ||
	    kv->page_bytes < cpu_kv_page_bytes(dev, kv->dtype, kv->n_kv_head, kv->d_head))
		return cpu_fail(dev, KN_E_ARG, "%s: %lld heads of %lld, page of %llu bytes", op, (long long)kv->n_kv_head,
		                (long long)kv->d_head, (unsigned long long)kv->page_bytes);
	return KN_OK;
}

static int need_attn(kn_dev *dev, const char *op, const struct kn_attn *a)
{
	if (a->n_kv_head >= 1 && a->n_head >= 1 && a->n_head % a->n_kv_head == 0 && a->d_head >= 1 && a->window >= 0 &&
	    a->scale > 0)
		return KN_OK;
	return cpu_fail(dev, KN_E_ARG, "%s: %lld query heads on %lld key heads of %lld, window %lld, scale %g", op,
	                (long long)a->n_head, (long long)a->n_kv_head, (long long)a->d_head, (long long)a->window,
	                (double)a->scale);
}

/* ---- store ---- */
/* A row of n elements as units along it; an odd last bf16 is followed by a zero. */
static void units_along(enum kn_dtype t, int64_t n, const void *src, cpu_unit *dst, int64_t stride)
{
	const cpu_unit *u = src;
	int64_t whole = t == KN_F32 ? n : n / 2;

	for (int64_t i = 0; i < whole; i++)
		dst[i * stride] = u[i];
	if (t == KN_BF16 && n % 2)
		dst[whole * stride] = ((const uint16_t *)src)[n - 1];
}

/* A row as number j of those that units along rows, [units(rows), ld], are made of. */
static void units_across(enum kn_dtype t, int64_t n, const void *src, cpu_unit *dst, int64_t ld, int64_t j)
{
	if (t == KN_F32) {
		memcpy(dst + j * ld, src, (size_t)n * 4);
	} else {
		uint16_t *half = (uint16_t *)(dst + j / 2 * ld) + j % 2;
		const uint16_t *h = src;

		for (int64_t i = 0; i < n; i++)
			half[2 * i] = h[i];
	}
}

struct write {
	const struct kn_kv *kv;
	const struct kn_rows *rows;
	int64_t ldk;
	const void *k, *v;
};

static int64_t seq_of(const struct kn_rows *rows, int64_t r)
{
	int64_t lo = 0, hi = rows->n_seq;

	while (hi - lo > 1) {
		int64_t mid = (lo + hi) / 2;

		if (rows->start[mid] <= r)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static void write_rows(void *ctx, int64_t r0, int64_t r1)
{
	const struct write *c = ctx;
	const struct kn_kv *kv = c->kv;
	const struct kn_rows *rows = c->rows;
	int64_t d = kv->d_head, dp = dim_padded(d), nd = dim_units(kv->dtype, d);

	for (int64_t r = rows->start[0] + r0; r < rows->start[0] + r1; r++) {
		int64_t s = seq_of(rows, r), p = rows->pos0[s] + r - rows->start[s];

		for (int64_t g = 0; g < kv->n_kv_head; g++) {
			cpu_unit *to = page_head(kv, s, p / KN_PAGE, g);
			int64_t at = r * c->ldk + g * d;

			units_along(kv->dtype, d, cpu_at(kv->dtype, c->k, at), to + p % KN_PAGE, KN_PAGE);
			units_across(kv->dtype, d, cpu_at(kv->dtype, c->v, at), to + nd * KN_PAGE, dp, p % KN_PAGE);
		}
	}
}

int cpu_kv_write(kn_stream *s, const struct kn_kv *kv, const struct kn_rows *rows, int64_t ldk,
                 const void *k, const void *v)
{
	struct write c = {kv, rows, ldk, k, v};
	int rc = need_kv(s->dev, "kv_write", kv, rows);

	if (rc || rows->n_seq == 0)
		return rc;
	/* Ranges of whole pages would do without sharing lines between threads; rows are few, so it does not matter. */
	cpu_rows(s->dev, rows->start[rows->n_seq] - rows->start[0], kv->n_kv_head * kv->d_head * 8, write_rows, &c);
	return KN_OK;
}

/* ---- forward ---- */
struct attn {
	const struct cpu_vec *vec;
	const struct kn_attn *a;
	const struct kn_kv *kv;
	const struct kn_rows *rows;
	int64_t ldq;
	const void *q;
	void *out;
	float *lse;
	const int64_t *first;   /* [S + 1] tasks before sequence s */
	char *scratch;
	uint64_t scratch_each;
};

/* What a tile needs, in the thread's scratch. */
struct tile {
	int64_t m, s, g, r0;            /* rows; sequence, key head; first flattened row: position · H/G + head */
	cpu_unit *q;                    /* [TILE, units(d)] */
	float *score, *acc;             /* [TILE, P], [TILE, dp] */
	cpu_unit *p, *last;             /* [TILE, units(P)], [dp] */
	float top[TILE], sum[TILE], fix[TILE];
	int32_t pos[TILE], lo[TILE], hi[TILE];
};

static uint64_t tile_bytes(enum kn_dtype t, int64_t d)
{
	uint64_t n = (uint64_t)(TILE * (dim_units(t, d) + 2 * KN_PAGE + dim_padded(d)) + dim_padded(d)) * 4;

	return (sizeof(struct tile) + n) / CPU_ALIGN * CPU_ALIGN + 2 * CPU_ALIGN;
}

static struct tile *tile_place(char *mem, enum kn_dtype t, int64_t d)
{
	struct tile *x = (struct tile *)mem;

	x->acc = (float *)(mem + (sizeof *x + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN);
	x->score = x->acc + TILE * dim_padded(d);
	x->p = (cpu_unit *)(x->score + TILE * KN_PAGE);
	x->q = x->p + TILE * KN_PAGE;
	x->last = x->q + TILE * dim_units(t, d);
	return x;
}

/* Flattened row i of the tile: its row of q, and its query head. */
static int64_t row_of(const struct attn *c, const struct tile *x, int64_t i, int64_t *head_p)
{
	int64_t share = c->a->n_head / c->a->n_kv_head, f = x->r0 + i;

	*head_p = x->g * share + f % share;
	return c->rows->start[x->s] + f / share;
}

static void tile_begin(const struct attn *c, struct tile *x)
{
	const int64_t d = c->a->d_head, nd = dim_units(c->kv->dtype, d);

	for (int64_t i = 0; i < x->m; i++) {
		int64_t h, r = row_of(c, x, i, &h);

		units_along(c->kv->dtype, d, cpu_at(c->kv->dtype, c->q, r * c->ldq + h * d), x->q + i * nd, 1);
		x->pos[i] = (int32_t)(c->rows->pos0[x->s] + r - c->rows->start[x->s]);
		x->top[i] = -INFINITY;
		x->sum[i] = 0;
	}
}

/* acc += p · values. Units past the last seen key may hold anything (an old page): they are left out, and so is the second
 * half of the last unit when the count is odd. */
static void add_values(const struct attn *c, struct tile *x, const cpu_unit *v, int64_t n_key, int first)
{
	const enum kn_dtype t = c->kv->dtype;
	const int64_t dp = dim_padded(c->a->d_head), np = dim_units(t, KN_PAGE);
	void (*gemm)(const struct cpu_gemm *) = t == KN_F32 ? c->vec->gemm_f32 : c->vec->gemm_bf16;
	struct cpu_gemm g = {.m = x->m, .n_panel = dp / CPU_PANEL, .nu = t == KN_F32 ? n_key : n_key / 2, .a = x->p, .sm = np,
		.su = 1, .b = v, .ps = CPU_PANEL, .su_b = dp, .c = x->acc, .ldc = dp, .keep = !first};

	gemm(&g);
	if (t == KN_F32 || n_key % 2 == 0)
		return;
	for (int64_t j = 0; j < dp; j++)
		x->last[j] = v[g.nu * dp + j] & 0xffff;
	g.a = x->p + g.nu;
	g.b = x->last;
	g.nu = 1;
	g.keep = 1;
	gemm(&g);
}

static void tile_block(const struct attn *c, struct tile *x, int64_t block, int first)
{
	const enum kn_dtype t = c->kv->dtype;
	const int64_t d = c->a->d_head, nd = dim_units(t, d), k0 = block * KN_PAGE, window = c->a->window;
	const cpu_unit *keys = page_head(c->kv, x->s, block, x->g);
	struct cpu_gemm g = {.m = x->m, .n_panel = KN_PAGE / CPU_PANEL, .nu = nd, .a = x->q, .sm = nd, .su = 1, .b = keys,
		.ps = CPU_PANEL, .su_b = KN_PAGE, .c = x->score, .ldc = KN_PAGE};
	struct cpu_soft soft = {.m = x->m, .s = x->score, .p = x->p, .lo = x->lo, .hi = x->hi, .c = c->a->scale * LOG2E,
		.top = x->top, .sum = x->sum, .fix = x->fix};
	int64_t n_key = 0;

	for (int64_t i = 0; i < x->m; i++) {
		int64_t hi = x->pos[i] + 1 - k0, lo = window ? x->pos[i] + 1 - window - k0 : 0;

		hi = hi < 0 ? 0 : hi > KN_PAGE ? KN_PAGE : hi;
		lo = lo < 0 ? 0 : lo > KN_PAGE ? KN_PAGE : lo;
		x->hi[i] = (int32_t)hi;
		x->lo[i] = (int32_t)lo;
		n_key = hi > n_key ? hi : n_key;
	}
	if (t == KN_F32) {
		c->vec->gemm_f32(&g);
		c->vec->soft_f32(&soft);
	} else {
		c->vec->gemm_bf16(&g);
		c->vec->soft_bf16(&soft);
	}
	if (!first)
		c->vec->scale_rows(x->m, dim_padded(d), x->acc, x->fix);
	add_values(c, x, keys + nd * KN_PAGE, n_key, first);
}

static void tile_end(const struct attn *c, struct tile *x)
{
	const int64_t d = c->a->d_head, H = c->a->n_head;

	for (int64_t i = 0; i < x->m; i++) {
		int64_t h, r = row_of(c, x, i, &h), at = r * H + h;

		c->vec->divide(d, x->acc + i * dim_padded(d), x->sum[i], c->kv->dtype,
		               cpu_at_w(c->kv->dtype, c->out, at * d));
		if (c->lse)
			c->lse[at] = (float)((double)x->top[i] * LN2 + log((double)x->sum[i]));
	}
}

static int64_t tiles_of(const struct attn *c, int64_t s)
{
	int64_t n = c->rows->start[s + 1] - c->rows->start[s];

	return cpu_div_up(n * (c->a->n_head / c->a->n_kv_head), TILE);
}

static void attn_task(void *ctx, int64_t task, int thread)
{
	const struct attn *c = ctx;
	const int64_t share = c->a->n_head / c->a->n_kv_head;
	struct tile *x = tile_place(c->scratch + (uint64_t)thread * c->scratch_each, c->kv->dtype, c->a->d_head);
	int64_t lo = 0, hi = c->rows->n_seq, n_tile, n_row, b0, b1;

	while (hi - lo > 1) {
		int64_t mid = (lo + hi) / 2;

		if (c->first[mid] <= task)
			lo = mid;
		else
			hi = mid;
	}
	x->s = lo;
	n_tile = tiles_of(c, lo);
	n_row = (c->rows->start[lo + 1] - c->rows->start[lo]) * share;
	x->g = (task - c->first[lo]) / n_tile;
	x->r0 = (n_tile - 1 - (task - c->first[lo]) % n_tile) * TILE; /* the longest rows first */
	x->m = n_row - x->r0 < TILE ? n_row - x->r0 : TILE;
	tile_begin(c, x);
	b0 = c->a->window && x->pos[0] + 1 > c->a->window ? (x->pos[0] + 1 - c->a->window) / KN_PAGE : 0;
	b1 = x->pos[x->m - 1] / KN_PAGE;
	for (int64_t b = b0; b <= b1; b++)
		tile_block(c, x, b, b == b0);
	tile_end(c, x);
}

int cpu_attn(kn_stream *s, const struct kn_attn *a, const struct kn_kv *kv, const struct kn_rows *rows,
             int64_t ldq, const void *q, void *out, float *lse)
{
	struct attn c = {.vec = s->dev->vec, .a = a, .kv = kv, .rows = rows, .ldq = ldq, .q = q, .out = out, .lse = lse};
	int rc = need_kv(s->dev, "attn", kv, rows);
	uint64_t list;
	int64_t *first;

	if (rc || (rc = need_attn(s->dev, "attn", a)))
		return rc;
	list = ((uint64_t)(rows->n_seq + 1) * sizeof *first + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
	c.scratch_each = tile_bytes(kv->dtype, a->d_head);
	c.scratch = cpu_scratch(s->dev, list + c.scratch_each * (uint64_t)s->dev->n_threads);
	if (!c.scratch)
		return KN_E_MEMORY;
	c.first = first = (int64_t *)c.scratch;
	c.scratch += list;
	first[0] = 0;
	for (int64_t i = 0; i < rows->n_seq; i++)
		first[i + 1] = first[i] + tiles_of(&c, i) * a->n_kv_head;
	cpu_par(s->dev, first[rows->n_seq], attn_task, &c);
	return KN_OK;
}

/* ---- backward ---- */
/* A task is one sequence and one key head. With S = scale·Q·Kᵀ, P = exp(S − lse), delta_i = dO_i·O_i:
 * dV = Pᵀ·dO, dS = P ⊙ (dO·Vᵀ − delta)·scale, dQ = dS·K, dK = dSᵀ·Q, all in blocks of P rows by P keys in a fixed order. */
struct bwd {
	const struct cpu_vec *vec;
	const struct kn_attn *a;
	enum kn_dtype t;
	const struct kn_rows *rows;
	const void *qkv, *out, *dout;
	const float *lse;
	void *dqkv;
	char *scratch;
	uint64_t scratch_each;
};

/* One head's operands; n rows rounded up to whole blocks, what is past n is zero. */
struct bwd_tile {
	int64_t n, n_block, d, dp, nd, np;
	cpu_unit *k_cols, *v_cols;      /* [blocks, units(d), P]: keys, values as columns */
	cpu_unit *k_rows;               /* [blocks, units(P), dp]: keys as rows that are summed over */
	cpu_unit *q, *dout;             /* [n, units(d)] */
	cpu_unit *q_rows, *dout_rows;   /* [blocks, units(P), dp] */
	float *dq, *dk, *dv;            /* [n, dp] */
	float *delta, *lse;             /* [n] */
	float *s, *dp_s;                /* [P, P] */
	cpu_unit *pt, *dst, *ds;        /* [P, P] at most */
};

static int64_t bwd_words(enum kn_dtype t, int64_t n, int64_t d)
{
	int64_t nb = cpu_div_up(n, KN_PAGE), rows = nb * KN_PAGE, dp = dim_padded(d), np = dim_units(t, KN_PAGE);

	return 4 * rows * dim_units(t, d) + 3 * nb * np * dp + 3 * rows * dp + 2 * rows + 5 * KN_PAGE * KN_PAGE;
}

static void bwd_place(struct bwd_tile *x, uint32_t *m, enum kn_dtype t, int64_t n, int64_t d)
{
	int64_t rows = cpu_div_up(n, KN_PAGE) * KN_PAGE, along, across, grid = KN_PAGE * KN_PAGE;

	*x = (struct bwd_tile){.n = n, .n_block = rows / KN_PAGE, .d = d, .dp = dim_padded(d), .nd = dim_units(t, d),
		.np = dim_units(t, KN_PAGE)};
	along = rows * x->nd;
	across = x->n_block * x->np * x->dp;
	x->k_cols = m;
	x->v_cols = m += along;
	x->q = m += along;
	x->dout = m += along;
	x->k_rows = m += along;
	x->q_rows = m += across;
	x->dout_rows = m += across;
	x->dq = (float *)(m += across);
	x->dk = (float *)(m += rows * x->dp);
	x->dv = (float *)(m += rows * x->dp);
	x->delta = (float *)(m += rows * x->dp);
	x->lse = (float *)(m += rows);
	x->s = (float *)(m += rows);
	x->dp_s = (float *)(m += grid);
	x->pt = m += grid;
	x->dst = m += grid;
	x->ds = t == KN_F32 ? x->dst : (m += grid);
}

static void bwd_pack_keys(const struct bwd *c, struct bwd_tile *x, int64_t first, int64_t g)
{
	const int64_t H = c->a->n_head, G = c->a->n_kv_head, width = (H + 2 * G) * x->d;

	for (int64_t j = 0; j < x->n; j++) {
		int64_t at = (first + j) * width + (H + g) * x->d, b = j / KN_PAGE, i = j % KN_PAGE;
		const void *k = cpu_at(c->t, c->qkv, at), *v = cpu_at(c->t, c->qkv, at + G * x->d);

		units_along(c->t, x->d, k, x->k_cols + b * x->nd * KN_PAGE + i, KN_PAGE);
		units_along(c->t, x->d, v, x->v_cols + b * x->nd * KN_PAGE + i, KN_PAGE);
		units_across(c->t, x->d, k, x->k_rows + b * x->np * x->dp, x->dp, i);
	}
}

static void bwd_pack_queries(const struct bwd *c, struct bwd_tile *x, int64_t first, int64_t h)
{
	const int64_t H = c->a->n_head, width = (H + 2 * c->a->n_kv_head) * x->d;

	for (int64_t r = 0; r < x->n; r++) {
		int64_t at = ((first + r) * H + h) * x->d, b = r / KN_PAGE * x->np * x->dp;
		const void *q = cpu_at(c->t, c->qkv, (first + r) * width + h * x->d);
		const void *dout = cpu_at(c->t, c->dout, at);

		units_along(c->t, x->d, q, x->q + r * x->nd, 1);
		units_along(c->t, x->d, dout, x->dout + r * x->nd, 1);
		units_across(c->t, x->d, q, x->q_rows + b, x->dp, r % KN_PAGE);
		units_across(c->t, x->d, dout, x->dout_rows + b, x->dp, r % KN_PAGE);
		x->delta[r] = c->vec->dot(c->t, x->d, dout, cpu_at(c->t, c->out, at));
		x->lse[r] = c->lse[(first + r) * H + h];
	}
}

/* Rows of block rb against keys of block jb. */
static void bwd_block(const struct bwd *c, struct bwd_tile *x, int64_t rb, int64_t jb)
{
	void (*gemm)(const struct cpu_gemm *) = c->t == KN_F32 ? c->vec->gemm_f32 : c->vec->gemm_bf16;
	int32_t lo[KN_PAGE], hi[KN_PAGE];
	struct cpu_gemm g = {.m = KN_PAGE, .n_panel = KN_PAGE / CPU_PANEL, .nu = x->nd, .sm = x->nd, .su = 1,
		.ps = CPU_PANEL, .su_b = KN_PAGE, .ldc = KN_PAGE};
	struct cpu_soft_bwd soft = {.m = KN_PAGE, .s = x->s, .dp = x->dp_s, .lo = lo, .hi = hi, .scale = c->a->scale,
		.c = c->a->scale * LOG2E,
		.lse = x->lse + rb * KN_PAGE, .delta = x->delta + rb * KN_PAGE, .pt = x->pt, .dst = x->dst, .ds = x->ds};

	for (int64_t i = 0; i < KN_PAGE; i++) {
		int64_t r = rb * KN_PAGE + i, to = r + 1 - jb * KN_PAGE, from = c->a->window ? to - c->a->window : 0;

		hi[i] = r >= x->n ? 0 : (int32_t)(to > KN_PAGE ? KN_PAGE : to);
		lo[i] = (int32_t)(from < 0 ? 0 : from > KN_PAGE ? KN_PAGE : from);
	}
	g.a = x->q + rb * KN_PAGE * x->nd;
	g.b = x->k_cols + jb * x->nd * KN_PAGE;
	g.c = x->s;
	gemm(&g);
	g.a = x->dout + rb * KN_PAGE * x->nd;
	g.b = x->v_cols + jb * x->nd * KN_PAGE;
	g.c = x->dp_s;
	gemm(&g);
	if (c->t == KN_F32)
		c->vec->soft_bwd_f32(&soft);
	else
		c->vec->soft_bwd_bf16(&soft);
	g = (struct cpu_gemm){.m = KN_PAGE, .n_panel = x->dp / CPU_PANEL, .nu = x->np, .a = x->pt, .sm = 1, .su = KN_PAGE,
		.b = x->dout_rows + rb * x->np * x->dp, .ps = CPU_PANEL, .su_b = x->dp,
		.c = x->dv + jb * KN_PAGE * x->dp, .ldc = x->dp, .keep = 1};
	gemm(&g);
	g.a = x->dst;
	g.b = x->q_rows + rb * x->np * x->dp;
	g.c = x->dk + jb * KN_PAGE * x->dp;
	gemm(&g);
	g.a = x->ds;
	g.sm = x->np;
	g.su = 1;
	g.b = x->k_rows + jb * x->np * x->dp;
	g.c = x->dq + rb * KN_PAGE * x->dp;
	gemm(&g);
}

static void bwd_task(void *ctx, int64_t task, int thread)
{
	const struct bwd *c = ctx;
	const int64_t H = c->a->n_head, G = c->a->n_kv_head, share = H / G, d = c->a->d_head, width = (H + 2 * G) * d;
	const int64_t s = task / G, g = task % G, first = c->rows->start[s], n = c->rows->start[s + 1] - first;
	uint32_t *mem = (uint32_t *)(c->scratch + (uint64_t)thread * c->scratch_each);
	struct bwd_tile x;

	if (n == 0)
		return;
	bwd_place(&x, mem, c->t, n, d);
	memset(mem, 0, (size_t)bwd_words(c->t, n, d) * 4);
	bwd_pack_keys(c, &x, first, g);
	for (int64_t h = g * share; h < (g + 1) * share; h++) {
		bwd_pack_queries(c, &x, first, h);
		memset(x.dq, 0, (size_t)(x.n_block * KN_PAGE * x.dp) * sizeof *x.dq);
		for (int64_t jb = 0; jb < x.n_block; jb++) {
			for (int64_t rb = jb; rb < x.n_block; rb++) {
				if (c->a->window && rb * KN_PAGE - c->a->window >= jb * KN_PAGE + KN_PAGE - 1)
					break; /* the first row of this and later blocks starts past these keys */
				bwd_block(c, &x, rb, jb);
			}
		}
		for (int64_t r = 0; r < n; r++)
			c->vec->cast(d, KN_F32, x.dq + r * x.dp, c->t, cpu_at_w(c->t, c->dqkv, (first + r) * width + h * d));
	}
	for (int64_t r = 0; r < n; r++) {
		int64_t at = (first + r) * width + (H + g) * d;

		c->vec->cast(d, KN_F32, x.dk + r * x.dp, c->t, cpu_at_w(c->t, c->dqkv, at));
		c->vec->cast(d, KN_F32, x.dv + r * x.dp, c->t, cpu_at_w(c->t, c->dqkv, at + G * d));
	}
}

int cpu_attn_bwd(kn_stream *s, const struct kn_attn *a, enum kn_dtype t, const struct kn_rows *rows,
                 const void *qkv, const void *out, const float *lse, const void *dout, void *dqkv)
{
	struct bwd c = {.vec = s->dev->vec, .a = a, .t = t, .rows = rows, .qkv = qkv, .out = out, .dout = dout, .lse = lse,
		.dqkv = dqkv};
	int rc = cpu_need(s->dev, "attn_bwd", t, rows->n_seq);
	int64_t most = 0;

	if (rc || (rc = need_attn(s->dev, "attn_bwd", a)))
		return rc;
	for (int64_t i = 0; i < rows->n_seq; i++) {
		int64_t n = rows->start[i + 1] - rows->start[i];

		if (rows->pos0[i] != 0)
			return cpu_fail(s->dev, KN_E_ARG, "attn_bwd: sequence %lld does not start at position 0", (long long)i);
		most = n > most ? n : most;
	}
	c.scratch_each = (uint64_t)cpu_div_up(bwd_words(t, most, a->d_head) * 4, CPU_ALIGN) * CPU_ALIGN;
	c.scratch = cpu_scratch(s->dev, c.scratch_each * (uint64_t)s->dev->n_threads);
	if (!c.scratch)
		return KN_E_MEMORY;
	cpu_par(s->dev, rows->n_seq * a->n_kv_head, bwd_task, &c);
	return KN_OK;
}
