/* tokenizer: ids and decoded text of the golden strings, for every tokenizer of the shared data. */
#include <zstd.h>

#include "../testlib.h"
#include "text/tok_int.h"

#define MAX_STRINGS 1000

struct text {
	char *s;
	size_t n;
};
static struct text strings[MAX_STRINGS];
static int n_strings;

/* The golden files themselves are wrong or something else fails that should not: no use in going on. */
SKY_PRINTF(1, 2) static _Noreturn void bail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\nBail out!\n");
	exit(1);
}

static char *unzstd(const char *path, size_t *n_p)
{
	struct sky_map m = SKY_MAP_INIT;
	struct sky_err err;
	char *out = NULL;

	if (sky_map_open(&m, path, &err) < 0) {
		return NULL;
	}
	unsigned long long n = ZSTD_getFrameContentSize(m.ptr, m.n);
	ZSTD_DCtx *d = ZSTD_createDCtx();

	ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, 27);
	if (n < (1ull << 30) && (out = malloc(n + 1))) {
		*n_p = ZSTD_decompressDCtx(d, out, n, m.ptr, m.n);
		out[n] = 0;
	}
	ZSTD_freeDCtx(d);
	sky_map_close(&m);
	return out;
}

static char *shared_file(const char *fmt, const char *name, size_t *n_p)
{
	char rel[256];
	const char *path;

	snprintf(rel, sizeof(rel), fmt, name);
	path = t_shared(rel);
	return path ? unzstd(path, n_p) : NULL;
}

static void load_strings(void)
{
	struct sky_err err;
	size_t n, len;
	char *json = shared_file("data/tokenizers/golden/%s.json.zst", "strings", &n);
	const char *s;
	bool first = true;
	struct tj j;

	if (!json) {
		t_skip_all("no golden strings in the shared data");
	}
	tj_init(&j, json, n, "strings.json");
	if (tj_expect(&j, '[', &err) < 0) {
		bail("%s", err.msg);
	}
	while (tj_more(&j, ']', &first, &err) == 1) {
		bool inner = true;

		if (tj_expect(&j, '{', &err) < 0) {
			bail("%s", err.msg);
		}
		while (tj_more(&j, '}', &inner, &err) == 1) {
			bool text;

			if (tj_string(&j, &s, &len, &err) < 0) {
				bail("%s", err.msg);
			}
			text = len == 4 && memcmp(s, "text", 4) == 0;
			if (tj_expect(&j, ':', &err) < 0 || tj_string(&j, &s, &len, &err) < 0) {
				bail("%s", err.msg);
			}
			if (text) {
				strings[n_strings].s = malloc(len + 1);
				memcpy(strings[n_strings].s, s, len);
				strings[n_strings].s[len] = 0;
				strings[n_strings++].n = len;
			}
		}
	}
	tj_release(&j);
	free(json);
}

/* [[1, 2], …]: one list per string; n_bad_p counts the strings whose ids differ. */
static void compare_ids(struct tj *j, struct sky_encoder *e, unsigned flags, const char *what)
{
	struct sky_ids got = { 0 }, with = { 0 };
	struct sky_err err;
	bool first = true;
	int i = 0, n_bad = 0, n_off = 0;

	if (tj_peek(j) == '"') {
		const char *s;
		size_t n;

		if (tj_string(j, &s, &n, &err) < 0) {
			bail("%s", err.msg);
		}
		return;
	}
	if (tj_expect(j, '[', &err) < 0) {
		bail("%s", err.msg);
	}
	for (; tj_more(j, ']', &first, &err) == 1; i++) {
		bool inner = true, same = true;
		int64_t k = 0;

		got.n = with.n = 0;
		if (sky_encode(e, strings[i].s, strings[i].n, flags, &got, &err) < 0 ||
		    sky_encode_offsets(e, strings[i].s, strings[i].n, flags, &with, &err) < 0 ||
		    tj_expect(j, '[', &err) < 0) {
			bail("%s: string %d: %s", what, i, err.msg);
		}
		for (; tj_more(j, ']', &inner, &err) == 1; k++) {
			uint32_t id;

			if (tj_u32(j, &id, &err) < 0) {
				bail("%s", err.msg);
			}
			same &= k < got.n && got.id[k] == (int32_t)id;
		}
		if (!same || k != got.n) {
			t_note("%s: string %d: %.60s", what, i, strings[i].s);
			n_bad++;
		}
		same = got.n == with.n && (got.n == 0 || memcmp(got.id, with.id, (size_t)got.n * 4) == 0);
		for (k = 0; k < with.n; k++) {
			same &= with.off[k] <= strings[i].n && (k == 0 || with.off[k] >= with.off[k - 1]);
		}
		n_off += !same;
	}
	T_I64(i, n_strings, "%s: a list for each string", what);
	T_I64(n_bad, 0, "%s: ids", what);
	T_I64(n_off, 0, "%s: offsets go up and change no id", what);
	sky_ids_release(&got);
	sky_ids_release(&with);
}

static const char *decode_of(struct tj *j, const char **key_p, size_t *n_p, char *index, struct sky_err *err)
{
	const char *s;
	size_t n;

	if (tj_string(j, &s, &n, err) < 0) {
		return NULL;
	}
	snprintf(index, 16, "%.*s", (int)n, s);
	return tj_expect(j, ':', err) < 0 || tj_string(j, key_p, n_p, err) < 0 ? NULL : *key_p;
}

static void compare_decoded(struct tj *j, const struct sky_tokenizer *t, struct sky_encoder *e, const char *what)
{
	struct sky_buf text = SKY_BUF_INIT(1 << 20);
	struct sky_ids ids = { 0 };
	struct sky_err err;
	bool first = true;
	int n_bad = 0, next = 0;

	if (tj_expect(j, '{', &err) < 0) {
		bail("%s", err.msg);
	}
	for (bool more = true; more;) {
		int64_t at = n_strings;
		const char *s = NULL;
		char index[16];
		size_t n = 0;

		more = tj_more(j, '}', &first, &err) == 1;
		if (more && (!decode_of(j, &s, &n, index, &err) || sky_parse_i64(index, &at, &err) < 0)) {
			bail("%s", err.msg);
		}
		for (; next <= at && next < n_strings; next++) { /* those not listed come back as they were */
			const char *want = next < at ? strings[next].s : s;
			size_t n_want = next < at ? strings[next].n : n;

			ids.n = 0;
			sky_buf_clear(&text);
			if (sky_encode(e, strings[next].s, strings[next].n, 0, &ids, &err) < 0 ||
			    sky_decode(t, ids.id, ids.n, 0, &text, &err) < 0) {
				bail("%s", err.msg);
			}
			if (text.n != n_want || (n_want && memcmp(text.ptr, want, n_want) != 0)) {
				t_note("%s: decoded string %d: %.60s", what, next, text.ptr ? text.ptr : "");
				n_bad++;
			}
		}
	}
	T_I64(n_bad, 0, "%s: decoded text", what);
	sky_buf_release(&text);
	sky_ids_release(&ids);
}

static void compare(const char *name, const struct sky_tokenizer *t)
{
	const bool ranks = strstr(name, "_base") != NULL;
	struct sky_encoder *e = NULL;
	struct sky_err err;
	bool first = true;
	char *json, what[128];
	const char *s;
	size_t n, len;
	struct tj j;

	json = shared_file("data/tokenizers/golden/%s.json.zst", name, &n);
	if (!json || sky_encoder_new(t, &e, &err) < 0) {
		bail("%s: no golden ids", name);
	}
	tj_init(&j, json, n, name);
	if (tj_expect(&j, '{', &err) < 0) {
		bail("%s", err.msg);
	}
	while (tj_more(&j, '}', &first, &err) == 1) {
		if (tj_string(&j, &s, &len, &err) < 0) {
			bail("%s", err.msg);
		}
		snprintf(what, sizeof(what), "%s %.*s", name, (int)len, s);
		if (tj_expect(&j, ':', &err) < 0) {
			bail("%s", err.msg);
		}
		if (strstr(what, " ids_with_special")) {
			compare_ids(&j, e, SKY_ENC_SPECIAL, what);
		} else if (strstr(what, " ids")) {
			compare_ids(&j, e, ranks && !strstr(what, "allowed") ? SKY_ENC_NO_ADDED : 0, what);
		} else if (strstr(what, " decoded")) {
			compare_decoded(&j, t, e, what);
		} else if (tj_skip(&j, 0, &err) < 0) {
			bail("%s", err.msg);
		}
	}
	sky_encoder_free(e);
	tj_release(&j);
	free(json);
}

static void run(const char *name)
{
	struct sky_tokenizer *t = NULL;
	struct sky_err err;
	size_t n;
	char *text = shared_file("data/tokenizers/%s.tokenizer.json.zst", name, &n);
	int rc;

	if (text) {
		rc = sky_tokenizer_parse(text, n, name, &t, &err);
	} else {
		char file[64];
		const char *path;

		text = shared_file("data/tokenizers/%s.tiktoken.zst", name, &n);
		snprintf(file, sizeof(file), "%s.tiktoken", name);
		path = t_path(file);
		rc = text ? sky_file_publish(path, text, n, SKY_OUT_NO_FSYNC, &err)
			  : sky_fail(&err, SKY_E_MISSING, "no file");
		rc = rc < 0 ? rc : sky_tokenizer_open(path, &t, &err);
	}
	free(text);
	if (T_OK(rc == 0, "%s loads", name)) {
		T_STR(sky_tokenizer_warnings(t), "", "%s: no warnings", name);
		compare(name, t);
	} else {
		t_note("%s", err.msg);
	}
	sky_tokenizer_close(t);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {
		"qwen3",      "llama3", "llama3_1", "smollm2",     "deepseek_v3", "gptoss",
		"gpt35turbo", "gemma3", "llama2",   "cl100k_base", "o200k_base",  "r50k_base",
	};

	load_strings();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (argc < 2 || strcmp(argv[1], names[i]) == 0) {
			run(names[i]);
		}
	}
	return t_done();
}
