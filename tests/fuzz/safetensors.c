/* Fuzz target: safetensors files. Whatever is accepted lies inside the file, does not overlap and is found by name. */
#include <stdlib.h>

#include "weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sky_tensor *t;
	struct sky_st *st = NULL;
	const char *key, *value;
	struct sky_err err;
	uint64_t at;
	int64_t i;

	if (sky_st_parse(data, size, size, "in", &st, &err) < 0) {
		if (st || err.code >= 0 || !err.msg[0]) {
			abort();
		}
		return 0;
	}
	at = sky_st_data_off(st);
	for (i = 0; i < sky_st_count(st); i++) {
		t = sky_st_at(st, i);
		if (t->off != at || t->bytes > size - at || sky_st_find(st, t->name) != t || t->n_dim > SKY_MAX_DIMS) {
			abort();
		}
		at += t->bytes;
	}
	if (at != size) {
		abort();
	}
	for (i = 0; sky_st_meta_at(st, i, &key, &value) == 0; i++) {
		if (!key || !value || sky_st_meta(st, key) != value) {
			abort();
		}
	}
	sky_st_close(st);
	return 0;
}
