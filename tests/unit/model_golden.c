/* model: hidden states, logits, log-probs, loss, every gradient and greedy tokens equal those of
 * transformers, on tiny models of our own (tests/parity/make-models.py) and on the shared golden ones,
 * in f32 and bf16, on every backend. */
#include "tests/unit/model_help.h"
#include "model/model_int.h"

/* Tolerances of the shared data for attention families in f32; gradients relative to the largest entry
 * of their tensor. */
#define TOL_LOGITS 5e-5
#define TOL_LOSS 5e-6
#define TOL_GRAD 1e-5

struct run {
	const char *what; /* backend and model, for names */
	struct sky_model *m;
	const struct sky_st *g;
	int64_t V, D;
};

/* s0, s1, s2 side by side; dloss [T] the gradient of the golden loss to each log-prob. */
struct batch {
	int32_t start[4], *ids;
	uint8_t *mask;
	float *dloss, *lp;
};

static struct batch batch_new(const struct sky_st *g)
{
	struct batch b = { .start = { 0 } };
	int64_t T, n_mask = 0;

	for (int n = 0; n < 3; n++) {
		b.start[n + 1] = b.start[n] + (int32_t)gold(g, "s%d.ids", n)->n;
	}
	T = b.start[3];
	b.ids = malloc((size_t)T * sizeof *b.ids);
	b.mask = malloc((size_t)T);
	b.dloss = calloc((size_t)T, sizeof *b.dloss);
	b.lp = calloc((size_t)T, sizeof *b.lp);
	for (int n = 0; n < 3; n++) {
		const struct sky_tensor *ids = gold(g, "s%d.ids", n), *mask = gold(g, "s%d.mask", n);

		memcpy(b.ids + b.start[n], ids->data, (size_t)ids->bytes);
		memcpy(b.mask + b.start[n], mask->data, (size_t)mask->bytes);
	}
	for (int64_t i = b.start[1]; i < T; i++) {
		n_mask += b.mask[i];
	}
	for (int64_t i = b.start[1]; i + 1 < T;
	     i++) { /* the first token of a sequence is never masked in */
		b.dloss[i] = b.mask[i + 1] ? -1 / (float)n_mask : 0;
	}
	return b;
}

static void batch_free(struct batch *b)
{
	free(b->ids);
	free(b->mask);
	free(b->dloss);
	free(b->lp);
}

static void check_logprob(const struct run *r, const struct batch *b)
{
	for (int n = 1; n < 3; n++) {
		float *want = gold_f32(gold(r->g, "s%d.logprob", n));

		T_NEAR(max_abs_diff(b->lp + b->start[n], want, b->start[n + 1] - b->start[n] - 1), 0,
		       TOL_LOGITS, "%s: log-probs of s%d", r->what, n);
		free(want);
	}
}

static void check_hidden(const struct run *r, const struct batch *b)
{
	const struct sky_config *c = sky_model_config(r->m);
	float *got = malloc((size_t)(b->start[3] * r->D) * sizeof *got);
	struct sky_err err;

	for (int n = 0; n < 3; n++) {
		const struct sky_tensor *t = gold(r->g, "s%d.hidden", n);
		int64_t len = b->start[n + 1] - b->start[n];
		float *want = t ? gold_f32(t) : NULL,
		      *last = t ? gold_f32(gold(r->g, "s%d.final", n)) : NULL;
		double worst = 0;

		for (int64_t l = -1; want && l <= c->n_layer; l++) {
			const float *w = l == c->n_layer ? last : want + (l + 1) * len * r->D;
			int rc = sky_model_hidden(r->m, l, got, &err);
			double d = rc < 0 ? INFINITY
					  : max_abs_diff(got + b->start[n] * r->D, w, len * r->D);

			worst = d > worst ? d : worst;
		}
		if (want) {
			T_NEAR(worst, 0, TOL_LOGITS, "%s: hidden states of s%d after every layer",
			       r->what, n);
		}
		free(want);
		free(last);
	}
	free(got);
}

static void check_grads(const struct run *r, const struct batch *b)
{
	float *want = gold_f32(gold(r->g, "loss"));
	double loss = 0, worst = 0;
	const char *worst_name = "";
	struct sky_err err;

	for (int64_t i = 0; i < b->start[3]; i++) {
		loss += (double)b->dloss[i] * b->lp[i];
	}
	T_NEAR(loss, want[0], TOL_LOSS, "%s: loss", r->what);
	T_RC(sky_model_zero_grad(r->m, &err), 0, &err, "%s: gradients cleared", r->what);
	T_RC(sky_model_backward(r->m, b->dloss, NULL, &err), 0, &err, "%s: backward", r->what);
	for (int64_t i = 0; i < sky_model_n_param(r->m); i++) {
		const struct sky_param *p = sky_model_param(r->m, i);
		float *g = gold_f32(gold(r->g, "grad.%s", p->name));
		double rel = max_abs_diff(p->grad, g, p->n) / max_abs(g, p->n);

		if (rel > worst || isnan(rel)) {
			worst = rel;
			worst_name = p->name;
		}
		free(g);
	}
	T_NEAR(worst, 0, TOL_GRAD, "%s: every gradient (worst: %s)", r->what, worst_name);
	T_RC(sky_model_backward(r->m, b->dloss, NULL, &err), SKY_E_USAGE, &err,
	     "%s: a second backward is refused", r->what);
	free(want);
}

/* The call that does both passes gives the bits of the two calls, log-probs and gradients. */
static void check_both(const struct run *r, const struct batch *b)
{
	int64_t T = b->start[3], n = 0, n_param = sky_model_n_param(r->m);
	int32_t *target = malloc((size_t)T * sizeof *target), pos0[3] = { 0, 0, 0 };
	float *lp = malloc((size_t)T * sizeof *lp), *grads, *g;
	struct sky_rows rows = { 3, b->start, pos0, b->ids };
	bool same = true;
	struct sky_err err;

	for (int64_t i = 0; i < n_param; i++) {
		n += sky_model_param(r->m, i)->n;
	}
	grads = malloc((size_t)n * sizeof *grads);
	for (int64_t i = 0, at = 0; i < n_param; at += sky_model_param(r->m, i++)->n) {
		const struct sky_param *p = sky_model_param(r->m, i);

		memcpy(grads + at, p->grad, (size_t)p->n * sizeof *grads);
	}
	for (int64_t i = 0; i < T; i++) {
		bool last = i + 1 == b->start[1] || i + 1 == b->start[2] || i + 1 == T;

		target[i] = last ? -1 : b->ids[i + 1];
	}
	T_RC(sky_model_zero_grad(r->m, &err), 0, &err, "%s: gradients cleared", r->what);
	T_RC(sky_model_score_backward(r->m, &rows, target, 1, b->dloss, lp, &err), 0, &err,
	     "%s: score and backward in one", r->what);
	T_MEM(lp, b->lp, (size_t)T * sizeof *lp, "%s: its log-probs", r->what);
	g = grads;
	for (int64_t i = 0; i < n_param; g += sky_model_param(r->m, i++)->n) {
		const struct sky_param *p = sky_model_param(r->m, i);

		same = same && memcmp(p->grad, g, (size_t)p->n * sizeof *g) == 0;
	}
	T_OK(same, "%s: its gradients", r->what);
	free(grads);
	free(lp);
	free(target);
}

/* 0.3·log-probs + 0.5·entropies at temperature 2, summed, after a step of length by along the gradient
 * (0: as it is). */
static double objective(const struct run *r, const struct batch *b, double by, int keep)
{
	int64_t T = b->start[3];
	float *lp = malloc((size_t)T * 2 * sizeof *lp);
	int32_t *target = malloc((size_t)T * sizeof *target), pos0[3] = { 0, 0, 0 };
	struct sky_rows rows = { 3, b->start, pos0, b->ids };
	double norm = 0, sum = 0;
	struct sky_err err;

	for (int64_t i = 0; i < sky_model_n_param(r->m); i++) {
		const struct sky_param *p = sky_model_param(r->m, i);

		for (int64_t k = 0; by != 0 && k < p->n; k++) {
			norm += (double)p->grad[k] * p->grad[k];
		}
	}
	for (int64_t i = 0; i < sky_model_n_param(r->m); i++) {
		const struct sky_param *p = sky_model_param(r->m, i);

		for (int64_t k = 0; by != 0 && k < p->n; k++) {
			p->master[k] += (float)(by / sqrt(norm) * p->grad[k]);
		}
	}
	for (int64_t i = 0; i < T; i++) {
		target[i] = i % 4 == 3 || i + 1 == T ? -1 : b->ids[i + 1];
	}
	if (sky_model_sync(r->m, &err) < 0 ||
	    sky_model_score(r->m, &rows, target, 0.5f, keep, lp, lp + T, &err) < 0) {
		t_bail("%s", err.msg);
	}
	for (int64_t i = 0; i < T; i++) {
		sum += 0.3 * lp[i] + 0.5 * lp[T + i];
	}
	free(target);
	free(lp);
	return sum;
}

/* Along its own direction the slope of the objective is the length of the gradient. */
static void check_slope(const struct run *r, const struct batch *b)
{
	int64_t T = b->start[3];
	float *dl = malloc((size_t)T * 2 * sizeof *dl), *de = dl + T;
	double up, down, norm = 0, h = 1e-3;
	struct sky_err err;

	for (int64_t i = 0; i < T; i++) {
		dl[i] = 0.3f;
		de[i] = 0.5f;
	}
	objective(r, b, 0, 1);
	T_RC(sky_model_zero_grad(r->m, &err), 0, &err, "%s: gradients cleared", r->what);
	T_RC(sky_model_backward(r->m, dl, de, &err), 0, &err, "%s: backward of log-probs and entropies",
	     r->what);
	for (int64_t i = 0; i < sky_model_n_param(r->m); i++) {
		const struct sky_param *p = sky_model_param(r->m, i);

		for (int64_t k = 0; k < p->n; k++) {
			norm += (double)p->grad[k] * p->grad[k];
		}
	}
	up = objective(r, b, h, 0);
	down = objective(r, b, -2 * h, 0);
	T_NEAR((up - down) / (2 * h * sqrt(norm)), 1, 5e-3, "%s: the slope of log-probs and entropies",
	       r->what);
	free(dl);
}

/* Head and MLP in chunks of a few rows: the same bits of log-probs, gradients as good as before. */
static void check_chunks(const struct run *r, const struct batch *b)
{
	int64_t head = r->m->head_rows, mlp = r->m->mlp_rows;
	float *lp = malloc((size_t)b->start[3] * sizeof *lp);

	r->m->head_rows = 7;
	r->m->mlp_rows = 5;
	run_score(r->m, 3, b->start, b->ids, 0, lp, NULL);
	T_MEM(lp, b->lp, (size_t)b->start[3] * sizeof *lp, "%s: scored in chunks", r->what);
	run_score(r->m, 3, b->start, b->ids, 1, lp, NULL);
	T_MEM(lp, b->lp, (size_t)b->start[3] * sizeof *lp, "%s: trained in chunks", r->what);
	check_grads(r, b);
	check_both(r, b);
	r->m->head_rows = head;
	r->m->mlp_rows = mlp;
	free(lp);
}

/* Rows of the golden logits are the last of the sequence. */
static void check_logits(const struct run *r, const struct batch *b)
{
	for (int n = 0; n < 3; n++) {
		const struct sky_tensor *t = gold(r->g, "s%d.logits", n);
		int64_t len = b->start[n + 1] - b->start[n];
		float *want = gold_f32(t), *got = malloc((size_t)(len * r->V) * sizeof *got),
		      *lp = malloc((size_t)len * sizeof *lp);

		run_chunks(r->m, b->ids + b->start[n], len, 16, lp, got);
		T_NEAR(max_abs_diff(got + (len - t->shape[0]) * r->V, want, t->n), 0, TOL_LOGITS,
		       "%s: logits of s%d through pages", r->what, n);
		free(lp);
		free(got);
		free(want);
	}
}

static void check_long(const struct run *r)
{
	const struct sky_tensor *t = gold(r->g, "long.ids");
	int32_t start[2] = { 0, t ? (int32_t)t->n : 0 }, *ids;
	float *lp, *want;

	if (!t) {
		return;
	}
	ids = gold_i32(t);
	want = gold_f32(gold(r->g, "long.logprob"));
	lp = malloc((size_t)t->n * sizeof *lp);
	run_score(r->m, 1, start, ids, 0, lp, NULL);
	T_NEAR(max_abs_diff(lp, want, t->n - 1), 0, TOL_LOGITS, "%s: log-probs of the long sequence",
	       r->what);
	free(lp);
	free(want);
	free(ids);
}

/* Greedy: the prompt in one pass, then token by token. */
static void check_gen(const struct run *r)
{
	const struct sky_tensor *prompt = gold(r->g, "gen.prompt"), *tokens = gold(r->g, "gen.tokens");
	int32_t *ids = gold_i32(prompt), *want = gold_i32(tokens), got[64] = { 0 }, *table;
	float *logits = gold_f32(gold(r->g, "gen.logits")), *z = malloc((size_t)r->V * sizeof *z);
	int64_t n = tokens->n < 64 ? tokens->n : 64;
	struct sky_kvpool *pool = NULL;
	struct sky_err err;
	double worst = 0;

	if (sky_kvpool_new(r->m, 4, &pool, &err) < 0) {
		t_bail("%s", err.msg);
	}
	table = take_pages(pool, 4);
	for (int64_t i = 0, pos = 0; i < n; i++) {
		int32_t len = i ? 1 : (int32_t)prompt->n, start[2] = { 0, len }, pos0 = (int32_t)pos,
			last = len - 1;
		struct sky_rows rows = { 1, start, &pos0, i ? &got[i - 1] : ids };
		struct sky_kvview kv = { pool, table, 4 };
		double d;

		if (sky_model_infer(r->m, &rows, &kv, &last, 1, z, &err) < 0) {
			t_bail("%s", err.msg);
		}
		for (int64_t v = 0; v < r->V; v++) {
			got[i] = z[v] > z[got[i]] ? (int32_t)v : got[i];
		}
		d = max_abs_diff(z, logits + i * r->V, r->V);
		worst = d > worst ? d : worst;
		pos += len;
	}
	T_MEM(got, want, (size_t)n * sizeof *got, "%s: greedy tokens", r->what);
	T_NEAR(worst, 0, TOL_LOGITS, "%s: logits of greedy decoding", r->what);
	sky_kvpool_free(pool);
	free(table);
	free(z);
	free(logits);
	free(want);
	free(ids);
}

static void test_f32(const struct sky_device *d, const char *dir, const struct sky_st *g,
		     const char *what)
{
	struct sky_model *m = model_open(d, dir, KN_F32, 1);
	struct run r = { what, m, g, sky_model_config(m)->vocab, sky_model_config(m)->d_model };
	struct batch b = batch_new(g);

	run_score(m, 3, b.start, b.ids, 1, b.lp, NULL);
	check_logprob(&r, &b);
	check_hidden(&r, &b);
	check_grads(&r, &b);
	check_both(&r, &b);
	check_chunks(&r, &b);
	check_logits(&r, &b);
	check_long(&r);
	check_gen(&r);
	check_slope(&r, &b); /* last: it moves the weights */
	batch_free(&b);
	sky_model_close(m);
}

/* log softmax of the library's bf16 logits at the next token */
static double bf16_logprob(const float *z, int64_t V, int32_t id)
{
	double sum = 0;

	for (int64_t v = 0; v < V; v++) {
		sum += exp((double)z[v]);
	}
	return z[id] - log(sum);
}

/* Within twice the distance that the library's own bf16 run has from its f64 run (golden.json). */
static void check_bf16_logprob(const struct run *r, const struct batch *b, const char *dir)
{
	char path[T_PATH_MAX];
	struct sky_json *doc;
	double column = 0;
	struct sky_err err;

	snprintf(path, sizeof path, "%s/golden.json", dir);
	if (!gold(r->g, "s1.logits.bf16") || sky_json_load(path, 0, &doc, &err) < 0) {
		return;
	}
	sky_j_f64(sky_j_get(sky_j_get(sky_json_root(doc), "measured_max_abs_difference"),
			    "logprob_bf16_f64"),
		  &column);
	sky_json_free(doc);
	for (int n = 1; n < 3; n++) {
		float *z = gold_f32(gold(r->g, "s%d.logits.bf16", n));
		double worst = 0;

		for (int64_t i = b->start[n]; i + 1 < b->start[n + 1]; i++) {
			double e = fabs(b->lp[i] - bf16_logprob(z + (i - b->start[n]) * r->V, r->V,
								b->ids[i + 1]));

			worst = e > worst || isnan(e) ? e : worst;
		}
		T_NEAR(worst, 0, 2 * column, "%s: bf16 log-probs of s%d", r->what, n);
		free(z);
	}
}

/* The bf16 gradient of every tensor points where the f32 one does. */
static void check_bf16_grad(const struct run *r, const struct batch *b)
{
	double worst = 1;
	struct sky_err err;

	T_RC(sky_model_backward(r->m, b->dloss, NULL, &err), 0, &err, "%s: bf16 backward", r->what);
	for (int64_t i = 0; i < sky_model_n_param(r->m); i++) {
		const struct sky_param *p = sky_model_param(r->m, i);
		float *want = gold_f32(gold(r->g, "grad.%s", p->name));
		double ab = 0, aa = 0, bb = 0;

		for (int64_t k = 0; k < p->n; k++) {
			ab += (double)p->grad[k] * want[k];
			aa += (double)p->grad[k] * p->grad[k];
			bb += (double)want[k] * want[k];
		}
		worst = ab / sqrt(aa * bb) < worst || isnan(ab) ? ab / sqrt(aa * bb) : worst;
		free(want);
	}
	T_OK(worst > 0.98, "%s: bf16 gradients keep their direction (cosine %.4f)", r->what, worst);
}

static void test_bf16(const struct sky_device *d, const char *dir, const struct sky_st *g,
		      const char *what)
{
	struct sky_model *m = model_open(d, dir, KN_BF16, 1);
	struct run r = { what, m, g, sky_model_config(m)->vocab, sky_model_config(m)->d_model };
	struct batch b = batch_new(g);

	run_score(m, 3, b.start, b.ids, 1, b.lp, NULL);
	check_bf16_logprob(&r, &b, dir);
	check_bf16_grad(&r, &b);
	check_both(&r, &b);
	batch_free(&b);
	sky_model_close(m);
}

static void test_model(const struct sky_device *d, const char *dir, const char *name)
{
	char path[T_PATH_MAX], what[128];
	struct sky_st *g = NULL;
	struct sky_err err;

	snprintf(path, sizeof path, "%s/golden.safetensors", dir);
	snprintf(what, sizeof what, "%s, %s", d->ops->name, name);
	if (sky_st_open(path, &g, &err) < 0) {
		t_bail("%s", err.msg);
	}
	test_f32(d, dir, g, what);
	test_bf16(d, dir, g, what);
	sky_st_close(g);
}

int main(void)
{
	static const char *const own[] = { "llama", "qwen2", "qwen3" };
	static const char *const shared[] = { "llama-tied", "llama-untied", "smollm2", "qwen2",
					      "qwen3" };
	const struct kn_ops *const backends[] = { kn_ref_ops(), kn_cpu_ops() };

	for (size_t k = 0; k < 2; k++) {
		struct sky_device d = dev_open(backends[k], 2);
		char name[64];

		for (size_t i = 0; d.ops && i < 3; i++) {
			snprintf(name, sizeof name, "tests/parity/models/%s", own[i]);
			test_model(&d, t_src(name), own[i]);
		}
		for (size_t i = 0; d.ops && i < 5; i++) {
			snprintf(name, sizeof name, "data/models/%s", shared[i]);
			if (t_shared(name)) {
				test_model(&d, t_shared(name), name);
			} else {
				t_skip("%s is not here", name);
			}
		}
		if (!d.ops) {
			t_skip("no such backend on this processor");
		}
		dev_close(&d);
	}
	return t_done();
}
