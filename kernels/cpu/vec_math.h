/* Vectors, loads and stores by type, exp. Part of vec_impl.h. */
typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef float vfh __attribute__((vector_size(2 * W)));
typedef double vd __attribute__((vector_size(4 * W)));

INL vf vset(float x)
{
	return x - (vf){0};
}

INL vi iota(int32_t first)
{
	vi v;

	for (int i = 0; i < W; i++)
		v[i] = i;
	return v + first;
}

/* m ? a : b, lane by lane; the lanes of m are all ones or all zeros. */
INL vf sel(vi m, vf a, vf b)
{
	return (vf)(((vu)m & (vu)a) | (~(vu)m & (vu)b));
}

#if W == 4
INL vf vsqrt(vf x)
{
	for (int i = 0; i < W; i++)
		x[i] = sqrtf(x[i]);
	return x;
}
#endif

/* p·2ⁿ by two factors, so that both are normal numbers for every n that exp can need. */
INL vf pow2(vf p, vf n)
{
	vi k = __builtin_convertvector(n, vi), h = k >> 1;

	return p * (vf)((h + 127) << 23) * (vf)((k - h + 127) << 23);
}

INL vf from_bf16(vh h)
{
	return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* The bf16 nearest to x, ties to even; a NaN stays a quiet NaN. In the low half of each lane of to_bf16. */
INL vu to_bf16(vf x)
{
	vu u = (vu)x, r = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = (vu)(x != x);

	return (nan & (u >> 16 | 0x40)) | (~nan & r);
}

#ifndef TO_BF16
#define TO_BF16(x) __builtin_convertvector(to_bf16(x), vh)
#endif

/* Elements i … i+n−1 of p, n ≤ W; lanes from n on are 0. */
INL vf ld(enum kn_dtype t, const void *p, int64_t i, int64_t n)
{
	if (t == KN_F32) {
		const float *q = (const float *)p + i;
		vf v = {0};

		if (n >= W)
			memcpy(&v, q, sizeof v);
		else
			for (int64_t j = 0; j < n; j++)
				v[j] = q[j];
		return v;
	} else {
		const uint16_t *q = (const uint16_t *)p + i;
		vh h = {0};

		if (n >= W)
			memcpy(&h, q, sizeof h);
		else
			for (int64_t j = 0; j < n; j++)
				h[j] = q[j];
		return from_bf16(h);
	}
}

INL void st(enum kn_dtype t, void *p, int64_t i, int64_t n, vf v)
{
	if (t == KN_F32) {
		float *q = (float *)p + i;

		if (n >= W)
			memcpy(q, &v, sizeof v);
		else
			for (int64_t j = 0; j < n; j++)
				q[j] = v[j];
	} else {
		uint16_t *q = (uint16_t *)p + i;
		vh h = TO_BF16(v);

		if (n >= W)
			memcpy(q, &h, sizeof h);
		else
			for (int64_t j = 0; j < n; j++)
				q[j] = h[j];
	}
}

INL vf ldf(const float *p, int64_t i, int64_t n)
{
	return ld(KN_F32, p, i, n);
}

INL void stf(float *p, int64_t i, int64_t n, vf v)
{
	st(KN_F32, p, i, n, v);
}

/* Lane i gets lane i ^ step. */
INL vf swap(vf v, int step)
{
	return __builtin_shuffle(v, iota(0) ^ step);
}

/* Sum and maximum of the lanes, in a tree of fixed form. */
INL float hsum(vf v)
{
	for (int step = W / 2; step; step /= 2)
		v += swap(v, step);
	return v[0];
}

INL float hmax(vf v)
{
	for (int step = W / 2; step; step /= 2)
		v = MAX(v, swap(v, step));
	return v[0];
}

INL float hmin(vf v)
{
	return -hmax(-v);
}

/* 2^x for x ≤ 0 or little above: x = n + r, |r| ≤ 1/2, and a polynomial of degree 6 in r, fitted for the smallest
 * relative error (1.3 units in the last place with rounding). Gives 0 for −inf; below 2⁻¹⁴⁹ all is 0 as well. */
INL vf vexp2(vf x)
{
	const float magic = 0x1.8p23f;
	vf c = MAX(vset(-150.0f), x), n = (c + magic) - magic, r = c - n, p;

	p = FMA(r, vset(1.5353362e-4f), vset(1.3398875e-3f));
	p = FMA(p, r, vset(9.6184369e-3f));
	p = FMA(p, r, vset(5.5503324e-2f));
	p = FMA(p, r, vset(2.4022648e-1f));
	p = FMA(p, r, vset(6.9314718e-1f));
	p = FMA(p, r, vset(1.0f));
	return POW2(p, n);
}

/* e^x for x ≤ 0 or little above. The rounding of x·log2 e makes the relative error grow to |x|·10⁻⁷, where e^x is small beside
 * the terms that it is added to. */
INL vf vexp(vf x)
{
	return vexp2(x * 1.44269504f);
}

#ifdef RECIP
/* 1/x for normal x whose reciprocal is normal: an estimate of 14 bits and one step of Newton. */
INL vf recip(vf x)
{
	vf r = (vf)_mm512_rcp14_ps(x);

	return FMA(FMA(-x, r, vset(1.0f)), r, r);
}
#else
#define RECIP(x) (1.0f / (x))
#endif
