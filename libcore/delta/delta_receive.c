/* Receiving: fetch versions into STATE/deltas, apply them beside STATE/weights, switch. */
#include "delta/delta.h"
#include "delta/delta_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- fetch ---- */

/* A cached payload is trusted only when it is a whole safetensors file that holds what the manifest lists of it. */
static bool payload_whole(const char *path, const struct sky_manifest *m, const char *file)
{
	struct sky_st *st = NULL;
	bool ok = sky_file_exists(path) && sky_st_open(path, &st, NULL) == 0;

	for (int64_t i = 0; i < m->n_tensor && ok; i++) {
		const struct sky_delta_tensor *t = &m->tensor[i];

		if (!strcmp(t->file, file)) {
			const struct sky_tensor *p = sky_st_find(st, t->key);

			ok = p && p->dtype == SKY_U8 && p->n_dim == 1 && frame_check(p->data, p->bytes, t->raw_bytes,
			                                                             t->name, NULL) == 0;
		}
	}
	sky_st_close(st);
	return ok;
}

static int fetch_payload(struct sky_store *s, const char *version_dir, const char *local, const struct sky_manifest *m,
                         const char *file, struct sky_delta_result *r, struct sky_err *err)
{
	char path[SKY_MAX_PATH], tmp[SKY_MAX_PATH], key[512];
	uint64_t bytes = 0;
	int fd, rc = dstate_path(path, local, file, err);

	if (rc < 0 || payload_whole(path, m, file)) {
		return rc;
	}
	snprintf(key, sizeof(key), "%s/%s", version_dir, file);
	if (snprintf(tmp, sizeof(tmp), "%s/.%s.tmp.%ld.part", local, file, (long)getpid()) >= (int)sizeof(tmp)) {
		return sky_fail(err, SKY_E_LIMIT, "%s: path too long", path);
	}
	fd = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0) {
		return sky_fail_sys(err, "%s", tmp);
	}
	rc = sky_store_get_fd(s, key, fd, &bytes, err);
	if (rc == SKY_E_MISSING) {
		rc = sky_fail(err, SKY_E_DATA, "%s/%s: the manifest lists it, the store does not have it", sky_store_url(s), key);
	}
	if (rc == 0 && fsync(fd) < 0) {
		rc = sky_fail_sys(err, "fsync of %s", tmp);
	}
	close(fd);
	if (rc == 0 && !payload_whole(tmp, m, file)) {
		rc = sky_fail(err, SKY_E_DATA, "%s/%s does not hold what its manifest lists", sky_store_url(s), key);
	}
	if (rc == 0 && rename(tmp, path) < 0) {
		rc = sky_fail_sys(err, "renaming %s", tmp);
	}
	if (rc < 0) {
		unlink(tmp);
	}
	r->read_bytes += bytes;
	return rc;
}

int receive_fetch_one(struct sky_store *s, const char *deltas, int64_t version, struct sky_manifest *m, struct sky_delta_result *r,
                      struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char dir[32], local[SKY_MAX_PATH], path[SKY_MAX_PATH];
	int rc;

	sky_delta_dir(dir, version);
	rc = dstate_path(local, deltas, dir, err);
	rc = rc < 0 ? rc : sky_mkdirs(local, err);
	rc = rc < 0 ? rc : sky_manifest_get(s, version, m, err);
	if (rc == SKY_E_MISSING) {
		return sky_fail(err, rc, "%s: version %lld is not there", sky_store_url(s), (long long)version);
	}
	for (int64_t i = 0; rc == 0 && i < m->n_file; i++) {
		rc = fetch_payload(s, dir, local, m, m->file[i], r, err);
	}
	for (int64_t i = 0; rc == 0 && i < m->n_tensor; i++) {
		bool listed = false;

		for (int64_t k = 0; k < m->n_file && !listed; k++) {
			listed = !strcmp(m->file[k], m->tensor[i].file);
		}
		if (!listed) {
			rc = sky_fail(err, SKY_E_DATA, "version %lld: tensor %s lies in %s, which payload_files does not list",
			              (long long)version, m->tensor[i].name, m->tensor[i].file);
		}
	}
	/* The manifest last: what has one is complete. */
	rc = rc < 0 ? rc : sky_manifest_print(m, &text, err);
	rc = rc < 0 ? rc : dstate_path(path, local, "manifest.json", err);
	rc = rc < 0 ? rc : sky_file_publish(path, text.ptr, text.n, SKY_OUT_REPLACE, err);
	sky_buf_release(&text);
	if (rc < 0) {
		sky_manifest_release(m);
	}
	return rc;
}

/* The state of a receiver, or a new one from base. */
static int load_or_begin(const struct sky_receive_opt *opt, struct dstate *d, struct sky_err *err)
{
	char weights[SKY_MAX_PATH], old[SKY_MAX_PATH], fresh[SKY_MAX_PATH];
	struct sky_hf *hf = NULL;
	int rc = dstate_path(weights, opt->state, "weights", err);

	memset(d, 0, sizeof(*d));
	rc = rc < 0 ? rc : dstate_path(old, opt->state, ".weights.old", err);
	if (rc == 0 && !sky_is_dir(weights) && sky_is_dir(old) && rename(old, weights) < 0) {
		return sky_fail_sys(err, "renaming %s back", old);      /* cut between the two renames of a switch */
	}
	if (rc < 0 || sky_is_dir(weights)) {
		return rc < 0 ? rc : dstate_load(weights, d, err);
	}
	if (!opt->base) {
		return sky_fail(err, SKY_E_MISSING, "%s holds no version yet: --base DIR names the model that the chain began with",
		                opt->state);
	}
	rc = sky_mkdirs(opt->state, err);
	rc = rc < 0 ? rc : sky_hf_open(opt->base, &hf, err);
	rc = rc < 0 ? rc : sky_model_hash(hf, d->id.base, err);
	rc = rc < 0 ? rc : dstate_path(fresh, opt->state, ".weights.new", err);
	rc = rc < 0 ? rc : dstate_copy_dir(sky_hf_dir(hf), fresh, 0, err);
	memcpy(d->id.model, d->id.base, sizeof(d->id.model));
	rc = rc < 0 ? rc : dstate_save(fresh, d, err);
	rc = rc < 0 ? rc : dstate_switch(opt->state, fresh, err);
	sky_hf_close(hf);
	return rc;
}

/* Does a version continue what STATE holds? */
static int same_chain(const struct dstate *d, const struct sky_manifest *m, struct sky_err *err)
{
	if (*m->id.run && *d->id.run && strcmp(m->id.run, d->id.run)) {
		return sky_fail(err, SKY_E_DATA, "version %lld belongs to another run (%s) than the weights held here (%s): a new "
		                "chain needs its own --state", (long long)m->version, m->id.run, d->id.run);
	}
	if (*m->id.base && *d->id.base && strcmp(m->id.base, d->id.base)) {
		return sky_fail(err, SKY_E_DATA, "version %lld was made on another base model than the one given here",
		                (long long)m->version);
	}
	return 0;
}

static int target_of(struct sky_store *s, const struct sky_receive_opt *opt, const struct dstate *d, int64_t *target,
                     struct sky_err *err)
{
	int rc = 0;

	*target = opt->version;
	if (*target <= 0) {
		rc = sky_delta_newest(s, target, err);
	}
	if (rc == 0 && *target < d->version) {
		return sky_fail(err, SKY_E_USAGE,
		                "version %lld is asked for, %s holds %lld: a chain only goes forward (a fresh --state "
		                "with --base reaches any version)", (long long)*target, opt->state, (long long)d->version);
	}
	return rc;
}

int sky_delta_fetch(struct sky_store *s, const struct sky_receive_opt *opt, struct sky_delta_result *r, struct sky_err *err)
{
	struct dstate d;
	struct sky_manifest m;
	char deltas[SKY_MAX_PATH];
	int64_t target = 0;
	double t0 = sky_now();
	int rc = load_or_begin(opt, &d, err);

	rc = rc < 0 ? rc : target_of(s, opt, &d, &target, err);
	rc = rc < 0 ? rc : dstate_path(deltas, opt->state, "deltas", err);
	/* The version that is held must be the store's: an equal number alone proves nothing. */
	if (rc == 0 && d.version > 0) {
		rc = sky_manifest_get(s, d.version, &m, err);
		if (rc == SKY_E_MISSING) {
			rc = sky_fail(err, SKY_E_DATA, "%s does not have version %lld, which is held here: another chain?",
			              sky_store_url(s), (long long)d.version);
		}
		rc = rc < 0 ? rc : same_chain(&d, &m, err);
		if (rc == 0 && *m.id.model && *d.id.model && strcmp(m.id.model, d.id.model)) {
			rc = sky_fail(err, SKY_E_DATA, "version %lld in %s is not the one held here", (long long)d.version,
			              sky_store_url(s));
		}
		sky_manifest_release(&m);
	}
	for (int64_t v = d.version + 1; v <= target && rc == 0; v++) {
		rc = receive_fetch_one(s, deltas, v, &m, r, err);
		if (rc == 0) {
			rc = same_chain(&d, &m, err);
			memcpy(r->id.run, m.id.run, sizeof(r->id.run));
			sky_manifest_release(&m);
		}
		if (rc == 0 && opt->stop && opt->stop()) {
			rc = sky_fail(err, SKY_E_STOP, "stopped behind version %lld", (long long)v);
		}
	}
	r->version = target;
	r->nothing = rc == 0 && target == d.version;
	r->seconds_store += sky_now() - t0;
	return rc;
}

/* ---- apply ---- */

struct target {                 /* the files of a weights directory, mapped for writing */
	struct sky_hf *hf;
	uint8_t **map;
	uint64_t *bytes;
};

static void target_close(struct target *t, bool sync)
{
	for (int64_t i = 0; t->map && t->hf && i < sky_hf_n_files(t->hf); i++) {
		if (t->map[i]) {
			if (sync) {
				msync(t->map[i], t->bytes[i], MS_SYNC);
			}
			munmap(t->map[i], t->bytes[i]);
		}
	}
	free(t->map);
	free(t->bytes);
	sky_hf_close(t->hf);
	memset(t, 0, sizeof(*t));
}

static int target_map(struct target *t, const char *dir, int64_t file, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct stat st;
	int fd, rc = dstate_path(path, dir, sky_hf_file(t->hf, file), err);

	if (rc < 0 || t->map[file]) {
		return rc;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = sky_fail_sys(err, "%s", path);
	} else {
		t->bytes[file] = (uint64_t)st.st_size;
		t->map[file] = mmap(NULL, t->bytes[file], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (t->map[file] == MAP_FAILED) {
			t->map[file] = NULL;
			rc = sky_fail_sys(err, "mapping %s", path);
		}
	}
	if (fd >= 0) {
		close(fd);
	}
	return rc;
}

/* One version on its way into the target; worked on by threads. */
struct version_job {
	const struct sky_manifest *m;
	struct target *t;
	struct sky_st **payload;        /* [n_file] */
	struct sky_buf *scratch;        /* [threads] */
	struct sky_err *err;            /* [n_tensor], code 0 = fine */
};

static void apply_tensor(void *ctx, int64_t i, int worker)
{
	struct version_job *j = ctx;
	const struct sky_delta_tensor *d = &j->m->tensor[i];
	const struct sky_tensor *own = sky_hf_find(j->t->hf, d->name), *frame = NULL;
	uint8_t *dst = j->t->map[own->file] + own->off;
	char hex[65];
	int rc;

	for (int64_t k = 0; k < j->m->n_file && !frame; k++) {
		if (!strcmp(j->m->file[k], d->file)) {
			frame = sky_st_find(j->payload[k], d->key);
		}
	}
	if (!frame) {
		sky_fail(&j->err[i], SKY_E_DATA, "tensor %s: %s has no entry %s", d->name, d->file, d->key);
		return;
	}
	rc = frame_apply(frame->data, frame->bytes, dst, own->bytes, &j->scratch[worker], d->name, &j->err[i]);
	if (rc == 0) {
		frame_hash(d->sha256, dst, own->bytes, hex);
		if (strcmp(hex, d->checksum)) {
			sky_fail(&j->err[i], SKY_E_DATA,
			         "tensor %s: the result's checksum is not the manifest's: the weights before it "
			         "are not those of version %lld", d->name, (long long)j->m->base_version);
		}
	}
}

/* Everything that can be refused is refused before a byte changes. */
static int check_version(const struct sky_manifest *m, struct target *t, const char *weights, struct sky_err *err)
{
	int rc = 0;

	for (int64_t i = 0; i < m->n_tensor && rc == 0; i++) {
		const struct sky_delta_tensor *d = &m->tensor[i];
		const struct sky_tensor *own = sky_hf_find(t->hf, d->name);
		bool same = own && own->bytes == d->raw_bytes && own->n_dim == d->n_dim &&
		            !memcmp(own->shape, d->shape, (size_t)d->n_dim * sizeof(int64_t)) &&
		            own->dtype == sky_dtype_from_torch(d->dtype);

		if (!own) {
			return sky_fail(err, SKY_E_DATA, "version %lld changes tensor %s, which the base model does not have",
			                (long long)m->version, d->name);
		}
		if (!same) {
			return sky_fail(err, SKY_E_DATA,
			                "version %lld: tensor %s has another type or shape (%s) than the base model (%s)",
			                (long long)m->version, d->name, d->dtype, sky_dtype_name(own->dtype));
		}
		rc = target_map(t, weights, own->file, err);
	}
	return rc;
}

static int apply_version(const char *deltas, const char *weights, int64_t version, struct target *t, struct sky_pool *pool,
                         struct sky_buf *scratch, struct sky_delta_result *r, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char dir[32], local[SKY_MAX_PATH], path[SKY_MAX_PATH];
	struct version_job j = { .t = t, .scratch = scratch };
	struct sky_manifest m = { 0 };
	int rc;

	sky_delta_dir(dir, version);
	rc = dstate_path(local, deltas, dir, err);
	rc = rc < 0 ? rc : dstate_path(path, local, "manifest.json", err);
	rc = rc < 0 ? rc : sky_file_read(path, &text, err);
	rc = rc < 0 ? rc : sky_manifest_parse(text.ptr ? text.ptr : "", text.n, path, &m, err);
	if (rc == 0 && m.version != version) {
		rc = sky_fail(err, SKY_E_DATA, "%s says version %lld", path, (long long)m.version);
	}
	rc = rc < 0 ? rc : check_version(&m, t, weights, err);
	j.m = &m;
	j.payload = sky_calloc_array((size_t)m.n_file + 1, sizeof(*j.payload));
	j.err = sky_calloc_array((size_t)m.n_tensor + 1, sizeof(*j.err));
	if (rc == 0 && (!j.payload || !j.err)) {
		rc = sky_fail_mem(err, "applying version %lld", (long long)version);
	}
	for (int64_t k = 0; k < m.n_file && rc == 0; k++) {
		rc = dstate_path(path, local, m.file[k], err);
		rc = rc < 0 ? rc : sky_st_open(path, &j.payload[k], err);
	}
	if (rc == 0) {
		sky_pool_for(pool, m.n_tensor, apply_tensor, &j);
	}
	for (int64_t i = 0; i < m.n_tensor && rc == 0; i++) {
		if (j.err[i].code) {
			*err = j.err[i];
			rc = sky_while(err, err->code, "version %lld", (long long)version);
		}
		r->frame_bytes += m.tensor[i].frame_bytes;
		r->raw_bytes += m.tensor[i].raw_bytes;
	}
	if (rc == 0) {
		r->n_changed += m.n_tensor;
		r->id = m.id;
	}
	for (int64_t k = 0; j.payload && k < m.n_file; k++) {
		sky_st_close(j.payload[k]);
	}
	free(j.payload);
	free(j.err);
	sky_manifest_release(&m);
	sky_buf_release(&text);
	return rc;
}

int receive_apply_range(const char *deltas, const char *weights, int64_t from, int64_t to, int n_threads,
                        struct sky_delta_result *r, struct sky_err *err)
{
	struct sky_pool *pool = NULL;
	struct sky_buf *scratch = NULL;
	struct target t = { 0 };
	char hash[33];
	int rc = sky_hf_open(weights, &t.hf, err), n = n_threads > 0 ? n_threads : 1;

	rc = rc < 0 ? rc : sky_pool_new(n, &pool, err);
	scratch = sky_calloc_array((size_t)n, sizeof(*scratch));
	t.map = sky_calloc_array(t.hf ? (size_t)sky_hf_n_files(t.hf) + 1 : 1, sizeof(*t.map));
	t.bytes = sky_calloc_array(t.hf ? (size_t)sky_hf_n_files(t.hf) + 1 : 1, sizeof(*t.bytes));
	if (rc == 0 && (!scratch || !t.map || !t.bytes)) {
		rc = sky_fail_mem(err, "applying versions");
	}
	for (int i = 0; scratch && i < n; i++) {
		sky_buf_init(&scratch[i], SIZE_MAX / 2);
	}
	for (int64_t v = from + 1; v <= to && rc == 0; v++) {
		rc = apply_version(deltas, weights, v, &t, pool, scratch, r, err);
	}
	target_close(&t, rc == 0);
	if (rc == 0 && *r->id.model) {
		struct sky_hf *hf = NULL;

		rc = sky_hf_open(weights, &hf, err);
		rc = rc < 0 ? rc : sky_model_hash(hf, hash, err);
		sky_hf_close(hf);
		if (rc == 0 && strcmp(hash, r->id.model)) {
			rc = sky_fail(err, SKY_E_DATA,
			              "the whole model does not have the hash of version %lld: a tensor that no version "
			              "changed differs from the publisher's", (long long)to);
		}
	}
	for (int i = 0; scratch && i < n; i++) {
		sky_buf_release(&scratch[i]);
	}
	free(scratch);
	sky_pool_free(pool);
	return rc;
}

/* Newest version whose manifest lies in deltas without a gap from `from`. */
static int64_t fetched_up_to(const char *deltas, int64_t from)
{
	char path[SKY_MAX_PATH], dir[32];

	for (;; from++) {
		sky_delta_dir(dir, from + 1);
		if (snprintf(path, sizeof(path), "%s/%s/manifest.json", deltas, dir) >= (int)sizeof(path) ||
		    !sky_file_exists(path)) {
			return from;
		}
	}
}

int sky_delta_apply(const struct sky_receive_opt *opt, struct sky_delta_result *r, struct sky_err *err)
{
	char deltas[SKY_MAX_PATH], weights[SKY_MAX_PATH], fresh[SKY_MAX_PATH], dir[32], path[SKY_MAX_PATH];
	double t0 = sky_now();
	struct dstate d;
	int64_t to, from;
	int rc = load_or_begin(opt, &d, err);

	rc = rc < 0 ? rc : dstate_path(deltas, opt->state, "deltas", err);
	rc = rc < 0 ? rc : dstate_path(weights, opt->state, "weights", err);
	rc = rc < 0 ? rc : dstate_path(fresh, opt->state, ".weights.new", err);
	if (rc < 0) {
		return rc;
	}
	from = d.version;
	to = fetched_up_to(deltas, from);
	if (opt->version > 0 && to < opt->version) {
		return sky_fail(err, SKY_E_MISSING, "version %lld is not fetched yet (skyrl-delta fetch)", (long long)opt->version);
	}
	to = opt->version > 0 ? opt->version : to;
	r->version = to;
	if (to <= from) {
		r->nothing = 1;
		return 0;
	}
	rc = dstate_copy_dir(weights, fresh, 0, err);
	rc = rc < 0 ? rc : receive_apply_range(deltas, fresh, from, to, opt->n_threads, r, err);
	if (rc < 0) {
		/* The message of the failure counts; a rest is removed by the next run. */
		(void)!sky_remove_tree(fresh, NULL);
		return rc;
	}
	d.version = to;
	if (*r->id.run) {
		memcpy(d.id.run, r->id.run, sizeof(d.id.run));
	}
	memcpy(d.id.model, r->id.model, sizeof(d.id.model));
	rc = dstate_save(fresh, &d, err);
	rc = rc < 0 ? rc : dstate_switch(opt->state, fresh, err);
	for (int64_t v = from + 1; v <= to && rc == 0; v++) {
		sky_delta_dir(dir, v);
		rc = dstate_path(path, deltas, dir, err);
		rc = rc < 0 ? rc : sky_remove_tree(path, err);
	}
	r->seconds_apply += sky_now() - t0;
	return rc;
}
