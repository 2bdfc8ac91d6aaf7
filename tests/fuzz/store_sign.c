/* Canonical requests: names and values from the input; the canonical query is a fixed point of itself. */
#include <assert.h>
#include "store/sigv4_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Cuts the input at line feeds. */
static int cut(char *text, char *v[8])
{
	char *save = NULL;
	int n = 0;

	for (char *a = strtok_r(text, "\n", &save); a && n < 8; a = strtok_r(NULL, "\n", &save)) {
		v[n++] = a;
	}
	return n;
}

static void query_again(const char *canonical)
{
	struct sky_buf q = SKY_BUF_INIT(1u << 20), name[4], value[4];
	const char *pairs[4][2] = { { NULL } };
	char *copy = strdup(canonical), *save = NULL;
	int n = 0;

	for (char *a = strtok_r(copy, "&", &save); a && n < 4; a = strtok_r(NULL, "&", &save)) {
		char *eq = strchr(a, '=');

		assert(eq);
		sky_buf_init(&name[n], 1u << 20);
		sky_buf_init(&value[n], 1u << 20);
		assert(sky_uri_decode(&name[n], a, (size_t)(eq - a), NULL) == 0);
		assert(sky_uri_decode(&value[n], eq + 1, strlen(eq + 1), NULL) == 0);
		pairs[n][0] = name[n].ptr ? name[n].ptr : "";
		pairs[n][1] = value[n].ptr ? value[n].ptr : "";
		n++;
	}
	assert(sky_query_build(&q, pairs, n, NULL) == 0);
	assert(strcmp(q.ptr ? q.ptr : "", canonical) == 0);
	for (int i = 0; i < n; i++) {
		sky_buf_release(&name[i]);
		sky_buf_release(&value[i]);
	}
	sky_buf_release(&q);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct sky_buf q = SKY_BUF_INIT(1u << 20), path = SKY_BUF_INIT(1u << 20), canon = SKY_BUF_INIT(1u << 20),
	               names = SKY_BUF_INIT(1u << 20), auth = SKY_BUF_INIT(1u << 20);
	struct sky_heads h = { .n = 0 };
	char *text = strndup((const char *)p, n), *v[8], sig[65];
	int n_v = n > 60000 ? 0 : cut(text, v), n_pair = 0;
	const char *pairs[4][2];
	struct sky_sig g = { &sky_sig_aws, "GET", NULL, NULL, &h,        SKY_UNSIGNED_PAYLOAD,
		             "AK",         "SK",  "r",  "s3", 1369353600 };

	for (int i = 0; i + 1 < n_v; i += 2) {
		pairs[n_pair][0] = v[i];
		pairs[n_pair++][1] = v[i + 1];
	}
	if (n_v > 0 && sky_query_build(&q, pairs, n_pair, NULL) == 0 &&
	    sky_uri_encode(&path, v[0], strlen(v[0]), 1, NULL) == 0 &&
	    sky_heads_add(&h, NULL, "host", "%s", v[0]) == 0 &&
	    sky_heads_add(&h, NULL, "X-amz-meta-x", "%s", v[n_v - 1]) == 0) {
		query_again(q.ptr ? q.ptr : "");
		g.path = path.ptr ? path.ptr : "/";
		g.query = q.ptr ? q.ptr : "";
		if (sky_sig_canonical(&g, &canon, &names, NULL) == 0) {
			assert(strcmp(names.ptr, "host;x-amz-meta-x") == 0);
			assert(sky_sig_sign(&g, &auth, sig, NULL) == 0 && strlen(sig) == 64);
		}
	}
	sky_heads_release(&h);
	sky_buf_release(&q);
	sky_buf_release(&path);
	sky_buf_release(&canon);
	sky_buf_release(&names);
	sky_buf_release(&auth);
	free(text);
	return 0;
}
