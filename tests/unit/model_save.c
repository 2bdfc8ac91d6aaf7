/* model: loading from one file, shards and every float type, saving, loading again; tensors that pass
 * through; tied heads; a new version of the weights in a model that runs; a training step that changes
 * what the forward pass reads. */
#include "tests/unit/model_help.h"

static struct sky_device dev;

/* Tensors of a fixture as f32, to be written in other ways. */
struct set {
	struct sky_hf *hf;
	struct sky_hf_item item[64];
	int64_t n;
};

static void set_open(struct set *s, const char *dir)
{
	struct sky_err err;

	if (sky_hf_open(dir, &s->hf, &err) < 0) {
		t_bail("%s", err.msg);
	}
	s->n = sky_hf_count(s->hf);
	for (int64_t i = 0; i < s->n; i++) {
		const struct sky_tensor *t = sky_hf_at(s->hf, i);

		s->item[i].spec = (struct sky_st_spec){ t->name, t->dtype, t->n_dim, { 0 } };
		memcpy(s->item[i].spec.shape, t->shape, sizeof t->shape);
		s->item[i].data = t->data;
	}
}

/* One more tensor [n0, n1] (n1 = 0: a vector) of type t. */
static void set_add(struct set *s, const char *name, enum sky_dtype t, int64_t n0, int64_t n1,
		    const void *data)
{
	s->item[s->n].spec = (struct sky_st_spec){ name, t, n1 ? 2 : 1, { n0, n1 } };
	s->item[s->n++].data = data;
}

static const char *set_write(const struct set *s, const char *name, const char *like,
			     uint64_t shard_bytes)
{
	const char *dir = t_path(name);
	struct sky_err err;

	if (sky_hf_write(dir, s->item, s->n, like, shard_bytes, 0, &err) < 0) {
		t_bail("%s", err.msg);
	}
	return dir;
}

/* Log-probs of a fixed sequence. */
static void probe(struct sky_model *m, float *lp)
{
	static const int32_t ids[8] = { 3, 9, 27, 30, 5, 4, 31, 12 }, start[2] = { 0, 8 };

	run_score(m, 1, start, ids, 0, lp, NULL);
}

static void probe_dir(const char *dir, enum kn_dtype t, int train, float *lp)
{
	struct sky_model *m = model_open(&dev, dir, t, train);

	probe(m, lp);
	sky_model_close(m);
}

/* Both directories hold the same tensors, byte for byte. */
static bool same_weights(const char *a, const char *b)
{
	struct sky_hf *x = NULL, *y = NULL;
	struct sky_err err;
	bool same;

	if (sky_hf_open(a, &x, &err) < 0 || sky_hf_open(b, &y, &err) < 0) {
		t_bail("%s", err.msg);
	}
	same = sky_hf_count(x) == sky_hf_count(y);
	for (int64_t i = 0; same && i < sky_hf_count(x); i++) {
		const struct sky_tensor *t = sky_hf_at(x, i), *u = sky_hf_find(y, t->name);

		same = u && t->dtype == u->dtype && t->bytes == u->bytes &&
		       memcmp(t->data, u->data, t->bytes) == 0;
	}
	sky_hf_close(x);
	sky_hf_close(y);
	return same;
}

static void test_types_and_shards(const char *dir)
{
	static const enum sky_dtype type[] = { SKY_F32, SKY_F16, SKY_F64 };
	float want[8], got[8], want_bf16[8];
	void *own[64] = { NULL };
	struct set s;

	probe_dir(dir, KN_F32, 0, want);
	probe_dir(dir, KN_BF16, 0, want_bf16);
	probe_dir(dir, KN_F32, 1, got);
	T_MEM(got, want, sizeof got, "training and inference load the same weights, f32");
	probe_dir(dir, KN_BF16, 1, got);
	T_MEM(got, want_bf16, sizeof got, "training and inference load the same weights, bf16");
	for (int k = 0; k < 3; k++) {
		char name[32];
		const char *at;

		set_open(&s, dir);
		for (int64_t i = 0; i < s.n; i++) {
			const struct sky_tensor *t = sky_hf_at(s.hf, i);
			float *f = gold_f32(t);

			own[i] = malloc((size_t)t->n * 8);
			sky_from_f32(type[k], f, own[i], (size_t)t->n);
			s.item[i].spec.dtype = type[k];
			s.item[i].data = own[i];
			free(f);
		}
		snprintf(name, sizeof name, "type%d", k);
		at = set_write(&s, name, dir, k == 0 ? 1500 : 1 << 30); /* the first in shards */
		probe_dir(at, KN_F32, 0, got);
		T_MEM(got, want, sizeof got, "a checkpoint in %s gives the same numbers",
		      sky_dtype_name(type[k]));
		probe_dir(at, KN_BF16, 1, got);
		T_MEM(got, want_bf16, sizeof got, "and rounds to the same bf16");
		for (int64_t i = 0; i < s.n; i++) {
			free(own[i]);
		}
		T_OK(k != 0 || sky_hf_n_files(s.hf) == 1, "the fixture is one file");
		sky_hf_close(s.hf);
	}
}

static void test_round_trip(const char *dir, const char *name)
{
	char out[64], sub[64];
	struct sky_err err;

	for (int train = 0; train < 2; train++) {
		struct sky_model *m = model_open(&dev, dir, KN_BF16, train), *n;
		char a[65], b[65];
		const char *to;

		snprintf(out, sizeof out, "save-%s-%d", name, train);
		to = t_path(out);
		T_RC(sky_model_save(m, to, SKY_DT_NONE, 0, &err), 0, &err, "%s: saved, train %d", name,
		     train);
		T_OK(same_weights(dir, to), "%s: every tensor came back byte for byte", name);
		n = model_open(&dev, to, KN_BF16, 0);
		sky_model_fingerprint(m, a);
		sky_model_fingerprint(n, b);
		T_STR(b, a, "%s: same fingerprint", name);
		T_I64(sky_model_config(n)->n_param, sky_model_config(m)->n_param,
		      "%s: same number of parameters", name);
		T_RC(sky_model_save(m, to, SKY_DT_NONE, 0, &err), SKY_E_USAGE, &err,
		     "%s: nothing is overwritten unasked", name);
		sky_model_close(n);
		snprintf(sub, sizeof sub, "f32-%s-%d", name, train);
		T_RC(sky_model_save(m, t_path(sub), SKY_F32, 0, &err), train ? 0 : SKY_E_USAGE, &err,
		     "%s: saved in f32 when trained, refused otherwise", name);
		sky_model_close(m);
	}
}

/* What no block uses goes through; what is unknown or contradicts is refused. */
static void test_extra_tensors(const char *dir)
{
	static const float x[40 * 12] = { 1, 2, 3 };
	const struct sky_tensor *embed;
	struct sky_model *m = NULL;
	struct sky_model_opt opt = { .compute = KN_F32, .train = 1 };
	struct sky_err err;
	const char *at, *to;
	struct set s;
	uint16_t *other;

	set_open(&s, dir);
	embed = sky_hf_find(s.hf, "model.embed_tokens.weight");
	set_add(&s, "model.layers.0.self_attn.rotary_emb.inv_freq", SKY_F32, 3, 0, x);
	set_add(&s, "model.visual.patch_embed.weight", SKY_F32, 4, 2, x);
	set_add(&s, "model.layers.2.eh_proj.weight", SKY_F32, 4, 4, x);
	set_add(&s, "mtp.fc.weight", SKY_F32, 2, 2, x);
	set_add(&s, "lm_head.weight", SKY_BF16, 33, 12, embed->data);
	at = set_write(&s, "extra", dir, 1 << 30);
	m = model_open(&dev, at, KN_F32, 1);
	T_OK(1, "rotary buffers, vision, MTP layers and an equal copy of a tied head are read past");
	to = t_path("extra-saved");
	T_RC(sky_model_save(m, to, SKY_DT_NONE, 0, &err), 0, &err, "saved");
	sky_model_close(m);
	s.n--;
	at = set_write(&s, "extra-without-head", dir, 1 << 30);
	T_OK(same_weights(at, to), "they pass through a save, the copy of the head does not");
	other = malloc(33 * 12 * 2);
	memcpy(other, embed->data, 33 * 12 * 2);
	other[5] ^= 1;
	set_add(&s, "lm_head.weight", SKY_BF16, 33, 12, other);
	T_RC(sky_model_open(&dev, set_write(&s, "other-head", dir, 1 << 30), &opt, &m, &err),
	     SKY_E_DATA, &err, "a tied head with other bytes is refused");
	T_HAS(err.msg, "lm_head.weight differs", "its message says so");
	s.n--;
	set_add(&s, "model.layers.0.self_attn.q_proj.zero_point", SKY_F32, 3, 0, x);
	T_RC(sky_model_open(&dev, set_write(&s, "unknown", dir, 1 << 30), &opt, &m, &err), SKY_E_DATA,
	     &err, "an unknown tensor is refused");
	T_HAS(err.msg, "q_proj.zero_point", "it is named");
	s.n--;
	s.item[0].spec.dtype = SKY_I16;
	T_RC(sky_model_open(&dev, set_write(&s, "ints", dir, 1 << 30), &opt, &m, &err), SKY_E_DATA,
	     &err, "integer weights are refused");
	T_HAS(err.msg, "has type I16", "the type is named");
	free(other);
	sky_hf_close(s.hf);
}

/* A step on the masters shows in the forward pass after sync, in a saved copy, and in a model that
 * reloads it. */
static void test_update(const char *dir, enum kn_dtype t)
{
	struct sky_model *m = model_open(&dev, dir, t, 1), *run = model_open(&dev, dir, t, 0);
	float before[8], after[8], got[8];
	const char *to = t_path(t == KN_F32 ? "step-f32" : "step-bf16"),
		   *what = t == KN_F32 ? "f32" : "bf16";
	struct sky_err err;
	char a[65], b[65];

	probe(m, before);
	for (int64_t i = 0; i < sky_model_n_param(m); i++) {
		const struct sky_param *p = sky_model_param(m, i);

		for (int64_t k = 0; k < p->n; k++) {
			p->master[k] *= 1.01f;
		}
	}
	probe(m, got);
	T_MEM(got, before, sizeof got, "%s: masters alone change nothing", what);
	T_RC(sky_model_sync(m, &err), 0, &err, "%s: sync", what);
	probe(m, after);
	T_OK(memcmp(before, after, sizeof before) != 0, "%s: after sync the step shows", what);
	T_RC(sky_model_save(m, to, t == KN_F32 ? SKY_F32 : SKY_DT_NONE, 0, &err), 0, &err, "%s: saved",
	     what);
	probe(run, got);
	T_MEM(got, before, sizeof got, "%s: the running model has the old version", what);
	sky_model_fingerprint(run, a);
	T_RC(sky_model_reload(run, to, &err), 0, &err, "%s: reloaded", what);
	sky_model_fingerprint(run, b);
	T_OK(strcmp(a, b) != 0, "%s: another fingerprint", what);
	probe(run, got);
	T_MEM(got, after, sizeof got, "%s: rollout and trainer have the same bits after the step",
	      what);
	T_RC(sky_model_save(run, t_path(t == KN_F32 ? "again-f32" : "again-bf16"), SKY_DT_NONE, 0,
			    &err),
	     0, &err, "%s: the reloaded version is saved", what);
	T_OK(same_weights(to, t_path(t == KN_F32 ? "again-f32" : "again-bf16")), "%s: byte for byte",
	     what);
	T_STR(sky_model_dir(run), to, "%s: the model knows where it came from", what);
	T_RC(sky_model_reload(run, t_src("tests/parity/models/qwen2"), &err), SKY_E_DATA, &err,
	     "%s: another model is refused", what);
	T_RC(sky_model_reload(run, t_path("nowhere"), &err), SKY_E_MISSING, &err,
	     "%s: a missing directory too", what);
	probe(run, got);
	T_MEM(got, after, sizeof got, "%s: and the weights stay", what);
	T_RC(sky_model_sync(run, &err), SKY_E_USAGE, &err, "%s: no sync without training", what);
	sky_model_close(m);
	sky_model_close(run);
}

/* Random weights: a function of the seed, in the shapes and near the scale of the configuration. */
static void test_init(const char *dir)
{
	const char *a = t_path("init-a"), *b = t_path("init-b"), *c = t_path("init-c");
	float lp[8];
	struct sky_hf *hf;
	struct sky_err err;
	double sum = 0;
	float *w;

	T_RC(sky_model_init(dir, a, 7, 0, &err), 0, &err, "random weights");
	T_RC(sky_model_init(dir, b, 7, 0, &err), 0, &err, "again");
	T_RC(sky_model_init(dir, c, 8, 0, &err), 0, &err, "another seed");
	T_OK(same_weights(a, b), "the same seed gives the same bytes");
	T_OK(!same_weights(a, c), "another seed gives others");
	T_RC(sky_model_init(dir, a, 7, 0, &err), SKY_E_USAGE, &err, "nothing is overwritten unasked");
	T_RC(sky_model_init(t_path("nowhere"), b, 7, 0, &err), SKY_E_MISSING, &err,
	     "no such configuration");
	if (sky_hf_open(a, &hf, &err) < 0) {
		t_bail("%s", err.msg);
	}
	T_I64(sky_hf_n_files(hf), 1, "in one file");
	w = gold_f32(sky_hf_find(hf, "model.layers.1.input_layernorm.weight"));
	T_NEAR(w[3], 1, 0, "norms are 1");
	free(w);
	w = gold_f32(sky_hf_find(hf, "model.layers.0.self_attn.q_proj.bias"));
	T_NEAR(w[3], 0, 0, "biases are 0");
	free(w);
	w = gold_f32(sky_hf_find(hf, "model.embed_tokens.weight"));
	for (int i = 0; i < 33 * 12; i++) {
		sum += (double)w[i] * w[i];
	}
	T_NEAR(sqrt(sum / (33 * 12)), 0.02, 0.003, "matrices have the deviation of the configuration");
	free(w);
	sky_hf_close(hf);
	probe_dir(a, KN_F32, 0, lp);
	T_NEAR(lp[3], -log(33), 0.05, "an untrained model is undecided");
}

int main(void)
{
	static const char *const models[] = { "llama", "qwen2", "qwen3" };
	char dir[3][T_PATH_MAX], name[64];

	dev = dev_open(kn_ref_ops(), 0);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof name, "tests/parity/models/%s", models[i]);
		snprintf(dir[i], sizeof dir[i], "%s", t_src(name));
		test_round_trip(dir[i], models[i]);
	}
	test_types_and_shards(dir[0]);
	test_extra_tensors(dir[0]);
	test_init(dir[1]);
	test_update(dir[0], KN_F32);
	test_update(dir[2], KN_BF16);
	dev_close(&dev);
	return t_done();
}
