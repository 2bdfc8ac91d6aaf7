/* Hash table from tensor names to positions. */
#include "weights/weights_int.h"

int sky_nametab_build(struct sky_nametab *t, const struct sky_tensor *tensors, int64_t n, int64_t *dup_p,
                      struct sky_err *err)
{
	uint64_t cap = 16, at;
	int64_t i;

	while (cap < 2 * (uint64_t)n) {
		cap *= 2;
	}
	t->slot = sky_calloc_array(cap, sizeof(*t->slot));
	if (!t->slot) {
		return sky_fail_mem(err, "indexing %lld tensors", (long long)n);
	}
	t->mask = cap - 1;
	t->tensors = tensors;
	for (i = 0; i < n; i++) {
		const char *name = tensors[i].name;

		at = sky_xxh64(name, strlen(name), 0) & t->mask;
		for (; t->slot[at] != 0; at = (at + 1) & t->mask) {
			if (strcmp(tensors[t->slot[at] - 1].name, name) == 0) {
				*dup_p = i;
				return sky_fail(err, SKY_E_DATA, "tensor \"%.200s\" occurs twice", name);
			}
		}
		t->slot[at] = (uint32_t)i + 1;
	}
	return 0;
}

void sky_nametab_release(struct sky_nametab *t)
{
	free(t->slot);
	t->slot = NULL;
}

int64_t sky_nametab_find(const struct sky_nametab *t, const char *name)
{
	uint64_t at;

	if (!t->slot) {
		return -1;
	}
	for (at = sky_xxh64(name, strlen(name), 0) & t->mask; t->slot[at] != 0; at = (at + 1) & t->mask) {
		if (strcmp(t->tensors[t->slot[at] - 1].name, name) == 0) {
			return (int64_t)t->slot[at] - 1;
		}
	}
	return -1;
}
