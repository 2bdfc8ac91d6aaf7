/* model: writing a Hugging Face directory: masters rounded to the types of the checkpoint; tensors that
 * no block uses pass through byte for byte. */
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

static void spec_of(const char *name, enum sky_dtype dtype, int n_dim, const int64_t *shape,
		    struct sky_st_spec *s)
{
	*s = (struct sky_st_spec){ .name = name, .dtype = dtype, .n_dim = n_dim };
	memcpy(s->shape, shape, (size_t)n_dim * sizeof s->shape[0]);
}

/* Master i rounded to dtype in new host memory. */
static int round_master(const struct sky_model *m, const struct sky_param *q, enum sky_dtype dtype,
			void **data_p, struct sky_err *err)
{
	size_t n = (size_t)q->n;
	float *host = sky_malloc_array(n, sizeof *host);
	void *data = dtype == SKY_F32 ? host : sky_malloc_array(n, (size_t)sky_dtype_bits(dtype) / 8);
	int rc = 0;

	if (!host || !data) {
		rc = sky_fail_mem(err, "saving %s", q->name);
		goto out;
	}
	KN_TRY(rc, m->d.ops->copy(m->d.stream, host, q->master, n * sizeof *host));
	KN_TRY(rc, m->d.ops->sync(m->d.stream));
	if (rc) {
		rc = sky_kn_fail(m, rc, "reading weights for saving", err);
		goto out;
	}
	if (dtype != SKY_F32 && sky_from_f32(dtype, host, data, n) < 0) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: cannot be saved as %s", q->name,
			      sky_dtype_name(dtype));
		goto out;
	}
	*data_p = data;
	data = NULL;
	host = dtype == SKY_F32 ? NULL : host;
out:
	if (data != host) {
		free(data);
	}
	free(host);
	return rc;
}

/* Fills items; owned[i] is memory to free behind item i, or NULL. */
static int collect(const struct sky_model *m, enum sky_dtype dtype, struct sky_hf_item *items,
		   void **owned, int64_t *n_p, struct sky_err *err)
{
	int64_t n = 0;
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < m->plan.n_name; i++, n++) {
		const struct sky_param *q = &m->param[i];
		const struct sky_tensor *t =
			sky_hf_find(m->hf, q->name); /* as loaded, perhaps reloaded */
		enum sky_dtype type = dtype == SKY_DT_NONE ? q->dtype : dtype;

		spec_of(q->name, m->opt.train ? type : t->dtype, q->n_dim, q->shape, &items[n].spec);
		items[n].data = t->data;
		if (m->opt.train) {
			rc = round_master(m, q, type, &owned[n], err);
			items[n].data = owned[n];
		}
	}
	for (int64_t i = 0; rc == 0 && i < sky_hf_count(m->hf); i++) {
		const struct sky_tensor *t = sky_hf_at(m->hf, i);

		if (sky_load_skips(m, t->name)) {
			spec_of(t->name, t->dtype, t->n_dim, t->shape, &items[n].spec);
			items[n++].data = t->data;
		}
	}
	*n_p = n;
	return rc;
}

int sky_model_save(const struct sky_model *m, const char *dir, enum sky_dtype dtype, unsigned out_flags,
		   struct sky_err *err)
{
	size_t cap = (size_t)(m->plan.n_name + sky_hf_count(m->hf));
	struct sky_hf_item *items = sky_calloc_array(cap, sizeof *items);
	void **owned = sky_calloc_array(cap, sizeof *owned);
	int64_t n = 0;
	int rc;

	if (!items || !owned) {
		rc = sky_fail_mem(err, "saving %s", dir);
	} else if (!m->opt.train && dtype != SKY_DT_NONE) {
		rc = sky_fail(
			err, SKY_E_USAGE,
			"%s: a model opened for inference is saved in the types of its checkpoint",
			dir);
	} else {
		rc = collect(m, dtype, items, owned, &n, err);
	}
	if (rc == 0) {
		rc = sky_hf_write(dir, items, n, m->dir, SKY_SHARD_BYTES, out_flags, err);
	}
	for (size_t i = 0; owned && i < cap; i++) {
		free(owned[i]);
	}
	free(owned);
	free(items);
	return rc;
}
