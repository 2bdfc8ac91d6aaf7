/* Manifests: reading with suspicion, writing as Python would. */
#include "delta/delta.h"
#include "delta/delta_int.h"

#include <stdlib.h>

void sky_delta_dir(char out[32], int64_t version)
{
	snprintf(out, 32, "delta-%08lld", (long long)version);
}

void sky_manifest_release(struct sky_manifest *m)
{
	for (int64_t i = 0; m->tensor && i < m->n_tensor; i++) {
		struct sky_delta_tensor *t = &m->tensor[i];

		free(t->name);
		free(t->dtype);
		free(t->file);
		free(t->key);
		free(t->checksum);
	}
	for (int64_t i = 0; m->file && i < m->n_file; i++) {
		free(m->file[i]);
	}
	free(m->tensor);
	free(m->file);
	memset(m, 0, sizeof(*m));
}

/* A name that stays inside its folder. */
static bool plain_name(const char *s)
{
	return s && *s && *s != '.' && !strchr(s, '/') && !strchr(s, '\\') && strlen(s) < 256;
}

static int take_text(const struct sky_jnode *v, const char *key, char **out, struct sky_err *err)
{
	const char *s = sky_j_str(sky_j_get(v, key));

	if (!s) {
		return sky_fail(err, SKY_E_DATA, "a tensor has no text \"%s\"", key);
	}
	*out = strdup(s);
	return *out ? 0 : sky_fail_mem(err, "manifest");
}

static int take_shape(const struct sky_jnode *v, struct sky_delta_tensor *t, struct sky_err *err)
{
	const struct sky_jnode *shape = sky_j_get(v, "shape");
	enum sky_dtype type = sky_dtype_from_torch(t->dtype);
	uint64_t n = 1;

	if (sky_j_type(shape) != SKY_J_ARRAY || sky_j_len(shape) > SKY_MAX_DIMS) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: \"shape\" is no array of at most %d numbers", t->name, SKY_MAX_DIMS);
	}
	for (const struct sky_jnode *x = sky_j_first(shape); x; x = sky_j_next(x)) {
		if (!sky_j_i64(x, &t->shape[t->n_dim]) || t->shape[t->n_dim] < 0 ||
		    sky_mul_u64(n, (uint64_t)t->shape[t->n_dim], &n)) {
			return sky_fail(err, SKY_E_DATA, "tensor %s: impossible shape", t->name);
		}
		t->n_dim++;
	}
	if (type == SKY_DT_NONE) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: dtype %s is not known", t->name, t->dtype);
	}
	if (sky_mul_u64(n, (uint64_t)sky_dtype_bits(type), &n) || n % 8 || n / 8 != t->raw_bytes) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: %llu bytes do not fit its shape", t->name,
		                (unsigned long long)t->raw_bytes);
	}
	return 0;
}

/* checksum with checksum_algorithm, or the legacy field sha256. */
static int take_checksum(const struct sky_jnode *v, struct sky_delta_tensor *t, struct sky_err *err)
{
	const struct sky_jnode *named = sky_j_get(v, "checksum_algorithm");
	const char *algo = sky_j_str(named);
	bool legacy = !sky_j_get(v, "checksum");
	int rc = take_text(v, legacy ? "sha256" : "checksum", &t->checksum, err);

	if (rc < 0) {
		return rc;
	}
	if (named && !algo) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: checksum_algorithm is no text", t->name);
	}
	t->sha256 = legacy || (algo && !strcmp(algo, "sha256"));
	if (!legacy && algo && !t->sha256 && strcmp(algo, "xxh3-128")) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: checksum_algorithm %s is not known", t->name, algo);
	}
	if (strlen(t->checksum) != (t->sha256 ? 64u : 32u)) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: a checksum of the wrong length", t->name);
	}
	return 0;
}

static int take_bytes(const struct sky_jnode *v, const char *key, uint64_t *out, const char *name, struct sky_err *err)
{
	int64_t n;

	if (!sky_j_i64(sky_j_get(v, key), &n) || n < 0) {
		return sky_fail(err, SKY_E_DATA, "tensor %s: no byte count \"%s\"", name, key);
	}
	*out = (uint64_t)n;
	return 0;
}

static int take_tensor(const struct sky_jnode *v, struct sky_delta_tensor *t, struct sky_err *err)
{
	int rc = take_text(v, "name", &t->name, err);

	rc = rc < 0 ? rc : take_text(v, "dtype", &t->dtype, err);
	rc = rc < 0 ? rc : take_bytes(v, "uncompressed_num_bytes", &t->raw_bytes, t->name, err);
	rc = rc < 0 ? rc : take_bytes(v, "compressed_num_bytes", &t->frame_bytes, t->name, err);
	rc = rc < 0 ? rc : take_text(v, "payload_file", &t->file, err);
	rc = rc < 0 ? rc : take_text(v, "payload_key", &t->key, err);
	rc = rc < 0 ? rc : take_shape(v, t, err);
	rc = rc < 0 ? rc : take_checksum(v, t, err);
	if (rc == 0 && !plain_name(t->file)) {
		rc = sky_fail(err, SKY_E_DATA, "tensor %s: payload_file is not a plain file name", t->name);
	}
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int no_duplicates(const struct sky_manifest *m, struct sky_err *err)
{
	const char **names = sky_calloc_array((size_t)m->n_tensor + 1, sizeof(*names));
	int rc = names ? 0 : sky_fail_mem(err, "manifest");

	for (int64_t i = 0; i < m->n_tensor && rc == 0; i++) {
		names[i] = m->tensor[i].name;
	}
	if (rc == 0) {
		qsort(names, (size_t)m->n_tensor, sizeof(*names), by_text);
	}
	for (int64_t i = 1; i < m->n_tensor && rc == 0; i++) {
		if (!strcmp(names[i], names[i - 1])) {
			rc = sky_fail(err, SKY_E_DATA, "tensor %s is listed twice", names[i]);
		}
	}
	free(names);
	return rc;
}

static void take_id(const struct sky_jnode *v, const char *key, char out[33])
{
	const char *s = sky_j_str(sky_j_get(v, key));

	snprintf(out, 33, "%s", s && strlen(s) == 32 ? s : "");
}

static int take_all(const struct sky_jnode *root, struct sky_manifest *m, struct sky_err *err)
{
	const struct sky_jnode *ts = sky_j_get(root, "tensors"), *fs = sky_j_get(root, "payload_files");
	const struct sky_jnode *ours = sky_j_get(root, "skyrl_tools");
	int rc = 0;

	if (!sky_j_i64(sky_j_get(root, "version"), &m->version) || !sky_j_i64(sky_j_get(root, "base_version"), &m->base_version)) {
		return sky_fail(err, SKY_E_DATA, "no integers \"version\" and \"base_version\"");
	}
	if (m->version < 1 || m->base_version != m->version - 1) {
		return sky_fail(err, SKY_E_DATA, "version %lld on base_version %lld: a version applies on the one before it",
		                (long long)m->version, (long long)m->base_version);
	}
	/* SkyRL's reader lets both be absent; anything but an array in their place would lose tensors without a word. */
	if ((ts && sky_j_type(ts) != SKY_J_ARRAY) || (fs && sky_j_type(fs) != SKY_J_ARRAY)) {
		return sky_fail(err, SKY_E_DATA, "\"tensors\" and \"payload_files\" must be arrays");
	}
	m->tensor = sky_calloc_array(sky_j_len(ts) + 1, sizeof(*m->tensor));
	m->file = sky_calloc_array(sky_j_len(fs) + 1, sizeof(*m->file));
	if (!m->tensor || !m->file) {
		return sky_fail_mem(err, "manifest");
	}
	for (const struct sky_jnode *x = sky_j_first(ts); x && rc == 0; x = sky_j_next(x)) {
		rc = take_tensor(x, &m->tensor[m->n_tensor++], err);
	}
	for (const struct sky_jnode *x = sky_j_first(fs); x && rc == 0; x = sky_j_next(x)) {
		if (!plain_name(sky_j_str(x))) {
			return sky_fail(err, SKY_E_DATA, "payload_files holds something that is not a plain file name");
		}
		m->file[m->n_file] = strdup(sky_j_str(x));
		rc = m->file[m->n_file++] ? 0 : sky_fail_mem(err, "manifest");
	}
	take_id(ours, "run", m->id.run);
	take_id(ours, "writer", m->id.writer);
	take_id(ours, "base", m->id.base);
	take_id(ours, "model", m->id.model);
	return rc < 0 ? rc : no_duplicates(m, err);
}

int sky_manifest_parse(const char *text, size_t n, const char *name, struct sky_manifest *m, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	int rc;

	memset(m, 0, sizeof(*m));
	rc = sky_json_parse(text, n, name, 0, &doc, err);
	rc = rc < 0 ? rc : sky_while(err, take_all(sky_json_root(doc), m, err), "%s", name);
	sky_json_free(doc);
	if (rc < 0) {
		sky_manifest_release(m);
	}
	return rc;
}

static void print_tensor(struct sky_jw *w, const struct sky_delta_tensor *t)
{
	sky_jw_obj(w);
	sky_jw_kstr(w, "name", t->name);
	sky_jw_kstr(w, "dtype", t->dtype);
	sky_jw_key(w, "shape");
	sky_jw_arr(w);
	for (int i = 0; i < t->n_dim; i++) {
		sky_jw_i64(w, t->shape[i]);
	}
	sky_jw_close_arr(w);
	sky_jw_ki64(w, "uncompressed_num_bytes", (int64_t)t->raw_bytes);
	sky_jw_ki64(w, "compressed_num_bytes", (int64_t)t->frame_bytes);
	sky_jw_kstr(w, "payload_file", t->file);
	sky_jw_kstr(w, "payload_key", t->key);
	sky_jw_kstr(w, "checksum", t->checksum);
	sky_jw_kstr(w, "checksum_algorithm", t->sha256 ? "sha256" : "xxh3-128");
	sky_jw_close_obj(w);
}

int sky_manifest_print(const struct sky_manifest *m, struct sky_buf *out, struct sky_err *err)
{
	uint64_t raw = 0, frames = 0;
	struct sky_jw w;

	sky_jw_init(&w, out, err);
	w.spaced = w.ascii = true;
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "version", m->version);
	sky_jw_ki64(&w, "base_version", m->base_version);
	sky_jw_key(&w, "tensors");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < m->n_tensor; i++) {
		print_tensor(&w, &m->tensor[i]);
		raw += m->tensor[i].raw_bytes;
		frames += m->tensor[i].frame_bytes;
	}
	sky_jw_close_arr(&w);
	sky_jw_ki64(&w, "total_uncompressed_num_bytes", (int64_t)raw);
	sky_jw_ki64(&w, "total_compressed_num_bytes", (int64_t)frames);
	sky_jw_key(&w, "payload_files");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < m->n_file; i++) {
		sky_jw_str(&w, m->file[i]);
	}
	sky_jw_close_arr(&w);
	if (*m->id.run) {
		sky_jw_key(&w, "skyrl_tools");
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "run", m->id.run);
		sky_jw_kstr(&w, "writer", m->id.writer);
		sky_jw_kstr(&w, "base", m->id.base);
		sky_jw_kstr(&w, "model", m->id.model);
		sky_jw_close_obj(&w);
	}
	sky_jw_close_obj(&w);
	return sky_jw_end(&w);
}

int sky_manifest_get(struct sky_store *s, int64_t version, struct sky_manifest *m, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char key[64], dir[32];
	int rc;

	memset(m, 0, sizeof(*m));
	sky_delta_dir(dir, version);
	snprintf(key, sizeof(key), "%s/manifest.json", dir);
	rc = sky_store_get(s, key, 0, UINT64_MAX, &text, err);
	rc = rc < 0 ? rc : sky_manifest_parse(text.ptr ? text.ptr : "", text.n, key, m, err);
	if (rc == 0 && m->version != version) {
		rc = sky_fail(err, SKY_E_DATA, "%s says version %lld", key, (long long)m->version);
		sky_manifest_release(m);
	}
	sky_buf_release(&text);
	return rc;
}

int sky_delta_newest(struct sky_store *s, int64_t *version_p, struct sky_err *err)
{
	struct sky_object *v = NULL;
	int64_t n = 0, newest = 0;
	int rc = sky_store_list(s, "delta-", 0, &v, &n, err);

	for (int64_t i = 0; i < n && rc == 0; i++) {
		static const char tail[] = "/manifest.json";
		size_t len = strlen(v[i].key);
		char number[32];
		int64_t k;

		if (len > sizeof(tail) + 6 && len < 40 && !strcmp(v[i].key + len - sizeof(tail) + 1, tail)) {
			snprintf(number, sizeof(number), "%.*s", (int)(len - 6 - sizeof(tail) + 1), v[i].key + 6);
			while (number[0] == '0' && number[1]) {
				memmove(number, number + 1, strlen(number));
			}
			newest = sky_parse_i64(number, &k, NULL) == 0 && k > newest ? k : newest;
		}
	}
	sky_objects_free(v, n);
	*version_p = newest;
	return rc;
}
