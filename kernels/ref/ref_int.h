/* Private to kernels/ref: the device, its error text, and element access by type. */
#ifndef KN_REF_INT_H
#define KN_REF_INT_H

#include "kernels/kernels.h"

#include <string.h>

struct kn_dev {
	char err[256];
};

struct kn_stream {
	kn_dev *dev;
};

struct kn_weight {
	kn_dev *dev;
	enum kn_dtype t;
	int64_t n, k;
	unsigned uses;
	void *w; /* [n, k] of type t, as given */
};

/* Writes the text of the failure and returns code. */
int ref_fail(kn_dev *dev, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* KN_OK when t is a type of activations (f32 or bf16), else the failure of operation op. */
int ref_need_type(kn_dev *dev, const char *op, enum kn_dtype t);
/* KN_OK when n ≥ 0, else the failure of operation op. */
int ref_need_size(kn_dev *dev, const char *op, int64_t n);

float ref_f16_to_f32(uint16_t h);
uint16_t ref_f32_to_f16(float x);

static inline float ref_bf16_to_f32(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float x;

	memcpy(&x, &u, sizeof x);
	return x;
}

/* Round to nearest even; a NaN stays a NaN (quiet), whatever its payload. */
static inline uint16_t ref_f32_to_bf16(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float ref_load(enum kn_dtype t, const void *p, int64_t i)
{
	switch (t) {
	case KN_BF16:
		return ref_bf16_to_f32(((const uint16_t *)p)[i]);
	case KN_F16:
		return ref_f16_to_f32(((const uint16_t *)p)[i]);
	default:
		return ((const float *)p)[i];
	}
}

static inline void ref_store(enum kn_dtype t, void *p, int64_t i, float x)
{
	switch (t) {
	case KN_BF16:
		((uint16_t *)p)[i] = ref_f32_to_bf16(x);
		break;
	case KN_F16:
		((uint16_t *)p)[i] = ref_f32_to_f16(x);
		break;
	default:
		((float *)p)[i] = x;
	}
}

static inline uint64_t ref_type_bytes(enum kn_dtype t)
{
	return t == KN_F32 ? 4 : 2;
}

/* ref_linear.c */
int ref_weight_new(kn_dev *dev, enum kn_dtype t, int64_t N, int64_t K, unsigned uses, kn_weight **w_p);
int ref_weight_set(kn_stream *s, kn_weight *w, const void *src);
void ref_weight_free(kn_weight *w);
int ref_linear(kn_stream *s, const kn_weight *w, int64_t T, const void *x, const float *bias,
               enum kn_dtype ty, void *y, int accumulate);
int ref_linear_bwd_x(kn_stream *s, const kn_weight *w, int64_t T, const void *dy,
                     enum kn_dtype tdx, void *dx, int accumulate);
int ref_linear_bwd_w(kn_stream *s, enum kn_dtype t, int64_t T, int64_t N, int64_t K,
                     const void *dy, const void *x, float *dw, float *dbias);

/* ref_rows.c */
int ref_embed(kn_stream *s, enum kn_dtype t, int64_t T, int64_t D, const int32_t *ids,
              const void *table, float *y);
int ref_embed_bwd(kn_stream *s, int64_t T, int64_t D, const int32_t *ids, const float *dy, float *dtable);
int ref_rmsnorm(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                float eps, enum kn_dtype ty, void *y, float *rstd);
int ref_rmsnorm_bwd(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                    const float *rstd, enum kn_dtype tdy, const void *dy,
                    enum kn_dtype tdx, void *dx, int accumulate, float *dw);
int ref_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t n_head, int64_t d, int64_t ldx, int64_t R,
             void *x, const int32_t *pos, const float *cos, const float *sin, int sign);
int ref_silu_mul(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, void *y);
int ref_silu_mul_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, const void *dy,
                     void *dgu, void *y);
int ref_add(kn_stream *s, enum kn_dtype t, int64_t n, const void *x, float *y);
int ref_cast(kn_stream *s, int64_t n, enum kn_dtype tsrc, const void *src, enum kn_dtype tdst, void *dst);

/* ref_qk.c */
int ref_qk_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                const float *sin, void *out);
int ref_qk_rope_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                    const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                    const float *sin, void *dqkv, float *dqw, float *dkw);

/* ref_attn.c */
uint64_t ref_kv_page_bytes(kn_dev *dev, enum kn_dtype t, int64_t n_kv_head, int64_t d_head);
int ref_kv_write(kn_stream *s, const struct kn_kv *kv, const struct kn_rows *rows, int64_t ldk,
                 const void *k, const void *v);
int ref_attn(kn_stream *s, const struct kn_attn *a, const struct kn_kv *kv, const struct kn_rows *rows,
             int64_t ldq, const void *q, void *out, float *lse);
int ref_attn_bwd(kn_stream *s, const struct kn_attn *a, enum kn_dtype t, const struct kn_rows *rows,
                 const void *qkv, const void *out, const float *lse, const void *dout, void *dqkv);

/* ref_logprob.c */
int ref_logprob(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                float inv_temp, float *logprob, float *entropy, float *lse);
int ref_logprob_bwd(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                    float inv_temp, const float *lse, const float *dlogprob, const float *dentropy,
                    const float *entropy, enum kn_dtype t, void *dlogits);

/* ref_optim.c */
int ref_sumsq(kn_stream *s, int64_t n, const float *x, double *sum_p);
int ref_scale(kn_stream *s, int64_t n, float a, float *x);
int ref_adamw(kn_stream *s, int64_t n, float *w, float *m, float *v, const float *g, float gscale,
              float lr, float b1, float b2, float eps, float decay, int64_t t,
              enum kn_dtype tcopy, void *w_copy);

#endif
