/* Publishing: compare with the last version, write payloads, then the manifest as the one step that counts. */
#include "delta/delta.h"
#include "delta/delta_int.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct job {
	struct sky_store *s;
	const struct sky_publish_opt *opt;
	struct sky_delta_result *r;
	struct dstate d;
	struct sky_hf *old, *fresh;
	int64_t at;                     /* next tensor of old */
	struct sky_manifest m;
	int64_t tensor_cap, file_cap;
	/* the payload file being filled */
	struct sky_buf body;
	int64_t first;                  /* first tensor of m that lies in it */
	uint64_t max_file;
};

/* ---- payload files ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct sky_delta_tensor *const *)a)->name, (*(const struct sky_delta_tensor *const *)b)->name);
}

/* safetensors header of the tensors [first, n_tensor) in the order of names, padded with spaces to 8; order[] and the offsets
 * that frames have in body. */
static int payload_head(struct job *j, const struct sky_delta_tensor **order, struct sky_buf *head, struct sky_err *err)
{
	int64_t n = j->m.n_tensor - j->first;
	uint64_t at = 0;
	struct sky_jw w;
	uint8_t len[8];
	int rc;

	for (int64_t i = 0; i < n; i++) {
		order[i] = &j->m.tensor[j->first + i];
	}
	qsort(order, (size_t)n, sizeof(*order), by_name);
	rc = sky_buf_add(head, "12345678", 8, err);
	if (rc < 0) {
		return rc;
	}
	sky_jw_init(&w, head, err);
	sky_jw_obj(&w);
	for (int64_t i = 0; i < n; i++) {
		sky_jw_key(&w, order[i]->name);
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "dtype", "U8");
		sky_jw_key(&w, "shape");
		sky_jw_arr(&w);
		sky_jw_u64(&w, order[i]->frame_bytes);
		sky_jw_close_arr(&w);
		sky_jw_key(&w, "data_offsets");
		sky_jw_arr(&w);
		sky_jw_u64(&w, at);
		sky_jw_u64(&w, at + order[i]->frame_bytes);
		sky_jw_close_arr(&w);
		sky_jw_close_obj(&w);
		at += order[i]->frame_bytes;
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	while (rc == 0 && head->n % 8) {
		rc = sky_buf_addc(head, ' ', err);
	}
	if (rc == 0) {
		sky_store_u64(len, head->n - 8);
		memcpy(head->ptr, len, 8);
	}
	return rc;
}

static int upload(struct job *j, const char *key, const struct sky_buf *head,
                  const struct sky_delta_tensor *const *order, int64_t n,
                  struct sky_err *err)
{
	struct sky_upload *u = NULL;
	int rc = sky_upload_open(j->s, key, SKY_PUT_CREATE, &u, err);

	rc = rc < 0 ? rc : sky_upload_write(u, head->ptr, head->n, err);
	for (int64_t i = 0; i < n && rc == 0; i++) {
		uint64_t at = 0;

		for (const struct sky_delta_tensor *t = &j->m.tensor[j->first]; t < order[i]; t++) {
			at += t->frame_bytes;
		}
		rc = sky_upload_write(u, j->body.ptr + at, order[i]->frame_bytes, err);
	}
	if (u && rc == 0) {
		return sky_upload_commit(u, err);
	}
	sky_upload_abort(u);
	return rc;
}

/* Writes the payload file that was filled. The plain SkyRL name is taken when it is free; what an earlier try or a racing
 * publisher left there is never overwritten, the name then carries this writer's id and the moment. */
static int flush_file(struct job *j, struct sky_err *err)
{
	int64_t n = j->m.n_tensor - j->first;
	const struct sky_delta_tensor **order;
	struct sky_buf head = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char dir[32], name[160], key[256];
	double t0 = sky_now();
	int rc;

	if (n == 0) {
		return 0;
	}
	order = sky_calloc_array((size_t)n, sizeof(*order));
	rc = order ? payload_head(j, order, &head, err) : sky_fail_mem(err, "payload");
	sky_delta_dir(dir, j->m.version);
	snprintf(name, sizeof(name), "delta-rank00000-file%06lld.safetensors", (long long)j->m.n_file);
	snprintf(key, sizeof(key), "%s/%s", dir, name);
	rc = rc < 0 ? rc : upload(j, key, &head, order, n, err);
	if (rc == SKY_E_AGAIN) {
		char unique[33];

		dstate_random_id(unique);
		snprintf(name, sizeof(name), "delta-rank00000-file%06lld-%.16s.safetensors", (long long)j->m.n_file, unique);
		snprintf(key, sizeof(key), "%s/%s", dir, name);
		rc = upload(j, key, &head, order, n, err);
	}
	for (int64_t i = j->first; i < j->m.n_tensor && rc == 0; i++) {
		j->m.tensor[i].file = strdup(name);
		rc = j->m.tensor[i].file ? 0 : sky_fail_mem(err, "manifest");
	}
	if (rc == 0 && j->m.n_file + 1 > j->file_cap) {
		void *p = sky_realloc_array(j->m.file, (size_t)(j->file_cap = 2 * j->m.n_file + 8), sizeof(*j->m.file));

		j->m.file = p ? p : j->m.file;
		rc = p ? 0 : sky_fail_mem(err, "manifest");
	}
	if (rc == 0) {
		j->m.file[j->m.n_file] = strdup(name);
		rc = j->m.file[j->m.n_file] ? 0 : sky_fail_mem(err, "manifest");
		j->m.n_file += rc == 0;
	}
	j->first = j->m.n_tensor;
	sky_buf_clear(&j->body);
	sky_buf_release(&head);
	free(order);
	j->r->seconds_store += sky_now() - t0;
	return rc;
}

/* ---- the pipeline: tensors of the old version, encoded in parallel, collected in order ---- */

struct item {
	const struct sky_tensor *old, *fresh;
	struct sky_buf frame;
	uint64_t changed;
	char hash[65];
};

static int source(void *ctx, void **item_p, struct sky_err *err)
{
	struct job *j = ctx;
	struct item *it;

	if (j->opt->stop && j->opt->stop()) {
		return sky_fail(err, SKY_E_STOP, "stopped before version %lld was published", (long long)j->m.version);
	}
	while (j->at < sky_hf_count(j->old)) {
		const struct sky_tensor *t = sky_hf_at(j->old, j->at++), *f = sky_hf_find(j->fresh, t->name);

		if (!f) {
			j->r->n_missing++;      /* check_names allowed it */
			continue;
		}
		it = calloc(1, sizeof(*it));
		if (!it) {
			return sky_fail_mem(err, "comparing tensors");
		}
		it->old = t;
		it->fresh = f;
		sky_buf_init(&it->frame, SIZE_MAX / 2);
		*item_p = it;
		return 0;
	}
	return SKY_EOF;
}

static int work(void *ctx, void *item, int worker, struct sky_err *err)
{
	struct item *it = item;
	int rc = frame_encode(it->old->data, it->fresh->data, it->old->bytes, &it->frame, &it->changed, err);

	(void)ctx;
	(void)worker;
	if (rc == 0 && it->changed > 0) {
		frame_hash(0, it->fresh->data, it->fresh->bytes, it->hash);
	}
	return sky_while(err, rc, "tensor %s", it->old->name);
}

static void drop(void *ctx, void *item)
{
	(void)ctx;
	sky_buf_release(&((struct item *)item)->frame);
	free(item);
}

static int add_tensor(struct job *j, const struct item *it, struct sky_err *err)
{
	struct sky_delta_tensor *t;

	if (j->m.n_tensor == j->tensor_cap) {
		int64_t cap = j->tensor_cap ? 2 * j->tensor_cap : 64;
		void *p = sky_realloc_array(j->m.tensor, (size_t)cap, sizeof(*j->m.tensor));

		if (!p) {
			return sky_fail_mem(err, "manifest");
		}
		j->m.tensor = p;
		j->tensor_cap = cap;
	}
	t = &j->m.tensor[j->m.n_tensor++];
	memset(t, 0, sizeof(*t));
	t->name = strdup(it->old->name);
	t->key = strdup(it->old->name);
	t->dtype = sky_dtype_torch(it->old->dtype) ? strdup(sky_dtype_torch(it->old->dtype)) : NULL;
	t->checksum = strdup(it->hash);
	t->n_dim = it->old->n_dim;
	memcpy(t->shape, it->old->shape, sizeof(t->shape));
	t->raw_bytes = it->old->bytes;
	t->frame_bytes = it->frame.n;
	if (!t->dtype) {
		return sky_fail(err, SKY_E_USAGE, "tensor %s: the skyrl format has no name for the type %s (--format native)",
		                it->old->name, sky_dtype_name(it->old->dtype));
	}
	return t->name && t->key && t->checksum ? sky_buf_add(&j->body, it->frame.ptr, it->frame.n, err)
	                                        : sky_fail_mem(err, "manifest");
}

static int sink(void *ctx, void *item, struct sky_err *err)
{
	struct job *j = ctx;
	struct item *it = item;
	int rc = 0;

	if (it->changed == 0) {
		j->r->n_unchanged++;
	} else {
		if (j->body.n > 0 && j->body.n + it->frame.n > j->max_file) {
			rc = flush_file(j, err);
		}
		rc = rc < 0 ? rc : add_tensor(j, it, err);
		j->r->n_changed++;
		j->r->raw_bytes += it->old->bytes;
		j->r->changed_bytes += it->changed;
		j->r->frame_bytes += it->frame.n;
	}
	drop(ctx, item);
	return rc;
}

/* ---- names ---- */

/* A head that repeats the tied embedding byte for byte says nothing new. */
static bool tied_copy(const struct job *j, const struct sky_tensor *t)
{
	static const char *const embed[] = { "model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
	                                     "language_model.model.embed_tokens.weight", "backbone.embeddings.weight" };

	for (size_t i = 0; i < sizeof(embed) / sizeof(*embed); i++) {
		const struct sky_tensor *e = strstr(t->name, "lm_head.weight") ? sky_hf_find(j->fresh, embed[i]) : NULL;

		if (e && e->bytes == t->bytes && !memcmp(e->data, t->data, t->bytes)) {
			return true;
		}
	}
	return false;
}

/* Every tensor of either side is accounted for before anything is written. */
static int check_names(struct job *j, struct sky_err *err)
{
	for (int64_t i = 0; i < sky_hf_count(j->fresh); i++) {
		const struct sky_tensor *f = sky_hf_at(j->fresh, i), *o = sky_hf_find(j->old, f->name);

		if (!o && tied_copy(j, f)) {
			continue;
		}
		if (!o && !j->opt->allow_extra) {
			return sky_fail(err, SKY_E_DATA,
			                "%s has tensor %s, which the chain's base does not have: a receiver could not place "
			                "it (--allow-extra passes over it)", j->opt->dir, f->name);
		}
		if (!o) {
			j->r->n_extra++;
		} else if (o->dtype != f->dtype) {
			return sky_fail(err, SKY_E_DATA,
			                "tensor %s is %s in %s and %s in the chain: export in the base's types", f->name,
			                sky_dtype_name(f->dtype), j->opt->dir, sky_dtype_name(o->dtype));
		} else if (o->n_dim != f->n_dim || memcmp(o->shape, f->shape, (size_t)f->n_dim * sizeof(int64_t))) {
			return sky_fail(err, SKY_E_DATA,
			                "tensor %s has another shape than in the chain: a new model needs a new chain",
			                f->name);
		}
	}
	for (int64_t i = 0; i < sky_hf_count(j->old); i++) {
		const char *name = sky_hf_at(j->old, i)->name;

		if (!sky_hf_find(j->fresh, name) && !j->opt->allow_missing) {
			return sky_fail(err, SKY_E_DATA,
			                "%s lacks tensor %s (--allow-missing counts it as unchanged)", j->opt->dir, name);
		}
	}
	return 0;
}

/* ---- state ---- */

/* STATE is gone, or new: version 0 from base, then whatever the chain holds. */
static int begin(struct job *j, struct sky_err *err)
{
	char fresh[SKY_MAX_PATH], deltas[SKY_MAX_PATH];
	struct sky_delta_result got = { 0 };
	struct sky_hf *base = NULL;
	struct sky_manifest m;
	int64_t newest = 0;
	int rc = sky_delta_newest(j->s, &newest, err);

	if (rc == 0 && !j->opt->base) {
		return sky_fail(err, SKY_E_MISSING, "%s holds no published version: %s", j->opt->state,
		                newest ? "the chain goes on from the store when --base DIR names the model that it began with"
		                       : "--base DIR begins a chain");
	}
	rc = rc < 0 ? rc : sky_mkdirs(j->opt->state, err);
	rc = rc < 0 ? rc : sky_hf_open(j->opt->base, &base, err);
	rc = rc < 0 ? rc : sky_model_hash(base, j->d.id.base, err);
	rc = rc < 0 ? rc : dstate_path(fresh, j->opt->state, ".weights.new", err);
	rc = rc < 0 ? rc : dstate_path(deltas, j->opt->state, ".deltas", err);
	rc = rc < 0 ? rc : dstate_copy_dir(sky_hf_dir(base), fresh, 0, err);
	memcpy(j->d.id.model, j->d.id.base, sizeof(j->d.id.model));
	dstate_random_id(j->d.id.writer);
	dstate_random_id(j->d.id.run);
	for (int64_t v = 1; v <= newest && rc == 0; v++) {
		rc = receive_fetch_one(j->s, deltas, v, &m, &got, err);
		if (rc == 0) {
			if (*m.id.base && strcmp(m.id.base, j->d.id.base)) {
				rc = sky_fail(err, SKY_E_DATA,
				              "%s holds a chain on another base than %s: publish under another path",
				              sky_store_url(j->s), j->opt->base);
			}
			memcpy(j->d.id.run, *m.id.run ? m.id.run : j->d.id.run, sizeof(j->d.id.run));
			memcpy(j->d.id.model, m.id.model, sizeof(j->d.id.model));
			sky_manifest_release(&m);
		}
	}
	if (rc == 0 && newest > 0) {
		rc = receive_apply_range(deltas, fresh, 0, newest, j->opt->n_threads, &got, err);
	}
	j->d.version = newest;
	rc = rc < 0 ? rc : dstate_save(fresh, &j->d, err);
	rc = rc < 0 ? rc : dstate_switch(j->opt->state, fresh, err);
	sky_hf_close(base);
	return rc < 0 ? rc : sky_remove_tree(deltas, err);
}

/* The last publish was cut behind its manifest: the store is one version ahead, by this very writer. */
static int catch_up(struct job *j, struct sky_err *err)
{
	char fresh[SKY_MAX_PATH], weights[SKY_MAX_PATH], deltas[SKY_MAX_PATH];
	struct sky_delta_result got = { 0 };
	struct sky_manifest m;
	int rc = sky_manifest_get(j->s, j->d.version + 1, &m, err);

	if (rc == SKY_E_MISSING) {
		return 0;
	}
	if (rc < 0) {
		return rc;
	}
	if (strcmp(m.id.writer, j->d.id.writer)) {
		rc = sky_fail(err, SKY_E_AGAIN,
		              "%s already holds version %lld, by another publisher: this one's state stays at %lld",
		              sky_store_url(j->s), (long long)m.version, (long long)j->d.version);
		sky_manifest_release(&m);
		return rc;
	}
	memcpy(j->d.id.model, m.id.model, sizeof(j->d.id.model));
	sky_manifest_release(&m);
	rc = dstate_path(fresh, j->opt->state, ".weights.new", err);
	rc = rc < 0 ? rc : dstate_path(weights, j->opt->state, "weights", err);
	rc = rc < 0 ? rc : dstate_path(deltas, j->opt->state, ".deltas", err);
	rc = rc < 0 ? rc : receive_fetch_one(j->s, deltas, j->d.version + 1, &m, &got, err);
	if (rc == 0) {
		sky_manifest_release(&m);
		rc = dstate_copy_dir(weights, fresh, 0, err);
	}
	rc = rc < 0 ? rc : receive_apply_range(deltas, fresh, j->d.version, j->d.version + 1, j->opt->n_threads, &got, err);
	j->d.version++;
	rc = rc < 0 ? rc : dstate_save(fresh, &j->d, err);
	rc = rc < 0 ? rc : dstate_switch(j->opt->state, fresh, err);
	return rc < 0 ? rc : sky_remove_tree(deltas, err);
}

static int open_state(struct job *j, struct sky_err *err)
{
	char weights[SKY_MAX_PATH], old[SKY_MAX_PATH], hash[33];
	struct sky_hf *base = NULL;
	int rc = dstate_path(weights, j->opt->state, "weights", err);

	rc = rc < 0 ? rc : dstate_path(old, j->opt->state, ".weights.old", err);
	if (rc == 0 && !sky_is_dir(weights) && sky_is_dir(old) && rename(old, weights) < 0) {
		return sky_fail_sys(err, "renaming %s back", old);
	}
	if (rc < 0 || !sky_is_dir(weights)) {
		return rc < 0 ? rc : begin(j, err);
	}
	rc = dstate_load(weights, &j->d, err);
	if (rc == 0 && j->opt->base) {
		rc = sky_hf_open(j->opt->base, &base, err);
		rc = rc < 0 ? rc : sky_model_hash(base, hash, err);
		sky_hf_close(base);
		if (rc == 0 && strcmp(hash, j->d.id.base)) {
			rc = sky_fail(err, SKY_E_DATA, "%s began on another base than %s: leave --base out, or begin a new chain",
			              j->opt->state, j->opt->base);
		}
	}
	return rc < 0 ? rc : catch_up(j, err);
}

static int put_manifest(struct job *j, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_MANIFEST_BYTES);
	char dir[32], key[64];
	double t0 = sky_now();
	int rc = sky_manifest_print(&j->m, &text, err);

	sky_delta_dir(dir, j->m.version);
	snprintf(key, sizeof(key), "%s/manifest.json", dir);
	rc = rc < 0 ? rc : sky_store_put(j->s, key, text.ptr, text.n, SKY_PUT_CREATE, NULL, err);
	if (rc == SKY_E_AGAIN) {
		rc = sky_fail(err, rc, "%s: another publisher wrote version %lld first: this one's state stays at %lld",
		              sky_store_url(j->s), (long long)j->m.version, (long long)j->d.version);
	}
	sky_buf_release(&text);
	j->r->seconds_store += sky_now() - t0;
	return rc;
}

/* The manifest is durable: STATE moves on. */
static int advance(struct job *j, struct sky_err *err)
{
	char fresh[SKY_MAX_PATH];
	int rc = dstate_path(fresh, j->opt->state, ".weights.new", err);

	rc = rc < 0 ? rc : dstate_copy_dir(sky_hf_dir(j->fresh), fresh, 0, err);
	j->d.version = j->m.version;
	memcpy(j->d.id.model, j->m.id.model, sizeof(j->d.id.model));
	rc = rc < 0 ? rc : dstate_save(fresh, &j->d, err);
	return rc < 0 ? rc : dstate_switch(j->opt->state, fresh, err);
}

int sky_delta_publish(struct sky_store *s, const struct sky_publish_opt *opt, struct sky_delta_result *r, struct sky_err *err)
{
	struct job j = { .s = s, .opt = opt, .r = r, .body = SKY_BUF_INIT(SIZE_MAX / 2),
	                 .max_file = opt->max_file_bytes ? opt->max_file_bytes : 1ull << 30 };
	char weights[SKY_MAX_PATH];
	struct sky_pipe pipe = { .n_threads = opt->n_threads > 0 ? opt->n_threads : 1, .depth = 2 * opt->n_threads + 2, .ctx = &j,
	                         .source = source, .work = work, .sink = sink, .drop = drop };
	double t0;
	int rc = open_state(&j, err);

	rc = rc < 0 ? rc : dstate_path(weights, opt->state, "weights", err);
	rc = rc < 0 ? rc : sky_hf_open(weights, &j.old, err);
	rc = rc < 0 ? rc : sky_hf_open(opt->dir, &j.fresh, err);
	rc = rc < 0 ? rc : check_names(&j, err);
	j.m.version = j.d.version + 1;
	j.m.base_version = j.d.version;
	j.m.id = j.d.id;
	t0 = sky_now();
	rc = rc < 0 ? rc : sky_model_hash(j.fresh, j.m.id.model, err);
	rc = rc < 0 ? rc : sky_pipe_run(&pipe, err);
	rc = rc < 0 ? rc : flush_file(&j, err);
	r->seconds_diff = sky_now() - t0 - r->seconds_store;
	rc = rc < 0 ? rc : put_manifest(&j, err);
	rc = rc < 0 ? rc : advance(&j, err);
	r->version = j.m.version;
	r->id = j.m.id;
	sky_manifest_release(&j.m);
	sky_hf_close(j.old);
	sky_hf_close(j.fresh);
	sky_buf_release(&j.body);
	return rc;
}
