/* model: one arithmetic. The log-prob of a token is the same to the last bit whether its sequence is
 * scored alone, beside others, with kept activations, prefilled in chunks of any size, or decoded token
 * by token in a batch, on any number of threads. Pages and workspace are filled with NaN before each
 * run: nothing that was not written may count. */
#include "tests/unit/model_help.h"
#include "model/model_int.h"

#define N_SEQ 4
static const int32_t length[N_SEQ] = { 150, 1, 65, 64 };

struct data {
	int32_t start[N_SEQ + 1], *ids;
	float *want, *got; /* [T] log-probs */
	float *ent_want, *ent_got;
	int64_t T;
};

static struct data data_new(int64_t vocab)
{
	struct data d = { .start = { 0 } };
	uint32_t x = 12345;

	for (int s = 0; s < N_SEQ; s++) {
		d.start[s + 1] = d.start[s] + length[s];
	}
	d.T = d.start[N_SEQ];
	d.ids = malloc((size_t)d.T * sizeof *d.ids);
	d.want = calloc((size_t)d.T * 4, sizeof *d.want);
	d.got = d.want + d.T;
	d.ent_want = d.want + 2 * d.T;
	d.ent_got = d.want + 3 * d.T;
	for (int64_t i = 0; i < d.T; i++) {
		x = x * 1664525 + 1013904223;
		d.ids[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
	}
	return d;
}

static void data_free(struct data *d)
{
	free(d->ids);
	free(d->want);
}

static void poison(struct sky_model *m)
{
	if (m->ws) {
		memset(m->ws, 0xff, m->ws_bytes);
	}
}

/* Every sequence alone. */
static void score_alone(struct sky_model *m, const struct data *d, float *lp, float *ent)
{
	for (int s = 0; s < N_SEQ; s++) {
		int32_t start[2] = { 0, length[s] };

		poison(m);
		run_score(m, 1, start, d->ids + d->start[s], 0, lp + d->start[s], ent + d->start[s]);
	}
}

/* All sequences decode side by side, one token each a step; finished ones drop out. Prompts of `prompt`
 * tokens first. */
static void decode_together(struct sky_model *m, struct data *d, int32_t prompt)
{
	int64_t stride = 3, V = sky_model_config(m)->vocab;
	float *z = malloc((size_t)(N_SEQ * 150 * V) * sizeof *z), one[N_SEQ * 150];
	int32_t done[N_SEQ] = { 0 }, want[N_SEQ * 150], target[N_SEQ * 150], ids[N_SEQ * 150],
		at[N_SEQ * 150];
	struct sky_kvpool *pool;
	struct sky_err err;
	int32_t *table;

	if (sky_kvpool_new(m, N_SEQ * stride, &pool, &err) < 0) {
		t_bail("%s", err.msg);
	}
	memset(pool->mem, 0xff, (size_t)(N_SEQ * stride) * (m->plan.block[0].page_bytes * 2));
	table = take_pages(pool, N_SEQ * stride);
	poison(m);
	for (int32_t n = 1; n;) {
		int32_t start[N_SEQ + 1] = { 0 }, pos0[N_SEQ], tab[N_SEQ * 3], k = 0;
		struct sky_rows rows = { 0, start, pos0, ids };
		struct sky_kvview kv = { pool, tab, stride };

		n = 0;
		for (int s = 0; s < N_SEQ; s++) {
			int32_t step = done[s] ? 1 : prompt < length[s] ? prompt : length[s];

			if (done[s] == length[s]) {
				continue;
			}
			pos0[k] = done[s];
			memcpy(tab + k * stride, table + s * stride, (size_t)stride * sizeof *tab);
			for (int32_t i = 0; i < step; i++, n++, done[s]++) {
				ids[n] = d->ids[d->start[s] + done[s]];
				target[n] =
					done[s] + 1 < length[s] ? d->ids[d->start[s] + done[s] + 1] : 0;
				at[n] = d->start[s] + done[s];
				want[n] = n;
				one[n] = 1;
			}
			start[++k] = n;
		}
		rows.n_seq = k;
		if (n && (sky_model_infer(m, &rows, &kv, want, n, z, &err) < 0 ||
			  sky_model_logprob(m, target, one, z, &err) < 0)) {
			t_bail("%s", err.msg);
		}
		for (int32_t i = 0; i < n; i++) {
			d->got[at[i]] = z[i];
		}
	}
	for (int s = 0; s < N_SEQ; s++) {
		d->got[d->start[s + 1] - 1] = 0;
	}
	sky_kvpool_free(pool);
	free(table);
	free(z);
}

/* A second sequence shares the first page of sequence 0, forks its second in the middle, and goes on.
 */
static void share_and_fork(struct sky_model *m, const struct data *d, const char *what)
{
	int64_t V = sky_model_config(m)->vocab;
	float *z = malloc((size_t)(150 * V) * sizeof *z), one[150], lp[150];
	int32_t want[150], a[3], b[3], start[2] = { 0, 100 }, pos0 = 0, n = 50;
	struct sky_rows rows = { 1, start, &pos0, d->ids };
	struct sky_kvview kv;
	struct sky_kvpool *pool;
	struct sky_err err;

	if (sky_kvpool_new(m, 5, &pool, &err) < 0) {
		t_bail("%s", err.msg);
	}
	memset(pool->mem, 0xff, 5 * m->plan.block[0].page_bytes * 2);
	a[0] = sky_kvpool_take(pool);
	a[1] = sky_kvpool_take(pool);
	kv = (struct sky_kvview){ pool, a, 3 };
	a[2] = -1;
	if (sky_model_infer(m, &rows, &kv, NULL, 0, NULL, &err) < 0) {
		t_bail("%s", err.msg);
	}
	b[0] = a[0];
	sky_kvpool_ref(pool, a[0]);
	b[1] = sky_kvpool_fork(pool, a[1]);
	b[2] = sky_kvpool_take(pool);
	sky_kvpool_drop(pool, a[0]);
	sky_kvpool_drop(pool, a[1]);
	T_I64(sky_kvpool_n_free(pool), 2, "%s: the shared page stays, the private one is free", what);
	for (int32_t i = 0; i < n; i++) {
		want[i] = i;
		one[i] = 1;
	}
	start[1] = n;
	pos0 = 100;
	rows.ids = d->ids + 100;
	kv.table = b;
	if (sky_model_infer(m, &rows, &kv, want, n, z, &err) < 0 ||
	    sky_model_logprob(m, d->ids + 101, one, lp, &err) < 0) {
		t_bail("%s", err.msg);
	}
	T_MEM(lp, d->want + 100, 49 * sizeof *lp, "%s: a shared and a forked page give the same bits",
	      what);
	for (int i = 0; i < 3; i++) {
		sky_kvpool_drop(pool, b[i]);
	}
	T_I64(sky_kvpool_n_free(pool), 5, "%s: every page came back", what);
	sky_kvpool_free(pool);
	free(z);
}

static void check_bits(struct sky_model *m, struct data *d, const char *what)
{
	static const int32_t step[] = { 1, 7, 64, 100, 150 };
	struct data swap = { .start = { 0, 64, 129, 130, 280 }, .T = d->T };
	size_t bytes = (size_t)d->T * sizeof(float);

	for (int keep = 0; keep < 2; keep++) {
		poison(m);
		run_score(m, N_SEQ, d->start, d->ids, keep, d->got, d->ent_got);
		T_MEM(d->got, d->want, bytes, "%s: scored side by side, keep %d", what, keep);
		T_MEM(d->ent_got, d->ent_want, bytes, "%s: entropies side by side, keep %d", what,
		      keep);
	}
	swap.ids = malloc((size_t)d->T * sizeof *swap.ids);
	swap.got = malloc(bytes);
	for (int s = 0; s < N_SEQ; s++) {
		memcpy(swap.ids + swap.start[s], d->ids + d->start[N_SEQ - 1 - s],
		       (size_t)length[N_SEQ - 1 - s] * sizeof(int32_t));
	}
	poison(m);
	run_score(m, N_SEQ, swap.start, swap.ids, 0, swap.got, NULL);
	for (int s = 0; s < N_SEQ; s++) {
		memcpy(d->got + d->start[N_SEQ - 1 - s], swap.got + swap.start[s],
		       (size_t)length[N_SEQ - 1 - s] * sizeof(float));
	}
	T_MEM(d->got, d->want, bytes, "%s: scored in the reverse order", what);
	free(swap.ids);
	free(swap.got);
	for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
		for (int s = 0; s < N_SEQ; s++) {
			poison(m);
			run_chunks(m, d->ids + d->start[s], length[s], step[i], d->got + d->start[s],
				   NULL);
		}
		T_MEM(d->got, d->want, bytes, "%s: prefilled in chunks of %d", what, step[i]);
	}
	decode_together(m, d, 1);
	T_MEM(d->got, d->want, bytes, "%s: decoded side by side", what);
	decode_together(m, d, 33);
	T_MEM(d->got, d->want, bytes, "%s: prompts and single tokens in one batch", what);
	share_and_fork(m, d, what);
}

/* All gradients of a weighted sum of log-probs and entropies, in the order of the parameters. */
static float *gradients(struct sky_model *m, const struct data *d, int64_t *n_p)
{
	float *dl = malloc((size_t)d->T * 2 * sizeof *dl), *de = dl + d->T, *g;
	int64_t n = 0;
	struct sky_err err;

	for (int64_t i = 0; i < d->T; i++) {
		dl[i] = i % 3 ? 0.01f * (float)(i % 7) : 0;
		de[i] = i % 5 ? 0 : -0.002f;
	}
	poison(m);
	run_score(m, N_SEQ, d->start, d->ids, 1, d->got, d->ent_got);
	if (sky_model_zero_grad(m, &err) < 0 || sky_model_backward(m, dl, de, &err) < 0) {
		t_bail("%s", err.msg);
	}
	for (int64_t i = 0; i < sky_model_n_param(m); i++) {
		n += sky_model_param(m, i)->n;
	}
	g = malloc((size_t)n * sizeof *g);
	n = 0;
	for (int64_t i = 0; i < sky_model_n_param(m); i++) {
		const struct sky_param *p = sky_model_param(m, i);

		memcpy(g + n, p->grad, (size_t)p->n * sizeof *g);
		n += p->n;
	}
	free(dl);
	*n_p = n;
	return g;
}

/* ---- a loop that has seen its largest batch allocates nothing ---- */
static const struct kn_ops *real_ops;
static int64_t n_alloc;

static int counting_alloc(kn_dev *dev, uint64_t bytes, void **p)
{
	n_alloc++;
	return real_ops->alloc(dev, bytes, p);
}

static void test_allocations(const struct kn_ops *ops)
{
	struct kn_ops counting = *ops;
	struct sky_device dev;
	struct sky_model *m;
	struct data d;
	int64_t n;

	real_ops = ops;
	counting.alloc = counting_alloc;
	dev = dev_open(&counting, 2);
	m = model_open(&dev, t_src("tests/parity/models/qwen3"), KN_BF16, 1);
	d = data_new(sky_model_config(m)->vocab);
	free(gradients(m, &d, &n));
	n_alloc = 0;
	free(gradients(m, &d, &n));
	run_score(m, N_SEQ, d.start, d.ids, 0, d.got, NULL);
	run_score(m, 2, d.start, d.ids, 1, d.got, NULL);
	T_I64(n_alloc, 0, "%s: a second training step, scoring and a smaller batch allocate nothing",
	      ops->name);
	decode_together(m, &d, 33);
	n_alloc = 0;
	decode_together(m, &d, 33);
	T_I64(n_alloc, 1, "%s: decoding allocates its pool of pages and nothing else", ops->name);
	data_free(&d);
	sky_model_close(m);
	dev_close(&dev);
}

static void test_backend(const struct kn_ops *ops, const char *dir, const char *name)
{
	static const int threads[] = { 1, 2, 3 };
	char what[128];

	for (int t = 0; t < 2; t++) {
		enum kn_dtype type = t ? KN_BF16 : KN_F32;
		struct data d = { .ids = NULL };
		float *grad = NULL, *g;
		int64_t n;

		for (size_t i = 0; i < 3; i++) {
			struct sky_device dev = dev_open(ops, threads[i]);
			struct sky_model *m = model_open(&dev, dir, type, 1);

			if (!d.ids) {
				d = data_new(sky_model_config(m)->vocab);
				score_alone(m, &d, d.want, d.ent_want);
			}
			snprintf(what, sizeof what, "%s, %s, %s, %d threads", ops->name, name,
				 t ? "bf16" : "f32", threads[i]);
			check_bits(m, &d, what);
			g = gradients(m, &d, &n);
			if (grad) {
				T_MEM(g, grad, (size_t)n * sizeof *g, "%s: every gradient", what);
				free(g);
			} else {
				grad = g;
			}
			sky_model_close(m);
			dev_close(&dev);
		}
		free(grad);
		data_free(&d);
	}
}

/* Random weights in shapes that fill the blocks of the products, with edges: the tiny models fit into
 * one. */
static const char *make_medium(void)
{
	static const char config[] =
		"{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"vocab_size\":1003,"
		"\"hidden_size\":200,\"num_hidden_layers\":2,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
		"\"head_dim\":40,\"intermediate_size\":516,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-6,"
		"\"initializer_range\":0.1,\"rope_theta\":10000}";
	const char *from = t_path("medium-config"), *dir = t_path("medium");
	struct sky_err err;

	if (mkdir(from, 0777) != 0) {
		t_bail("mkdir %s", from);
	}
	t_write("medium-config/config.json", config, sizeof config - 1);
	if (sky_model_init(from, dir, 1, 0, &err) < 0) {
		t_bail("%s", err.msg);
	}
	return dir;
}

int main(void)
{
	static const char *const models[] = { "llama", "qwen2", "qwen3" };
	static const char *const isa[] = { "base", "avx2", "avx512", "avx512bf16" };
	char dir[3][T_PATH_MAX], medium[T_PATH_MAX], name[64];
	kn_dev *dev;

	snprintf(medium, sizeof medium, "%s", make_medium());
	for (int i = 0; i < 3; i++) {
		snprintf(dir[i], sizeof dir[i], "%s/%s", t_src("tests/parity/models"), models[i]);
		test_backend(kn_ref_ops(), dir[i], models[i]);
	}
	test_allocations(kn_ref_ops());
	for (int k = 0; k < 4; k++) { /* every instruction set that this processor has */
		setenv("SKYRL_TEST_ISA", isa[k], 1);
		if (!kn_cpu_ops() || kn_cpu_ops()->open(0, 1, &dev) != 0) {
			t_skip("no %s on this processor", isa[k]);
			continue;
		}
		kn_cpu_ops()->close(dev);
		snprintf(name, sizeof name, "%s, medium", isa[k]);
		test_backend(kn_cpu_ops(), medium, name);
		snprintf(name, sizeof name, "%s, llama", isa[k]);
		test_backend(kn_cpu_ops(), dir[0], name);
	}
	unsetenv("SKYRL_TEST_ISA");
	for (int i = 1; kn_cpu_ops() && i < 3; i++) {
		test_backend(kn_cpu_ops(), dir[i], models[i]);
	}
	if (kn_cpu_ops()) {
		test_allocations(kn_cpu_ops());
	}
	return t_done();
}
