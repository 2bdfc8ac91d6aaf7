/* weights: safetensors files and Hugging Face directories, good ones and the ways they are damaged. */
#include "weights/weights.h"
#include "../testlib.h"

static struct sky_err err;

/* A file of the given header text and n_data bytes of data; the length field may lie by off. */
static const char *raw_file(const char *name, const char *header, size_t n_data, int64_t off)
{
	size_t n = strlen(header);
	char *p = calloc(1, 8 + n + n_data);
	const char *path;

	sky_store_u64(p, (uint64_t)((int64_t)n + off));
	memcpy(p + 8, header, n);
	for (size_t i = 0; i < n_data; i++) {
		p[8 + n + i] = (char)i;
	}
	path = t_write(name, p, 8 + n + n_data);
	free(p);
	return path;
}

static void test_bad(void)
{
#define T(name, dtype, shape, from, to) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
	",\"data_offsets\":[" #from "," #to "]}"
	static const struct { const char *header; size_t n_data; const char *why; } bad[] = {
		{ "{" T("a", "F32", "[1]", 0, 4) "}", 3, "cut off" },
		{ "{" T("a", "F32", "[1]", 0, 4) "}", 5, "but 5 are there" },
		{ "{" T("a", "F32", "[2]", 0, 4) "}", 4, "dtype and shape need 8" },
		{ "{" T("a", "F32", "[1]", 4, 8) "}", 8, "hole" },
		{ "{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 2, 6) "}", 6, "overlaps" },
		{ "{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "hole" },
		{ "{" T("a", "F32", "[1]", 4, 0) "}", 4, "ends before it begins" },
		{ "{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "twice" },
		{ "{" T("a", "F31", "[1]", 0, 4) "}", 4, "unknown dtype \"F31\"" },
		{ "{" T("a", "F32", "[-1]", 0, 4) "}", 4, "non-negative" },
		{ "{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "non-negative" },
		{ "{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "overflows" },
		{ "{" T("a", "F32", "[0,4294967296,4294967296]", 0, 4) "}", 4, "need 0" },
		{ "{" T("a", "F4", "[3]", 0, 1) "}", 1, "whole number of bytes" },
		{ "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "8 dimensions" },
		{ "{" T("a", "U8", "[18446744073709551615]", 0, 18446744073709551615) "}", 1, "non-negative" },
		{ "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\" is missing" },
		{ "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "\"shape\" must be an array" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "data_offsets" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, "data_offsets" },
		{ "{\"a\":5}", 0, "must be an object" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, "must be a string" },
		{ "{\"__metadata__\":[]}", 0, "must be an object" },
		{ "[]", 0, "does not begin with" },
		{ " {}", 0, "does not begin with" },
		{ "{} x", 0, "text follows" },
		{ "{", 0, "header:1:2" },
	};
	static const uint8_t tiny[7] = { 0 };
	struct sky_st *st = NULL;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		T_RC(sky_st_open(raw_file("bad", bad[i].header, bad[i].n_data, 0), &st, &err), SKY_E_DATA, &err,
		     "refused: %.100s", bad[i].header);
		T_HAS(err.msg, bad[i].why, "its message");
	}
	T_RC(sky_st_open(t_write("bad", tiny, 7), &st, &err), SKY_E_DATA, &err, "seven bytes");
	T_RC(sky_st_open(raw_file("bad", "{}", 0, 1), &st, &err), SKY_E_DATA, &err, "a header beyond the file");
	T_HAS(err.msg, "cut off", "its message");
	T_RC(sky_st_open(raw_file("bad", "{}", 0, 100000000), &st, &err), SKY_E_DATA, &err, "a huge header");
	T_HAS(err.msg, "limit is 100000000", "its message");
	T_RC(sky_st_open(raw_file("bad", "{}", 0, -3), &st, &err), SKY_E_DATA, &err, "a negative header length");
	T_RC(sky_st_open(t_path("none"), &st, &err), SKY_E_MISSING, &err, "a missing file");
	T_OK(st == NULL, "nothing is handed out");
}

/* Oddities that are legal: scalars, no elements, data at odd offsets, padding, unknown fields. */
static void test_odd(void)
{
	static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\"}," T("c", "F32", "[2]", 3,
		11) "," T("e", "F64", "[0,7]", 3, 3) ","
		T("s", "BF16", "[]", 0, 2) "," T("f4", "F4", "[2]", 2,
		                                 3) ",\"z\":{\"x\":[1],\"dtype\":\"F6_E2M3\","
		"\"shape\":[4],\"data_offsets\":[11,14]}}   ";
	const struct sky_tensor *t;
	const char *key, *value;
	struct sky_st *st = NULL;
	uint8_t *head;
	size_t n;

	if (!T_OK(sky_st_open(raw_file("odd", header, 14, 0), &st, &err) == 0, "odd but legal")) {
		t_note("%s", err.msg);
		return;
	}
	T_I64(sky_st_count(st), 5, "tensors");
	t = sky_st_find(st, "s");
	T_OK(t && t->n_dim == 0 && t->n == 1 && t->bytes == 2 && sky_load_u16(t->data) == 0x0100, "a scalar");
	t = sky_st_find(st, "e");
	T_OK(t && t->n == 0 && t->bytes == 0 && t->data && t->n_dim == 2 && t->shape[1] == 7,
	     "a tensor without elements");
	t = sky_st_find(st, "c");
	T_OK(t && t->bytes == 8 && *(const uint8_t *)t->data == 3 && t->off == 8 + strlen(header) + 3,
	     "data at an odd offset");
	T_OK(sky_st_find(st, "x") == NULL && sky_st_find(st, "__metadata__") == NULL, "absent names");
	T_STR(sky_st_at(st, 0)->name, "s", "order of the data");
	T_OK(sky_st_at(st, -1) == NULL && sky_st_at(st, 5) == NULL, "positions outside");
	T_STR(sky_st_meta(st, "format"), "pt", "metadata");
	T_OK(sky_st_meta_at(st, 1, &key, &value) == 0 && strcmp(key, "k") == 0 &&
	     sky_st_meta_at(st, 2, &key, &value) == SKY_EOF, "by position");
	sky_st_close(st);
	head = (uint8_t *)t_read(t_path("odd"), &n);
	T_RC(sky_st_parse(head, n - 14, n, "odd", &st, &err), 0, &err, "from the header alone");
	T_OK(sky_st_find(st, "c")->data == NULL, "without data");
	sky_st_close(st);
	T_RC(sky_st_parse(head, n - 15, n, "odd", &st, &err), SKY_E_DATA, &err, "a header in part");
	free(head);
	T_RC(sky_st_open(raw_file("empty", "{}", 0, 0), &st, &err), 0, &err, "a file without tensors");
	T_I64(sky_st_count(st), 0, "has none");
	sky_st_close(st);
}

static const struct sky_st_spec specs[] = {
	{ "b", SKY_BF16, 1, { 3 } }, { "a", SKY_BF16, 2, { 1, 2 } }, { "s", SKY_F32, 0, { 0 } },
	{ "u", SKY_U8, 1, { 5 } },
	{ "e", SKY_I64, 2, { 0, 4 } }, { "\xc3\xa9\n", SKY_F64, 1, { 1 } },
};
enum { N_SPECS = sizeof(specs) / sizeof(specs[0]) };

static void test_write(void)
{
	static const char *const meta[] = { "format", "pt", NULL };
	static const char want[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("e", "I64", "[0,4]", 0, 0) ","
		"\"\xc3\xa9\\n\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}," T("s", "F32", "[]", 8,
			12) "," T("a", "BF16", "[1,2]", 12, 16) ","
		T("b", "BF16", "[3]", 16, 22) "," T("u", "U8", "[5]", 22, 27) "}";
	struct sky_st_out *o = NULL;
	struct sky_st_spec twice[2];
	struct sky_st *st = NULL;
	uint8_t data[32], *file;
	uint64_t n_head;
	size_t n;

	for (n = 0; n < sizeof(data); n++) {
		data[n] = (uint8_t)(n * 5 + 1);
	}
	T_RC(sky_st_create(t_path("w"), specs, N_SPECS, meta, 0, 0, &o, &err), 0, &err, "declare");
	T_OK(sky_st_out_spec(o, 0) == 4 && sky_st_out_spec(o, 3) == 1 && sky_st_out_spec(o, 5) == 3,
	     "order of the file");
	T_RC(sky_st_out_write(o, data, 20, &err), 0, &err, "data in pieces");
	T_RC(sky_st_out_write(o, data + 20, 8, &err), SKY_E_USAGE, &err, "more data than declared");
	T_RC(sky_st_out_write(o, data + 20, 7, &err), 0, &err, "the rest");
	T_RC(sky_st_out_commit(o, &err), 0, &err, "commit");
	file = (uint8_t *)t_read(t_path("w"), &n);
	n_head = sky_load_u64(file);
	T_OK(n_head % 8 == 0 && n == 8 + n_head + 27, "padded header");
	T_OK(n_head >= strlen(want) && memcmp(file + 8, want, strlen(want)) == 0,
	     "header text as the reference writes it");
	T_MEM(file + 8 + n_head, data, 27, "data");
	free(file);
	T_RC(sky_st_open(t_path("w"), &st, &err), 0, &err, "and reads back");
	T_OK(sky_load_u32(sky_st_find(st, "s")->data) == sky_load_u32(data + 8), "a value");
	sky_st_close(st);
	T_RC(sky_st_create(t_path("w2"), specs, N_SPECS, NULL, 1, 0, &o, &err), 0, &err, "own order");
	T_I64(sky_st_out_spec(o, 0), 0, "is kept");
	T_RC(sky_st_out_commit(o, &err), SKY_E_USAGE, &err, "data that lacks");
	T_OK(!sky_file_exists(t_path("w2")), "publishes nothing");
	twice[0] = twice[1] = specs[0];
	T_RC(sky_st_create(t_path("w2"), twice, 2, NULL, 0, 0, &o, &err), SKY_E_USAGE, &err, "a name twice");
	twice[1] = (struct sky_st_spec){ "x", SKY_F4, 1, { 3 } };
	T_RC(sky_st_create(t_path("w2"), twice, 2, NULL, 0, 0, &o, &err), SKY_E_USAGE, &err, "half a byte");
}

static int hf_write(const char *dir, uint64_t shard_bytes, const char *like, unsigned flags)
{
	static uint8_t data[64];
	struct sky_hf_item items[N_SPECS];
	int i;

	for (i = 0; i < (int)sizeof(data); i++) {
		data[i] = (uint8_t)i;
	}
	for (i = 0; i < N_SPECS; i++) {
		items[i].spec = specs[i];
		items[i].data = data + i;
	}
	return sky_hf_write(dir, items, N_SPECS, like, shard_bytes, flags, &err);
}

static void check_hf(const char *dir, int64_t n_files)
{
	struct sky_hf *hf = NULL;
	int64_t i;

	if (!T_OK(sky_hf_open(dir, &hf, &err) == 0, "opens")) {
		t_note("%s", err.msg);
		return;
	}
	T_I64(sky_hf_n_files(hf), n_files, "files");
	T_I64(sky_hf_count(hf), N_SPECS, "tensors");
	for (i = 0; i < N_SPECS; i++) {
		const struct sky_tensor *t = sky_hf_find(hf, specs[i].name);

		T_OK(t && t->dtype == specs[i].dtype && t->n_dim == specs[i].n_dim &&
		     (t->bytes == 0 || *(const uint8_t *)t->data == i),
		     "tensor %lld", (long long)i);
	}
	T_STR(sky_hf_at(hf, 0)->name, "a", "sorted by name");
	T_OK(!sky_hf_at(hf, N_SPECS) && !sky_hf_find(hf, "none") && !sky_hf_file(hf, n_files), "absent ones");
	sky_hf_close(hf);
}

static void test_dirs(void)
{
	char like[T_PATH_MAX], dir[T_PATH_MAX], path[T_PATH_MAX + 64];
	char *text;

	snprintf(like, sizeof(like), "%s", t_path("like"));
	snprintf(dir, sizeof(dir), "%s", t_path("model"));
	T_RC(sky_mkdirs(like, &err), 0, &err, "folder of side files");
	t_write("like/config.json", "{}", 2);
	t_write("like/chat_template.jinja", "x", 1);
	t_write("like/pytorch_model.bin", "x", 1);
	t_write("like/model-00001-of-00007.safetensors", "x", 1);
	T_RC(hf_write(dir, 0, like, 0), 0, &err, "one file");
	check_hf(dir, 1);
	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	T_OK(sky_file_exists(path), "side files come along");
	snprintf(path, sizeof(path), "%s/pytorch_model.bin", dir);
	T_OK(!sky_file_exists(path), "other weights do not");
	T_RC(hf_write(dir, 0, like, 0), SKY_E_USAGE, &err, "an existing folder is refused");
	T_RC(hf_write(dir, 10, dir, SKY_OUT_REPLACE), 0, &err, "replaced, like itself, in shards");
	check_hf(dir, 3);
	snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
	text = t_read(path, NULL);
	T_HAS(text, "{\"metadata\":{\"total_size\":27},"
	      "\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\",\"b\":", "the index");
	free(text);
	snprintf(path, sizeof(path), "%s/stale.safetensors", dir);
	T_RC(sky_file_publish(path, "junk", 4, 0, &err), 0, &err, "a file that the index does not name");
	check_hf(dir, 3);
	snprintf(path, sizeof(path), "%s/model-00002-of-00003.safetensors", dir);
	T_OK(unlink(path) == 0, "a shard is lost");
	struct sky_hf *hf = NULL;
	T_RC(sky_hf_open(dir, &hf, &err), SKY_E_DATA, &err, "the folder is incomplete");
	T_HAS(err.msg, "model-00002-of-00003.safetensors, which is missing", "its message");
	T_RC(sky_hf_open(t_path("nowhere"), &hf, &err), SKY_E_MISSING, &err, "a missing folder");
	T_RC(sky_hf_open(like, &hf, &err), SKY_E_DATA, &err, "a folder with a shard but no index");
}

static void test_index(void)
{
	static const struct { const char *index; int code; const char *why; } bad[] = {
		{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"x\":\"one.safetensors\"}}", SKY_E_DATA,
		  "\"x\" is not in one.safetensors" },
		{ "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", SKY_E_DATA,
		  "is in one.safetensors and in two" },
		{ "{\"weight_map\":{\"b\":\"three.safetensors\",\"a\":\"one.safetensors\"}}", SKY_E_DATA,
		  "\"b\" is not in three.safetensors but in one" },
		{ "{\"weight_map\":{\"a\":\"../one.safetensors\"}}", SKY_E_DATA, "inside the folder" },
		{ "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", SKY_E_DATA, "inside the folder" },
		{ "{\"weight_map\":{\"a\":1}}", SKY_E_DATA, "inside the folder" },
		{ "{\"weight_map\":{}}", SKY_E_DATA, "at least one" },
		{ "{}", SKY_E_DATA, "weight_map" },
		{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", SKY_E_DATA, "twice" },
		{ "{\"weight_map\":", SKY_E_DATA, "index.json:1:15" },
		{ "{\"weight_map\":{\"a\":\"cut.safetensors\"}}", SKY_E_DATA, "cut.safetensors is cut off" },
	};
	struct sky_hf *hf = NULL;
	size_t i;

	T_RC(sky_mkdirs(t_path("i"), &err), 0, &err, "folder");
	raw_file("i/one.safetensors", "{" T("a", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 1, 2) "}", 2, 0);
	raw_file("i/two.safetensors", "{" T("a", "U8", "[1]", 0, 1) "}", 1, 0);
	raw_file("i/three.safetensors", "{" T("c", "U8", "[1]", 0, 1) "}", 1, 0);
	raw_file("i/cut.safetensors", "{" T("a", "U8", "[9]", 0, 9) "}", 1, 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		t_write("i/model.safetensors.index.json", bad[i].index, strlen(bad[i].index));
		T_RC(sky_hf_open(t_path("i"), &hf, &err), bad[i].code, &err, "index %s", bad[i].index);
		T_HAS(err.msg, bad[i].why, "its message");
	}
	t_write("i/model.safetensors.index.json",
	        "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"three.safetensors\"}}", 62);
	T_RC(sky_hf_open(t_path("i"), &hf, &err), 0, &err, "a good index");
	T_I64(sky_hf_count(hf), 3, "a tensor that only its file lists is there too");
	sky_hf_close(hf);
}

static void test_cache(void)
{
	char out[T_PATH_MAX], want[T_PATH_MAX];

	unsetenv("HF_HUB_CACHE");
	unsetenv("HUGGINGFACE_HUB_CACHE");
	setenv("HF_HOME", t_path("hf"), 1);
	T_RC(sky_mkdirs(t_path("hf/hub/models--org--name/refs"), &err), 0, &err, "a cache");
	T_RC(sky_hf_resolve("org/name", out, sizeof(out), &err), SKY_E_MISSING, &err, "without a snapshot");
	T_RC(sky_mkdirs(t_path("hf/hub/models--org--name/snapshots/abc123"), &err), 0, &err, "a snapshot");
	t_write("hf/hub/models--org--name/refs/main", "abc123\n", 7);
	T_RC(sky_hf_resolve("org/name", out, sizeof(out), &err), 0, &err, "found");
	snprintf(want, sizeof(want), "%s", t_path("hf/hub/models--org--name/snapshots/abc123"));
	T_STR(out, want, "the snapshot of refs/main");
	T_RC(sky_hf_resolve("org/name@abc123", out, sizeof(out), &err), 0, &err, "by commit");
	T_STR(out, want, "the same");
	T_RC(sky_hf_resolve("org/name@v2", out, sizeof(out), &err), SKY_E_MISSING, &err, "another revision");
	T_RC(sky_hf_resolve("org/other", out, sizeof(out), &err), SKY_E_MISSING, &err, "another model");
	T_HAS(err.msg, "\"hf download org/other\" fetches it", "says what to do");
	T_RC(sky_hf_resolve("../name", out, sizeof(out), &err), SKY_E_MISSING, &err, "no way out of the cache");
	t_write("hf/hub/models--org--name/refs/main", "../../x", 7);
	T_RC(sky_hf_resolve("org/name", out, sizeof(out), &err), SKY_E_MISSING, &err, "nor by a reference");
	t_write("file", "x", 1);
	T_RC(sky_hf_resolve(t_path("file"), out, sizeof(out), &err), SKY_E_USAGE, &err, "a file is no folder");
	setenv("HF_HUB_CACHE", t_path("hf2"), 1);
	T_RC(sky_hf_resolve("org/name", out, sizeof(out), &err), SKY_E_MISSING, &err, "HF_HUB_CACHE comes first");
	T_HAS(err.msg, "hf2", "and is named");
}

int main(void)
{
	test_bad();
	test_odd();
	test_write();
	test_dirs();
	test_index();
	test_cache();
	return t_done();
}
