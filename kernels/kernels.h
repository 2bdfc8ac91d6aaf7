/* The whole boundary between this toolkit and arithmetic on a device: one table of operations behind a C ABI.
 *
 * A leaf: includes nothing of ours. Backends: ref (plain C, obviously right, the oracle of every test), cpu (vector
 * code of its own, AVX-512 and AVX2 by run-time dispatch), cuda (later). Rules: status 0 or negative, never
 * exit or exception; work is queued in order on a stream and its errors may appear at sync; nothing is allocated behind
 * the caller's back except caches keyed by device; sizes are int64_t, bytes uint64_t, dimensions slowest first, row-major.
 * Pointers to data are device pointers from alloc (on ref and cpu plain memory works as well).
 *
 * One arithmetic. Where an operation says "row-exact", the bits of an output row depend on that row's inputs and the
 * weights alone: not on the number of rows in the call, their order, or the number of threads. Decode, prefill and the
 * forward pass of training call the same members, so they give the same bits. Where it says "deterministic", equal
 * inputs in equal shapes give equal bits at any number of threads.
 *
 * Letters: T tokens (rows), D model width, N outputs and K inputs of a product, H query heads, G key/value heads (H is a
 * multiple of G), d head width, V vocabulary, S sequences, P page length in tokens. */
#ifndef KN_KERNELS_H
#define KN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KN_ABI 1        /* raised when a member changes meaning */
#define KN_PAGE 64      /* P: tokens in a page of keys and values; attention walks keys in blocks at multiples of it */

enum kn_dtype { KN_F32 = 1, KN_BF16 = 2, KN_F16 = 3, KN_I32 = 5, KN_I64 = 6, KN_U8 = 7 };

enum kn_status {
	KN_OK = 0,
	KN_E_UNSUPPORTED = -1,  /* this backend cannot do this combination */
	KN_E_MEMORY = -2,
	KN_E_DEVICE = -3,       /* the library or device below failed; strerror tells */
	KN_E_ARG = -4,          /* sizes or pointers that no caller may pass */
};

typedef struct kn_dev kn_dev;           /* one device, its handles and caches */
typedef struct kn_stream kn_stream;     /* work is queued here, in order */
typedef struct kn_weight kn_weight;     /* a packed matrix for products, made by weight_new */

/* Which products a packed matrix serves. */
enum kn_use {
	KN_USE_FWD = 1u << 0,   /* y = x · Wᵀ */
	KN_USE_BWD_X = 1u << 1, /* dx = dy · W */
};

/* Keys and values of many sequences in pages. A page holds P tokens of one layer: keys and values of all G heads in a
 * layout private to the backend (page_bytes tells its size); copying its bytes copies its content. Page p of sequence s
 * covers positions [p·P, (p+1)·P). */
struct kn_kv {
	enum kn_dtype dtype;            /* element type inside: KN_F32 or KN_BF16 */
	int64_t n_kv_head, d_head;      /* G, d */
	void *pages;                    /* base of the pool of this layer */
	uint64_t page_bytes;            /* stride between pages of the pool */
	const int32_t *table;           /* [S, table_stride] page numbers */
	int64_t table_stride;
};

/* Rows of S sequences side by side. Row r of sequence s (start[s] ≤ r < start[s+1]) stands at position
 * pos0[s] + r - start[s]. */
struct kn_rows {
	int64_t n_seq;
	const int32_t *start;           /* [S+1] */
	const int32_t *pos0;            /* [S] */
};

struct kn_attn {
	int64_t n_head, n_kv_head, d_head;      /* H, G, d */
	float scale;                            /* > 0, multiplies q·k */
	int64_t window;                         /* > 0: only the last `window` positions, own included; 0: all before */
};

struct kn_ops {
	uint32_t abi, size;             /* KN_ABI and sizeof(struct kn_ops) as the backend was compiled */
	const char *name;               /* "ref", "cpu", "cuda" */

	/* ---- device, memory, streams ---- */
	/* n_threads: CPU backends; 0 = all this process may use. */
	int (*open)(int32_t ordinal, int32_t n_threads, kn_dev **dev_p);
	void (*close)(kn_dev *dev);             /* NULL allowed */
	/* Text of the last failure on dev (NULL: of a failed open), never NULL. */
	const char *(*last_error)(kn_dev *dev);
	/* One line for people: instruction set or device, library versions. */
	const char *(*describe)(kn_dev *dev);
	int (*stream_new)(kn_dev *dev, kn_stream **s_p);
	void (*stream_free)(kn_stream *s);
	int (*sync)(kn_stream *s);
	int (*alloc)(kn_dev *dev, uint64_t bytes, void **p);    /* 64-byte aligned, cleared */
	void (*free)(kn_dev *dev, void *p);
	int (*copy)(kn_stream *s, void *dst, const void *src, uint64_t bytes);  /* either side may be host memory */
	int (*zero)(kn_stream *s, void *dst, uint64_t bytes);

	/* ---- matrix products ---- */
	/* Packs w [N, K] (Hugging Face order: out, in) of type t for the uses asked for. The type of the products is t:
	 * KN_F32 or KN_BF16 (bf16 products accumulate in f32). */
	int (*weight_new)(kn_dev *dev, enum kn_dtype t, int64_t N, int64_t K, unsigned uses, kn_weight **w_p);
	int (*weight_set)(kn_stream *s, kn_weight *w, const void *src /* [N, K] of the weight's type */);
	void (*weight_free)(kn_weight *w);
	/* y [T, N] = x [T, K] · Wᵀ (+ bias [N] f32 or NULL, added before rounding) (+ y if accumulate; f32 y only).
	 * x has the weight's type; y is f32 or the weight's type. Row-exact. */
	int (*linear)(kn_stream *s, const kn_weight *w, int64_t T, const void *x, const float *bias,
	              enum kn_dtype ty, void *y, int accumulate);
	/* dx [T, K] = dy [T, N] · W (+ dx if accumulate; f32 dx only). dy has the weight's type. Needs KN_USE_BWD_X.
	 * Deterministic. */
	int (*linear_bwd_x)(kn_stream *s, const kn_weight *w, int64_t T, const void *dy,
	                    enum kn_dtype tdx, void *dx, int accumulate);
	/* dw [N, K] f32 += dyᵀ · x for dy [T, N], x [T, K] of type t; dbias [N] f32 += column sums of dy, or NULL.
	 * Deterministic. */
	int (*linear_bwd_w)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t N, int64_t K,
	                    const void *dy, const void *x, float *dw, float *dbias);

	/* ---- rows ---- */
	/* y [T, D] f32 = table [V, D] of type t at ids [T] (0 ≤ id < V is the caller's duty). Row-exact. */
	int (*embed)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t D, const int32_t *ids, const void *table, float *y);
	/* dtable [V, D] f32 += dy [T, D] at ids, in the order of rows. Deterministic. */
	int (*embed_bwd)(kn_stream *s, int64_t T, int64_t D, const int32_t *ids, const float *dy, float *dtable);
	/* y = x / sqrt(mean(x²) + eps) · w.  x, y [T, D], w [D] f32; internals f32. rstd [T] f32 or NULL.
	 * x may be a residual stream in f32 while y has the type of the products. Row-exact. y may alias x when tx == ty. */
	int (*rmsnorm)(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w, float eps,
	               enum kn_dtype ty, void *y, float *rstd);
	/* dx [T, D] of type tdx (+= if accumulate) and dw [D] f32 += ; rstd from the forward pass. Deterministic. */
	int (*rmsnorm_bwd)(kn_stream *s, int64_t T, int64_t D, enum kn_dtype tx, const void *x, const float *w,
	                   const float *rstd, enum kn_dtype tdy, const void *dy,
	                   enum kn_dtype tdx, void *dx, int accumulate, float *dw);
	/* Rotary embedding, half-split, in place on x [T, n_head, d] (row stride ldx elements) of type t. The first 2·R dims of
	 * each head turn: (a, b) at (i, i+R) → (a·cos − b·sin, b·cos + a·sin), cos and sin [n_pos, R] f32 at position
	 * pos[r]. sign −1 turns back (the backward pass). Internals f32. Row-exact. */
	int (*rope)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t n_head, int64_t d, int64_t ldx, int64_t R, void *x,
	            const int32_t *pos, const float *cos, const float *sin, int sign);
	/* y [T, I] = silu(gu[:, :I]) · gu[:, I:], gu [T, 2I], all of type t, internals f32. Row-exact. */
	int (*silu_mul)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, void *y);
	/* dgu [T, 2I] from dy [T, I] and gu; y [T, I] is written again when not NULL (saves keeping it). */
	int (*silu_mul_bwd)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t I, const void *gu, const void *dy,
	                    void *dgu, void *y);
	/* y f32 += x of type t, n elements. */
	int (*add)(kn_stream *s, enum kn_dtype t, int64_t n, const void *x, float *y);
	/* dst of type tdst = src of type tsrc, n elements, round to nearest even. */
	int (*cast)(kn_stream *s, int64_t n, enum kn_dtype tsrc, const void *src, enum kn_dtype tdst, void *dst);

	/* ---- attention ---- */
	uint64_t (*kv_page_bytes)(kn_dev *dev, enum kn_dtype t, int64_t n_kv_head, int64_t d_head);
	/* Stores k, v (rows [T, G, d], row stride ldk elements, type of kv) at the positions of rows. */
	int (*kv_write)(kn_stream *s, const struct kn_kv *kv, const struct kn_rows *rows, int64_t ldk,
	                const void *k, const void *v);
	/* Causal attention: row at position p reads positions 0…p of its sequence from kv (own row stored before the call).
	 * q [T, H, d] with row stride ldq, out [T, H, d] contiguous, both of kv's type; lse [T, H] f32 or NULL = log of the
	 * sum of exponentials (natural, after scale). Softmax in f32; walks keys in blocks at fixed positions. Row-exact. */
	int (*attn)(kn_stream *s, const struct kn_attn *a, const struct kn_kv *kv, const struct kn_rows *rows,
	            int64_t ldq, const void *q, void *out, float *lse);
	/* Gradients of attention of whole sequences (every pos0 = 0). q, k, v inside one array qkv [T, H + 2G, d] of type t, as
	 * are dqkv; out, dout [T, H, d]; lse [T, H]. Deterministic. */
	int (*attn_bwd)(kn_stream *s, const struct kn_attn *a, enum kn_dtype t, const struct kn_rows *rows,
	                const void *qkv, const void *out, const float *lse, const void *dout, void *dqkv);

	/* ---- the end of the model ---- */
	/* For logits [T, V] f32: z = logits·inv_temp; logprob[r] = z[target[r]] − log Σ exp z; entropy [T] or NULL;
	 * lse [T] = log Σ exp z, or NULL. Row-exact. */
	int (*logprob)(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target, float inv_temp,
	               float *logprob, float *entropy, float *lse);
	/* dlogits [T, V] of type t = inv_temp · ( dlogprob[r]·(1[j = target] − p_j) + dentropy[r]·dH/dz_j ), with p from logits
	 * and lse; dentropy may be NULL. In place (dlogits == logits) is allowed for f32. */
	int (*logprob_bwd)(kn_stream *s, int64_t T, int64_t V, const float *logits, const int32_t *target, float inv_temp,
	                   const float *lse, const float *dlogprob, const float *dentropy, const float *entropy,
	                   enum kn_dtype t, void *dlogits);

	/* ---- optimizer ---- */
	/* Σ x² in double into *sum_p (host), fixed order. */
	int (*sumsq)(kn_stream *s, int64_t n, const float *x, double *sum_p);
	int (*scale)(kn_stream *s, int64_t n, float a, float *x);
	/* AdamW (decoupled decay): g is multiplied by gscale first;
	 * m = b1·m + (1−b1)·g; v = b2·v + (1−b2)·g²; w −= lr·( m/(1−b1^t) / (sqrt(v/(1−b2^t)) + eps) + decay·w ).
	 * w, m, v, g [n] f32. w_copy of type tcopy [n] receives the rounded weights, or NULL. */
	int (*adamw)(kn_stream *s, int64_t n, float *w, float *m, float *v, const float *g, float gscale, float lr,
	             float b1, float b2, float eps, float decay, int64_t t, enum kn_dtype tcopy, void *w_copy);

	/* ---- between the fused product and attention ---- */
	/* qkv [T, H + 2G, d] of type t, out of the same shape: query heads are normalised with qw [d] and key heads with kw as in
	 * rmsnorm over d (both NULL: no norm), then turned as in rope; values are copied. Internals f32, rounded once.
	 * out may be qkv itself. Row-exact. */
	int (*qk_rope)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
	               const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
	               const float *sin, void *out);
	/* dqkv [T, H + 2G, d], the gradient of out, becomes that of qkv, in place. With norms qkv as it went in and
	 * dqw, dkw [d] f32 += ; without all five are NULL. Deterministic. */
	int (*qk_rope_bwd)(kn_stream *s, enum kn_dtype t, int64_t T, int64_t H, int64_t G, int64_t d, const void *qkv,
	                   const float *qw, const float *kw, float eps, int64_t R, const int32_t *pos, const float *cos,
	                   const float *sin, void *dqkv, float *dqw, float *dkw);
};

const struct kn_ops *kn_ref_ops(void);  /* never NULL */
const struct kn_ops *kn_cpu_ops(void);  /* NULL where this processor or build cannot run it */

#ifdef __cplusplus
}
#endif
#endif
