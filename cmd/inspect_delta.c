/* skyrl-inspect: delta directories and chains of them, without the weights that they apply to. */
#include "cmd/inspect_int.h"

#include <ctype.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/store.h"

struct delta {
	struct report *r;
	const char *dir;
	struct sky_json *doc;
	const struct sky_jnode *root;
	int64_t version, base_version, n_tensors;
	uint64_t plain, packed;
	struct sky_st **files;          /* of payload_files, in its order */
	size_t n_files;
};

bool inspect_is_delta_name(const char *name, int64_t *version_p)
{
	size_t i;

	if (strncmp(name, "delta-", 6) != 0 || strlen(name) < 14) {
		return false;
	}
	for (i = 6; name[i]; i++) {
		if (!isdigit((unsigned char)name[i])) {
			return false;
		}
	}
	return sky_parse_i64(name + 6, version_p, NULL) == 0;
}

static void delta_release(struct delta *d)
{
	size_t i;

	for (i = 0; i < d->n_files; i++) {
		sky_st_close(d->files[i]);
	}
	free(d->files);
	sky_json_free(d->doc);
}

static int bad(const struct delta *d, struct sky_err *err, const char *tensor, const char *what)
{
	return sky_fail(err, SKY_E_DATA, "%s/manifest.json: tensor \"%.200s\": %s", d->dir, tensor, what);
}

static int load_manifest(struct delta *d, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc;

	rc = sky_path_join(path, sizeof(path), d->dir, "manifest.json", err);
	rc = rc < 0 ? rc : sky_json_load(path, SKY_JSON_NO_DUP, &d->doc, err);
	if (rc < 0) {
		return rc;
	}
	d->root = sky_json_root(d->doc);
	if (!sky_j_i64(sky_j_get(d->root, "version"), &d->version) || !sky_j_i64(sky_j_get(d->root, "base_version"),
	                                                                         &d->base_version) ||
	    sky_j_type(sky_j_get(d->root, "tensors")) != SKY_J_ARRAY) {
		return sky_fail(err, SKY_E_DATA, "%s is no delta manifest (version, base_version and tensors are needed)", path);
	}
	if (d->base_version < 0 || d->version <= d->base_version) {
		return sky_fail(err, SKY_E_DATA, "%s: version %lld cannot apply on version %lld", path, (long long)d->version,
		                (long long)d->base_version);
	}
	return 0;
}

static int open_payloads(struct delta *d, struct sky_err *err)
{
	const struct sky_jnode *list = sky_j_get(d->root, "payload_files"), *k;
	char path[SKY_MAX_PATH];
	int rc;

	d->files = sky_calloc_array(sky_j_len(list), sizeof(*d->files));
	if (!d->files) {
		return sky_fail_mem(err, "opening %s", d->dir);
	}
	for (k = sky_j_first(list); k; k = sky_j_next(k)) {
		if (!sky_j_str(k) || strchr(sky_j_str(k), '/') || sky_j_str(k)[0] == '.') {
			return sky_fail(err, SKY_E_DATA, "%s/manifest.json: payload_files must hold plain file names", d->dir);
		}
		rc = sky_path_join(path, sizeof(path), d->dir, sky_j_str(k), err);
		if (rc == 0 && !sky_file_exists(path)) {
			rc = sky_fail(err, SKY_E_DATA, "%s is missing, but the manifest names it", path);
		}
		rc = rc < 0 ? rc : sky_st_open(path, &d->files[d->n_files], err);
		if (rc < 0) {
			return rc;
		}
		d->n_files++;
	}
	return 0;
}

/* Where the element's bytes lie. */
static const struct sky_tensor *payload_of(const struct delta *d, const struct sky_jnode *v)
{
	const char *file = sky_j_str(sky_j_get(v, "payload_file")), *key = sky_j_str(sky_j_get(v, "payload_key"));
	const struct sky_jnode *k;
	size_t i = 0;

	if (!file || !key) {
		return NULL;
	}
	for (k = sky_j_first(sky_j_get(d->root, "payload_files")); k; k = sky_j_next(k), i++) {
		if (strcmp(sky_j_str(k), file) == 0) {
			return sky_st_find(d->files[i], key);
		}
	}
	return NULL;
}

/* Decompresses the frame and counts its bytes. */
static int check_frame(const struct delta *d, const struct sky_tensor *t, const char *name, uint64_t want, struct sky_err *err)
{
	struct sky_stream_opt opt = { 0 };
	struct sky_stream *s = NULL;
	uint64_t total = 0;
	char buf[65536];
	int64_t n = 0;
	int fd, rc;

	if (t->bytes < 4 || sky_load_u32(t->data) != 0xfd2fb528u) {
		return bad(d, err, name, "its payload is no zstd frame");
	}
	fd = memfd_create("frame", MFD_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "checking %s", name);
	}
	rc = sky_write_full(fd, t->data, t->bytes, name, err);
	if (rc == 0 && lseek(fd, 0, SEEK_SET) != 0) {
		rc = sky_fail_sys(err, "checking %s", name);
	}
	rc = rc < 0 ? rc : sky_stream_fd(fd, name, &opt, &s, err);
	while (rc == 0 && total <= want && (n = sky_stream_read(s, buf, sizeof(buf), err)) > 0) {
		total += (uint64_t)n;
	}
	if (rc == 0 && n < 0) {
		rc = sky_while(err, (int)n, "%s: tensor \"%.200s\"", d->dir, name);
	}
	if (s) {
		sky_stream_close(s);
	}
	close(fd);
	return rc < 0 ? rc : total == want ? 0 : bad(d, err, name, "its frame does not decode to uncompressed_num_bytes");
}

static int check_size(const struct delta *d, const struct sky_jnode *v, const char *name, uint64_t plain, struct sky_err *err)
{
	const char *dtype = sky_j_str(sky_j_get(v, "dtype"));
	enum sky_dtype type = dtype ? sky_dtype_from_torch(dtype) : SKY_DT_NONE;
	const struct sky_jnode *k, *shape = sky_j_get(v, "shape");
	uint64_t n = 1;
	int64_t dim;

	if (!dtype || sky_j_type(shape) != SKY_J_ARRAY) {
		return bad(d, err, name, "dtype and shape are needed");
	}
	for (k = sky_j_first(shape); k; k = sky_j_next(k)) {
		if (!sky_j_i64(k, &dim) || dim < 0 || sky_mul_u64(n, (uint64_t)dim, &n)) {
			return bad(d, err, name, "its shape must hold non-negative integers");
		}
	}
	/* A type that we do not know has no size to compare. */
	if (type != SKY_DT_NONE && (sky_mul_u64(n, (uint64_t)sky_dtype_bits(type), &n) || n % 8 != 0 || n / 8 != plain)) {
		return bad(d, err, name, "dtype and shape do not give uncompressed_num_bytes");
	}
	return 0;
}

static void add_row(struct delta *d, const struct sky_jnode *v, const char *name, uint64_t plain, uint64_t packed)
{
	struct sky_jw w, *j = rep_row_begin(d->r, &w, "tensor");
	const char *dtype = sky_j_str(sky_j_get(v, "dtype"));

	sky_jw_kstr(j, "name", name);
	sky_jw_kstr(j, "dtype", dtype);
	sky_jw_key(j, "shape");
	sky_jw_node(j, sky_j_get(v, "shape"));
	sky_jw_key(j, "uncompressed_num_bytes");
	sky_jw_u64(j, plain);
	sky_jw_key(j, "compressed_num_bytes");
	sky_jw_u64(j, packed);
	rep_row_end(d->r, j, "%-10s %12llu -> %10llu bytes  %s", dtype, (unsigned long long)plain,
	            (unsigned long long)packed, name);
}

static int check_element(struct delta *d, const struct sky_jnode *v, bool native, struct sky_err *err)
{
	const char *name = sky_j_str(sky_j_get(v, "name"));
	const struct sky_tensor *t;
	uint64_t plain = 0, packed = 0;
	int rc;

	if (!name) {
		return bad(d, err, "?", "an element has no name");
	}
	if (!sky_j_u64(sky_j_get(v, "uncompressed_num_bytes"), &plain)) {
		return bad(d, err, name, "uncompressed_num_bytes is needed");
	}
	rc = check_size(d, v, name, plain, err);
	if (rc < 0) {
		return rc;
	}
	t = payload_of(d, v);
	if (!t) {
		return bad(d, err, name, "its payload is not in the files of the manifest");
	}
	if (sky_j_u64(sky_j_get(v, "compressed_num_bytes"), &packed) && packed != t->bytes) {
		return bad(d, err, name, "its payload does not have compressed_num_bytes");
	}
	if (t->dtype != SKY_U8 || t->n_dim != 1) {
		return bad(d, err, name, "its payload must be a vector of U8");
	}
	if (!native && !sky_j_str(sky_j_get(v, "checksum")) && !sky_j_str(sky_j_get(v, "sha256"))) {
		return bad(d, err, name, "a checksum is needed");
	}
	if (d->r->check && !native) {
		rc = check_frame(d, t, name, plain, err);
	}
	if (rc == 0 && d->r->list) {
		add_row(d, v, name, plain, t->bytes);
	}
	d->n_tensors++;
	d->plain += plain;
	d->packed += t->bytes;
	return rc;
}

/* format "native" puts its own encoding into the same containers; its frames are skyrl-delta's to check. */
static bool is_native(const struct delta *d)
{
	const char *format = sky_j_str(sky_j_get(d->root, "format"));

	return format && strcmp(format, "native") == 0;
}

static int check_delta(struct delta *d, struct sky_err *err)
{
	const struct sky_jnode *k;
	int rc;

	rc = load_manifest(d, err);
	rc = rc < 0 ? rc : open_payloads(d, err);
	if (rc < 0) {
		return rc;
	}
	for (k = sky_j_first(sky_j_get(d->root, "tensors")); rc == 0 && k; k = sky_j_next(k)) {
		rc = check_element(d, k, is_native(d), err);
	}
	return rc;
}

int inspect_delta(struct report *r, const char *dir, struct sky_err *err)
{
	struct delta d = { .r = r, .dir = dir };
	int rc;

	rc = check_delta(&d, err);
	if (rc == 0) {
		rep_kind(r, "delta directory");
		rep_i64(r, "version", d.version);
		rep_i64(r, "base_version", d.base_version);
		rep_str(r, "format", is_native(&d) ? "native" : "skyrl");
		rep_i64(r, "n_tensors", d.n_tensors);
		rep_i64(r, "n_files", (int64_t)d.n_files);
		rep_bytes(r, "uncompressed_bytes", d.plain);
		rep_bytes(r, "compressed_bytes", d.packed);
		rep_str(r, "run", sky_j_str(sky_j_get(d.root, "run_id")));
		if (r->check) {
			rep_bool(r, "checksums_checked", false);
		}
	}
	delta_release(&d);
	return rc;
}

struct chain_sum { int64_t n, first, last; uint64_t packed; };

static int add_version(struct report *r, const char *dir, const char *name, int64_t version, struct chain_sum *s,
                       struct sky_err *err)
{
	bool list = r->list;
	char path[SKY_MAX_PATH], manifest[SKY_MAX_PATH];
	struct delta d = { .r = r, .dir = path };
	struct sky_jw w, *j;
	int rc;

	rc = sky_path_join(path, sizeof(path), dir, name, err);
	rc = rc < 0 ? rc : sky_path_join(manifest, sizeof(manifest), path, "manifest.json", err);
	if (rc < 0) {
		return rc;
	}
	if (!sky_file_exists(manifest)) {
		rep_note(r, "%s has no manifest: its publication did not finish", name);
		return 0;
	}
	/* A line a version, not a line a tensor. */
	r->list = false;
	rc = check_delta(&d, err);
	r->list = list;
	if (rc == 0 && d.version != version) {
		rc = sky_fail(err, SKY_E_DATA, "%s says version %lld", manifest, (long long)d.version);
	}
	if (rc == 0 && s->n > 0 && d.base_version != s->last) {
		rc = sky_fail(err, SKY_E_DATA, "%s applies on version %lld, the one before it is %lld", manifest,
		              (long long)d.base_version,
		              (long long)s->last);
	}
	if (rc == 0 && list) {
		j = rep_row_begin(r, &w, "delta");
		sky_jw_ki64(j, "version", d.version);
		sky_jw_ki64(j, "base_version", d.base_version);
		sky_jw_ki64(j, "n_tensors", d.n_tensors);
		sky_jw_key(j, "compressed_bytes");
		sky_jw_u64(j, d.packed);
		rep_row_end(r, j, "version %lld on %lld  tensors %lld  bytes %llu", (long long)d.version, (long long)d.base_version,
		            (long long)d.n_tensors, (unsigned long long)d.packed);
	}
	if (rc == 0) {
		s->first = s->n == 0 ? version : s->first;
		s->last = version;
		s->packed += d.packed;
		s->n++;
	}
	delta_release(&d);
	return rc;
}

int inspect_delta_store(struct report *r, const char *dir, struct sky_err *err)
{
	struct chain_sum s = { 0 };
	int64_t version;
	char **names;
	size_t n, i;
	int rc;

	rc = sky_list_dir(dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	/* Eight digits: order of bytes is order of versions. */
	for (i = 0; rc == 0 && i < n; i++) {
		if (inspect_is_delta_name(names[i], &version)) {
			rc = add_version(r, dir, names[i], version, &s, err);
		}
	}
	sky_names_free(names, n);
	if (rc == 0) {
		rep_kind(r, "delta chain");
		rep_i64(r, "n_versions", s.n);
		rep_i64(r, "first_version", s.first);
		rep_i64(r, "last_version", s.last);
		rep_bytes(r, "compressed_bytes", s.packed);
	}
	return rc;
}
