/* families: the dense decoder behind llama.c, qwen2.c and qwen3.c. Letters: D model width, H query
 * heads, G key/value heads, d head width, I inner width of the MLP, V vocabulary. */
#include "model/families/dense.h"

#include <math.h>
#include <string.h>

static int refuse(const struct sky_conf *c, struct sky_err *err)
{
	static const char *const not_null[] = {
		"quantization_config",
		"attn_logit_softcapping",
		"final_logit_softcapping",
		"clip_qkv",
	};
	static const char *const not_one[] = { "embedding_multiplier", "residual_multiplier",
					       "logits_scaling" };
	static const char *const not_true[] = { "mlp_bias", "attention_bias", "use_sliding_window",
						"rope_interleaved" };
	int rc = sky_conf_want_str(c, "hidden_act", "silu", err);

	for (size_t i = 0; rc == 0 && i < sizeof not_null / sizeof not_null[0]; i++) {
		rc = sky_conf_want_null(c, not_null[i], err);
	}
	for (size_t i = 0; rc == 0 && i < sizeof not_one / sizeof not_one[0]; i++) {
		rc = sky_conf_want_num(c, not_one[i], 1, err);
	}
	for (size_t i = 0; rc == 0 && i < sizeof not_true / sizeof not_true[0]; i++) {
		rc = sky_conf_want_bool(c, not_true[i], false, err);
	}
	if (rc == 0 && c->rope.partial != 1) {
		rc = sky_fail(err, SKY_E_DATA, "%s: partial_rotary_factor must be 1 for %s", c->path,
			      c->pub.family);
	}
	if (rc == 0 && c->pub.d_head % 2) {
		rc = sky_fail(err, SKY_E_DATA, "%s: head_dim %lld is odd: rotary embedding turns pairs",
			      c->path, (long long)c->pub.d_head);
	}
	return rc;
}

/* v5 configurations list the kind of every layer. */
static int want_full_attention(const struct sky_conf *c, struct sky_err *err)
{
	const struct sky_jnode *v = sky_j_get(c->text, "layer_types");

	for (v = sky_j_first(v); v; v = sky_j_next(v)) {
		const char *s = sky_j_str(v);

		if (!s || strcmp(s, "full_attention") != 0) {
			return sky_fail(
				err, SKY_E_DATA,
				"%s: layer_types holds \"%s\", but %s layers are full_attention only",
				c->path, s ? s : "?", c->pub.family);
		}
	}
	return 0;
}

static void plan_attn(const struct sky_conf *c, unsigned flags, struct sky_plan *p, int32_t layer)
{
	int64_t D = c->pub.d_model, H = c->pub.n_head, G = c->pub.n_kv_head, d = c->pub.d_head;
	const char *at = "model.layers.%d.self_attn.%s_proj.%s";
	struct sky_attn_spec *s = sky_plan_block(p, &sky_blk_attn, layer);

	if (!s) {
		return;
	}
	*s = (struct sky_attn_spec){
		.a = { .n_head = H,
		       .n_kv_head = G,
		       .d_head = d,
		       .scale = (float)(1 / sqrt((double)d)) },
		.eps = (float)c->eps,
		.qkv_bias = -1,
		.q_norm = -1,
		.k_norm = -1,
	};
	s->norm = sky_plan_slot(p, SKY_SLOT_VECTOR, D, 1);
	sky_plan_name(p, s->norm, 0, D, 0, "model.layers.%d.input_layernorm.weight", layer);
	s->qkv = sky_plan_slot(p, SKY_SLOT_PRODUCT, (H + 2 * G) * d, D);
	sky_plan_name(p, s->qkv, 0, H * d, D, at, layer, "q", "weight");
	sky_plan_name(p, s->qkv, H * d, G * d, D, at, layer, "k", "weight");
	sky_plan_name(p, s->qkv, (H + G) * d, G * d, D, at, layer, "v", "weight");
	if (flags & SKY_DENSE_QKV_BIAS) {
		s->qkv_bias = sky_plan_slot(p, SKY_SLOT_VECTOR, (H + 2 * G) * d, 1);
		sky_plan_name(p, s->qkv_bias, 0, H * d, 0, at, layer, "q", "bias");
		sky_plan_name(p, s->qkv_bias, H * d, G * d, 0, at, layer, "k", "bias");
		sky_plan_name(p, s->qkv_bias, (H + G) * d, G * d, 0, at, layer, "v", "bias");
	}
	if (flags & SKY_DENSE_QK_NORM) {
		s->q_norm = sky_plan_slot(p, SKY_SLOT_VECTOR, d, 1);
		sky_plan_name(p, s->q_norm, 0, d, 0, "model.layers.%d.self_attn.q_norm.weight", layer);
		s->k_norm = sky_plan_slot(p, SKY_SLOT_VECTOR, d, 1);
		sky_plan_name(p, s->k_norm, 0, d, 0, "model.layers.%d.self_attn.k_norm.weight", layer);
	}
	s->o = sky_plan_slot(p, SKY_SLOT_PRODUCT, D, H * d);
	sky_plan_name(p, s->o, 0, D, H * d, at, layer, "o", "weight");
}

static void plan_mlp(const struct sky_conf *c, struct sky_plan *p, int32_t layer)
{
	int64_t D = c->pub.d_model, I = c->pub.d_ff;
	struct sky_mlp_spec *s = sky_plan_block(p, &sky_blk_mlp, layer);

	if (!s) {
		return;
	}
	*s = (struct sky_mlp_spec){ .d_ff = I, .eps = (float)c->eps };
	s->norm = sky_plan_slot(p, SKY_SLOT_VECTOR, D, 1);
	sky_plan_name(p, s->norm, 0, D, 0, "model.layers.%d.post_attention_layernorm.weight", layer);
	s->gate_up = sky_plan_slot(p, SKY_SLOT_PRODUCT, 2 * I, D);
	sky_plan_name(p, s->gate_up, 0, I, D, "model.layers.%d.mlp.gate_proj.weight", layer);
	sky_plan_name(p, s->gate_up, I, I, D, "model.layers.%d.mlp.up_proj.weight", layer);
	s->down = sky_plan_slot(p, SKY_SLOT_PRODUCT, D, I);
	sky_plan_name(p, s->down, 0, D, I, "model.layers.%d.mlp.down_proj.weight", layer);
}

int sky_dense_plan(struct sky_conf *c, unsigned flags, struct sky_plan *p, struct sky_err *err)
{
	int64_t D, V;
	int rc = sky_conf_read_dense(c, err);

	if (rc < 0 || (rc = refuse(c, err)) < 0 || (rc = want_full_attention(c, err)) < 0) {
		return rc;
	}
	D = c->pub.d_model;
	V = c->pub.vocab;
	p->d_model = D;
	p->vocab = V;
	p->n_layer = c->pub.n_layer;
	p->rope = c->rope;
	p->rope_pairs = c->pub.d_head / 2;
	p->embed.table = sky_plan_slot(p, SKY_SLOT_LOOKUP | (c->pub.tied ? SKY_SLOT_PRODUCT : 0), V, D);
	sky_plan_name(p, p->embed.table, 0, V, D, "model.embed_tokens.weight");
	for (int32_t i = 0; i < (int32_t)c->pub.n_layer; i++) {
		plan_attn(c, flags, p, i);
		plan_mlp(c, p, i);
	}
	p->head.eps = (float)c->eps;
	p->head.norm = sky_plan_slot(p, SKY_SLOT_VECTOR, D, 1);
	sky_plan_name(p, p->head.norm, 0, D, 0, "model.norm.weight");
	p->head.out = p->embed.table;
	if (!c->pub.tied) {
		p->head.out = sky_plan_slot(p, SKY_SLOT_PRODUCT, V, D);
		sky_plan_name(p, p->head.out, 0, V, D, "lm_head.weight");
	}
	return p->failed ? sky_fail_mem(err, "laying out the model of %s", c->path) : 0;
}
