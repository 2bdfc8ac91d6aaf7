/* skyrl-inspect: safetensors files, Hugging Face directories, run directories. */
#include "cmd/inspect_int.h"

/* Types by number, for counting. */
static void type_names(const char *names[SKY_DT_COUNT])
{
	int t;

	for (t = 0; t < SKY_DT_COUNT; t++) {
		names[t] = sky_dtype_name((enum sky_dtype)t);
	}
}

static void add_row(struct report *r, const struct sky_tensor *t, const char *file)
{
	char shape[256] = "";
	size_t n = 0;
	struct sky_jw w, *j;
	int i;

	j = rep_row_begin(r, &w, "tensor");
	sky_jw_kstr(j, "name", t->name);
	sky_jw_kstr(j, "dtype", sky_dtype_name(t->dtype));
	sky_jw_key(j, "shape");
	sky_jw_arr(j);
	for (i = 0; i < t->n_dim; i++) {
		sky_jw_i64(j, t->shape[i]);
		n += (size_t)snprintf(shape + n, sizeof(shape) - n, "%s%lld", i ? "," : "", (long long)t->shape[i]);
	}
	sky_jw_close_arr(j);
	sky_jw_key(j, "bytes");
	sky_jw_u64(j, t->bytes);
	sky_jw_key(j, "off");
	sky_jw_u64(j, t->off);
	if (file) {
		sky_jw_kstr(j, "file", file);
	}
	rep_row_end(r, j, "%-8s [%s] %s", sky_dtype_name(t->dtype), shape, t->name);
}

/* Values that are NaN or infinite; 0 for types that have none. Reads every byte in any case. */
static int64_t count_nonfinite(const struct sky_tensor *t)
{
	const uint8_t *p = t->data;
	int64_t i, bad = 0;
	uint64_t sum = 0;

	switch (t->dtype) {
	case SKY_BF16:
	case SKY_F16:
		for (i = 0; i < t->n; i++) {
			uint16_t mask = t->dtype == SKY_BF16 ? 0x7f80 : 0x7c00;

			bad += (sky_load_u16(p + 2 * i) & mask) == mask;
		}
		return bad;
	case SKY_F32:
		for (i = 0; i < t->n; i++) {
			bad += (sky_load_u32(p + 4 * i) & 0x7f800000u) == 0x7f800000u;
		}
		return bad;
	case SKY_F64:
		for (i = 0; i < t->n; i++) {
			bad += (sky_load_u64(p + 8 * i) >> 52 & 0x7ff) == 0x7ff;
		}
		return bad;
	default:
		/* Only to meet read errors. */
		for (i = 0; i < (int64_t)t->bytes; i += 512) {
			sum += p[i];
		}
		return sum == UINT64_MAX;
	}
}

struct totals {
	int64_t n_tensor, n_param, n_nonfinite, dtypes[SKY_DT_COUNT];
	uint64_t bytes;
};

static void add_tensor(struct report *r, struct totals *s, const struct sky_tensor *t, const char *file)
{
	s->n_tensor++;
	s->n_param += t->n;
	s->bytes += t->bytes;
	s->dtypes[t->dtype]++;
	if (r->check) {
		s->n_nonfinite += count_nonfinite(t);
	}
	if (r->list) {
		add_row(r, t, file);
	}
}

static void add_totals(struct report *r, const struct totals *s)
{
	const char *names[SKY_DT_COUNT];

	type_names(names);
	rep_i64(r, "n_tensors", s->n_tensor);
	rep_i64(r, "n_elements", s->n_param);
	rep_bytes(r, "bytes", s->bytes);
	rep_counts(r, "dtypes", names, s->dtypes, SKY_DT_COUNT);
	if (r->check) {
		rep_i64(r, "n_nonfinite", s->n_nonfinite);
		if (s->n_nonfinite > 0) {
			rep_note(r, "%lld values are NaN or infinite", (long long)s->n_nonfinite);
		}
	}
}

static int add_file_hash(struct report *r, const char *path, struct sky_err *err)
{
	struct sky_map m = SKY_MAP_INIT;
	char hex[33];
	int rc;

	rc = sky_map_open(&m, path, err);
	if (rc < 0) {
		return rc;
	}
	sky_map_advise(&m, 0, m.n, SKY_MAP_SEQUENTIAL);
	sky_h128_hex(sky_xxh128(m.ptr, (size_t)m.n), hex);
	rep_str(r, "xxh3_128", hex);
	sky_map_close(&m);
	return 0;
}

int inspect_safetensors(struct report *r, const char *path, struct sky_err *err)
{
	const char *key, *value;
	struct totals s = { 0 };
	struct sky_st *st;
	int64_t i;
	int rc;

	rc = sky_st_open(path, &st, err);
	if (rc < 0) {
		return rc;
	}
	rep_kind(r, "safetensors file");
	for (i = 0; i < sky_st_count(st); i++) {
		add_tensor(r, &s, sky_st_at(st, i), NULL);
	}
	add_totals(r, &s);
	sky_jw_key(&r->w, "metadata");
	sky_jw_obj(&r->w);
	for (i = 0; sky_st_meta_at(st, i, &key, &value) == 0; i++) {
		sky_jw_kstr(&r->w, key, value);
	}
	sky_jw_close_obj(&r->w);
	for (i = 0; sky_st_meta_at(st, i, &key, &value) == 0; i++) {
		rc = rc < 0 ? rc : sky_buf_addf(&r->text, err, "  %-18s %s = %.200s\n", "metadata", key, value);
	}
	sky_st_close(st);
	return rc == 0 && r->check ? add_file_hash(r, path, err) : rc;
}

/* config.json, when there is one: what model it is. */
static int add_config(struct report *r, const char *dir, struct sky_err *err)
{
	const struct sky_jnode *root;
	struct sky_json *doc;
	char path[SKY_MAX_PATH];
	int rc;

	rc = sky_path_join(path, sizeof(path), dir, "config.json", err);
	if (rc < 0) {
		return rc;
	}
	if (!sky_file_exists(path)) {
		rep_note(r, "no config.json: programs that need a model cannot use it");
		return 0;
	}
	rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err);
	if (rc < 0) {
		return rc;
	}
	root = sky_json_root(doc);
	rep_str(r, "architecture", sky_j_str(sky_j_at(sky_j_get(root, "architectures"), 0)));
	rep_str(r, "model_type", sky_j_str(sky_j_get(root, "model_type")));
	rep_str(r, "quantization", sky_j_str(sky_j_get(sky_j_get(root, "quantization_config"), "quant_method")));
	sky_json_free(doc);
	return 0;
}

static void add_side(struct report *r, const char *dir)
{
	static const char *const files[] = { "tokenizer.json", "tiktoken.model", "vocab.json", "chat_template.jinja",
	                                    "generation_config.json" };
	char path[SKY_MAX_PATH], all[256] = "";
	size_t i, n = 0;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (sky_path_join(path, sizeof(path), dir, files[i], NULL) == 0 && sky_file_exists(path)) {
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", files[i]);
		}
	}
	rep_str(r, "with", n ? all : NULL);
}

/* total_size of the index is written wrong by some tools (tied weights counted twice): worth a word, no damage. */
static int check_total(struct report *r, const struct sky_hf *hf, uint64_t bytes, struct sky_err *err)
{
	struct sky_json *doc;
	char path[SKY_MAX_PATH];
	int64_t total = -1;
	int rc;

	rc = sky_path_join(path, sizeof(path), sky_hf_dir(hf), "model.safetensors.index.json", err);
	if (rc < 0 || !sky_file_exists(path)) {
		return rc;
	}
	rc = sky_json_load(path, 0, &doc, err);
	if (rc < 0) {
		return rc;
	}
	if (sky_j_i64(sky_j_get(sky_j_get(sky_json_root(doc), "metadata"), "total_size"), &total) && (uint64_t)total != bytes) {
		rep_note(r, "the index says total_size %lld, the tensors have %llu bytes", (long long)total,
		         (unsigned long long)bytes);
	}
	sky_json_free(doc);
	return 0;
}

int inspect_hf(struct report *r, const char *dir, struct sky_err *err)
{
	struct totals s = { 0 };
	struct sky_hf *hf;
	int64_t i;
	int rc;

	rc = sky_hf_open(dir, &hf, err);
	if (rc < 0) {
		return rc;
	}
	rep_kind(r, "Hugging Face directory");
	if (strcmp(dir, sky_hf_dir(hf)) != 0) {
		rep_str(r, "dir", sky_hf_dir(hf));
	}
	rc = add_config(r, sky_hf_dir(hf), err);
	rep_i64(r, "n_files", sky_hf_n_files(hf));
	for (i = 0; i < sky_hf_count(hf); i++) {
		const struct sky_tensor *t = sky_hf_at(hf, i);

		add_tensor(r, &s, t, sky_hf_file(hf, t->file));
	}
	add_totals(r, &s);
	add_side(r, sky_hf_dir(hf));
	if (rc == 0 && r->check) {
		rc = check_total(r, hf, s.bytes, err);
	}
	sky_hf_close(hf);
	return rc;
}

/* The step that the pointer names; its folder must be there. */
static int add_latest(struct report *r, const char *dir, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(64);
	char path[SKY_MAX_PATH], step[SKY_MAX_PATH];
	int64_t n = 0;
	int rc;

	rc = sky_path_join(path, sizeof(path), dir, "latest_ckpt_global_step.txt", err);
	if (rc < 0 || !sky_file_exists(path)) {
		return rc;
	}
	rc = sky_file_read(path, &b, err);
	if (rc == 0) {
		b.ptr[strcspn(b.ptr, " \r\n")] = '\0';
		rc = sky_parse_i64(b.ptr, &n, err);
		rc = rc < 0 ? sky_fail(err, SKY_E_DATA, "%s holds no step number", path) : 0;
	}
	sky_buf_release(&b);
	if (rc < 0) {
		return rc;
	}
	rep_i64(r, "latest_step", n);
	snprintf(step, sizeof(step), "%.3000s/global_step_%lld", dir, (long long)n);
	return sky_is_dir(step) ? 0 : sky_fail(err, SKY_E_DATA, "%s names step %lld, but %s is missing", path, (long long)n, step);
}

/* Every safetensors file of a checkpoint, with its checks. */
static int check_step(struct report *r, const char *dir, const char *name, struct sky_err *err)
{
	char step[SKY_MAX_PATH], path[SKY_MAX_PATH];
	struct sky_st *st;
	size_t n, i, len;
	char **names;
	int rc;

	rc = sky_path_join(step, sizeof(step), dir, name, err);
	rc = rc < 0 ? rc : sky_list_dir(step, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; rc == 0 && i < n; i++) {
		len = strlen(names[i]);
		if (names[i][0] == '.' || len < 12 || strcmp(names[i] + len - 12, ".safetensors") != 0) {
			continue;
		}
		rc = sky_path_join(path, sizeof(path), step, names[i], err);
		rc = rc < 0 ? rc : sky_st_open(path, &st, err);
		if (rc == 0) {
			sky_st_close(st);
		}
	}
	if (r->list) {
		struct sky_jw w, *j = rep_row_begin(r, &w, "checkpoint");

		sky_jw_kstr(j, "name", name);
		rep_row_end(r, j, "%s", name);
	}
	sky_names_free(names, n);
	return rc;
}

int inspect_run(struct report *r, const char *dir, struct sky_err *err)
{
	int64_t n_steps = 0;
	char **names;
	size_t n, i;
	int rc;

	rep_kind(r, "run directory");
	rc = add_latest(r, dir, err);
	rc = rc < 0 ? rc : sky_list_dir(dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; rc == 0 && i < n; i++) {
		if (strncmp(names[i], "global_step_", 12) == 0) {
			n_steps++;
			rc = check_step(r, dir, names[i], err);
		}
	}
	sky_names_free(names, n);
	rep_i64(r, "n_checkpoints", n_steps);
	return rc;
}
