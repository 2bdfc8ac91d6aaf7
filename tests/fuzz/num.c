/* Fuzz target: numbers as people write them. What parses prints to something that parses to the same. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_err err;
	char text[256], again[64];
	int64_t i;
	uint64_t u;
	double d, e;

	if (size >= sizeof(text)) {
		return 0;
	}
	if (size) {
		memcpy(text, data, size);
	}
	text[size] = '\0';
	if (sky_parse_i64(text, &i, &err) == 0 && (sky_parse_f64(text, &d, &err) < 0 || d != (double)i)) {
		abort();
	}
	if (sky_parse_count(text, &i, &err) < 0 && err.code >= 0) {
		abort();
	}
	if (sky_parse_size(text, &u, &err) < 0 && !err.msg[0]) {
		abort();
	}
	if (sky_parse_duration(text, &d, &err) == 0 && d != d) {
		abort();
	}
	if (sky_parse_f64(text, &d, &err) == 0 && d - d == 0) {
		if (sky_parse_f64(sky_fmt_f64(again, sizeof(again), d), &e, &err) < 0 || e != d) {
			abort();
		}
	}
	return 0;
}
