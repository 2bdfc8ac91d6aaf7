/* The optimizer's loops. Part of vec_impl.h. */
FN void scale(int64_t n, float a, float *x)
{
	for (int64_t j = 0; j < n; j += W)
		stf(x, j, n - j, ldf(x, j, n - j) * a);
}

/* In double, four sums side by side; the driver fixes the ranges, so the order is the same at any number of threads. */
FN double sumsq(int64_t n, const float *x)
{
	vd sum[4] = {{0}};
	double s = 0;
	int64_t j = 0;

	for (int k = 0; j + W / 2 <= n; j += W / 2, k = (k + 1) & 3) {
		vfh h;
		vd v;

		memcpy(&h, x + j, sizeof h);
		v = __builtin_convertvector(h, vd);
		sum[k] += v * v;
	}
	sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	for (int i = 0; i < W / 2; i++)
		s += sum[0][i];
	for (; j < n; j++)
		s += (double)x[j] * x[j];
	return s;
}

/* One pass over w, m, v, g and the copy. */
INL void adamw_as(enum kn_dtype tcopy, const struct cpu_adamw *o, int64_t i0, int64_t i1)
{
	const float b1 = o->b1, b2 = o->b2, a1 = 1 - o->b1, a2 = 1 - o->b2;

	for (int64_t i = i0; i < i1; i += W) {
		int64_t n = i1 - i;
		vf w = ldf(o->w, i, n), g = ldf(o->g, i, n) * o->gscale;
		vf m = FMA(g, vset(a1), ldf(o->m, i, n) * b1);
		vf v = FMA(g * g, vset(a2), ldf(o->v, i, n) * b2);
		vf step = m * o->c1 / (SQRT(v * o->c2) + o->eps);

		w = FMA(FMA(w, vset(o->decay), step), vset(-o->lr), w);
		stf(o->m, i, n, m);
		stf(o->v, i, n, v);
		stf(o->w, i, n, w);
		if (o->w_copy)
			st(tcopy, o->w_copy, i, n, w);
	}
}

FN void adamw(const struct cpu_adamw *o, int64_t i0, int64_t i1)
{
	if (o->tcopy == KN_F32)
		adamw_as(KN_F32, o, i0, i1);
	else
		adamw_as(KN_BF16, o, i0, i1);
}
