/* kernels/cpu: matrix products.
 *
 * A weight is packed once per use into panels of CPU_PANEL columns, [panels, units, CPU_PANEL], so that a product reads it in
 * one stream. Work is cut into tasks of rows × panels; since an element is one chain of sums over the units whatever the
 * task (vec_gemm.h), results are row-exact and the same at any number of threads by construction. */
#include "kernels/cpu/cpu_ops.h"

#define ROWS_SUB 24             /* rows whose sums stay in L1 between product and store */
#define UNITS_MAX 2048          /* units of a panel that are used before the next rows come: at most 256 KiB of L2 */
#define A_BYTES (320 << 10)     /* rows of the left operand kept in L2 while panels stream by */
#define TASKS_PER_THREAD 8

struct kn_weight {
	kn_dev *dev;
	enum kn_dtype t;
	int64_t n, k;
	unsigned uses;
	cpu_unit *fwd;          /* columns N, summed over K */
	cpu_unit *bwd;          /* columns K, summed over N */
};

static int64_t units_of(enum kn_dtype t, int64_t n)
{
	return t == KN_F32 ? n : (n + 1) / 2;
}

static int64_t panels_of(int64_t n)
{
	return cpu_div_up(n, CPU_PANEL);
}

/* ---- packing ---- */
/* Units of a matrix whose rows are [n_row, n_sum] (unit along the row) or [n_sum, n_row] (unit across two rows): the
 * destination is blocks of `width` of the n_row indices, [blocks, units, width], zero where there is nothing. */
struct pack {
	const struct cpu_vec *vec;
	enum kn_dtype t;
	const void *src;
	int64_t n_row, n_sum, width;
	int64_t ld;             /* elements between rows of src */
	int across;
	cpu_unit *dst;
};

static uint32_t bits_at(enum kn_dtype t, const void *src, int64_t i)
{
	uint32_t u;

	if (t == KN_BF16)
		return ((const uint16_t *)src)[i];
	memcpy(&u, (const float *)src + i, sizeof u);
	return u;
}

static void pack_along(const struct pack *c, int64_t r0, int64_t n, cpu_unit *dst, int64_t nu)
{
	for (int64_t r = 0; r < n; r++) {
		const cpu_unit *row = cpu_at(c->t, c->src, (r0 + r) * c->ld);
		int64_t whole = c->t == KN_BF16 ? c->n_sum / 2 : c->n_sum;

		for (int64_t u = 0; u < whole; u++)
			dst[u * c->width + r] = row[u];
		if (whole < nu)
			dst[whole * c->width + r] = bits_at(c->t, c->src, (r0 + r) * c->ld + c->n_sum - 1);
	}
}

/* Strips of several blocks at a time, so that a line of src is read once. */
#define BWD_TILE 12     /* width of blocks of the left operand of linear_bwd_w; panels are the other width */
#define STRIP 192       /* a multiple of both */

static void pack_across(const struct pack *c, int64_t r0, int64_t n, int64_t nu)
{
	cpu_unit strip[STRIP] = {0};
	const int64_t w = c->width, n_block = cpu_div_up(n, w);
	cpu_unit *dst = c->dst + r0 / w * nu * w;

	for (int64_t u = 0; u < nu; u++) {
		int64_t per = c->t == KN_F32 ? 1 : 2;
		const void *a = cpu_at(c->t, c->src, per * u * c->ld + r0);

		if (c->t == KN_F32)
			memcpy(strip, a, (size_t)n * sizeof *strip);
		else
			c->vec->pair(n, a, 2 * u + 1 == c->n_sum ? NULL : cpu_at(c->t, a, c->ld), strip);
		if (w == CPU_PANEL) /* both widths spelled out: copies of a fixed size need no call */
			for (int64_t i = 0; i < n_block; i++)
				memcpy(dst + (i * nu + u) * CPU_PANEL, strip + i * CPU_PANEL, CPU_PANEL * sizeof *strip);
		else
			for (int64_t i = 0; i < n_block; i++)
				memcpy(dst + (i * nu + u) * BWD_TILE, strip + i * BWD_TILE, BWD_TILE * sizeof *strip);
	}
}

static void pack_block(void *ctx, int64_t i, int thread)
{
	const struct pack *c = ctx;
	int64_t nu = units_of(c->t, c->n_sum), r0 = i * c->width;
	int64_t n = c->n_row - r0 < c->width ? c->n_row - r0 : c->width;
	cpu_unit *dst = c->dst + i * nu * c->width;

	(void)thread;
	if (n < c->width)
		memset(dst, 0, (size_t)(nu * c->width) * sizeof *dst);
	pack_along(c, r0, n, dst, nu);
}

static void pack_strip(void *ctx, int64_t i, int thread)
{
	const struct pack *c = ctx;
	int64_t r0 = i * STRIP;

	(void)thread;
	pack_across(c, r0, c->n_row - r0 < STRIP ? c->n_row - r0 : STRIP, units_of(c->t, c->n_sum));
}

static void pack(kn_dev *dev, struct pack *c)
{
	c->vec = dev->vec;
	if (c->across)
		cpu_par(dev, cpu_div_up(c->n_row, STRIP), pack_strip, c);
	else
		cpu_par(dev, cpu_div_up(c->n_row, c->width), pack_block, c);
}

static uint64_t packed_bytes(enum kn_dtype t, int64_t n_row, int64_t n_sum, int64_t width)
{
	return (uint64_t)(cpu_div_up(n_row, width) * width * units_of(t, n_sum)) * sizeof(cpu_unit);
}

/* ---- weights ---- */
static cpu_unit *panels_new(enum kn_dtype t, int64_t n_row, int64_t n_sum)
{
	uint64_t bytes = packed_bytes(t, n_row, n_sum, CPU_PANEL);

	return aligned_alloc(CPU_ALIGN, (size_t)(bytes / CPU_ALIGN + 1) * CPU_ALIGN);
}

int cpu_weight_new(kn_dev *dev, enum kn_dtype t, int64_t N, int64_t K, unsigned uses, kn_weight **w_p)
{
	kn_weight *w;
	int rc = cpu_need(dev, "weight_new", t, N | K);

	if (rc)
		return rc;
	if (K && N > INT64_MAX / 64 / K)
		return cpu_fail(dev, KN_E_ARG, "weight_new: bad shape [%lld, %lld]", (long long)N, (long long)K);
	w = calloc(1, sizeof *w);
	if (!w)
		goto no_memory;
	w->dev = dev;
	w->t = t;
	w->n = N;
	w->k = K;
	w->uses = uses;
	if (uses & KN_USE_FWD && !(w->fwd = panels_new(t, N, K)))
		goto no_memory;
	if (uses & KN_USE_BWD_X && !(w->bwd = panels_new(t, K, N)))
		goto no_memory;
	*w_p = w;
	return KN_OK;
no_memory:
	cpu_weight_free(w);
	return cpu_fail(dev, KN_E_MEMORY, "weight_new: no memory for [%lld, %lld]", (long long)N, (long long)K);
}

int cpu_weight_set(kn_stream *s, kn_weight *w, const void *src)
{
	struct pack c = {.t = w->t, .src = src, .width = CPU_PANEL, .ld = w->k};

	if (w->fwd) {
		c.n_row = w->n;
		c.n_sum = w->k;
		c.dst = w->fwd;
		pack(s->dev, &c);
	}
	if (w->bwd) {
		c.n_row = w->k;
		c.n_sum = w->n;
		c.across = 1;
		c.dst = w->bwd;
		pack(s->dev, &c);
	}
	return KN_OK;
}

void cpu_weight_free(kn_weight *w)
{
	if (!w)
		return;
	free(w->fwd);
	free(w->bwd);
	free(w);
}

/* ---- y = x · packed ---- */
struct product {
	const struct cpu_vec *vec;
	enum kn_dtype t, ty;
	int64_t T, n, k, nu;            /* rows, columns, summed elements, units */
	const void *x;
	const cpu_unit *b;
	const float *bias;
	void *y;
	int accumulate;
	int64_t rows, n_rows;           /* rows of a task, and how many such ranges */
	int64_t panels, n_panels;       /* panels of a task, and how many such ranges */
	int64_t group;                  /* panels that one inner step takes together */
	char *scratch;
	uint64_t scratch_each, copy_bytes;
};

/* Few rows of an even number of elements are read where they lie. Many are first dealt into blocks of ROWS_SUB rows,
 * [blocks, units, ROWS_SUB]: one stream instead of one a row; and so are rows of an odd number of bf16. */
static int read_in_place(const struct product *c)
{
	return (c->t == KN_F32 || c->k % 2 == 0);
}

static const cpu_unit *left_rows(const struct product *c, int64_t r0, int64_t m, char *copy)
{
	struct pack p = {.t = c->t, .src = cpu_at(c->t, c->x, r0 * c->k), .n_row = m, .n_sum = c->k, .width = ROWS_SUB,
		.ld = c->k, .dst = (cpu_unit *)copy};

	if (read_in_place(c))
		return p.src;
	for (int64_t i = 0; i < cpu_div_up(m, ROWS_SUB); i++)
		pack_block(&p, i, 0);
	return p.dst;
}

/* What to fetch while rows r… of a task are computed: the next rows when the task has just begun, else, once a panel, the
 * next panel. */
static const char *ahead_of(const struct product *c, const cpu_unit *a, int64_t r, int64_t m, int first, int more,
                            const cpu_unit *next)
{
	if (first && r + ROWS_SUB < m)
		return (const char *)(a + (r + ROWS_SUB) * c->nu);
	return more && r / ROWS_SUB == (first ? (m - 1) / ROWS_SUB : 0) ? (const char *)next : NULL;
}

/* One group of panels, from p on, against the rows [r0, r0 + m) of a task. The sums stand in tmp, or in y where they may.
 * A long panel is used in parts, each by all rows before the next: what does not stay in L2 is read once. */
static void product_group(const struct product *c, const cpu_unit *a, int64_t r0, int64_t m, int64_t p, int64_t group,
                          int first, float *tmp)
{
	int64_t col = p * CPU_PANEL, n = c->n - col < group * CPU_PANEL ? c->n - col : group * CPU_PANEL, step;
	int in_place = read_in_place(c), direct, fused;
	int more = p + group < panels_of(c->n), parts = m > ROWS_SUB / 2 ? cpu_div_up(c->nu, UNITS_MAX) : 1;
	struct cpu_gemm g = {.n_panel = group, .sm = in_place ? c->nu : 1, .su = in_place ? 1 : ROWS_SUB,
		.ps = c->nu * CPU_PANEL, .su_b = CPU_PANEL};

	fused = c->ty == KN_BF16 && n == group * CPU_PANEL;
	direct = c->ty == KN_F32 && !c->bias && !c->accumulate && n == group * CPU_PANEL && parts == 1;
	g.ldc = direct ? c->n : group * CPU_PANEL;

	for (int64_t u = 0; u < c->nu || u == 0; u += step) {
		step = parts > 1 ? cpu_div_up(c->nu, parts) : c->nu + 1;
		g.nu = c->nu - u < step ? c->nu - u : step;
		g.b = c->b + (p * c->nu + u) * CPU_PANEL;
		g.keep = u > 0;
		for (int64_t r = 0; r < m; r += ROWS_SUB) {
			g.m = m - r < ROWS_SUB ? m - r : ROWS_SUB;
			g.a = a + r * c->nu + u * g.su;
			g.c = direct ? (float *)c->y + (r0 + r) * c->n + col : tmp + (parts > 1 ? r * g.ldc : 0);
			g.ahead = ahead_of(c, a, r, m, first, u == 0 && more, g.b + group * g.ps);
			if (fused && u + step >= c->nu) {
				g.y = (uint16_t *)c->y + (r0 + r) * c->n + col;
				g.ldy = c->n;
				g.bias = c->bias ? c->bias + col : NULL;
			}
			if (c->t == KN_F32)
				c->vec->gemm_f32(&g);
			else
				c->vec->gemm_bf16(&g);
			if (!direct && !fused && u + step >= c->nu)
				c->vec->store(g.m, n, g.c, g.ldc, c->bias ? c->bias + col : NULL, c->ty,
				              cpu_at_w(c->ty, c->y, (r0 + r) * c->n + col), c->n, c->accumulate);
		}
	}
}

static void product_task(void *ctx, int64_t i, int thread)
{
	const struct product *c = ctx;
	int64_t r0 = i / c->n_panels * c->rows, m = c->T - r0 < c->rows ? c->T - r0 : c->rows;
	int64_t p0 = i % c->n_panels * c->panels, p1 = p0 + c->panels;
	char *mine = c->scratch + (uint64_t)thread * c->scratch_each;
	const cpu_unit *a = left_rows(c, r0, m, mine);
	float *tmp = (float *)(mine + c->copy_bytes);

	if (p1 > panels_of(c->n))
		p1 = panels_of(c->n);
	for (int64_t p = p0; p < p1; p += c->group)
		product_group(c, a, r0, m, p, p1 - p < c->group ? p1 - p : c->group, p == p0, tmp);
}

/* Cuts the work into ranges of rows times ranges of panels. */
static void product_cut(const kn_dev *dev, struct product *c)
{
	const int64_t threads = dev->n_threads, n_panel = panels_of(c->n);
	int64_t row_bytes = c->k * (int64_t)cpu_type_bytes(c->t), want, ranges;

	c->rows = A_BYTES / (row_bytes + 1) / ROWS_SUB * ROWS_SUB;
	c->rows = c->rows < 2 * ROWS_SUB ? 2 * ROWS_SUB : c->rows > 20 * ROWS_SUB ? 20 * ROWS_SUB : c->rows;
	while (c->rows > 2 * ROWS_SUB && cpu_div_up(c->T, c->rows) * n_panel < 4 * threads)
		c->rows = cpu_div_up(c->rows, 2 * ROWS_SUB) * ROWS_SUB;
	c->rows = c->rows < c->T ? c->rows : c->T;
	c->n_rows = cpu_div_up(c->T, c->rows);
	c->group = c->T <= 3 ? 8 : c->T <= 6 ? 2 : 1;
	/* Enough tasks to keep threads even, none smaller than a group of panels; where there is too little for that, as in a
	 * decode step, one task a thread. */
	want = threads == 1 ? 1 : cpu_div_up(TASKS_PER_THREAD * threads, c->n_rows);
	ranges = n_panel / c->group < want ? n_panel / c->group : want;
	if (c->n_rows == 1 && ranges < 2 * threads)
		ranges = n_panel < threads ? n_panel : threads;
	c->panels = cpu_div_up(n_panel, ranges > 1 ? ranges : 1);
	c->n_panels = cpu_div_up(n_panel, c->panels);
}

static int product(kn_dev *dev, struct product *c)
{
	if (c->T == 0 || c->n == 0)
		return KN_OK;
	c->vec = dev->vec;
	c->nu = units_of(c->t, c->k);
	product_cut(dev, c);
	c->copy_bytes = read_in_place(c) ? 0 : packed_bytes(c->t, c->rows, c->k, ROWS_SUB);
	c->copy_bytes = (c->copy_bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
	c->scratch_each = c->copy_bytes + (uint64_t)(c->rows * c->group * CPU_PANEL) * 4 + CPU_ALIGN;
	c->scratch_each = c->scratch_each / CPU_ALIGN * CPU_ALIGN;
	c->scratch = cpu_scratch(dev, c->scratch_each * (uint64_t)dev->n_threads);
	if (!c->scratch)
		return KN_E_MEMORY;
	cpu_par(dev, c->n_rows * c->n_panels, product_task, c);
	return KN_OK;
}

/* The output of a product is f32 or has the type of the product; only f32 can accumulate. */
static int need_out(kn_dev *dev, const char *op, enum kn_dtype t, int64_t T, enum kn_dtype tout, int accumulate)
{
	if (tout != KN_F32 && tout != t)
		return cpu_fail(dev, KN_E_UNSUPPORTED, "%s: output type %d with products of type %d", op, (int)tout, (int)t);
	if (accumulate && tout != KN_F32)
		return cpu_fail(dev, KN_E_UNSUPPORTED, "%s: only an f32 output can accumulate", op);
	return cpu_need(dev, op, tout, T);
}

int cpu_linear(kn_stream *s, const kn_weight *w, int64_t T, const void *x, const float *bias,
               enum kn_dtype ty, void *y, int accumulate)
{
	struct product c = {.t = w->t, .ty = ty, .T = T, .n = w->n, .k = w->k, .x = x, .b = w->fwd, .bias = bias, .y = y,
		.accumulate = accumulate};
	int rc = need_out(s->dev, "linear", w->t, T, ty, accumulate);

	if (rc)
		return rc;
	if (!w->fwd)
		return cpu_fail(s->dev, KN_E_ARG, "linear: the weight was not made with KN_USE_FWD");
	return product(s->dev, &c);
}

int cpu_linear_bwd_x(kn_stream *s, const kn_weight *w, int64_t T, const void *dy,
                     enum kn_dtype tdx, void *dx, int accumulate)
{
	struct product c = {.t = w->t, .ty = tdx, .T = T, .n = w->k, .k = w->n, .x = dy, .b = w->bwd, .y = dx,
		.accumulate = accumulate};
	int rc = need_out(s->dev, "linear_bwd_x", w->t, T, tdx, accumulate);

	if (rc)
		return rc;
	if (!w->bwd)
		return cpu_fail(s->dev, KN_E_ARG, "linear_bwd_x: the weight was not made with KN_USE_BWD_X");
	return product(s->dev, &c);
}

/* ---- dw += dyᵀ · x ---- */
/* The sum runs over rows. BWD_ROWS of them at a time, and BWD_COLS columns of dy, are packed across rows: dy into blocks of
 * BWD_TILE columns, x into panels. A task takes BWD_PANELS panels, which stay in L2, and BWD_RANGE blocks, each of which
 * stays in L1 for all these panels. Each element of dw goes on with its chain, so the cuts change no bit. */
#define BWD_ROWS 1024
#define BWD_COLS (21 * STRIP)
#define BWD_PANELS 4
#define BWD_RANGE 16

struct bwd_w {
	const struct cpu_vec *vec;
	enum kn_dtype t;
	int64_t T, N, K;
	const void *dy;
	const cpu_unit *a, *b;          /* packed dy, x */
	int64_t nu, n, n_range;         /* units, columns of dy and ranges of blocks at hand */
	float *dw, *dbias;
};

/* One block of columns of dy against one panel of x: rows [r0, r0 + m) of dw, columns from col on. */
static void bwd_w_tile(const struct bwd_w *c, struct cpu_gemm *g, int64_t r0, int64_t p)
{
	int64_t col = p * CPU_PANEL, n = c->K - col < CPU_PANEL ? c->K - col : CPU_PANEL;
	float *dw = c->dw + r0 * c->K + col, tmp[BWD_TILE * CPU_PANEL] = {0};
	int direct = n == CPU_PANEL;

	for (int64_t r = 0; r < g->m; r++) {
		const char *next = (const char *)(dw + r * c->K + CPU_PANEL); /* where the next panel's sums are */

		__builtin_prefetch(next, 1);
		__builtin_prefetch(next + 64, 1);
		if (!direct)
			memcpy(tmp + r * CPU_PANEL, dw + r * c->K, (size_t)n * sizeof *tmp);
	}
	g->c = direct ? dw : tmp;
	g->ldc = direct ? c->K : CPU_PANEL;
	g->b = c->b + p * c->nu * CPU_PANEL;
	if (c->t == KN_F32)
		c->vec->gemm_f32(g);
	else
		c->vec->gemm_bf16(g);
	for (int64_t r = 0; !direct && r < g->m; r++)
		memcpy(dw + r * c->K, tmp + r * CPU_PANEL, (size_t)n * sizeof *tmp);
}

static void bwd_w_task(void *ctx, int64_t i, int thread)
{
	const struct bwd_w *c = ctx;
	int64_t p0 = i / c->n_range * BWD_PANELS, p1 = p0 + BWD_PANELS, n_panel = panels_of(c->K);
	int64_t b0 = i % c->n_range * BWD_RANGE, b1 = b0 + BWD_RANGE, n_block = cpu_div_up(c->n, BWD_TILE);
	struct cpu_gemm g = {.n_panel = 1, .nu = c->nu, .sm = 1, .su = BWD_TILE, .su_b = CPU_PANEL, .keep = 1};

	(void)thread;
	p1 = p1 < n_panel ? p1 : n_panel;
	b1 = b1 < n_block ? b1 : n_block;
	for (int64_t b = b0; b < b1; b++) {
		g.a = c->a + b * c->nu * BWD_TILE;
		g.m = c->n - b * BWD_TILE < BWD_TILE ? c->n - b * BWD_TILE : BWD_TILE;
		for (int64_t p = p0; p < p1; p++) {
			g.ahead = p == p0 && b + 1 < n_block ? (const char *)(g.a + c->nu * BWD_TILE) : NULL;
			bwd_w_tile(c, &g, b * BWD_TILE, p);
		}
	}
}

/* Column sums of dy, 64 columns a task, in sums of 64 rows each. */
static void bwd_bias_task(void *ctx, int64_t i, int thread)
{
	const struct bwd_w *c = ctx;
	int64_t col = i * 64, n = c->N - col < 64 ? c->N - col : 64;

	(void)thread;
	for (int64_t t = 0; t < c->T; t += 64) {
		float sum[64] = {0};

		for (int64_t r = t; r < c->T && r < t + 64; r++)
			c->vec->add(c->t, n, cpu_at(c->t, c->dy, r * c->N + col), sum);
		c->vec->add(KN_F32, n, sum, c->dbias + col);
	}
}

int cpu_linear_bwd_w(kn_stream *s, enum kn_dtype t, int64_t T, int64_t N, int64_t K,
                     const void *dy, const void *x, float *dw, float *dbias)
{
	kn_dev *dev = s->dev;
	struct bwd_w c = {.vec = dev->vec, .t = t, .T = T, .N = N, .K = K, .dy = dy, .dbias = dbias};
	int64_t rows = T < BWD_ROWS ? T : BWD_ROWS, cols = N < BWD_COLS ? N : BWD_COLS;
	uint64_t x_bytes = packed_bytes(t, K, rows, CPU_PANEL);
	int rc = cpu_need(dev, "linear_bwd_w", t, T | N | K);
	char *scratch;

	if (rc || T == 0 || N == 0)
		return rc;
	x_bytes = (x_bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
	scratch = cpu_scratch(dev, x_bytes + packed_bytes(t, cols, rows, BWD_TILE));
	if (!scratch)
		return KN_E_MEMORY;
	c.b = (cpu_unit *)scratch;
	c.a = (cpu_unit *)(scratch + x_bytes);
	for (int64_t r = 0; r < T; r += rows) {
		struct pack px = {.t = t, .src = cpu_at(t, x, r * K), .n_row = K, .n_sum = T - r < rows ? T - r : rows,
			.width = CPU_PANEL, .ld = K, .across = 1, .dst = (cpu_unit *)scratch};
		struct pack py = px;

		pack(dev, &px);
		py.width = BWD_TILE;
		py.ld = N;
		py.dst = (cpu_unit *)(scratch + x_bytes);
		c.nu = units_of(t, px.n_sum);
		for (int64_t col = 0; col < N; col += cols) {
			py.src = cpu_at(t, dy, r * N + col);
			py.n_row = c.n = N - col < cols ? N - col : cols;
			c.dw = dw + col * K;
			pack(dev, &py);
			c.n_range = cpu_div_up(c.n, BWD_TILE * BWD_RANGE);
			cpu_par(dev, c.n_range * cpu_div_up(panels_of(K), BWD_PANELS), bwd_w_task, &c);
		}
	}
	if (dbias)
		cpu_par(dev, cpu_div_up(N, 64), bwd_bias_task, &c);
	return KN_OK;
}
