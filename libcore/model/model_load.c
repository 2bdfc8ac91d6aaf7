/* model: from a checkpoint to the slots of a plan. Every tensor is checked against the name table
 * before anything is copied. Masters are f32; packed products, lookup tables and vectors are rounded to
 * the compute type. */
#include "model/model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONVERT_ELEMS (1 << 18) /* host buffer for element types that the device does not read */

int sky_kn_fail(const struct sky_model *m, int status, const char *what, struct sky_err *err)
{
	int code = status == KN_E_MEMORY ? SKY_E_LIMIT : SKY_E_DEVICE;

	return sky_fail(err, code, "%s: %s: %s", m->d.ops->name, what, m->d.ops->last_error(m->d.dev));
}

/* ---- checks ---- */
static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), k = strlen(tail);

	return n >= k && strcmp(s + n - k, tail) == 0;
}

bool sky_load_skips(const struct sky_model *m, const char *name)
{
	static const char *const head[] = {
		"model.visual.", "visual.",
		"vision_tower.", "model.vision_tower.",
		"mm_projector.", "multi_modal_projector.",
		"mtp.",
	};
	static const char *const tail[] = { ".rotary_emb.inv_freq", ".k_scale", ".v_scale" };
	int64_t layer = 0;
	const char *s;

	for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) {
		if (strncmp(name, head[i], strlen(head[i])) == 0) {
			return true;
		}
	}
	for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++) {
		if (ends_with(name, tail[i])) {
			return true;
		}
	}
	/* Layers behind the last are multi-token prediction heads. */
	if (strncmp(name, "model.layers.", 13) != 0) {
		return false;
	}
	for (s = name + 13; *s >= '0' && *s <= '9' && layer < INT32_MAX; s++) {
		layer = layer * 10 + (*s - '0');
	}
	return s > name + 13 && *s == '.' && layer >= m->plan.n_layer;
}

static void shape_text(char *out, size_t cap, int n_dim, const int64_t *shape)
{
	size_t n = (size_t)snprintf(out, cap, "[");

	for (int i = 0; i < n_dim && n < cap; i++) {
		n += (size_t)snprintf(out + n, cap - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
	}
	if (n < cap) {
		snprintf(out + n, cap - n, "]");
	}
}

static bool is_float(enum sky_dtype t)
{
	return t == SKY_F32 || t == SKY_BF16 || t == SKY_F16 || t == SKY_F64;
}

static int check_tensor(const struct sky_model *m, const struct sky_name *n, struct sky_err *err)
{
	const struct sky_tensor *t = sky_hf_find(m->hf, n->name);
	char want[128], have[128];

	if (!t) {
		return sky_fail(err, SKY_E_DATA,
				"%s: tensor %s is missing, which config.json (%s) calls for", m->dir,
				n->name, m->cfg.family);
	}
	if (t->n_dim != n->n_dim ||
	    memcmp(t->shape, n->shape, (size_t)n->n_dim * sizeof t->shape[0]) != 0) {
		shape_text(want, sizeof want, n->n_dim, n->shape);
		shape_text(have, sizeof have, t->n_dim, t->shape);
		return sky_fail(err, SKY_E_DATA,
				"%s: tensor %s has shape %s, but config.json makes it %s", m->dir,
				n->name, have, want);
	}
	if (!is_float(t->dtype)) {
		return sky_fail(err, SKY_E_DATA,
				"%s: tensor %s has type %s; weights must be F32, BF16, F16 or F64",
				m->dir, n->name, sky_dtype_name(t->dtype));
	}
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct sky_name *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* A tied head that is listed again is fine when it holds the same bytes. */
static int check_tied_head(const struct sky_model *m, const struct sky_tensor *head,
			   struct sky_err *err)
{
	const struct sky_name *n = &m->plan.name[m->plan.slot[m->plan.embed.table].name0];
	const struct sky_tensor *t = sky_hf_find(m->hf, n->name);

	if (t->dtype == head->dtype && t->bytes == head->bytes &&
	    memcmp(t->data, head->data, t->bytes) == 0) {
		return 0;
	}
	return sky_fail(
		err, SKY_E_DATA,
		"%s: %s differs from %s, but config.json ties them (tie_word_embeddings); remove one "
		"or set tie_word_embeddings to false",
		m->dir, head->name, n->name);
}

static int check_unexpected(const struct sky_model *m, struct sky_err *err)
{
	int64_t n = m->plan.n_name;
	const struct sky_name **by_name = sky_malloc_array((size_t)n, sizeof *by_name);
	int rc = 0;

	if (!by_name) {
		return sky_fail_mem(err, "checking the tensors of %s", m->dir);
	}
	for (int64_t i = 0; i < n; i++) {
		by_name[i] = &m->plan.name[i];
	}
	qsort(by_name, (size_t)n, sizeof *by_name, compare_names);
	for (int64_t i = 0; rc == 0 && i < sky_hf_count(m->hf); i++) {
		const struct sky_tensor *t = sky_hf_at(m->hf, i);
		struct sky_name key = { .name = (char *)t->name };
		const struct sky_name *k = &key;

		if (bsearch(&k, by_name, (size_t)n, sizeof *by_name, compare_names) ||
		    sky_load_skips(m, t->name)) {
			continue;
		}
		if (m->cfg.tied && strcmp(t->name, "lm_head.weight") == 0) {
			rc = check_tied_head(m, t, err);
			continue;
		}
		rc = sky_fail(
			err, SKY_E_DATA,
			"%s: tensor %s is unknown to %s: config.json and the weights do not belong together",
			m->dir, t->name, m->cfg.family);
	}
	free(by_name);
	return rc;
}

/* ---- filling ---- */

/* n elements of a checkpoint tensor to device f32. */
static int put_f32(struct sky_model *m, const struct sky_tensor *t, float *dst, float *buf,
		   struct sky_err *err)
{
	uint64_t e = (uint64_t)sky_dtype_bits(t->dtype) / 8;
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < t->n; i += CONVERT_ELEMS) {
		int64_t k = t->n - i < CONVERT_ELEMS ? t->n - i : CONVERT_ELEMS;

		if (sky_to_f32(t->dtype, (const char *)t->data + (uint64_t)i * e, buf, (size_t)k) < 0) {
			return sky_fail(err, SKY_E_DATA, "%s: tensor %s cannot be converted from %s",
					m->dir, t->name, sky_dtype_name(t->dtype));
		}
		KN_TRY(rc, m->d.ops->copy(m->d.stream, dst + i, buf, (uint64_t)k * sizeof(float)));
		KN_TRY(rc, m->d.ops->sync(m->d.stream));
	}
	return rc ? sky_kn_fail(m, rc, "copying weights", err) : 0;
}

static bool is_compute_type(const struct sky_model *m, enum sky_dtype t)
{
	return t == (m->opt.compute == KN_F32 ? SKY_F32 : SKY_BF16);
}

/* Slot i from f32 values src [N, K]: what forward and backward read. */
static int slot_from_f32(struct sky_model *m, struct sky_slot *s, const float *src)
{
	const struct kn_ops *ops = m->d.ops;
	enum kn_dtype t = m->opt.compute;
	int64_t n = s->N * s->K;
	int rc = 0;

	if (s->use & SKY_SLOT_VECTOR) {
		if (t == KN_F32) {
			return ops->copy(m->d.stream, s->vec, src, (uint64_t)n * sizeof(float));
		}
		rc = ops->cast(m->d.stream, n, KN_F32, src, t, m->stage);
		KN_TRY(rc, ops->cast(m->d.stream, n, t, m->stage, KN_F32, s->vec));
		return rc;
	}
	if (s->use & SKY_SLOT_LOOKUP) {
		rc = ops->cast(m->d.stream, n, KN_F32, src, t, s->table);
		if (rc == 0 && s->use & SKY_SLOT_PRODUCT) {
			rc = ops->weight_set(m->d.stream, s->w, s->table);
		}
		return rc;
	}
	if (t == KN_F32) {
		return ops->weight_set(m->d.stream, s->w, src);
	}
	KN_TRY(rc, ops->cast(m->d.stream, n, KN_F32, src, t, m->stage));
	KN_TRY(rc, ops->weight_set(m->d.stream, s->w, m->stage));
	return rc;
}

/* Inference, all tensors of the slot in the compute type already: no detour by f32. */
static int slot_from_raw(struct sky_model *m, struct sky_slot *s)
{
	const struct kn_ops *ops = m->d.ops;
	char *dst = s->use & SKY_SLOT_LOOKUP ? s->table : m->stage;
	int rc = 0;

	for (int64_t i = 0; i < s->n_name; i++) {
		const struct sky_name *n = &m->plan.name[s->name0 + i];
		const struct sky_tensor *t = sky_hf_find(m->hf, n->name);

		KN_TRY(rc, ops->copy(m->d.stream, dst + (uint64_t)(n->row0 * s->K) * m->esz, t->data,
				     t->bytes));
	}
	if (rc == 0 && s->use & SKY_SLOT_PRODUCT) {
		rc = ops->weight_set(m->d.stream, s->w, dst);
	}
	KN_TRY(rc, ops->sync(m->d.stream));
	return rc;
}

static bool slot_is_raw(const struct sky_model *m, const struct sky_slot *s)
{
	if (m->opt.train || s->use & SKY_SLOT_VECTOR) {
		return false;
	}
	for (int64_t i = 0; i < s->n_name; i++) {
		if (!is_compute_type(m, sky_hf_find(m->hf, m->plan.name[s->name0 + i].name)->dtype)) {
			return false;
		}
	}
	return true;
}

static int fill_slot(struct sky_model *m, struct sky_slot *s, float *master, float *buf,
		     struct sky_err *err)
{
	int rc = 0;

	if (slot_is_raw(m, s)) {
		rc = slot_from_raw(m, s);
		return rc ? sky_kn_fail(m, rc, "packing weights", err) : 0;
	}
	for (int64_t i = 0; i < s->n_name; i++) {
		const struct sky_name *n = &m->plan.name[s->name0 + i];

		rc = put_f32(m, sky_hf_find(m->hf, n->name), master + n->row0 * s->K, buf, err);
		if (rc < 0) {
			return rc;
		}
	}
	rc = slot_from_f32(m, s, master);
	return rc ? sky_kn_fail(m, rc, "packing weights", err) : 0;
}

int sky_load_tensors(struct sky_model *m, struct sky_err *err)
{
	float *buf = NULL;
	void *temp = NULL;
	int64_t most = 0;
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < m->plan.n_name; i++) {
		rc = check_tensor(m, &m->plan.name[i], err);
	}
	if (rc < 0 || (rc = check_unexpected(m, err)) < 0) {
		return rc;
	}
	for (int32_t i = 0; i < m->plan.n_slot; i++) {
		const struct sky_slot *s = &m->plan.slot[i];

		if (!m->opt.train && !slot_is_raw(m, s) && s->N * s->K > most) {
			most = s->N * s->K;
		}
	}
	buf = sky_malloc_array(CONVERT_ELEMS, sizeof *buf);
	if (!buf) {
		return sky_fail_mem(err, "loading %s", m->dir);
	}
	if (most && (rc = m->d.ops->alloc(m->d.dev, (uint64_t)most * sizeof(float), &temp)) != 0) {
		rc = sky_kn_fail(m, rc, "allocating the load buffer", err);
	}
	for (int32_t i = 0; rc == 0 && i < m->plan.n_slot; i++) {
		rc = fill_slot(m, &m->plan.slot[i], m->opt.train ? m->plan.slot[i].master : temp, buf,
			       err);
	}
	if (rc == 0 && (rc = m->d.ops->sync(m->d.stream)) != 0) {
		rc = sky_kn_fail(m, rc, "loading weights", err);
	}
	/* Exports keep the types of the checkpoint that was opened first, not those of a reloaded one
	 * in f32. */
	for (int64_t i = 0; i < m->plan.n_name && m->param[i].dtype == SKY_DT_NONE; i++) {
		m->param[i].dtype = sky_hf_find(m->hf, m->plan.name[i].name)->dtype;
	}
	m->d.ops->free(m->d.dev, temp);
	free(buf);
	return rc;
}

int sky_model_sync(struct sky_model *m, struct sky_err *err)
{
	int rc = 0;

	if (!m->opt.train) {
		return sky_fail(
			err, SKY_E_USAGE,
			"%s: the model was not opened for training, there is nothing to pack again",
			m->dir);
	}
	m->kept = false;
	for (int32_t i = 0; rc == 0 && i < m->plan.n_slot; i++) {
		rc = slot_from_f32(m, &m->plan.slot[i], m->plan.slot[i].master);
	}
	KN_TRY(rc, m->d.ops->sync(m->d.stream));
	return rc ? sky_kn_fail(m, rc, "packing weights after an update", err) : 0;
}
