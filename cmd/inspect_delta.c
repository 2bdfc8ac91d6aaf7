/* skyrl-inspect: delta directories and chains of them, without the weights that they apply to. */
#include "cmd/inspect_int.h"

#include <ctype.h>
#include <sys/mman.h>
#include <unistd.h>

#include "delta/delta.h"
#include "store/store.h"

struct delta {
	struct report *r;
	const char *dir;
	struct sky_manifest m;
	struct sky_st **files;          /* [m.n_file] */
	uint64_t plain, packed;
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
	int64_t i;

	for (i = 0; d->files && i < d->m.n_file; i++) {
		sky_st_close(d->files[i]);
	}
	free(d->files);
	sky_manifest_release(&d->m);
}

static int bad(const struct delta *d, struct sky_err *err, const char *tensor, const char *what)
{
	return sky_fail(err, SKY_E_DATA, "%s/manifest.json: tensor \"%.200s\": %s", d->dir, tensor, what);
}

static int load_manifest(struct delta *d, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char path[SKY_MAX_PATH];
	int rc;

	rc = sky_path_join(path, sizeof(path), d->dir, "manifest.json", err);
	rc = rc < 0 ? rc : sky_file_read(path, &b, err);
	rc = rc < 0 ? rc : sky_manifest_parse(b.ptr ? b.ptr : "", b.n, path, &d->m, err);
	sky_buf_release(&b);
	return rc;
}

static int open_payloads(struct delta *d, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int64_t i;
	int rc;

	d->files = sky_calloc_array((size_t)d->m.n_file, sizeof(*d->files));
	if (!d->files) {
		return sky_fail_mem(err, "opening %s", d->dir);
	}
	for (i = 0; i < d->m.n_file; i++) {
		rc = sky_path_join(path, sizeof(path), d->dir, d->m.file[i], err);
		if (rc == 0 && !sky_file_exists(path)) {
			rc = sky_fail(err, SKY_E_DATA, "%s is missing, but the manifest names it", path);
		}
		rc = rc < 0 ? rc : sky_st_open(path, &d->files[i], err);
		if (rc < 0) {
			return rc;
		}
	}
	return 0;
}

/* Where the element's bytes lie. */
static const struct sky_tensor *payload_of(const struct delta *d, const struct sky_delta_tensor *e)
{
	int64_t i;

	for (i = 0; i < d->m.n_file; i++) {
		if (strcmp(d->m.file[i], e->file) == 0) {
			return sky_st_find(d->files[i], e->key);
		}
	}
	return NULL;
}

/* Decompresses the frame and counts its bytes. */
static int check_frame(const struct delta *d, const struct sky_tensor *t, const struct sky_delta_tensor *e, struct sky_err *err)
{
	struct sky_stream_opt opt = { 0 };
	struct sky_stream *s = NULL;
	uint64_t total = 0;
	char buf[65536];
	int64_t n = 0;
	int fd, rc;

	if (t->bytes < 4 || sky_load_u32(t->data) != 0xfd2fb528u) {
		return bad(d, err, e->name, "its payload is no zstd frame");
	}
	fd = memfd_create("frame", MFD_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "checking %s", e->name);
	}
	rc = sky_write_full(fd, t->data, t->bytes, e->name, err);
	if (rc == 0 && lseek(fd, 0, SEEK_SET) != 0) {
		rc = sky_fail_sys(err, "checking %s", e->name);
	}
	rc = rc < 0 ? rc : sky_stream_fd(fd, e->name, &opt, &s, err);
	while (rc == 0 && total <= e->raw_bytes && (n = sky_stream_read(s, buf, sizeof(buf), err)) > 0) {
		total += (uint64_t)n;
	}
	if (rc == 0 && n < 0) {
		rc = sky_while(err, (int)n, "%s", d->dir);
	}
	if (s) {
		sky_stream_close(s);
	}
	close(fd);
	return rc < 0 || total == e->raw_bytes ? rc : bad(d, err, e->name, "its frame does not decode to uncompressed_num_bytes");
}

static void add_row(struct delta *d, const struct sky_delta_tensor *e, uint64_t packed)
{
	struct sky_jw w, *j = rep_row_begin(d->r, &w, "tensor");
	int i;

	sky_jw_kstr(j, "name", e->name);
	sky_jw_kstr(j, "dtype", e->dtype);
	sky_jw_key(j, "shape");
	sky_jw_arr(j);
	for (i = 0; i < e->n_dim; i++) {
		sky_jw_i64(j, e->shape[i]);
	}
	sky_jw_close_arr(j);
	sky_jw_key(j, "uncompressed_num_bytes");
	sky_jw_u64(j, e->raw_bytes);
	sky_jw_key(j, "compressed_num_bytes");
	sky_jw_u64(j, packed);
	rep_row_end(d->r, j, "%-10s %12llu -> %10llu bytes  %s", e->dtype, (unsigned long long)e->raw_bytes,
	            (unsigned long long)packed, e->name);
}

static int check_element(struct delta *d, const struct sky_delta_tensor *e, struct sky_err *err)
{
	const struct sky_tensor *t = payload_of(d, e);
	int rc = 0;

	if (!t) {
		return bad(d, err, e->name, "its payload is not in the files of the manifest");
	}
	if (t->dtype != SKY_U8 || t->n_dim != 1) {
		return bad(d, err, e->name, "its payload must be a vector of U8");
	}
	if (e->frame_bytes > 0 && e->frame_bytes != t->bytes) {
		return bad(d, err, e->name, "its payload does not have compressed_num_bytes");
	}
	if (d->r->check) {
		rc = check_frame(d, t, e, err);
	}
	if (rc == 0 && d->r->list) {
		add_row(d, e, t->bytes);
	}
	d->plain += e->raw_bytes;
	d->packed += t->bytes;
	return rc;
}

static int check_delta(struct delta *d, struct sky_err *err)
{
	int64_t i;
	int rc;

	rc = load_manifest(d, err);
	rc = rc < 0 ? rc : open_payloads(d, err);
	for (i = 0; rc == 0 && i < d->m.n_tensor; i++) {
		rc = check_element(d, &d->m.tensor[i], err);
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
		rep_i64(r, "version", d.m.version);
		rep_i64(r, "base_version", d.m.base_version);
		rep_i64(r, "n_tensors", d.m.n_tensor);
		rep_i64(r, "n_files", d.m.n_file);
		rep_bytes(r, "uncompressed_bytes", d.plain);
		rep_bytes(r, "compressed_bytes", d.packed);
		rep_str(r, "run", d.m.id.run[0] ? d.m.id.run : NULL);
		rep_str(r, "base", d.m.id.base[0] ? d.m.id.base : NULL);
		rep_str(r, "model", d.m.id.model[0] ? d.m.id.model : NULL);
		if (r->check) {
			rep_bool(r, "checksums_checked", false);
		}
	}
	delta_release(&d);
	return rc;
}

struct chain_sum {
	int64_t n, first, last;
	uint64_t packed;
	char run[33];
};

static void add_version_row(struct report *r, const struct delta *d)
{
	struct sky_jw w, *j = rep_row_begin(r, &w, "delta");

	sky_jw_ki64(j, "version", d->m.version);
	sky_jw_ki64(j, "base_version", d->m.base_version);
	sky_jw_ki64(j, "n_tensors", d->m.n_tensor);
	sky_jw_key(j, "compressed_bytes");
	sky_jw_u64(j, d->packed);
	rep_row_end(r, j, "version %lld on %lld  tensors %lld  bytes %llu", (long long)d->m.version, (long long)d->m.base_version,
	            (long long)d->m.n_tensor, (unsigned long long)d->packed);
}

/* Its place in the chain, behind what s has seen. */
static int check_link(const struct delta *d, int64_t version, struct chain_sum *s, struct sky_err *err)
{
	if (d->m.version != version) {
		return sky_fail(err, SKY_E_DATA, "%s/manifest.json says version %lld", d->dir, (long long)d->m.version);
	}
	if (s->n > 0 && d->m.base_version != s->last) {
		return sky_fail(err, SKY_E_DATA, "%s applies on version %lld, the one before it is %lld", d->dir,
		                (long long)d->m.base_version, (long long)s->last);
	}
	if (s->run[0] && d->m.id.run[0] && strcmp(s->run, d->m.id.run) != 0) {
		return sky_fail(err, SKY_E_DATA, "%s belongs to run %s, the versions before it to %s", d->dir, d->m.id.run, s->run);
	}
	s->first = s->n == 0 ? version : s->first;
	s->last = version;
	s->packed += d->packed;
	s->n++;
	if (d->m.id.run[0]) {
		memcpy(s->run, d->m.id.run, sizeof(s->run));
	}
	return 0;
}

static int add_version(struct report *r, const char *dir, const char *name, int64_t version, struct chain_sum *s,
                       struct sky_err *err)
{
	char path[SKY_MAX_PATH], manifest[SKY_MAX_PATH];
	struct delta d = { .r = r, .dir = path };
	bool list = r->list;
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
	rc = rc < 0 ? rc : check_link(&d, version, s, err);
	if (rc == 0 && list) {
		add_version_row(r, &d);
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
		rep_str(r, "run", s.run[0] ? s.run : NULL);
	}
	return rc;
}
