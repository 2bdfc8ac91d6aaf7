/* model: random weights for a configuration, to train from nothing. A weight depends on the seed, the
 * name of its tensor and its place alone. */
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

/* n elements of a tensor in new memory: matrices normal, norms 1, biases 0. NULL when out of memory. */
static void *random_tensor(const struct sky_name *t, size_t n, double deviation, uint64_t seed,
			   enum sky_dtype dtype)
{
	size_t len = strlen(t->name);
	bool bias = len >= 5 && strcmp(t->name + len - 5, ".bias") == 0;
	uint64_t stream = sky_xxh64(t->name, len, 0);
	float *x = sky_malloc_array(n, sizeof *x);
	void *out = sky_malloc_array(n, sizeof *x);

	for (size_t i = 0; x && out && i < n; i++) {
		x[i] = t->n_dim == 1
			       ? !bias
			       : (float)(deviation * sky_rng_normal(seed, SKY_RNG_INIT, stream, i));
	}
	if (!x || !out || sky_from_f32(dtype, x, out, n) < 0) {
		free(out);
		out = NULL;
	}
	free(x);
	return out;
}

/* Deviation and element type: f32 where the configuration says so, else bf16 as published checkpoints
 * have it. */
static int read_init(const struct sky_jnode *root, double *deviation_p, enum sky_dtype *dtype_p,
		     struct sky_err *err)
{
	const char *type, *key = sky_j_get(root, "dtype") ? "dtype" : "torch_dtype";
	int rc = sky_j_get_f64(root, "initializer_range", 0.02, deviation_p, err);

	if (rc < 0 || (rc = sky_j_get_str(root, key, "bfloat16", &type, err)) < 0) {
		return rc;
	}
	*dtype_p = sky_dtype_from_torch(type) == SKY_F32 ? SKY_F32 : SKY_BF16;
	return 0;
}

static int make_items(const struct sky_plan *p, const struct sky_jnode *root, uint64_t seed,
		      struct sky_hf_item *items, struct sky_err *err)
{
	enum sky_dtype dtype;
	double deviation;
	int rc = read_init(root, &deviation, &dtype, err);

	for (int64_t i = 0; rc == 0 && i < p->n_name; i++) {
		const struct sky_name *t = &p->name[i];
		size_t n = 1;

		items[i].spec =
			(struct sky_st_spec){ .name = t->name, .dtype = dtype, .n_dim = t->n_dim };
		memcpy(items[i].spec.shape, t->shape, sizeof t->shape);
		for (int k = 0; k < t->n_dim; k++) {
			n *= (size_t)t->shape[k];
		}
		items[i].data = random_tensor(t, n, deviation, seed, dtype);
		if (!items[i].data) {
			rc = sky_fail_mem(err, "drawing random weights of %s", t->name);
		}
	}
	return rc;
}

int sky_model_init(const char *config_dir, const char *dir, uint64_t seed, unsigned out_flags,
		   struct sky_err *err)
{
	char path[SKY_MAX_PATH], from[SKY_MAX_PATH];
	struct sky_hf_item *items = NULL;
	struct sky_json *doc = NULL;
	struct sky_plan p = { 0 };
	struct sky_conf c;
	int rc = sky_hf_resolve(config_dir, from, sizeof from, err);

	if (rc < 0 || (rc = sky_path_join(path, sizeof path, from, "config.json", err)) < 0) {
		return rc;
	}
	rc = sky_plan_read(path, from, &doc, &c, &p, err);
	if (rc < 0) {
		goto out;
	}
	items = sky_calloc_array((size_t)p.n_name, sizeof *items);
	rc = items ? make_items(&p, sky_json_root(doc), seed, items, err)
		   : sky_fail_mem(err, "laying out %s", dir);
	if (rc == 0) {
		rc = sky_hf_write(dir, items, p.n_name, from, SKY_SHARD_BYTES, out_flags, err);
	}
	for (int64_t i = 0; items && i < p.n_name; i++) {
		free((void *)(uintptr_t)items[i].data);
	}
	free(items);
out:
	sky_plan_release(&p);
	sky_json_free(doc);
	return rc;
}
