/* Fuzz target: JSON documents. What parses prints to text that parses to the same text; lookups agree with iteration. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct sky_jnode *v)
{
	const struct sky_jnode *k;
	size_t n = 0;
	double d;
	int64_t i;

	if (sky_j_i64(v, &i) && (!sky_j_f64(v, &d) || d != (double)i)) {
		abort();
	}
	for (k = sky_j_first(v); k; k = sky_j_next(k)) {
		if (sky_j_type(v) == SKY_J_OBJECT ? sky_j_get(v, sky_j_key(k)) != k : sky_j_at(v, n) != k) {
			abort();
		}
		walk(k);
		n++;
	}
	if (n != sky_j_len(v)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_buf a = SKY_BUF_INIT(SIZE_MAX), b = SKY_BUF_INIT(SIZE_MAX);
	struct sky_json *doc, *again;
	struct sky_err err;

	if (sky_json_parse((const char *)data, size, "in", SKY_JSON_PYTHON | SKY_JSON_NUL, &doc, &err) < 0) {
		if (err.code != SKY_E_DATA) {
			abort();
		}
		return 0;
	}
	walk(sky_json_root(doc));
	if (sky_j_print(sky_json_root(doc), &a, &err) < 0 ||
	    sky_json_parse(a.ptr, a.n, "again", SKY_JSON_PYTHON | SKY_JSON_NUL | SKY_JSON_NO_DUP, &again, &err) < 0 ||
	    sky_j_print(sky_json_root(again), &b, &err) < 0 || a.n != b.n || memcmp(a.ptr, b.ptr, a.n) != 0) {
		abort();
	}
	sky_json_free(again);
	sky_json_free(doc);
	sky_buf_release(&a);
	sky_buf_release(&b);
	return 0;
}
