/* Shared by the tests of libcore/model: devices, golden arrays, scoring and chunked runs. */
#ifndef SKY_TESTS_MODEL_HELP_H
#define SKY_TESTS_MODEL_HELP_H

#include "tests/testlib.h"
#include "model/model.h"

/* One backend opened with a number of threads; NULL ops where this processor has none. */
T_UNUSED static struct sky_device dev_open(const struct kn_ops *ops, int n_threads)
{
	struct sky_device d = { ops, NULL, NULL };

	if (ops && (ops->open(0, n_threads, &d.dev) != 0 || ops->stream_new(d.dev, &d.stream) != 0)) {
		t_bail("cannot open device %s: %s", ops->name, ops->last_error(d.dev));
	}
	return d;
}

T_UNUSED static void dev_close(struct sky_device *d)
{
	if (d->ops) {
		d->ops->stream_free(d->stream);
		d->ops->close(d->dev);
	}
}

T_UNUSED static struct sky_model *model_open(const struct sky_device *d, const char *dir,
					     enum kn_dtype t, int train)
{
	struct sky_model_opt opt = { .compute = t, .train = train };
	struct sky_model *m = NULL;
	struct sky_err err;

	if (sky_model_open(d, dir, &opt, &m, &err) < 0) {
		t_bail("%s", err.msg);
	}
	return m;
}

/* An array of golden.safetensors; absent optional ones are NULL. */
T_UNUSED SKY_PRINTF(2, 3) static const
	struct sky_tensor *gold(const struct sky_st *g, const char *fmt, ...)
{
	char name[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof name, fmt, ap);
	va_end(ap);
	return sky_st_find(g, name);
}

/* An array as f32 (from F32 or BF16) or i32 in new memory. */
T_UNUSED static float *gold_f32(const struct sky_tensor *t)
{
	float *p = t ? malloc((size_t)t->n * sizeof *p + 4) : NULL;

	if (!p || sky_to_f32(t->dtype, t->data, p, (size_t)t->n) < 0) {
		t_bail("array %s", t ? t->name : "of the golden file is missing");
	}
	return p;
}

T_UNUSED static int32_t *gold_i32(const struct sky_tensor *t)
{
	int32_t *p = malloc((size_t)t->n * sizeof *p + 4);

	if (!p || t->dtype != SKY_I32) {
		t_bail("array %s is not I32", t->name);
	}
	memcpy(p, t->data, (size_t)t->n * sizeof *p);
	return p;
}

T_UNUSED static double max_abs_diff(const float *a, const float *b, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++) {
		double d = fabs((double)a[i] - b[i]);

		most = d > most || isnan(d) ? d : most;
	}
	return most;
}

T_UNUSED static double max_abs(const float *a, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++) {
		most = fabs((double)a[i]) > most ? fabs((double)a[i]) : most;
	}
	return most;
}

/* n pages of the pool. */
T_UNUSED static int32_t *take_pages(struct sky_kvpool *p, int64_t n)
{
	int32_t *t = malloc((size_t)n * sizeof *t);

	for (int64_t i = 0; i < n; i++) {
		t[i] = sky_kvpool_take(p);
		if (t[i] < 0) {
			t_bail("pool too small");
		}
	}
	return t;
}

/* Log-probs of ids[i + 1] through the paged cache, ids given in chunks of `step` rows; the last row
 * gets 0. logits (NULL allowed) [n, V]. */
T_UNUSED static void run_chunks(struct sky_model *m, const int32_t *ids, int64_t n, int64_t step,
				float *logprob, float *logits)
{
	int64_t V = sky_model_config(m)->vocab, stride = (n + KN_PAGE - 1) / KN_PAGE;
	float *z = malloc((size_t)(step * V) * sizeof *z), *one = malloc((size_t)step * sizeof *one);
	int32_t *want = malloc((size_t)step * sizeof *want),
		*target = malloc((size_t)step * sizeof *target), *table;
	struct sky_kvpool *pool = NULL;
	struct sky_err err;

	if (sky_kvpool_new(m, stride, &pool, &err) < 0) {
		t_bail("%s", err.msg);
	}
	table = take_pages(pool, stride);
	for (int64_t i = 0; i < n; i += step) {
		int64_t k = n - i < step ? n - i : step;
		int32_t start[2] = { 0, (int32_t)k }, pos0 = (int32_t)i;
		struct sky_rows rows = { 1, start, &pos0, ids + i };
		struct sky_kvview kv = { pool, table, stride };

		for (int64_t j = 0; j < k; j++) {
			want[j] = (int32_t)j;
			one[j] = 1;
			target[j] = i + j + 1 < n ? ids[i + j + 1] : 0;
		}
		if (sky_model_infer(m, &rows, &kv, want, k, z, &err) < 0 ||
		    sky_model_logprob(m, target, one, logprob + i, &err) < 0) {
			t_bail("%s", err.msg);
		}
		if (logits) {
			memcpy(logits + i * V, z, (size_t)(k * V) * sizeof *z);
		}
	}
	logprob[n - 1] = 0;
	sky_kvpool_free(pool);
	free(table);
	free(target);
	free(want);
	free(one);
	free(z);
}

/* Scores n_seq sequences side by side; logprob[r] belongs to the token after row r, 0 at the end of a
 * sequence. */
T_UNUSED static void run_score(struct sky_model *m, int64_t n_seq, const int32_t *start,
			       const int32_t *ids, int keep, float *logprob, float *entropy)
{
	int64_t T = start[n_seq];
	int32_t *target = malloc((size_t)T * sizeof *target),
		*pos0 = calloc((size_t)n_seq, sizeof *pos0);
	struct sky_rows rows = { n_seq, start, pos0, ids };
	struct sky_err err;

	for (int64_t s = 0; s < n_seq; s++) {
		for (int64_t r = start[s]; r < start[s + 1]; r++) {
			target[r] = r + 1 < start[s + 1] ? ids[r + 1] : -1;
		}
	}
	if (sky_model_score(m, &rows, target, 1, keep, logprob, entropy, &err) < 0) {
		t_bail("%s", err.msg);
	}
	free(pos0);
	free(target);
}

#endif
