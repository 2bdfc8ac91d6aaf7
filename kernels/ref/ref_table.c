/* kernels/ref: the reference backend. Device, memory, and the table; the operations stand in their families. One thread,
 * work is done when the call returns. */
#include "kernels/ref/ref_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGN 64

static char open_err[256] = "out of memory for the device";

int ref_fail(kn_dev *dev, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(dev ? dev->err : open_err, sizeof open_err, fmt, ap);
	va_end(ap);
	return code;
}

int ref_need_type(kn_dev *dev, const char *op, enum kn_dtype t)
{
	if (t == KN_F32 || t == KN_BF16)
		return KN_OK;
	return ref_fail(dev, KN_E_UNSUPPORTED, "%s: element type %d is neither f32 nor bf16", op, (int)t);
}

int ref_need_size(kn_dev *dev, const char *op, int64_t n)
{
	if (n >= 0)
		return KN_OK;
	return ref_fail(dev, KN_E_ARG, "%s: negative size %lld", op, (long long)n);
}

static int ref_open(int32_t ordinal, int32_t n_threads, kn_dev **dev_p)
{
	kn_dev *dev;

	if (ordinal != 0 || n_threads < 0)
		return ref_fail(NULL, KN_E_ARG, "ref: there is one device, number 0, and no negative thread count");
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return ref_fail(NULL, KN_E_MEMORY, "out of memory for the device");
	*dev_p = dev;
	return KN_OK;
}

static void ref_close(kn_dev *dev)
{
	free(dev);
}

static const char *ref_last_error(kn_dev *dev)
{
	return dev ? dev->err : open_err;
}

static const char *ref_describe(kn_dev *dev)
{
	(void)dev;
	return "ref: plain C, one thread";
}

static int ref_stream_new(kn_dev *dev, kn_stream **s_p)
{
	kn_stream *s = malloc(sizeof *s);

	if (!s)
		return ref_fail(dev, KN_E_MEMORY, "out of memory for a stream");
	s->dev = dev;
	*s_p = s;
	return KN_OK;
}

static void ref_stream_free(kn_stream *s)
{
	free(s);
}

static int ref_sync(kn_stream *s)
{
	(void)s;
	return KN_OK;
}

static int ref_alloc(kn_dev *dev, uint64_t bytes, void **p)
{
	void *q;

	if (bytes > (uint64_t)INT64_MAX - ALIGN)
		return ref_fail(dev, KN_E_MEMORY, "allocation of %llu bytes is impossible", (unsigned long long)bytes);
	q = aligned_alloc(ALIGN, (size_t)(bytes / ALIGN + 1) * ALIGN);
	if (!q)
		return ref_fail(dev, KN_E_MEMORY, "no memory for %llu bytes", (unsigned long long)bytes);
	memset(q, 0, (size_t)bytes);
	*p = q;
	return KN_OK;
}

static void ref_free(kn_dev *dev, void *p)
{
	(void)dev;
	free(p);
}

static int ref_copy(kn_stream *s, void *dst, const void *src, uint64_t bytes)
{
	(void)s;
	if (bytes)
		memmove(dst, src, (size_t)bytes);
	return KN_OK;
}

static int ref_zero(kn_stream *s, void *dst, uint64_t bytes)
{
	(void)s;
	if (bytes)
		memset(dst, 0, (size_t)bytes);
	return KN_OK;
}

/* IEEE half precision by arithmetic: exponent e, fraction f. */
float ref_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, f = h & 1023, u;
	float x;

	if (e == 31)
		u = sign | 0x7f800000u | f << 13;
	else if (e)
		u = sign | (e + 112) << 23 | f << 13;
	else {
		x = (float)f * 0x1p-24f;
		return sign ? -x : x;
	}
	memcpy(&x, &u, sizeof x);
	return x;
}

uint16_t ref_f32_to_f16(float x)
{
	uint32_t u, sign, mag;

	memcpy(&u, &x, sizeof u);
	sign = u >> 16 & 0x8000;
	mag = u & 0x7fffffffu;
	if (mag > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
	if (mag >= 0x477ff000u) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (mag < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, rounded by adding 0.5 ulp(0.5) */
		float y, magic = 0.5f;

		memcpy(&y, &mag, sizeof y);
		y += magic; /* the sum's last bit weighs 2^-24 */
		memcpy(&u, &y, sizeof u);
		return (uint16_t)(sign | (u - 0x3f000000u));
	}
	mag += 0xfff + (mag >> 13 & 1);
	return (uint16_t)(sign | ((mag - 0x38000000u) >> 13));
}

static const struct kn_ops ops = {
	.abi = KN_ABI, .size = sizeof(struct kn_ops), .name = "ref",
	.open = ref_open, .close = ref_close, .last_error = ref_last_error, .describe = ref_describe,
	.stream_new = ref_stream_new, .stream_free = ref_stream_free, .sync = ref_sync,
	.alloc = ref_alloc, .free = ref_free, .copy = ref_copy, .zero = ref_zero,
	.weight_new = ref_weight_new, .weight_set = ref_weight_set, .weight_free = ref_weight_free,
	.linear = ref_linear, .linear_bwd_x = ref_linear_bwd_x, .linear_bwd_w = ref_linear_bwd_w,
	.embed = ref_embed, .embed_bwd = ref_embed_bwd,
	.rmsnorm = ref_rmsnorm, .rmsnorm_bwd = ref_rmsnorm_bwd, .rope = ref_rope,
	.silu_mul = ref_silu_mul, .silu_mul_bwd = ref_silu_mul_bwd, .add = ref_add, .cast = ref_cast,
	.kv_page_bytes = ref_kv_page_bytes, .kv_write = ref_kv_write,
	.attn = ref_attn, .attn_bwd = ref_attn_bwd,
	.logprob = ref_logprob, .logprob_bwd = ref_logprob_bwd,
	.qk_rope = ref_qk_rope, .qk_rope_bwd = ref_qk_rope_bwd,
	.sumsq = ref_sumsq, .scale = ref_scale, .adamw = ref_adamw,
};

const struct kn_ops *kn_ref_ops(void)
{
	return &ops;
}
