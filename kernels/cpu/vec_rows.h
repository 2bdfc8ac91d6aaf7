/* Norms, rotary embedding, activation, casts, log-probabilities. Part of vec_impl.h. */

/* ---- rmsnorm ---- */
INL void norm_as(enum kn_dtype tx, enum kn_dtype ty, const struct cpu_norm *o, int64_t r)
{
	const int64_t D = o->D, at = r * D;
	vf sum[4] = {{0}};
	float rstd;

	for (int64_t j = 0, k = 0; j < D; j += W, k = (k + 1) & 3) {
		vf v = ld(tx, o->x, at + j, D - j);

		sum[k] = FMA(v, v, sum[k]);
	}
	rstd = 1 / sqrtf(hsum((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)D + o->eps);
	for (int64_t j = 0; j < D; j += W)
		st(ty, o->y, at + j, D - j, ld(tx, o->x, at + j, D - j) * rstd * ldf(o->w, j, D - j));
	if (o->rstd)
		o->rstd[r] = rstd;
}

FN void norm(const struct cpu_norm *o, int64_t r0, int64_t r1)
{
	for (int64_t r = r0; r < r1; r++) {
		if (o->tx == KN_F32 && o->ty == KN_F32)
			norm_as(KN_F32, KN_F32, o, r);
		else if (o->tx == KN_F32)
			norm_as(KN_F32, KN_BF16, o, r);
		else if (o->ty == KN_F32)
			norm_as(KN_BF16, KN_F32, o, r);
		else
			norm_as(KN_BF16, KN_BF16, o, r);
	}
}

/* With c = Σ_j w_j dy_j x_j: dx = r·w⊙dy − x·c·r³/D, dw += dy⊙x·r. */
INL void norm_bwd_as(enum kn_dtype tx, enum kn_dtype tdy, enum kn_dtype tdx,
                     const struct cpu_norm_bwd *o, int64_t row, float *dw)
{
	const int64_t D = o->D, at = row * D;
	const float r = o->rstd[row];
	vf sum[4] = {{0}};
	float c;

	for (int64_t j = 0, k = 0; j < D; j += W, k = (k + 1) & 3) {
		vf g = ld(tdy, o->dy, at + j, D - j) * ldf(o->w, j, D - j);

		sum[k] = FMA(g, ld(tx, o->x, at + j, D - j), sum[k]);
	}
	c = hsum((sum[0] + sum[1]) + (sum[2] + sum[3])) * r * r * r / (float)D;
	for (int64_t j = 0; j < D; j += W) {
		vf x = ld(tx, o->x, at + j, D - j), dy = ld(tdy, o->dy, at + j, D - j);
		vf v = FMA(x, vset(-c), dy * ldf(o->w, j, D - j) * r);

		if (o->accumulate)
			v += ld(tdx, o->dx, at + j, D - j);
		st(tdx, o->dx, at + j, D - j, v);
		stf(dw, j, D - j, FMA(dy * r, x, ldf(dw, j, D - j)));
	}
}

FN void norm_bwd(const struct cpu_norm_bwd *o, int64_t r0, int64_t r1, float *dw)
{
	int form = (o->tx == KN_BF16) * 4 + (o->tdy == KN_BF16) * 2 + (o->tdx == KN_BF16);

	for (int64_t r = r0; r < r1; r++) {
		switch (form) {
		case 0:
			norm_bwd_as(KN_F32, KN_F32, KN_F32, o, r, dw);
			break;
		case 2:
			norm_bwd_as(KN_F32, KN_BF16, KN_F32, o, r, dw);
			break;
		case 7:
			norm_bwd_as(KN_BF16, KN_BF16, KN_BF16, o, r, dw);
			break;
		default: /* rare mixtures test the types element by element */
			norm_bwd_as(o->tx, o->tdy, o->tdx, o, r, dw);
		}
	}
}

/* ---- rotary embedding ---- */
INL void rope_as(enum kn_dtype t, const struct cpu_rope *o, int64_t r)
{
	const int64_t R = o->R;
	const float *c = o->cos + o->pos[r] * R, *s = o->sin + o->pos[r] * R;
	const float sign = (float)o->sign;

	for (int64_t h = 0; h < o->n_head; h++) {
		int64_t at = r * o->ldx + h * o->d;

		for (int64_t j = 0; j < R; j += W) {
			vf a = ld(t, o->x, at + j, R - j), b = ld(t, o->x, at + R + j, R - j);
			vf vc = ldf(c, j, R - j), vs = ldf(s, j, R - j) * sign;

			st(t, o->x, at + j, R - j, FMA(a, vc, -(b * vs)));
			st(t, o->x, at + R + j, R - j, FMA(b, vc, a * vs));
		}
	}
}

FN void rope(const struct cpu_rope *o, int64_t r0, int64_t r1)
{
	for (int64_t r = r0; r < r1; r++) {
		if (o->t == KN_F32)
			rope_as(KN_F32, o, r);
		else
			rope_as(KN_BF16, o, r);
	}
}

/* ---- silu(g)·u ---- */
/* 1 / (1 + 2^(−x·log2 e)). The power stops at 2¹²⁶, so that the reciprocal of the sum is a normal number. */
INL vf sigmoid(vf x)
{
	return RECIP(1.0f + vexp2(MIN(vset(126.0f), x * -1.44269504f)));
}

INL void silu_mul_as(enum kn_dtype t, int64_t n, const void *g, const void *u, void *y)
{
	for (int64_t j = 0; j < n; j += W) {
		vf a = ld(t, g, j, n - j);

		st(t, y, j, n - j, a * sigmoid(a) * ld(t, u, j, n - j));
	}
}

FN void silu_mul(enum kn_dtype t, int64_t n, const void *g, const void *u, void *y)
{
	if (t == KN_F32)
		silu_mul_as(KN_F32, n, g, u, y);
	else
		silu_mul_as(KN_BF16, n, g, u, y);
}

/* du = dy·g·σ(g), dg = dy·u·σ(g)·(1 + g·(1 − σ(g))). */
INL void silu_mul_bwd_as(enum kn_dtype t, int64_t n, const void *g, const void *u, const void *dy,
                         void *dg, void *du, void *y)
{
	for (int64_t j = 0; j < n; j += W) {
		vf a = ld(t, g, j, n - j), b = ld(t, u, j, n - j), z = ld(t, dy, j, n - j);
		vf p = sigmoid(a), f = a * p;

		st(t, dg, j, n - j, z * b * FMA(f, 1.0f - p, p));
		st(t, du, j, n - j, z * f);
		if (y)
			st(t, y, j, n - j, f * b);
	}
}

FN void silu_mul_bwd(enum kn_dtype t, int64_t n, const void *g, const void *u, const void *dy,
                     void *dg, void *du, void *y)
{
	if (t == KN_F32)
		silu_mul_bwd_as(KN_F32, n, g, u, dy, dg, du, y);
	else
		silu_mul_bwd_as(KN_BF16, n, g, u, dy, dg, du, y);
}

/* ---- add, cast ---- */
INL void add_as(enum kn_dtype t, int64_t n, const void *x, float *y)
{
	for (int64_t j = 0; j < n; j += W)
		stf(y, j, n - j, ldf(y, j, n - j) + ld(t, x, j, n - j));
}

FN void add(enum kn_dtype t, int64_t n, const void *x, float *y)
{
	if (t == KN_F32)
		add_as(KN_F32, n, x, y);
	else
		add_as(KN_BF16, n, x, y);
}

INL void cast_as(int64_t n, enum kn_dtype ts, const void *src, enum kn_dtype td, void *dst)
{
	for (int64_t j = 0; j < n; j += W)
		st(td, dst, j, n - j, ld(ts, src, j, n - j));
}

FN void cast(int64_t n, enum kn_dtype ts, const void *src, enum kn_dtype td, void *dst)
{
	if (ts == KN_F16 || td == KN_F16)
		for (int64_t j = 0; j < n; j++)
			cpu_put(td, dst, j, cpu_get(ts, src, j));
	else if (ts == KN_F32 && td == KN_F32)
		cast_as(n, KN_F32, src, KN_F32, dst);
	else if (ts == KN_F32)
		cast_as(n, KN_F32, src, KN_BF16, dst);
	else if (td == KN_F32)
		cast_as(n, KN_BF16, src, KN_F32, dst);
	else
		cast_as(n, KN_BF16, src, KN_BF16, dst);
}

/* ---- log-probabilities ---- */
/* The row's maximum, then the sum of e^(z − max) and, for the entropy, of e^(z − max)·(z − max). Partial sums are closed
 * every BLOCK vectors: few terms in a row keep the rounding error of f32 near one unit. */
#define BLOCK 32

INL void sum_exp(const int with_dot, int64_t V, const float *x, float inv_temp, float max, float *sum_p, float *dot_p)
{
	vf sum = {0}, dot = {0};

	for (int64_t j0 = 0; j0 < V; j0 += BLOCK * W) {
		vf s = {0}, d = {0};
		int64_t end = V - j0 < BLOCK * W ? V : j0 + BLOCK * W;

		for (int64_t j = j0; j < end; j += W) {
			vf z = ldf(x, j, V - j) * inv_temp - max, e = vexp(z);

			if (V - j < W)
				e = (vf)((vu)e & (vu)(iota(0) < (int32_t)(V - j)));
			s += e;
			if (with_dot) /* a logit of −inf adds nothing: no 0·inf */
				d += (vf)((vu)(e * z) & (vu)(e > 0.0f));
		}
		sum += s;
		dot += d;
	}
	*sum_p = hsum(sum);
	*dot_p = hsum(dot);
}

FN void logprob(const struct cpu_logprob *o, int64_t r0, int64_t r1)
{
	for (int64_t r = r0; r < r1; r++) {
		const float *x = o->logits + r * o->V;
		vf top = vset(-INFINITY), low = vset(INFINITY);
		float max, sum, dot;
		double l;

		for (int64_t j = 0; j + W <= o->V; j += W) {
			vf v = ldf(x, j, W);

			top = MAX(top, v);
			low = MIN(low, v);
		}
		for (int64_t j = o->V / W * W; j < o->V; j++) {
			top[0] = x[j] > top[0] ? x[j] : top[0];
			low[0] = x[j] < low[0] ? x[j] : low[0];
		}
		max = (o->inv_temp < 0 ? hmin(low) : hmax(top)) * o->inv_temp;
		if (o->entropy)
			sum_exp(1, o->V, x, o->inv_temp, max, &sum, &dot);
		else
			sum_exp(0, o->V, x, o->inv_temp, max, &sum, &dot);
		l = max + log((double)sum);
		if (o->logprob)
			o->logprob[r] = (float)((double)(x[o->target[r]] * o->inv_temp) - l);
		if (o->entropy)
			o->entropy[r] = (float)(log((double)sum) - (double)dot / sum);
		if (o->lse)
			o->lse[r] = (float)l;
	}
}

INL void logprob_bwd_as(enum kn_dtype t, const int with_entropy, const struct cpu_logprob *o, int64_t r)
{
	const int64_t V = o->V;
	const float *x = o->logits + r * V;
	const float a = o->inv_temp, g = o->dlogprob[r] * a;
	const float gh = with_entropy ? o->dentropy[r] * a : 0, h = with_entropy ? o->entropy_in[r] : 0;
	const vi target = iota(0) * 0 + o->target[r];

	for (int64_t j = 0; j < V; j += W) {
		vf lp = ldf(x, j, V - j) * a - o->lse_in[r], p = vexp(lp);
		vf one = (vf)((vu)vset(g) & (vu)(iota((int32_t)j) == target));
		vf d = FMA(p, vset(-g), one);

		if (with_entropy)
			d -= (vf)((vu)(p * gh * (lp + h)) & (vu)(p > 0.0f));
		st(t, o->dlogits, r * V + j, V - j, d);
	}
}

FN void logprob_bwd(const struct cpu_logprob *o, int64_t r0, int64_t r1)
{
	for (int64_t r = r0; r < r1; r++) {
		if (o->t == KN_F32 && o->dentropy)
			logprob_bwd_as(KN_F32, 1, o, r);
		else if (o->t == KN_F32)
			logprob_bwd_as(KN_F32, 0, o, r);
		else if (o->dentropy)
			logprob_bwd_as(KN_BF16, 1, o, r);
		else
			logprob_bwd_as(KN_BF16, 0, o, r);
	}
}
