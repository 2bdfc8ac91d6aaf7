/* model: life of a model: configuration, plan, device memory, weights; parameters; saving. */
#include "model/model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sky_plan_read(const char *path, const char *dir, struct sky_json **doc_p, struct sky_conf *c,
		  struct sky_plan *p, struct sky_err *err)
{
	const struct sky_family *f;
	int rc = sky_json_load(path, SKY_JSON_PYTHON, doc_p, err);

	if (rc < 0 || (rc = sky_conf_read(sky_json_root(*doc_p), path, c, err)) < 0 ||
	    (rc = sky_family_find(c, &f, err)) < 0 || (rc = f->plan(c, p, err)) < 0) {
		return rc;
	}
	return sky_conf_generation(c, dir, err);
}

static int alloc_slot(struct sky_model *m, struct sky_slot *s)
{
	const struct kn_ops *ops = m->d.ops;
	unsigned uses = KN_USE_FWD | (m->opt.train ? (unsigned)KN_USE_BWD_X : 0u);
	uint64_t n = (uint64_t)(s->N * s->K);
	int rc = 0;

	if (s->use & SKY_SLOT_PRODUCT) {
		KN_TRY(rc, ops->weight_new(m->d.dev, m->opt.compute, s->N, s->K, uses, &s->w));
	}
	if (s->use & SKY_SLOT_LOOKUP) {
		KN_TRY(rc, ops->alloc(m->d.dev, n * m->esz, &s->table));
	}
	if (s->use & SKY_SLOT_VECTOR) {
		void *p = NULL;

		KN_TRY(rc, ops->alloc(m->d.dev, n * sizeof(float), &p));
		s->vec = p;
	}
	return rc;
}

/* Slabs of masters and gradients, slots one after the other at multiples of 16 elements. */
static int alloc_slots(struct sky_model *m, struct sky_err *err)
{
	const struct kn_ops *ops = m->d.ops;
	uint64_t stage = 0;
	void *p = NULL;
	int rc = 0;

	for (int32_t i = 0; rc == 0 && i < m->plan.n_slot; i++) {
		struct sky_slot *s = &m->plan.slot[i];
		uint64_t n = (uint64_t)(s->N * s->K);

		rc = alloc_slot(m, s);
		s->off = m->slab_n;
		m->slab_n += (n + 15) & ~(uint64_t)15;
		stage = !(s->use & SKY_SLOT_LOOKUP) && n > stage ? n : stage;
	}
	KN_TRY(rc, ops->alloc(m->d.dev, stage * m->esz, &m->stage));
	if (m->opt.train) {
		KN_TRY(rc, ops->alloc(m->d.dev, m->slab_n * sizeof(float), &p));
		m->master = p;
		p = NULL;
		KN_TRY(rc, ops->alloc(m->d.dev, m->slab_n * sizeof(float), &p));
		m->grad = p;
		for (int32_t i = 0; i < m->plan.n_slot && rc == 0; i++) {
			m->plan.slot[i].master = m->master + m->plan.slot[i].off;
			m->plan.slot[i].grad = m->grad + m->plan.slot[i].off;
		}
	}
	return rc ? sky_kn_fail(m, rc, "allocating the weights", err) : 0;
}

static int make_params(struct sky_model *m, struct sky_err *err)
{
	m->param = sky_calloc_array((size_t)m->plan.n_name, sizeof *m->param);
	if (!m->param) {
		return sky_fail_mem(err, "listing the parameters of %s", m->dir);
	}
	for (int64_t i = 0; i < m->plan.n_name; i++) {
		const struct sky_name *n = &m->plan.name[i];
		const struct sky_slot *s = &m->plan.slot[n->slot];
		struct sky_param *q = &m->param[i];

		*q = (struct sky_param){
			.name = n->name, .n_dim = n->n_dim, .n = 1, .decay = n->n_dim > 1
		};
		for (int d = 0; d < n->n_dim; d++) {
			q->shape[d] = n->shape[d];
			q->n *= n->shape[d];
		}
		m->cfg.n_param += q->n;
		q->master = s->master ? s->master + n->row0 * s->K : NULL;
		q->grad = s->grad ? s->grad + n->row0 * s->K : NULL;
	}
	return 0;
}

static void set_state_offsets(struct sky_model *m)
{
	uint64_t off = 0;

	for (int32_t i = 0; i < m->plan.n_block; i++) {
		struct sky_block *b = &m->plan.block[i];

		b->page_bytes =
			b->kind->page_bytes ? (b->kind->page_bytes(m, b) + 63) & ~(uint64_t)63 : 0;
		b->state_off = off;
		off += b->page_bytes;
	}
}

#define HEAD_LOGITS (1 << 24) /* elements: enough rows for the products, few enough for memory */
#define MLP_ROWS 512

static int64_t head_rows(int64_t vocab)
{
	int64_t n = HEAD_LOGITS / vocab / 32 * 32;

	return n < 32 ? 32 : n > 1024 ? 1024 : n;
}

static int build(struct sky_model *m, const char *dir, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct sky_json *doc = NULL;
	struct sky_conf c;
	int rc = sky_hf_open(dir, &m->hf, err);

	if (rc < 0) {
		return rc;
	}
	m->dir = strdup(sky_hf_dir(m->hf));
	if (!m->dir) {
		return sky_fail_mem(err, "opening %s", dir);
	}
	rc = sky_path_join(path, sizeof path, m->dir, "config.json", err);
	if (rc == 0) {
		rc = sky_plan_read(path, m->dir, &doc, &c, &m->plan, err);
	}
	if (rc == 0) {
		m->cfg = c.pub;
		m->head_rows = head_rows(c.pub.vocab);
		m->mlp_rows = MLP_ROWS;
		rc = alloc_slots(m, err);
	}
	sky_json_free(doc);
	if (rc < 0 || (rc = make_params(m, err)) < 0) {
		return rc;
	}
	set_state_offsets(m);
	return sky_load_tensors(m, err);
}

int sky_model_open(const struct sky_device *d, const char *dir, const struct sky_model_opt *opt,
		   struct sky_model **m_p, struct sky_err *err)
{
	struct sky_model *m = calloc(1, sizeof *m);
	int rc;

	if (!m) {
		return sky_fail_mem(err, "opening %s", dir);
	}
	m->d = *d;
	m->opt = *opt;
	m->esz = opt->compute == KN_F32 ? 4 : 2;
	rc = build(m, dir, err);
	if (rc < 0) {
		sky_model_close(m);
		return rc;
	}
	*m_p = m;
	return 0;
}

void sky_model_close(struct sky_model *m)
{
	if (!m) {
		return;
	}
	for (int32_t i = 0; i < m->plan.n_slot; i++) {
		m->d.ops->weight_free(m->plan.slot[i].w);
		m->d.ops->free(m->d.dev, m->plan.slot[i].table);
		m->d.ops->free(m->d.dev, m->plan.slot[i].vec);
	}
	m->d.ops->free(m->d.dev, m->master);
	m->d.ops->free(m->d.dev, m->grad);
	m->d.ops->free(m->d.dev, m->stage);
	m->d.ops->free(m->d.dev, m->cos);
	m->d.ops->free(m->d.dev, m->sin);
	sky_pass_release(m);
	sky_plan_release(&m->plan);
	sky_hf_close(m->hf);
	free(m->param);
	free(m->dir);
	free(m);
}

const struct sky_config *sky_model_config(const struct sky_model *m)
{
	return &m->cfg;
}

const char *sky_model_dir(const struct sky_model *m)
{
	return m->dir;
}

static bool same_rope(const struct sky_rope_conf *a, const struct sky_rope_conf *b)
{
	return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
	       a->partial == b->partial && a->lo == b->lo && a->hi == b->hi &&
	       a->orig_pos == b->orig_pos && a->beta_fast == b->beta_fast &&
	       a->beta_slow == b->beta_slow && a->attn_factor == b->attn_factor &&
	       a->mscale == b->mscale && a->mscale_all == b->mscale_all && a->truncate == b->truncate;
}

/* Two configurations fit when their plans ask for the same tensors; the rest of config.json may differ
 * in names only. */
static int same_plan(const struct sky_model *m, const char *dir, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct sky_json *doc = NULL;
	struct sky_plan p = { 0 };
	struct sky_conf c;
	int rc = sky_path_join(path, sizeof path, dir, "config.json", err);

	if (rc == 0) {
		rc = sky_plan_read(path, dir, &doc, &c, &p, err);
	}
	if (rc == 0) {
		int same = p.n_name == m->plan.n_name && p.n_block == m->plan.n_block &&
			   same_rope(&p.rope, &m->plan.rope) && p.head.eps == m->plan.head.eps &&
			   c.pub.n_head == m->cfg.n_head && c.pub.n_kv_head == m->cfg.n_kv_head &&
			   strcmp(c.pub.family, m->cfg.family) == 0;

		for (int64_t i = 0; same && i < p.n_name; i++) {
			same = strcmp(p.name[i].name, m->plan.name[i].name) == 0 &&
			       memcmp(p.name[i].shape, m->plan.name[i].shape, sizeof p.name[i].shape) ==
				       0;
		}
		if (!same) {
			rc = sky_fail(
				err, SKY_E_DATA,
				"%s: config.json describes another model than the one in use (%s)", dir,
				m->dir);
		}
	}
	sky_plan_release(&p);
	sky_json_free(doc);
	return rc;
}

int sky_model_reload(struct sky_model *m, const char *dir, struct sky_err *err)
{
	struct sky_hf *hf = NULL, *old = m->hf;
	char *old_dir = m->dir, *new_dir;
	int rc = sky_hf_open(dir, &hf, err);

	if (rc < 0) {
		return rc;
	}
	new_dir = strdup(sky_hf_dir(hf));
	rc = new_dir ? same_plan(m, new_dir, err) : sky_fail_mem(err, "opening %s", dir);
	if (rc < 0) {
		free(new_dir);
		sky_hf_close(hf);
		return rc;
	}
	m->kept = false;
	m->hf = hf;
	m->dir = new_dir;
	rc = sky_load_tensors(m, err);
	if (rc ==
	    SKY_E_DATA) { /* checked before anything was copied: the old weights are still in use */
		m->hf = old;
		m->dir = old_dir;
		old = hf;
		old_dir = new_dir;
	}
	sky_hf_close(old);
	free(old_dir);
	return rc;
}

int64_t sky_model_n_param(const struct sky_model *m)
{
	return m->plan.n_name;
}

const struct sky_param *sky_model_param(const struct sky_model *m, int64_t i)
{
	return i >= 0 && i < m->plan.n_name ? &m->param[i] : NULL;
}

int sky_model_zero_grad(struct sky_model *m, struct sky_err *err)
{
	int rc = m->grad ? m->d.ops->zero(m->d.stream, m->grad, m->slab_n * sizeof(float)) : 0;

	return rc ? sky_kn_fail(m, rc, "clearing gradients", err) : 0;
}

void sky_model_fingerprint(const struct sky_model *m, char out[65])
{
	struct sky_sha256 s;
	uint8_t d[32];

	sky_sha256_init(&s);
	for (int64_t i = 0; i < m->plan.n_name; i++) {
		const struct sky_tensor *t = sky_hf_find(m->hf, m->plan.name[i].name);
		char head[512];
		int n = snprintf(head, sizeof head, "%s %s", t->name, sky_dtype_name(t->dtype));

		for (int k = 0; k < t->n_dim && n < (int)sizeof head; k++) {
			n += snprintf(head + n, sizeof head - (size_t)n, " %lld",
				      (long long)t->shape[k]);
		}
		sky_sha256_update(&s, head, strlen(head) + 1);
		sky_sha256_update(&s, t->data, t->bytes);
	}
	sky_sha256_final(&s, d);
	sky_hex(d, sizeof d, out);
}
