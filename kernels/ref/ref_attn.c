/* kernels/ref: attention. A page is keys [G, P, d] and then values [G, P, d]. Softmax in double, in two passes. */
#include "kernels/ref/ref_int.h"

#include <math.h>
#include <stdlib.h>

uint64_t ref_kv_page_bytes(kn_dev *dev, enum kn_dtype t, int64_t n_kv_head, int64_t d_head)
{
	(void)dev;
	return 2 * KN_PAGE * (uint64_t)n_kv_head * (uint64_t)d_head * ref_type_bytes(t);
}

/* Where the key (which = 0) or value (1) of head g at position p of sequence s stands: page and element in it. */
static void *page_of(const struct kn_kv *kv, int64_t s, int64_t p)
{
	int64_t page = kv->table[s * kv->table_stride + p / KN_PAGE];

	return (char *)kv->pages + (uint64_t)page * kv->page_bytes;
}

static int64_t elem_of(const struct kn_kv *kv, int which, int64_t g, int64_t p)
{
	return ((which * kv->n_kv_head + g) * KN_PAGE + p % KN_PAGE) * kv->d_head;
}

static int need_kv(kn_dev *dev, const char *op, const struct kn_kv *kv, const struct kn_rows *rows)
{
	int rc = ref_need_type(dev, op, kv->dtype);

	if (rc)
		return rc;
	if (rows->n_seq < 0 || kv->n_kv_head < 1 || kv->d_head < 1 ||
	    kv->page_bytes < ref_kv_page_bytes(dev, kv->dtype, kv->n_kv_head, kv->d_head))
		return ref_fail(dev, KN_E_ARG, "%s: %lld sequences, %lld heads of %lld, page of %llu bytes", op,
		                (long long)rows->n_seq, (long long)kv->n_kv_head, (long long)kv->d_head,
		                (unsigned long long)kv->page_bytes);
	return KN_OK;
}

int ref_kv_write(kn_stream *s, const struct kn_kv *kv, const struct kn_rows *rows, int64_t ldk,
                 const void *k, const void *v)
{
	uint64_t e = ref_type_bytes(kv->dtype), row = (uint64_t)kv->d_head * e;
	int rc = need_kv(s->dev, "kv_write", kv, rows);

	if (rc)
		return rc;
	for (int64_t i = 0; i < rows->n_seq; i++) {
		for (int64_t r = rows->start[i]; r < rows->start[i + 1]; r++) {
			int64_t p = rows->pos0[i] + r - rows->start[i];
			char *page = page_of(kv, i, p);

			for (int64_t g = 0; g < kv->n_kv_head; g++) {
				uint64_t from = (uint64_t)(r * ldk + g * kv->d_head) * e;

				memcpy(page + (uint64_t)elem_of(kv, 0, g, p) * e, (const char *)k + from, row);
				memcpy(page + (uint64_t)elem_of(kv, 1, g, p) * e, (const char *)v + from, row);
			}
		}
	}
	return KN_OK;
}

static int need_attn(kn_dev *dev, const char *op, const struct kn_attn *a)
{
	if (a->n_kv_head >= 1 && a->n_head >= 1 && a->n_head % a->n_kv_head == 0 && a->d_head >= 1 && a->window >= 0 &&
	    a->scale > 0)
		return KN_OK;
	return ref_fail(dev, KN_E_ARG, "%s: %lld query heads on %lld key heads of %lld, window %lld, scale %g", op,
	                (long long)a->n_head, (long long)a->n_kv_head, (long long)a->d_head, (long long)a->window,
	                (double)a->scale);
}

static int64_t first_key(const struct kn_attn *a, int64_t p)
{
	return a->window && p + 1 > a->window ? p + 1 - a->window : 0;
}

/* One query row: element q0 of q, at position p of sequence s, query head h. e [p+1] is scratch. */
static void attn_row(const struct kn_attn *a, const struct kn_kv *kv, int64_t s, int64_t p, int64_t h,
                     const void *q, int64_t q0, double *e, double *acc, void *out, int64_t o0, float *lse)
{
	int64_t g = h / (a->n_head / a->n_kv_head), d = a->d_head, lo = first_key(a, p);
	double max = -INFINITY, sum = 0;

	for (int64_t j = lo; j <= p; j++) {
		const void *page = page_of(kv, s, j);
		int64_t k0 = elem_of(kv, 0, g, j);

		e[j] = 0;
		for (int64_t c = 0; c < d; c++)
			e[j] += (double)ref_load(kv->dtype, q, q0 + c) * ref_load(kv->dtype, page, k0 + c);
		e[j] *= a->scale;
		max = e[j] > max ? e[j] : max;
	}
	for (int64_t c = 0; c < d; c++)
		acc[c] = 0;
	for (int64_t j = lo; j <= p; j++) {
		const void *page = page_of(kv, s, j);
		int64_t v0 = elem_of(kv, 1, g, j);
		double w = exp(e[j] - max);

		sum += w;
		for (int64_t c = 0; c < d; c++)
			acc[c] += w * ref_load(kv->dtype, page, v0 + c);
	}
	for (int64_t c = 0; c < d; c++)
		ref_store(kv->dtype, out, o0 + c, (float)(acc[c] / sum));
	if (lse)
		*lse = (float)(max + log(sum));
}

int ref_attn(kn_stream *s, const struct kn_attn *a, const struct kn_kv *kv, const struct kn_rows *rows,
             int64_t ldq, const void *q, void *out, float *lse)
{
	int64_t H = a->n_head, d = a->d_head, most = 0;
	double *e;
	int rc = need_kv(s->dev, "attn", kv, rows);

	if (rc || (rc = need_attn(s->dev, "attn", a)))
		return rc;
	for (int64_t i = 0; i < rows->n_seq; i++) {
		int64_t n = rows->pos0[i] + rows->start[i + 1] - rows->start[i];

		most = n > most ? n : most;
	}
	e = malloc((size_t)(most + d) * sizeof *e);
	if (!e)
		return ref_fail(s->dev, KN_E_MEMORY, "attn: no memory for %lld scores", (long long)most);
	for (int64_t i = 0; i < rows->n_seq; i++) {
		for (int64_t r = rows->start[i]; r < rows->start[i + 1]; r++) {
			for (int64_t h = 0; h < H; h++)
				attn_row(a, kv, i, rows->pos0[i] + r - rows->start[i], h, q, r * ldq + h * d,
				         e, e + most, out, (r * H + h) * d, lse ? lse + r * H + h : NULL);
		}
	}
	free(e);
	return KN_OK;
}

/* For one query row i of head h, with D_i = dO_i·O_i and keys j ≤ i:
 * P_ij = exp(s_ij − lse_i), dV_j += P_ij·dO_i, dS_ij = P_ij·(dO_i·V_j − D_i), dQ_i += scale·dS_ij·K_j,
 * dK_j += scale·dS_ij·Q_i. g [rows, H + 2G, d] holds the sums in double. */
static void attn_bwd_row(const struct kn_attn *a, enum kn_dtype t, int64_t first, int64_t i, int64_t h,
                         const void *qkv, const void *out, double lse, const void *dout, double *grad)
{
	int64_t H = a->n_head, G = a->n_kv_head, d = a->d_head, w = H + 2 * G, g = h / (H / G);
	int64_t q0 = ((first + i) * w + h) * d, o0 = ((first + i) * H + h) * d;
	double D = 0;

	for (int64_t c = 0; c < d; c++)
		D += (double)ref_load(t, dout, o0 + c) * ref_load(t, out, o0 + c);
	for (int64_t j = first_key(a, i); j <= i; j++) {
		int64_t k0 = ((first + j) * w + H + g) * d, v0 = k0 + G * d;
		double s = 0, dp = 0, p, ds;
		double *dq = grad + (i * w + h) * d, *dk = grad + (j * w + H + g) * d, *dv = dk + G * d;

		for (int64_t c = 0; c < d; c++) {
			s += (double)ref_load(t, qkv, q0 + c) * ref_load(t, qkv, k0 + c);
			dp += (double)ref_load(t, dout, o0 + c) * ref_load(t, qkv, v0 + c);
		}
		p = exp(s * a->scale - lse);
		ds = p * (dp - D) * a->scale;
		for (int64_t c = 0; c < d; c++) {
			dv[c] += p * ref_load(t, dout, o0 + c);
			dq[c] += ds * ref_load(t, qkv, k0 + c);
			dk[c] += ds * ref_load(t, qkv, q0 + c);
		}
	}
}

int ref_attn_bwd(kn_stream *s, const struct kn_attn *a, enum kn_dtype t, const struct kn_rows *rows,
                 const void *qkv, const void *out, const float *lse, const void *dout, void *dqkv)
{
	int64_t width = (a->n_head + 2 * a->n_kv_head) * a->d_head;
	int rc = ref_need_type(s->dev, "attn_bwd", t);

	if (rc || (rc = need_attn(s->dev, "attn_bwd", a)) || (rc = ref_need_size(s->dev, "attn_bwd", rows->n_seq)))
		return rc;
	for (int64_t q = 0; q < rows->n_seq; q++) {
		int64_t first = rows->start[q], n = rows->start[q + 1] - first;
		double *grad;

		if (rows->pos0[q] != 0)
			return ref_fail(s->dev, KN_E_ARG, "attn_bwd: sequence %lld does not start at position 0", (long long)q);
		grad = calloc((size_t)(n * width) + 1, sizeof *grad);
		if (!grad)
			return ref_fail(s->dev, KN_E_MEMORY, "attn_bwd: no memory for %lld rows", (long long)n);
		for (int64_t i = 0; i < n; i++)
			for (int64_t h = 0; h < a->n_head; h++)
				attn_bwd_row(a, t, first, i, h, qkv, out, lse[(first + i) * a->n_head + h], dout, grad);
		for (int64_t i = 0; i < n * width; i++)
			ref_store(t, dqkv, first * width + i, (float)grad[i]);
		free(grad);
	}
	return KN_OK;
}
