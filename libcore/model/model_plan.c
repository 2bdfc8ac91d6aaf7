/* model: building a plan. Families call these; a failed allocation sticks and is reported once at the
 * end. */
#include "model/model_int.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more element in an array of n, doubling. */
static bool grow(struct sky_plan *p, void **array, int64_t n, int64_t *cap, size_t size)
{
	void *q;

	if (p->failed) {
		return false;
	}
	if (n < *cap) {
		return true;
	}
	q = sky_realloc_array(*array, (size_t)(*cap ? 2 * *cap : 16), size);
	if (!q) {
		p->failed = true;
		return false;
	}
	*array = q;
	*cap = *cap ? 2 * *cap : 16;
	return true;
}

int32_t sky_plan_slot(struct sky_plan *p, unsigned use, int64_t N, int64_t K)
{
	if (!grow(p, (void **)&p->slot, p->n_slot, &p->cap_slot, sizeof *p->slot)) {
		return -1;
	}
	p->slot[p->n_slot] = (struct sky_slot){ .use = use, .N = N, .K = K };
	return p->n_slot++;
}

void sky_plan_name(struct sky_plan *p, int32_t slot, int64_t row0, int64_t d0, int64_t d1,
		   const char *fmt, ...)
{
	struct sky_name n = {
		.slot = slot, .row0 = row0, .n_dim = d1 ? 2 : 1, .shape = { d0, d1 ? d1 : 1 }
	};
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (!grow(p, (void **)&p->name, p->n_name, &p->cap_name, sizeof *p->name)) {
		return;
	}
	n.name = strdup(text);
	if (!n.name) {
		p->failed = true;
		return;
	}
	if (p->slot[slot].n_name++ == 0) {
		p->slot[slot].name0 = p->n_name;
	}
	assert(p->slot[slot].name0 + p->slot[slot].n_name ==
	       p->n_name + 1); /* one slot's names in a row */
	p->name[p->n_name++] = n;
}

void *sky_plan_block(struct sky_plan *p, const struct sky_block_kind *kind, int32_t layer)
{
	struct sky_block b = { .kind = kind, .layer = layer };

	if (!grow(p, (void **)&p->block, p->n_block, &p->cap_block, sizeof *p->block)) {
		return NULL;
	}
	b.spec = calloc(1, kind->spec_bytes);
	b.act = calloc(1, kind->act_bytes);
	if (!b.spec || !b.act) {
		free(b.spec);
		free(b.act);
		p->failed = true;
		return NULL;
	}
	p->block[p->n_block++] = b;
	return b.spec;
}

void sky_plan_release(struct sky_plan *p)
{
	for (int64_t i = 0; i < p->n_name; i++) {
		free(p->name[i].name);
	}
	for (int32_t i = 0; i < p->n_block; i++) {
		free(p->block[i].spec);
		free(p->block[i].act);
	}
	free(p->name);
	free(p->slot);
	free(p->block);
	memset(p, 0, sizeof *p);
}
