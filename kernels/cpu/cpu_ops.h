/* Private to kernels/cpu: the members of the table, by the file that has them. */
#ifndef KN_CPU_OPS_H
#define KN_CPU_OPS_H

#include "kernels/cpu/cpu_int.h"

/* cpu_linear.c */
int cpu_weight_new(kn_dev *dev, enum kn_dtype t, int64_t N, int64_t K, unsigned uses, kn_weight **w_p);
int cpu_weight_set(kn_stream *s, kn_weight *w, const void *src);
void cpu_weight_free(kn_weight *w);
int cpu_linear(kn_stream *s, const kn_weight *w, int64_t T, const void *x, const float *bias,
               enum kn_dtype ty, void *y, int accumulate);
int cpu_linear_bwd_x(kn_stream *s, const kn_weight *w, int64_t T, const void *dy,
                     enum kn_dtype tdx, void *dx, int accumulate);
int cpu_linear_bwd_w(kn_stream *s, enum kn_dtype t, int64_t T, int64_t N, int64_t K,
                     const void *dy, const void *x, float *dw, float *dbias);

/* cpu_rows.c */
int cpu_embed(kn_stream *s, enum kn_dtype t, int64_t T, int64_t D, const int32_t *ids,
              const void *table, float *y);
int cpu_embed_bwd(kn_stream *s, int64_t T, int64_t D, const int32_t *ids, const float *dy, float *dtable);
int cpu_rmsnorm(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                float eps, enum kn_dtype ty, void *y, float *rstd);
int cpu_rmsnorm_bwd(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
                    const float *rstd, enum kn_dtype tdy, const void *dy,
                    enum kn_dtype tdx, void *dx, int accumulate, float *dw);
int cpu_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t n_head, int64_t d, int64_t ldx, int64_t R,
             void *x, const int32_t *pos, const float *cos, const float *sin, int sign);
int cpu_silu_mul(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, void *y);
int cpu_silu_mul_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, const void *dy,
                     void *dgu, void *y);
int cpu_add(kn_stream *s, enum kn_dtype t, int64_t n, const void *x, float *y);
int cpu_cast(kn_stream *s, int64_t n, enum kn_dtype tsrc, const void *src, enum kn_dtype tdst, void *dst);

/* cpu_qk.c */
int cpu_qk_rope(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                const float *sin, void *out);
int cpu_qk_rope_bwd(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
                    const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
                    const float *sin, void *dqkv, float *dqw, float *dkw);

/* cpu_attn.c */
uint64_t cpu_kv_page_bytes(kn_dev *dev, enum kn_dtype t, int64_t n_kv_head, int64_t d_head);
int cpu_kv_write(kn_stream *s, const struct kn_kv *kv, const struct kn_rows *rows, int64_t ldk,
                 const void *k, const void *v);
int cpu_attn(kn_stream *s, const struct kn_attn *a, const struct kn_kv *kv, const struct kn_rows *rows,
             int64_t ldq, const void *q, void *out, float *lse);
int cpu_attn_bwd(kn_stream *s, const struct kn_attn *a, enum kn_dtype t, const struct kn_rows *rows,
                 const void *qkv, const void *out, const float *lse, const void *dout, void *dqkv);

/* cpu_optim.c */
int cpu_logprob(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                float inv_temp, float *logprob, float *entropy, float *lse);
int cpu_logprob_bwd(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target,
                    float inv_temp, const float *lse, const float *dlogprob, const float *dentropy,
                    const float *entropy, enum kn_dtype t, void *dlogits);

int cpu_sumsq(kn_stream *s, int64_t n, const float *x, double *sum_p);
int cpu_scale(kn_stream *s, int64_t n, float a, float *x);
int cpu_adamw(kn_stream *s, int64_t n, float *w, float *m, float *v, const float *g, float gscale,
              float lr, float b1, float b2, float eps, float decay, int64_t t,
              enum kn_dtype tcopy, void *w_copy);

#endif
