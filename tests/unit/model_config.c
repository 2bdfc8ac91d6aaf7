/* model: configurations in v4 and v5 spelling, and every refusal: unknown architectures, values that
 * change the arithmetic, tensors that are missing, unexpected, of another shape or type. Each names the
 * object and the cause. */
#include "tests/unit/model_help.h"
#include "model/model_int.h"

static struct sky_device dev;
static const char *weights; /* model.safetensors of the fixture */

static void write_text(const char *name, const char *text)
{
	t_write(name, text, strlen(text));
}

/* A directory with this config.json and the fixture's weights. */
static const char *make_dir(const char *config)
{
	static int n;
	char name[64], path[T_PATH_MAX];
	const char *dir;

	snprintf(name, sizeof name, "m%d", n++);
	dir = t_path(name);
	if (mkdir(dir, 0777) != 0) {
		t_bail("mkdir %s", dir);
	}
	snprintf(path, sizeof path, "%s/config.json", name);
	write_text(path, config);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	if (symlink(weights, path) != 0) {
		t_bail("symlink %s", path);
	}
	return dir;
}

static int try_open(const char *dir, struct sky_model **m_p, struct sky_err *err)
{
	struct sky_model_opt opt = { .compute = KN_F32 };

	return sky_model_open(&dev, dir, &opt, m_p, err);
}

#define SIZES \
	"\"vocab_size\":33,\"hidden_size\":12,\"num_hidden_layers\":2,\"num_attention_heads\":3," \
	"\"num_key_value_heads\":1,\"intermediate_size\":20,\"max_position_embeddings\":256,\"head_dim\":6," \
	"\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true"
#define LLAMA \
	"\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\"," SIZES

/* Later keys win, so that a row only gives what differs. */
static const struct {
	const char *extra;
	int rc;
	const char *part;
} cases[] = {
	{ "\"vocab_size\":33", 0, "" },
	{ "\"num_key_value_heads\":1.0", 0, "" },
	{ "\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\"", SKY_E_DATA,
	  "architecture \"GPT2LMHeadModel\" with model_type \"gpt2\"" },
	{ "\"architectures\":[\"LlamaForSequenceClassification\"]", SKY_E_DATA,
	  "LlamaForSequenceClassification" },
	{ "\"model_type\":null", SKY_E_DATA, "model_type" },
	{ "\"hidden_act\":\"gelu\"", SKY_E_DATA, "hidden_act is \"gelu\"" },
	{ "\"attention_bias\":true", SKY_E_DATA, "attention_bias" },
	{ "\"mlp_bias\":true", SKY_E_DATA, "mlp_bias" },
	{ "\"use_sliding_window\":true", SKY_E_DATA, "use_sliding_window" },
	{ "\"rope_interleaved\":true", SKY_E_DATA, "rope_interleaved" },
	{ "\"final_logit_softcapping\":30.0", SKY_E_DATA, "final_logit_softcapping" },
	{ "\"attn_logit_softcapping\":50.0", SKY_E_DATA, "attn_logit_softcapping" },
	{ "\"attn_logit_softcapping\":null", 0, "" },
	{ "\"quantization_config\":{\"quant_method\":\"fp8\"}", SKY_E_DATA, "quantization_config" },
	{ "\"logits_scaling\":8", SKY_E_DATA, "logits_scaling" },
	{ "\"partial_rotary_factor\":0.5", SKY_E_DATA, "partial_rotary_factor" },
	{ "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", SKY_E_DATA, "rope_type \"dynamic\"" },
	{ "\"rope_scaling\":{\"rope_type\":\"llama3\",\"low_freq_factor\":4,\"high_freq_factor\":4}",
	  SKY_E_DATA, "high_freq_factor" },
	{ "\"rope_theta\":\"big\"", SKY_E_DATA, "rope_theta" },
	{ "\"rope_theta\":0.5", SKY_E_DATA, "rope_theta" },
	{ "\"layer_types\":[\"full_attention\",\"full_attention\"]", 0, "" },
	{ "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", SKY_E_DATA,
	  "sliding_attention" },
	{ "\"vocab_size\":null", SKY_E_DATA, "vocab_size is missing" },
	{ "\"hidden_size\":-12", SKY_E_DATA, "hidden_size must be" },
	{ "\"hidden_size\":12.5", SKY_E_DATA, "hidden_size must be" },
	{ "\"num_hidden_layers\":1000000000", SKY_E_DATA, "num_hidden_layers" },
	{ "\"num_key_value_heads\":2", SKY_E_DATA, "not a multiple of num_key_value_heads" },
	{ "\"head_dim\":null,\"num_attention_heads\":5", SKY_E_DATA, "head_dim is absent" },
	{ "\"head_dim\":5", SKY_E_DATA, "head_dim 5 is odd" },
	{ "\"rms_norm_eps\":0", SKY_E_DATA, "rms_norm_eps" },
	{ "\"tie_word_embeddings\":\"yes\"", SKY_E_DATA, "tie_word_embeddings" },
	{ "\"eos_token_id\":\"</s>\"", SKY_E_DATA, "eos_token_id" },
	{ "\"intermediate_size\":24", SKY_E_DATA,
	  "model.layers.0.mlp.gate_proj.weight has shape [20, 12], but config.json makes it "
	  "[24, 12]" },
	{ "\"vocab_size\":34", SKY_E_DATA,
	  "model.embed_tokens.weight has shape [33, 12], but config.json makes it [34, 12]" },
	{ "\"num_hidden_layers\":3", SKY_E_DATA, "model.layers.2.input_layernorm.weight is missing" },
	{ "\"tie_word_embeddings\":false", SKY_E_DATA, "lm_head.weight is missing" },
	{ "\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"", SKY_E_DATA,
	  "q_proj.bias is missing" },
};

static void test_refusals(void)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct sky_model *m = NULL;
		struct sky_err err = { 0 };
		char config[2048];

		snprintf(config, sizeof config, "{%s,%s}", LLAMA, cases[i].extra);
		T_RC(try_open(make_dir(config), &m, &err), cases[i].rc, &err, "code for %s",
		     cases[i].extra);
		T_HAS(err.msg, cases[i].part, "message for %s", cases[i].extra);
		sky_model_close(m);
	}
}

static void test_files(void)
{
	struct sky_model *m = NULL;
	struct sky_err err;
	char path[T_PATH_MAX];
	const char *dir = make_dir("{ not JSON");

	T_RC(try_open(dir, &m, &err), SKY_E_DATA, &err, "config.json that is not JSON");
	T_HAS(err.msg, "config.json", "its message names the file");
	dir = make_dir("[1]");
	T_RC(try_open(dir, &m, &err), SKY_E_DATA, &err, "config.json that is a list");
	snprintf(path, sizeof path, "%s/config.json", dir);
	unlink(path);
	T_RC(try_open(dir, &m, &err), SKY_E_MISSING, &err, "no config.json");
	T_RC(try_open(t_path("nowhere"), &m, &err), SKY_E_MISSING, &err, "no such directory");
}

/* The same rotation from three spellings, and the ids that end a text from both files. */
static void test_spellings(void)
{
	static const char *const same[] = {
		LLAMA ",\"rope_theta\":500.0,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}",
		LLAMA ",\"rope_theta\":500.0,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}",
		LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":500,\"factor\":4}",
	};
	float lp[3][3];
	int32_t ids[3] = { 5, 6, 7 }, start[2] = { 0, 3 };
	char config[2048], path[T_PATH_MAX];
	struct sky_err err;
	struct sky_model *m;
	const char *dir;

	for (int i = 0; i < 3; i++) {
		snprintf(config, sizeof config, "{%s}", same[i]);
		m = model_open(&dev, make_dir(config), KN_F32, 0);
		T_NEAR(m->plan.rope.theta, 500, 0, "rope_theta, spelling %d", i);
		T_NEAR(m->plan.rope.factor, 4, 0, "factor, spelling %d", i);
		run_score(m, 1, start, ids, 0, lp[i], NULL);
		T_MEM(lp[i], lp[0], sizeof lp[i], "spelling %d gives the same numbers", i);
		sky_model_close(m);
	}
	snprintf(config, sizeof config,
		 "{%s,\"eos_token_id\":[2,3],\"bos_token_id\":1,\"pad_token_id\":-1}", LLAMA);
	dir = make_dir(config);
	snprintf(path, sizeof path, "%s/generation_config.json", strrchr(dir, '/') + 1);
	write_text(path, "{\"eos_token_id\":[3,4,99],\"pad_token_id\":0}");
	m = model_open(&dev, dir, KN_F32, 0);
	T_I64(sky_model_config(m)->n_eos, 3,
	      "ends of text are joined, those outside the vocabulary left out");
	T_I64(sky_model_config(m)->eos[2], 4, "the third comes from generation_config.json");
	T_I64(sky_model_config(m)->bos, 1, "beginning of text");
	T_I64(sky_model_config(m)->pad, 0,
	      "padding from generation_config.json where config.json has none");
	sky_model_close(m);
	write_text(path, "{\"eos_token_id\":\"x\"}");
	m = NULL;
	T_RC(try_open(dir, &m, &err), SKY_E_DATA, &err,
	     "generation_config.json with a bad end of text");
	T_HAS(err.msg, "generation_config.json", "its message names the file");
}

/* inv and amplitude of pair i against values worked out by hand from the formulas. */
static void test_rope(void)
{
	struct sky_rope_conf r = { .type = SKY_ROPE_LLAMA3,
				   .theta = 10000,
				   .factor = 8,
				   .partial = 1,
				   .lo = 1,
				   .hi = 4,
				   .orig_pos = 64 };
	double inv[8], amp, mix;

	sky_rope_freq(&r, 8, inv, &amp);
	T_NEAR(inv[0], 1, 1e-15, "llama3: short waves keep their frequency");
	T_NEAR(inv[7], pow(10000, -7.0 / 8) / 8, 1e-15, "llama3: long waves are stretched");
	mix = (64 * pow(10000, -2.0 / 8) / (2 * acos(-1)) - 1) / 3;
	T_OK(mix > 0 && mix < 1, "llama3: pair 2 lies between");
	T_NEAR(inv[2], (1 - mix) * 0.1 / 8 + mix * 0.1, 1e-15, "llama3: between, a mix");
	T_NEAR(amp, 1, 0, "llama3: no amplitude");
	r = (struct sky_rope_conf){ .type = SKY_ROPE_YARN,
				    .theta = 10000,
				    .factor = 4,
				    .orig_pos = 4096,
				    .beta_fast = 32,
				    .beta_slow = 1,
				    .truncate = true };
	sky_rope_freq(&r, 8, inv, &amp);
	T_NEAR(amp, 0.1 * log(4) + 1, 1e-15, "yarn: amplitude");
	T_NEAR(inv[0], 1, 1e-15, "yarn: the fastest pair is left alone");
	T_NEAR(inv[7], pow(10000, -7.0 / 8) / 4, 1e-15, "yarn: the slowest pair is stretched");
	r.beta_fast = r.beta_slow = 1;
	sky_rope_freq(&r, 8, inv, &amp);
	T_OK(isfinite(inv[3]) && isfinite(inv[5]), "yarn: equal betas do not divide by zero");
	r.mscale = r.mscale_all = 1;
	sky_rope_freq(&r, 8, inv, &amp);
	T_NEAR(amp, 1, 0, "yarn: equal mscale and mscale_all_dim cancel");
	r.attn_factor = 1.5;
	sky_rope_freq(&r, 8, inv, &amp);
	T_NEAR(amp, 1.5, 0, "yarn: attention_factor wins");
}

static void test_batches(void)
{
	struct sky_model *m = model_open(&dev, t_src("tests/parity/models/llama"), KN_F32, 0);
	int32_t ids[300] = { 3, 4, 5 }, start[3] = { 0, 2, 3 }, pos0[2] = { 0, 0 },
		target[300] = { 4, -1, -1 }, table[2] = { 0, 7 };
	struct sky_rows rows = { 2, start, pos0, ids };
	float lp[300];
	struct sky_kvpool *pool;
	struct sky_kvview kv;
	struct sky_err err;

	T_RC(sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err), 0, &err, "a good batch");
	T_RC(sky_model_score(m, &rows, target, 1, 1, lp, NULL, &err), SKY_E_USAGE, &err,
	     "keep without training");
	ids[1] = 33;
	T_RC(sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err), SKY_E_DATA, &err,
	     "an id beyond the vocabulary");
	T_HAS(err.msg, "token id 33 at row 1", "it is named with its row");
	ids[1] = 4;
	target[0] = 33;
	T_RC(sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err), SKY_E_DATA, &err,
	     "a target beyond the vocabulary");
	target[0] = 4;
	start[1] = 4;
	T_RC(sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err), SKY_E_USAGE, &err,
	     "a sequence of negative length");
	start[1] = 2;
	start[2] = 300;
	T_RC(sky_model_score(m, &rows, target, 1, 0, lp, NULL, &err), SKY_E_LIMIT, &err,
	     "longer than max_position_embeddings");
	start[2] = 3;
	T_RC(sky_kvpool_new(m, 0, &pool, &err), SKY_E_USAGE, &err, "a pool without pages");
	T_RC(sky_kvpool_new(m, 2, &pool, &err), 0, &err, "a pool");
	kv = (struct sky_kvview){ pool, table, 1 };
	T_RC(sky_model_infer(m, &rows, &kv, NULL, 0, NULL, &err), SKY_E_USAGE, &err,
	     "a page that the pool does not have");
	sky_kvpool_free(pool);
	sky_model_close(m);
}

int main(void)
{
	char path[T_PATH_MAX];
	const char *src = t_src("tests/parity/models/llama/model.safetensors");

	dev = dev_open(kn_ref_ops(), 0);
	weights = realpath(src, path);
	if (!weights) {
		t_bail("%s is not here", src);
	}
	test_refusals();
	test_files();
	test_spellings();
	test_rope();
	test_batches();
	dev_close(&dev);
	return t_done();
}
