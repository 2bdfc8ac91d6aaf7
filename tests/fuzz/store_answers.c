/* JSON of credential sources, settings files, times, base64: the first byte chooses. */
#include <assert.h>
#include "store/gs_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct sky_err err;
	struct sky_creds keys;
	struct sky_json *doc = NULL;
	struct gs_meta meta;
	struct sky_ini ini = { 0 };
	char token[64], *text;
	uint8_t raw[64];
	double t;
	size_t n_raw;

	if (n == 0) {
		return 0;
	}
	text = strndup((const char *)p + 1, n - 1);
	switch (p[0] % 6) {
	case 0:
		(void)!sky_cred_parse((const char *)p + 1, n - 1, "fuzz", &keys, &err);
		break;
	case 1:
		(void)!sky_gcred_parse((const char *)p + 1, n - 1, "fuzz", token, sizeof(token), &t, &err);
		break;
	case 2:
		(void)!sky_ini_parse((const char *)p + 1, n - 1, "fuzz", &ini, &err);
		(void)sky_ini_get(&ini, "default", "s3.x");
		sky_ini_release(&ini);
		break;
	case 3:
		sky_iso_time(text, &t);
		sky_http_date(text, &t);
		break;
	case 5:
		if (sky_json_parse((const char *)p + 1, n - 1, "fuzz", 0, &doc, &err) == 0) {
			(void)!gs_parse_object(sky_json_root(doc), &meta, &err);
			sky_json_free(doc);
		}
		break;
	default:
		assert(sky_unbase64(text, raw, sizeof(raw), &n_raw) < 0 || n_raw <= sizeof(raw));
	}
	free(text);
	return 0;
}
