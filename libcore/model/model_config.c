/* model: config.json and generation_config.json under one spelling of every key (v4 and v5 of
 * transformers). */
#include "model/model_int.h"

#include <math.h>
#include <string.h>

#define MAX_SIZE (1 << 24) /* of any dimension; keeps every product of two far from overflow */
#define MAX_LAYERS 4096

static int bad(const struct sky_conf *c, struct sky_err *err, const char *key, const char *why)
{
	return sky_fail(err, SKY_E_DATA, "%s: %s %s", c->path, key, why);
}

/* text_config wins, except for the keys that wrapped models keep on top. */
static const struct sky_jnode *find(const struct sky_conf *c, const char *key)
{
	const struct sky_jnode *v = sky_j_get(c->text, key);

	return v && sky_j_type(v) != SKY_J_NULL ? v : sky_j_get(c->top, key);
}

/* A size: integer in 1 … max. def 0: the key is required. */
static int get_size(const struct sky_conf *c, const char *key, int64_t def, int64_t max, int64_t *out,
		    struct sky_err *err)
{
	const struct sky_jnode *v = find(c, key);

	*out = def;
	if (sky_j_type(v) == SKY_J_NULL) {
		return def ? 0 : bad(c, err, key, "is missing");
	}
	if (!sky_j_i64(v, out) || *out < 1 || *out > max) {
		return sky_fail(err, SKY_E_DATA, "%s: %s must be a whole number from 1 to %lld",
				c->path, key, (long long)max);
	}
	return 0;
}

static int get_num(const struct sky_conf *c, const struct sky_jnode *v, const char *key, double def,
		   double *out, struct sky_err *err)
{
	*out = def;
	if (sky_j_type(v) == SKY_J_NULL) {
		return 0;
	}
	if (!sky_j_f64(v, out) || !isfinite(*out)) {
		return bad(c, err, key, "must be a finite number");
	}
	return 0;
}

int sky_conf_want_str(const struct sky_conf *c, const char *key, const char *want, struct sky_err *err)
{
	const struct sky_jnode *v = find(c, key);
	const char *s = sky_j_str(v);

	if (sky_j_type(v) == SKY_J_NULL || (s && strcmp(s, want) == 0)) {
		return 0;
	}
	return sky_fail(err, SKY_E_DATA,
			"%s: %s is \"%s\", but %s models are computed with \"%s\" only", c->path, key,
			s ? s : "?", c->pub.family, want);
}

int sky_conf_want_bool(const struct sky_conf *c, const char *key, bool want, struct sky_err *err)
{
	const struct sky_jnode *v = find(c, key);
	bool b = want;

	if (sky_j_type(v) == SKY_J_NULL || (sky_j_bool(v, &b) && b == want)) {
		return 0;
	}
	return sky_fail(
		err, SKY_E_DATA,
		"%s: %s must be %s: anything else changes the arithmetic of %s and is not supported",
		c->path, key, want ? "true" : "false", c->pub.family);
}

int sky_conf_want_num(const struct sky_conf *c, const char *key, double want, struct sky_err *err)
{
	const struct sky_jnode *v = find(c, key);
	double x = want;

	if (sky_j_type(v) == SKY_J_NULL || (sky_j_f64(v, &x) && x == want)) {
		return 0;
	}
	return sky_fail(
		err, SKY_E_DATA,
		"%s: %s must be %g: anything else changes the arithmetic of %s and is not supported",
		c->path, key, want, c->pub.family);
}

int sky_conf_want_null(const struct sky_conf *c, const char *key, struct sky_err *err)
{
	if (sky_j_type(find(c, key)) == SKY_J_NULL) {
		return 0;
	}
	return sky_fail(err, SKY_E_DATA,
			"%s: %s is set, which changes the arithmetic of %s and is not supported",
			c->path, key, c->pub.family);
}

/* ---- rotary embedding: rope_parameters (v5), rope_scaling (v4), top level, in this order ---- */
static const struct sky_jnode *rope_key(const struct sky_conf *c, const char *key)
{
	static const char *const homes[] = { "rope_parameters", "rope_scaling" };

	for (int i = 0; i < 2; i++) {
		const struct sky_jnode *v = sky_j_get(find(c, homes[i]), key);

		if (sky_j_type(v) != SKY_J_NULL) {
			return v;
		}
	}
	return strcmp(key, "rope_theta") == 0 || strcmp(key, "partial_rotary_factor") == 0
		       ? find(c, key)
		       : NULL;
}

static int rope_num(const struct sky_conf *c, const char *key, double def, double *out,
		    struct sky_err *err)
{
	return get_num(c, rope_key(c, key), key, def, out, err);
}

static int rope_type(struct sky_conf *c, struct sky_err *err)
{
	static const struct {
		const char *name;
		enum sky_rope_type type;
	} known[] = {
		{ "default", SKY_ROPE_DEFAULT },
		{ "linear", SKY_ROPE_LINEAR },
		{ "llama3", SKY_ROPE_LLAMA3 },
		{ "yarn", SKY_ROPE_YARN },
	};
	const struct sky_jnode *v = rope_key(c, "rope_type");
	const char *s;

	v = v ? v : rope_key(c, "type");
	s = sky_j_str(v);
	c->rope.type = SKY_ROPE_DEFAULT;
	if (!v) {
		return 0;
	}
	for (size_t i = 0; s && i < sizeof known / sizeof known[0]; i++) {
		if (strcmp(s, known[i].name) == 0) {
			c->rope.type = known[i].type;
			return 0;
		}
	}
	return sky_fail(err, SKY_E_DATA,
			"%s: rope_type \"%s\" is not one of default, linear, llama3, yarn", c->path,
			s ? s : "?");
}

static int read_rope(struct sky_conf *c, struct sky_err *err)
{
	struct sky_rope_conf *r = &c->rope;
	const struct sky_jnode *v = rope_key(c, "truncate");
	double max_pos = (double)c->pub.max_pos;
	int rc = rope_type(c, err);

	r->truncate = true;
	if (v && !sky_j_bool(v, &r->truncate)) {
		return bad(c, err, "truncate", "must be true or false");
	}
	if (rc < 0 || (rc = rope_num(c, "rope_theta", 10000, &r->theta, err)) < 0 ||
	    (rc = rope_num(c, "partial_rotary_factor", 1, &r->partial, err)) < 0 ||
	    (rc = rope_num(c, "factor", 1, &r->factor, err)) < 0 ||
	    (rc = rope_num(c, "low_freq_factor", 1, &r->lo, err)) < 0 ||
	    (rc = rope_num(c, "high_freq_factor", 4, &r->hi, err)) < 0 ||
	    (rc = rope_num(c, "original_max_position_embeddings", max_pos, &r->orig_pos, err)) < 0 ||
	    (rc = rope_num(c, "beta_fast", 32, &r->beta_fast, err)) < 0 ||
	    (rc = rope_num(c, "beta_slow", 1, &r->beta_slow, err)) < 0 ||
	    (rc = rope_num(c, "attention_factor", 0, &r->attn_factor, err)) < 0 ||
	    (rc = rope_num(c, "mscale", 0, &r->mscale, err)) < 0 ||
	    (rc = rope_num(c, "mscale_all_dim", 0, &r->mscale_all, err)) < 0) {
		return rc;
	}
	if (r->theta <= 1 || r->factor <= 0 || r->orig_pos < 1 || r->partial <= 0 || r->partial > 1) {
		return bad(
			c, err,
			"rope_theta, factor, original_max_position_embeddings or partial_rotary_factor",
			"is out of range");
	}
	if (r->type == SKY_ROPE_LLAMA3 && (r->lo <= 0 || r->hi <= r->lo)) {
		return bad(c, err, "high_freq_factor",
			   "must be above low_freq_factor, and both above 0");
	}
	if (r->type == SKY_ROPE_YARN && (r->beta_fast <= 0 || r->beta_slow <= 0)) {
		return bad(c, err, "beta_fast or beta_slow", "must be above 0");
	}
	return 0;
}

/* ---- special ids ---- */

/* Ids outside the vocabulary can never be produced; they are left out. */
static int add_eos(struct sky_conf *c, const struct sky_jnode *v, const char *path, struct sky_err *err)
{
	struct sky_config *p = &c->pub;
	int64_t id;

	if (!sky_j_i64(v, &id)) {
		return sky_fail(err, SKY_E_DATA,
				"%s: eos_token_id must be a token id or a list of token ids", path);
	}
	if (id < 0 || id >= p->vocab) {
		return 0;
	}
	for (int i = 0; i < p->n_eos; i++) {
		if (p->eos[i] == id) {
			return 0;
		}
	}
	if (p->n_eos == (int)(sizeof p->eos / sizeof p->eos[0])) {
		return sky_fail(err, SKY_E_LIMIT, "%s: more than %d different eos_token_id", path,
				p->n_eos);
	}
	p->eos[p->n_eos++] = (int32_t)id;
	return 0;
}

static int read_eos(struct sky_conf *c, const struct sky_jnode *v, const char *path,
		    struct sky_err *err)
{
	int rc = 0;

	if (sky_j_type(v) == SKY_J_NULL) {
		return 0;
	}
	if (sky_j_type(v) != SKY_J_ARRAY) {
		return add_eos(c, v, path, err);
	}
	for (v = sky_j_first(v); v && rc == 0; v = sky_j_next(v)) {
		rc = add_eos(c, v, path, err);
	}
	return rc;
}

static int32_t special_id(const struct sky_conf *c, const struct sky_jnode *v)
{
	int64_t id;

	return sky_j_i64(v, &id) && id >= 0 && id < c->pub.vocab ? (int32_t)id : -1;
}

int sky_conf_generation(struct sky_conf *c, const char *dir, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct sky_json *doc;
	int rc = sky_path_join(path, sizeof path, dir, "generation_config.json", err);

	if (rc < 0 || !sky_file_exists(path)) {
		return rc;
	}
	if ((rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err)) < 0) {
		return rc;
	}
	rc = read_eos(c, sky_j_get(sky_json_root(doc), "eos_token_id"), path, err);
	if (c->pub.bos < 0) {
		c->pub.bos = special_id(c, sky_j_get(sky_json_root(doc), "bos_token_id"));
	}
	if (c->pub.pad < 0) {
		c->pub.pad = special_id(c, sky_j_get(sky_json_root(doc), "pad_token_id"));
	}
	sky_json_free(doc);
	return rc;
}

/* ---- all of it ---- */
static int read_sizes(struct sky_conf *c, struct sky_err *err)
{
	struct sky_config *p = &c->pub;
	int rc;

	if ((rc = get_size(c, "vocab_size", 0, MAX_SIZE, &p->vocab, err)) < 0 ||
	    (rc = get_size(c, "hidden_size", 0, MAX_SIZE, &p->d_model, err)) < 0 ||
	    (rc = get_size(c, "num_hidden_layers", 0, MAX_LAYERS, &p->n_layer, err)) < 0 ||
	    (rc = get_size(c, "num_attention_heads", 0, MAX_SIZE, &p->n_head, err)) < 0 ||
	    (rc = get_size(c, "num_key_value_heads", p->n_head, MAX_SIZE, &p->n_kv_head, err)) < 0 ||
	    (rc = get_size(c, "intermediate_size", 0, MAX_SIZE, &p->d_ff, err)) < 0 ||
	    (rc = get_size(c, "max_position_embeddings", 0, INT32_MAX, &p->max_pos, err)) < 0) {
		return rc;
	}
	if (sky_j_type(find(c, "head_dim")) == SKY_J_NULL && p->d_model % p->n_head) {
		return bad(c, err, "hidden_size",
			   "is not a multiple of num_attention_heads, and head_dim is absent");
	}
	rc = get_size(c, "head_dim", p->d_model / p->n_head, MAX_SIZE, &p->d_head, err);
	if (rc < 0) {
		return rc;
	}
	if (p->n_head % p->n_kv_head) {
		return bad(c, err, "num_attention_heads", "is not a multiple of num_key_value_heads");
	}
	if (p->n_head * p->d_head > MAX_SIZE || p->d_ff > MAX_SIZE / 2) {
		return bad(c, err, "num_attention_heads × head_dim or intermediate_size",
			   "is too large");
	}
	return 0;
}

int sky_conf_read(const struct sky_jnode *top, const char *path, struct sky_conf *c,
		  struct sky_err *err)
{
	const char *type;

	memset(c, 0, sizeof *c);
	c->top = top;
	c->path = path;
	if (sky_j_type(top) != SKY_J_OBJECT) {
		return sky_fail(err, SKY_E_DATA, "%s: not a JSON object", path);
	}
	c->text = sky_j_get(top, "text_config");
	c->text = sky_j_type(c->text) == SKY_J_OBJECT ? c->text : top;
	type = sky_j_str(sky_j_get(top, "model_type"));
	c->arch = sky_j_str(sky_j_at(sky_j_get(top, "architectures"), 0));
	c->arch = c->arch ? c->arch : "";
	if (!type || strlen(type) >= sizeof c->pub.family) {
		return bad(c, err, "model_type",
			   "is missing: this is not the configuration of a language model");
	}
	memcpy(c->pub.family, type, strlen(type) + 1);
	return 0;
}

int sky_conf_read_dense(struct sky_conf *c, struct sky_err *err)
{
	const struct sky_jnode *v;
	bool tied = false;
	int rc = read_sizes(c, err);

	if (rc < 0 ||
	    (rc = get_num(c, find(c, "rms_norm_eps"), "rms_norm_eps", 1e-6, &c->eps, err)) < 0 ||
	    (rc = read_rope(c, err)) < 0) {
		return rc;
	}
	if (c->eps <= 0 || c->eps > 1) {
		return bad(c, err, "rms_norm_eps", "must be above 0 and at most 1");
	}
	v = sky_j_get(c->top, "tie_word_embeddings");
	v = sky_j_type(v) == SKY_J_NULL ? sky_j_get(c->text, "tie_word_embeddings") : v;
	if (sky_j_type(v) != SKY_J_NULL && !sky_j_bool(v, &tied)) {
		return bad(c, err, "tie_word_embeddings", "must be true or false");
	}
	c->pub.tied = tied;
	c->pub.bos = special_id(c, find(c, "bos_token_id"));
	c->pub.pad = special_id(c, find(c, "pad_token_id"));
	return read_eos(c, find(c, "eos_token_id"), c->path, err);
}
