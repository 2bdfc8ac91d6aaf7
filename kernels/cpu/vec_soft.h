/* Softmax over one block of KN_PAGE keys, forward and backward. Part of vec_impl.h. */
#define NV (KN_PAGE / W)

/* All ones in the lanes of vector v whose key lies in lo ≤ j < hi. */
INL vi seen(int v, int32_t lo, int32_t hi)
{
	vi j = iota(v * W);

	return (j >= lo) & (j < hi);
}

/* Scores of one row, −inf where a key is not seen. */
INL void scores(const float *s, int32_t lo, int32_t hi, vf x[NV])
{
	for (int v = 0; v < NV; v++)
		x[v] = ldf(s, v * W, W);
	if (lo > 0 || hi < KN_PAGE)
		for (int v = 0; v < NV; v++)
			x[v] = sel(seen(v, lo, hi), x[v], vset(-INFINITY));
}

/* A row that has seen no key yet has top = −inf; 0 stands in for it, since 2^(−inf − 0) is the 0 that is wanted. */
INL float finite_top(float top)
{
	return top == -INFINITY ? 0 : top;
}

/* Everything is in powers of two: with c = scale·log2 e, p = 2^(c·s − top) and top the rounded c·max. As the same top
 * stands in p, in the sum and in lse, its rounding cancels. */
INL void soft_as(const int bf16, const struct cpu_soft *o)
{
	float old[W], now[W];

	for (int64_t i0 = 0; i0 < o->m; i0 += W) {
		int64_t n = o->m - i0 < W ? o->m - i0 : W;

		for (int64_t i = i0; i < i0 + n; i++) {
			vf x[NV], max;
			float top;

			scores(o->s + i * KN_PAGE, o->lo[i], o->hi[i], x);
			max = x[0];
			for (int v = 1; v < NV; v++)
				max = MAX(max, x[v]);
			top = hmax(max) * o->c;
			old[i - i0] = o->top[i];
			o->top[i] = top > o->top[i] ? top : o->top[i];
			now[i - i0] = finite_top(o->top[i]);
		}
		stf(o->fix, i0, n, vexp2(ldf(old, 0, n) - ldf(now, 0, n)));
		for (int64_t i = i0; i < i0 + n; i++) {
			vf x[NV], sum[2] = {{0}}, minus = vset(-now[i - i0]);

			scores(o->s + i * KN_PAGE, o->lo[i], o->hi[i], x);
			for (int v = 0; v < NV; v++) {
				vf p = vexp2(FMA(x[v], vset(o->c), minus));

				sum[v % 2] += p;
				if (bf16)
					st(KN_BF16, o->p, i * KN_PAGE + v * W, W, p);
				else
					stf((float *)o->p, i * KN_PAGE + v * W, W, p);
			}
			o->sum[i] = o->sum[i] * o->fix[i] + hsum(sum[0] + sum[1]);
		}
	}
}

FN void soft_f32(const struct cpu_soft *o)
{
	soft_as(0, o);
}

FN void soft_bf16(const struct cpu_soft *o)
{
	soft_as(1, o);
}

/* p and ds of one row. */
INL void soft_bwd_row(const struct cpu_soft_bwd *o, int64_t i, vf p[NV], vf ds[NV])
{
	const float minus = -o->lse[i] * 1.44269504f;
	vf x[NV];

	scores(o->s + i * KN_PAGE, o->lo[i], o->hi[i], x);
	for (int v = 0; v < NV; v++) {
		p[v] = vexp2(FMA(x[v], vset(o->c), vset(minus)));
		ds[v] = p[v] * (ldf(o->dp + i * KN_PAGE, v * W, W) - o->delta[i]) * o->scale;
	}
}

FN void soft_bwd_f32(const struct cpu_soft_bwd *o)
{
	for (int64_t i = 0; i < o->m; i++) {
		vf p[NV], ds[NV];

		soft_bwd_row(o, i, p, ds);
		for (int v = 0; v < NV; v++) {
			stf((float *)o->pt, i * KN_PAGE + v * W, W, p[v]);
			stf((float *)o->dst, i * KN_PAGE + v * W, W, ds[v]);
		}
	}
}

FN void soft_bwd_bf16(const struct cpu_soft_bwd *o)
{
	for (int64_t i = 0; i < o->m; i += 2) {
		vf p[2][NV], ds[2][NV];

		soft_bwd_row(o, i, p[0], ds[0]);
		soft_bwd_row(o, i + 1, p[1], ds[1]);
		for (int v = 0; v < NV; v++) {
			vu d0 = to_bf16(ds[0][v]), d1 = to_bf16(ds[1][v]);
			vu a = to_bf16(p[0][v]) | to_bf16(p[1][v]) << 16, b = d0 | d1 << 16;
			vh h0 = __builtin_convertvector(d0, vh), h1 = __builtin_convertvector(d1, vh);

			memcpy(o->pt + i / 2 * KN_PAGE + v * W, &a, sizeof a);
			memcpy(o->dst + i / 2 * KN_PAGE + v * W, &b, sizeof b);
			memcpy((uint16_t *)o->ds + i * KN_PAGE + v * W, &h0, sizeof h0);
			memcpy((uint16_t *)o->ds + (i + 1) * KN_PAGE + v * W, &h1, sizeof h1);
		}
	}
}
