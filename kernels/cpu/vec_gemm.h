/* Products of packed operands. Part of vec_impl.h.
 *
 * The sums of a tile of mr rows by ns slices (2·W columns each) stay in registers over all of u. A tile is as tall as the
 * registers allow; with few rows it gets wider instead, so that there are enough independent chains to hide the latency
 * and, at one row, enough streams of B to saturate memory. The form of the tile changes no bit: each sum is one chain. */
#define VS 2
#define SLICE (VS * W)
#define MR_MAX (LIM / VS)

#if !BF16_DOT
/* acc + low halves + high halves. */
INL vf dot2(vf acc, vu a, vu b)
{
	acc = FMA((vf)(a << 16), (vf)(b << 16), acc);
	return FMA((vf)(a & 0xffff0000u), (vf)(b & 0xffff0000u), acc);
}
#define DOT(acc, a, b) dot2(acc, a, b)
#endif

INL vu ldu(const cpu_unit *p)
{
	vu v;

	memcpy(&v, p, sizeof v);
	return v;
}

/* First unit of slice s of B at u = 0. */
INL const cpu_unit *slice_of(const struct cpu_gemm *g, int64_t s)
{
	int64_t col = s * SLICE;

	return g->b + col / CPU_PANEL * g->ps + col % CPU_PANEL;
}

#define ALL _Pragma("GCC unroll 24") for

INL void tile(const int mr, const int ns, const int bf16, const struct cpu_gemm *g, int64_t i0, int64_t s0)
{
	const int nv = ns * VS;
	const cpu_unit *a = g->a + i0 * g->sm, *bs[8] = {NULL};
	float *c = g->c + i0 * g->ldc + s0 * SLICE;
	const int64_t sm = g->sm, su = g->su, su_b = g->su_b;
	const char *ahead = g->ahead ? g->ahead + i0 / mr * g->nu * 64 : (const char *)a;
	const int64_t ahead_step = g->ahead ? 64 : 0;
	vf acc[LIM];

	ALL (int s = 0; s < ns; s++)
		bs[s] = slice_of(g, s0 + s);
	ALL (int i = 0; i < mr; i++)
		ALL (int v = 0; v < nv; v++)
			acc[i * nv + v] = g->keep ? ldf(c + i * g->ldc, v * W, W) : (vf){0};
	for (int64_t u = 0; u < g->nu; u++) {
		vu bv[LIM];

		if (mr * ns * VS == LIM)
			__builtin_prefetch(ahead + u * ahead_step, 0, 2);
		ALL (int v = 0; v < nv; v++)
			bv[v] = ldu(bs[v / VS] + u * su_b + v % VS * W);
		ALL (int i = 0; i < mr; i++) {
			vu av = a[i * sm + u * su] - (vu){0};

			ALL (int v = 0; v < nv; v++)
				acc[i * nv + v] = bf16 ? DOT(acc[i * nv + v], av, bv[v]) :
				                         FMA((vf)av, (vf)bv[v], acc[i * nv + v]);
		}
	}
	if (!g->y) {
		ALL (int i = 0; i < mr; i++)
			ALL (int v = 0; v < nv; v++)
				stf(c + i * g->ldc, v * W, W, acc[i * nv + v]);
		return;
	}
	if (g->bias)
		ALL (int v = 0; v < nv; v++) {
			vf b = ldf(g->bias + s0 * SLICE, v * W, W);

			ALL (int i = 0; i < mr; i++)
				acc[i * nv + v] += b;
		}
	ALL (int i = 0; i < mr; i++)
		ALL (int v = 0; v < nv; v++)
			st(KN_BF16, g->y + (i0 + i) * g->ldy + s0 * SLICE, v * W, W, acc[i * nv + v]);
}

/* One function per form, and tables of them: [rows − 1][log2 slices]. */
#define FORM(mr, ns) \
	FN void tile_f32_##mr##_##ns(const struct cpu_gemm *g, int64_t i0, int64_t s0) \
	{ \
		tile(mr, ns, 0, g, i0, s0); \
	} \
	FN void tile_bf16_##mr##_##ns(const struct cpu_gemm *g, int64_t i0, int64_t s0) \
	{ \
		tile(mr, ns, 1, g, i0, s0); \
	}
#define ROW1(t, mr) {tile_##t##_##mr##_1, tile_##t##_##mr##_1, tile_##t##_##mr##_1, tile_##t##_##mr##_1}
#define ROW2(t, mr) {tile_##t##_##mr##_1, tile_##t##_##mr##_2, tile_##t##_##mr##_2, tile_##t##_##mr##_2}
#define ROW4(t, mr) {tile_##t##_##mr##_1, tile_##t##_##mr##_2, tile_##t##_##mr##_4, tile_##t##_##mr##_4}
#define ROW8(t, mr) {tile_##t##_##mr##_1, tile_##t##_##mr##_2, tile_##t##_##mr##_4, tile_##t##_##mr##_8}

typedef void tile_fn(const struct cpu_gemm *g, int64_t i0, int64_t s0);

FORM(1, 1) FORM(1, 2) FORM(1, 4) FORM(2, 1) FORM(2, 2) FORM(3, 1) FORM(3, 2) FORM(4, 1) FORM(5, 1) FORM(6, 1)
#if LIM == 24
FORM(1, 8) FORM(2, 4) FORM(3, 4) FORM(4, 2) FORM(5, 2) FORM(6, 2)
FORM(7, 1) FORM(8, 1) FORM(9, 1) FORM(10, 1) FORM(11, 1) FORM(12, 1)
#define FORMS(t) { \
	ROW8(t, 1), ROW4(t, 2), ROW4(t, 3), ROW2(t, 4), ROW2(t, 5), ROW2(t, 6), \
	ROW1(t, 7), ROW1(t, 8), ROW1(t, 9), ROW1(t, 10), ROW1(t, 11), ROW1(t, 12)}
static const int widest[MR_MAX] = {3, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0};
#else
#define FORMS(t) {ROW4(t, 1), ROW2(t, 2), ROW2(t, 3), ROW1(t, 4), ROW1(t, 5), ROW1(t, 6)}
static const int widest[MR_MAX] = {2, 1, 1, 0, 0, 0};
#endif

static tile_fn *const tiles_f32[MR_MAX][4] = FORMS(f32);
static tile_fn *const tiles_bf16[MR_MAX][4] = FORMS(bf16);

/* Rows are dealt evenly to as few tiles as can hold them: 13 rows are 7 and 6, not 12 and 1. */
static void gemm(const struct cpu_gemm *g, tile_fn *const tiles[MR_MAX][4])
{
	int64_t n_slice = g->n_panel * (CPU_PANEL / SLICE), n_tile = (g->m + MR_MAX - 1) / MR_MAX;

	for (int64_t s = 0, step; s < n_slice; s += step) {
		int64_t i = 0;
		int wide = n_tile ? widest[(g->m + n_tile - 1) / n_tile - 1] : 0;

		while (wide && s + (1 << wide) > n_slice)
			wide--;
		step = 1 << wide;
		for (int64_t k = 0; k < n_tile; k++) {
			int64_t next = g->m * (k + 1) / n_tile;

			tiles[next - i - 1][wide](g, i, s);
			i = next;
		}
	}
}

static void gemm_f32(const struct cpu_gemm *g)
{
	gemm(g, tiles_f32);
}

static void gemm_bf16(const struct cpu_gemm *g)
{
	gemm(g, tiles_bf16);
}

FN void pair(int64_t n, const uint16_t *a, const uint16_t *b, cpu_unit *dst)
{
	int64_t i = 0;

	for (; b && i + W <= n; i += W) {
		vh ha, hb;
		vu u;

		memcpy(&ha, a + i, sizeof ha);
		memcpy(&hb, b + i, sizeof hb);
		u = __builtin_convertvector(ha, vu) | __builtin_convertvector(hb, vu) << 16;
		memcpy(dst + i, &u, sizeof u);
	}
	for (; i < n; i++)
		dst[i] = a[i] | (b ? (uint32_t)b[i] << 16 : 0);
}

INL void store_as(enum kn_dtype t, int64_t m, int64_t n, const float *c, int64_t ldc, const float *bias,
                  void *y, int64_t ldy, int accumulate)
{
	for (int64_t i = 0; i < m; i++) {
		for (int64_t j = 0; j < n; j += W) {
			vf v = ldf(c + i * ldc, j, n - j);

			if (bias)
				v += ldf(bias, j, n - j);
			if (accumulate)
				v += ld(t, y, i * ldy + j, n - j);
			st(t, y, i * ldy + j, n - j, v);
		}
	}
}

FN void store(int64_t m, int64_t n, const float *c, int64_t ldc, const float *bias,
              enum kn_dtype ty, void *y, int64_t ldy, int accumulate)
{
	if (ty == KN_F32)
		store_as(KN_F32, m, n, c, ldc, bias, y, ldy, accumulate);
	else
		store_as(KN_BF16, m, n, c, ldc, bias, y, ldy, accumulate);
}

INL float dot_as(enum kn_dtype t, int64_t n, const void *a, const void *b)
{
	vf sum = {0};

	for (int64_t j = 0; j < n; j += W)
		sum = FMA(ld(t, a, j, n - j), ld(t, b, j, n - j), sum);
	return hsum(sum);
}

FN float dot(enum kn_dtype t, int64_t n, const void *a, const void *b)
{
	return t == KN_F32 ? dot_as(KN_F32, n, a, b) : dot_as(KN_BF16, n, a, b);
}

FN void scale_rows(int64_t m, int64_t n, float *acc, const float *fix)
{
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; fix[i] != 1 && j < n; j += W)
			stf(acc + i * n, j, n - j, ldf(acc + i * n, j, n - j) * fix[i]);
}

FN void divide(int64_t n, const float *acc, float sum, enum kn_dtype t, void *out)
{
	for (int64_t j = 0; j < n; j += W) {
		vf v = ldf(acc, j, n - j) / sum;

		if (t == KN_F32)
			stf(out, j, n - j, v);
		else
			st(KN_BF16, out, j, n - j, v);
	}
}
