/* The reader of XML answers: never crashes, and every text and path that it gives is bounded. */
#include <assert.h>
#include "store/xml_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_end(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	int *n = ctx;

	assert(strlen(text) <= SKY_MAX_XML_TEXT && strlen(path) < 512);
	return ++*n > 100000 ? sky_fail(err, SKY_E_LIMIT, "many") : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct sky_err err;
	int n_end = 0;
	int rc = sky_xml_walk((const char *)p, n, on_end, &n_end, &err);

	assert(rc == 0 || rc == SKY_E_DATA);
	assert(rc != 0 || n_end > 0);
	return 0;
}
