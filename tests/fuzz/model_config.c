/* Fuzz target: config.json to a layer plan. Whatever parses is refused with a message or gives a plan
 * whose sizes hold together. */
#include <stdlib.h>

#include "model/model_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sky_conf *c, const struct sky_plan *p)
{
	if (p->n_block != 2 * c->pub.n_layer || p->d_model != c->pub.d_model || p->n_name < 3) {
		abort();
	}
	for (int64_t i = 0; i < p->n_name; i++) {
		const struct sky_name *n = &p->name[i];
		const struct sky_slot *s = &p->slot[n->slot];

		if (n->row0 + n->shape[0] > s->N || (n->n_dim == 2 && n->shape[1] != s->K) ||
		    s->N * s->K < 1) {
			abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sky_family *f;
	struct sky_json *doc = NULL;
	struct sky_plan p = { 0 };
	struct sky_conf c;
	struct sky_err err = { 0 };
	double inv[64], amp;
	int rc = sky_json_parse((const char *)data, size, "config.json", SKY_JSON_PYTHON, &doc, &err);

	if (rc == 0 && (rc = sky_conf_read(sky_json_root(doc), "config.json", &c, &err)) == 0 &&
	    (rc = sky_family_find(&c, &f, &err)) == 0 && (rc = f->plan(&c, &p, &err)) == 0) {
		check(&c, &p);
		sky_rope_freq(&p.rope, p.rope_pairs < 64 ? p.rope_pairs : 64, inv, &amp);
	}
	if (rc < 0 && !err.msg[0]) {
		abort();
	}
	sky_plan_release(&p);
	sky_json_free(doc);
	return 0;
}
