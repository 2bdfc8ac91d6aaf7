/* Norm and rotation of query and key heads. Part of vec_impl.h. */

/* n elements at j of the head x: x·rstd·w, w NULL: x. */
INL vf qk_in(enum kn_dtype t, const void *x, int64_t at, int64_t j, int64_t n, float rstd, const float *w)
{
	vf v = ld(t, x, at + j, n);

	return w ? v * rstd * ldf(w, j, n) : v;
}

INL float head_rstd(enum kn_dtype t, const void *x, int64_t at, int64_t d, float eps)
{
	vf sum[2] = {{0}};

	for (int64_t j = 0, k = 0; j < d; j += W, k ^= 1) {
		vf v = ld(t, x, at + j, d - j);

		sum[k] = FMA(v, v, sum[k]);
	}
	return 1 / sqrtf(hsum(sum[0] + sum[1]) / (float)d + eps);
}

INL void qk_head(enum kn_dtype t, const struct cpu_qk *o, int64_t at, const float *w, const float *c, const float *s)
{
	const int64_t R = o->R, d = o->d;
	float rstd = w ? head_rstd(t, o->qkv, at, d, o->eps) : 1;

	for (int64_t j = 0; j < R; j += W) {
		vf a = qk_in(t, o->qkv, at, j, R - j, rstd, w), b = qk_in(t, o->qkv, at, j + R, R - j, rstd, w);
		vf vc = ldf(c, j, R - j), vs = ldf(s, j, R - j);

		st(t, o->out, at + j, R - j, FMA(a, vc, -(b * vs)));
		st(t, o->out, at + R + j, R - j, FMA(b, vc, a * vs));
	}
	for (int64_t j = 2 * R; j < d; j += W)
		st(t, o->out, at + j, d - j, qk_in(t, o->qkv, at, j, d - j, rstd, w));
}

INL void qk_rope_as(enum kn_dtype t, const struct cpu_qk *o, int64_t r)
{
	const int64_t H = o->H, G = o->G, row = r * (H + 2 * G) * o->d;
	const float *c = o->cos + o->pos[r] * o->R, *s = o->sin + o->pos[r] * o->R;

	for (int64_t h = 0; h < H + G; h++)
		qk_head(t, o, row + h * o->d, h < H ? o->qw : o->kw, c, s);
	for (int64_t j = (H + G) * o->d; o->out != o->qkv && j < (H + 2 * G) * o->d; j += W)
		st(t, o->out, row + j, (H + 2 * G) * o->d - j, ld(t, o->qkv, row + j, (H + 2 * G) * o->d - j));
}

FN void qk_rope(const struct cpu_qk *o, int64_t r0, int64_t r1)
{
	for (int64_t r = r0; r < r1; r++) {
		if (o->t == KN_F32)
			qk_rope_as(KN_F32, o, r);
		else
			qk_rope_as(KN_BF16, o, r);
	}
}

/* With g the gradient turned back, rms as in norm_bwd: dw += g⊙x·rstd, dx = rstd·w⊙g − x·c·rstd³/d, c = Σ w g x. */
INL vf qk_norm_bwd(enum kn_dtype t, const struct cpu_qk *o, int64_t at, int64_t j, int64_t n, const float *w,
                   float rstd, float c, vf g)
{
	return FMA(ld(t, o->qkv, at + j, n), vset(-c), g * ldf(w, j, n) * rstd);
}

INL vf qk_sum_bwd(enum kn_dtype t, const struct cpu_qk *o, int64_t at, int64_t j, int64_t n, const float *w,
                  float rstd, vf g, float *dw)
{
	vf gx = g * ld(t, o->qkv, at + j, n);

	stf(dw, j, n, FMA(gx, vset(rstd), ldf(dw, j, n)));
	return gx * ldf(w, j, n);
}

INL void qk_head_bwd(enum kn_dtype t, const struct cpu_qk *o, int64_t at, const float *w, const float *cs, const float *sn,
                     float *dw)
{
	const int64_t R = o->R, d = o->d;
	float rstd = w ? head_rstd(t, o->qkv, at, d, o->eps) : 1, c = 0;

	/* Twice the same way: once for the sums, once for the result. */
	for (int pass = w ? 0 : 1; pass < 2; pass++) {
		vf sum = {0};

		for (int64_t j = 0; j < R; j += W) {
			int64_t n = R - j;
			vf a = ld(t, o->out, at + j, n), b = ld(t, o->out, at + R + j, n);
			vf vc = ldf(cs, j, n), vs = ldf(sn, j, n);
			vf ga = FMA(a, vc, b * vs), gb = FMA(b, vc, -(a * vs));

			if (pass == 0) {
				sum += qk_sum_bwd(t, o, at, j, n, w, rstd, ga, dw);
				sum += qk_sum_bwd(t, o, at, R + j, n, w, rstd, gb, dw);
				continue;
			}
			st(t, o->out, at + j, n, w ? qk_norm_bwd(t, o, at, j, n, w, rstd, c, ga) : ga);
			st(t, o->out, at + R + j, n, w ? qk_norm_bwd(t, o, at, R + j, n, w, rstd, c, gb) : gb);
		}
		for (int64_t j = 2 * R; w && j < d; j += W) {
			vf g = ld(t, o->out, at + j, d - j);

			if (pass == 0)
				sum += qk_sum_bwd(t, o, at, j, d - j, w, rstd, g, dw);
			else
				st(t, o->out, at + j, d - j, qk_norm_bwd(t, o, at, j, d - j, w, rstd, c, g));
		}
		c = hsum(sum) * rstd * rstd * rstd / (float)d;
	}
}

INL void qk_rope_bwd_as(enum kn_dtype t, const struct cpu_qk *o, int64_t r, float *dw)
{
	const int64_t H = o->H, G = o->G;
	const float *c = o->cos + o->pos[r] * o->R, *s = o->sin + o->pos[r] * o->R;

	for (int64_t h = 0; h < H + G; h++)
		qk_head_bwd(t, o, (r * (H + 2 * G) + h) * o->d, h < H ? o->qw : o->kw, c, s, dw + (h < H ? 0 : o->d));
}

FN void qk_rope_bwd(const struct cpu_qk *o, int64_t r0, int64_t r1, float *dw)
{
	for (int64_t r = r0; r < r1; r++) {
		if (o->t == KN_F32)
			qk_rope_bwd_as(KN_F32, o, r, dw);
		else
			qk_rope_bwd_as(KN_BF16, o, r, dw);
	}
}
