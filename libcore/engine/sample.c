/* One draw from a row of logits: temperature, min-p, top-k, top-p, then inversion of the cumulated weights.
 *
 * Vocabulary-sized loops run over groups of 16 lanes in one fixed order, so that a compiler may use vectors of any width and
 * a draw is the same everywhere for the same logits. */
#include "base/vec.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>

#define LANES 16

void sky_sampling_defaults(struct sky_sampling *s)
{
	*s = (struct sky_sampling){ .temperature = 1, .top_p = 1, .top_k = -1, .max_new = 1024 };
}

int sky_sampling_check(const struct sky_sampling *s, struct sky_err *err)
{
	if (!(s->temperature >= 0) || !isfinite(s->temperature)) {
		return sky_fail(err, SKY_E_USAGE, "temperature %g: a number ≥ 0 expected (0 = greedy)", s->temperature);
	}
	if (!(s->top_p > 0 && s->top_p <= 1)) {
		return sky_fail(err, SKY_E_USAGE, "top-p %g: a number in (0, 1] expected", s->top_p);
	}
	if (!(s->min_p >= 0 && s->min_p <= 1)) {
		return sky_fail(err, SKY_E_USAGE, "min-p %g: a number in [0, 1] expected", s->min_p);
	}
	if (s->max_new < 1) {
		return sky_fail(err, SKY_E_USAGE, "max-new-tokens %lld: at least 1 expected", (long long)s->max_new);
	}
	return 0;
}

SKY_CLONES static float row_max(const float *x, int64_t n)
{
	float lane[LANES], m = -INFINITY;
	int64_t i = 0;

	for (int j = 0; j < LANES; j++) {
		lane[j] = -INFINITY;
	}
	for (; i + LANES <= n; i += LANES) {
		for (int j = 0; j < LANES; j++) {
			lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
		}
	}
	for (; i < n; i++) {
		m = x[i] > m ? x[i] : m;
	}
	for (int j = 0; j < LANES; j++) {
		m = lane[j] > m ? lane[j] : m;
	}
	return m;
}

int32_t sky_argmax(const float *x, int64_t n)
{
	float m = row_max(x, n);

	for (int64_t i = 0; i < n; i++) {
		if (x[i] == m) {
			return (int32_t)i;
		}
	}
	return 0;       /* only when every value is NaN */
}

/* w[i] = exp(min((x[i] − max)·k, 0)), relative error below 2e-7: 2^f by a polynomial on [−0.5, 0.5], exponent by bits. */
SKY_CLONES static void weights(const float *x, int64_t n, float max, float k, float *w)
{
	for (int64_t i = 0; i < n; i++) {
		float y = (x[i] - max) * k * 1.44269504f, r, f, p;
		int32_t e;
		union { float f; int32_t i; } s;

		y = y > 0 ? 0 : y;
		y = y > -126 ? y : -126;
		r = y + 12582912.0f;            /* rounds to an integer in the low bits of the mantissa */
		s.f = r;
		e = s.i - 0x4b400000;
		f = y - (r - 12582912.0f);
		p = 1.5403530e-4f;
		p = p * f + 1.3333558e-3f;
		p = p * f + 9.6181291e-3f;
		p = p * f + 5.5504109e-2f;
		p = p * f + 2.4022651e-1f;
		p = p * f + 6.9314718e-1f;
		p = p * f + 1.0f;
		s.i = (e + 127) << 23;
		w[i] = y <= -126 ? 0 : p * s.f;
	}
}

/* Sum of w[0, n) with 16 running sums. */
SKY_CLONES static double sum_block(const float *w, int64_t n)
{
	double lane[LANES] = { 0 }, s = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (int j = 0; j < LANES; j++) {
			lane[j] += (double)w[i + j];
		}
	}
	for (; i < n; i++) {
		s += (double)w[i];
	}
	for (int j = 0; j < LANES; j++) {
		s += lane[j];
	}
	return s;
}

#define BLOCK 1024

/* Smallest i whose cumulated weight exceeds u·total: blocks first, then inside one. */
static int64_t invert(const float *w, int64_t n, double u, double total)
{
	double target = u * total, cum = 0;
	int64_t last = 0;

	for (int64_t b = 0; b < n; b += BLOCK) {
		int64_t len = n - b < BLOCK ? n - b : BLOCK;
		double s = sum_block(w + b, len);

		if (s > 0 && cum + s > target) {
			double c = cum;

			for (int64_t i = b; i < b + len; i++) {
				c += (double)w[i];
				if (w[i] > 0) {
					last = i;
					if (c > target) {
						return i;
					}
				}
			}
		} else if (s > 0) {
			for (int64_t i = b + len - 1; i >= b; i--) {
				if (w[i] > 0) {
					last = i;
					break;
				}
			}
		}
		cum += s;
	}
	return last;    /* rounding left the target just beyond the sum */
}

static double total_of(const float *w, int64_t n)
{
	double s = 0;

	for (int64_t b = 0; b < n; b += BLOCK) {
		s += sum_block(w + b, n - b < BLOCK ? n - b : BLOCK);
	}
	return s;
}

/* k-th largest of v[0, n) (k from 1), by quickselect with median of three; v is reordered. */
static float kth_largest(float *v, int64_t n, int64_t k)
{
	int64_t lo = 0, hi = n - 1;

	k--;
	while (lo < hi) {
		float a = v[lo], b = v[lo + (hi - lo) / 2], c = v[hi];
		float p = a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
		int64_t i = lo, j = hi;

		while (i <= j) {
			while (v[i] > p) {
				i++;
			}
			while (v[j] < p) {
				j--;
			}
			if (i <= j) {
				float t = v[i];

				v[i++] = v[j];
				v[j--] = t;
			}
		}
		if (k <= j) {
			hi = j;
		} else if (k >= i) {
			lo = i;
		} else {
			break;
		}
	}
	return v[k];
}

/* Everything below cut becomes 0. */
static void drop_below(float *w, int64_t n, float cut)
{
	for (int64_t i = 0; i < n; i++) {
		w[i] = w[i] < cut ? 0 : w[i];
	}
}

static int descending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x > y ? -1 : x < y;
}

/* Weight of the last token that top-p keeps: the smallest set of largest weights whose sum reaches p·total. Looks at the
 * weights above a falling threshold, so that a peaked row never sorts the vocabulary. */
static float top_p_cut(const float *w, int64_t n, double p, float *scratch)
{
	double total = total_of(w, n), want = p * total;
	float level = row_max(w, n) * 0.05f;

	for (;; level *= 0.01f) {
		int64_t m = 0;
		double s = 0;

		for (int64_t i = 0; i < n; i++) {
			if (w[i] > 0 && w[i] >= level) {
				scratch[m++] = w[i];
				s += (double)w[i];
			}
		}
		if (s < want && level > 0) {
			level = level < 1e-30f ? 0 : level;
			continue;
		}
		qsort(scratch, (size_t)m, sizeof(float), descending);
		s = 0;
		for (int64_t i = 0; i < m; i++) {
			s += (double)scratch[i];
			if (s >= want) {
				return scratch[i];
			}
		}
		return 0;
	}
}

int32_t sky_sample(const float *logits, int64_t V, const struct sky_sampling *s, double u, float *scratch, int *cut_p,
                   double *logprob_p)
{
	float *w = scratch, *tmp = scratch + V, max, k;
	double total;
	int64_t i;

	*cut_p = 0;
	if (s->temperature == 0) {
		*logprob_p = 0;
		return sky_argmax(logits, V);
	}
	max = row_max(logits, V);
	k = (float)(1 / s->temperature);
	weights(logits, V, max, k, w);
	if (s->min_p > 0) {
		drop_below(w, V, (float)s->min_p);      /* the largest weight is 1 */
		*cut_p = 1;
	}
	if (s->top_k > 0 && s->top_k < V) {
		memcpy(tmp, w, (size_t)V * sizeof(float));
		drop_below(w, V, kth_largest(tmp, V, s->top_k));
		*cut_p = 1;
	}
	if (s->top_p < 1) {
		drop_below(w, V, top_p_cut(w, V, s->top_p, tmp));
		*cut_p = 1;
	}
	total = total_of(w, V);
	i = invert(w, V, u, total);
	*logprob_p = ((double)logits[i] - (double)max) * (double)k - log(total);
	return (int32_t)i;
}
