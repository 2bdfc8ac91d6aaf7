/* Writer of token datasets. Ids and masks stream to PREFIX.work; the index is built from the lengths, which are kept in
 * the index file itself, so memory does not grow with the number of rows. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokens/tokens_out_int.h"

int sky_tokens_width(int64_t vocab)
{
	return vocab <= 65536 ? 2 : 4;
}

static void out_free(struct sky_tokens_out *o)
{
	for (int i = 0; i < OUT_FILES; i++) {
		stream_close(&o->file[i]);
	}
	if (o->journal_fd >= 0) {
		close(o->journal_fd);
	}
	sky_json_free(o->state_doc);
	sky_lock_drop(&o->lock);
	free(o->prefix);
	free(o->work);
	free(o->key);
	free(o);
}

/* PREFIX.json may be a file of the user's, even the input; only a manifest of ours is ever replaced. */
static int is_ours(const char *json, struct sky_err *err)
{
	static const char head[] = "{\"format\":\"skyrl-tokens\"";
	char have[sizeof head] = "";
	int fd = open(json, O_RDONLY | O_CLOEXEC);
	int64_t n = fd < 0 ? sky_fail_sys(err, "%s", json) : sky_read_full(fd, have, sizeof head - 1, json, err);

	if (fd >= 0) {
		close(fd);
	}
	if (n < 0) {
		return (int)n;
	}
	return !strcmp(have, head) ? 0 : sky_fail(err, SKY_E_USAGE,
			"%s: exists and is no manifest of a token dataset; it is not "
						  "replaced, choose another name", json);
}

/* An existing set: SKY_E_UNCHANGED when it is what a resumed run would make, refused unless replacing is wanted. */
static int check_target(const struct sky_tokens_out *o, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const char *state = "", *key = "";
	char *json = tok_path(o->prefix, ".json", err), *idx = tok_path(o->prefix, ".idx", err);
	char *bin = tok_path(o->prefix, ".bin", err);
	int rc = json && idx && bin ? 0 : SKY_E_LIMIT;
	bool there = false;

	if (!rc && sky_file_exists(json)) {
		there = true;
		rc = is_ours(json, err);
		if (!rc && !sky_json_load(json, 0, &doc, NULL)) {
			rc = sky_j_get_str(sky_json_root(doc), "state", "", &state, NULL);
			rc = rc ? rc : sky_j_get_str(sky_json_root(doc), "key", "", &key, NULL);
			there = rc || strcmp(state, "writing");
			rc = 0;
		}
	} else if (!rc) {
		there = sky_file_exists(idx) || sky_file_exists(bin);
	}
	if (!rc && there && o->opt.resume && *o->key && !strcmp(state, "complete") && !strcmp(key, o->key)) {
		rc = sky_fail(err, SKY_E_UNCHANGED, "%s: complete already", o->prefix);
	} else if (!rc && there && !(o->opt.out_flags & SKY_OUT_REPLACE)) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: exists; choose another name or replace it with --force", o->prefix);
	}
	sky_json_free(doc);
	free(json);
	free(idx);
	free(bin);
	return rc;
}

static int open_streams(struct sky_tokens_out *o, struct sky_err *err)
{
	uint64_t keep[OUT_FILES] = {
		[OUT_BIN] = (uint64_t)o->n.n_token * (unsigned)o->opt.dtype_bytes,
		[OUT_IDX] = IDX_HEADER_BYTES + 4 * (uint64_t)o->n.n_row,
		[OUT_MASK_BIN] = (uint64_t)o->n.n_token,
	};
	uint8_t blank[IDX_HEADER_BYTES] = { 0 };
	int rc = 0;

	if (!o->has_checkpoint) {
		keep[OUT_IDX] = 0;
	}
	for (int i = 0; !rc && i <= (o->opt.with_mask ? OUT_MASK_BIN : OUT_IDX); i++) {
		char *path = work_path(o, out_name[i], err);

		/* The index gets its header at the end and is hashed then. */
		rc = path ? stream_open(&o->file[i], path, keep[i], i != OUT_IDX, err) : SKY_E_LIMIT;
		free(path);
	}
	if (!rc && !keep[OUT_IDX]) {
		rc = stream_write(&o->file[OUT_IDX], blank, sizeof blank, err);
	}
	return rc;
}

/* Everything after the lock is held. */
static int out_start(struct sky_tokens_out *o, struct sky_err *err)
{
	int rc;

	if (o->opt.resume) {
		rc = work_is_finished(o, err);
		if (rc == 1) {
			rc = work_publish(o->prefix, o->work, o->opt.with_mask, err);
			return rc ? rc : sky_fail(err, SKY_E_UNCHANGED, "%s: complete already", o->prefix);
		}
		rc = rc ? rc : check_target(o, err);
		if (rc == SKY_E_UNCHANGED) {
			int rc2 = sky_remove_tree(o->work, err);

			return rc2 ? rc2 : sky_fail(err, SKY_E_UNCHANGED, "%s: complete already", o->prefix);
		}
	} else {
		rc = check_target(o, err);
		rc = rc ? rc : sky_remove_tree(o->work, err);
	}
	rc = rc ? rc : sky_mkdirs(o->work, err);
	rc = rc ? rc : journal_read(o, err);
	rc = rc ? rc : open_streams(o, err);
	rc = rc ? rc : journal_begin(o, err);
	return rc;
}

int sky_tokens_create(const char *prefix, const struct sky_tokens_opt *opt, struct sky_tokens_out **o_p, struct sky_err *err)
{
	struct sky_tokens_out *o;
	int rc;

	if (opt->dtype_bytes != 2 && opt->dtype_bytes != 4) {
		return sky_fail(err, SKY_E_USAGE, "%s: ids of %d bytes (2 or 4)", prefix, opt->dtype_bytes);
	}
	o = calloc(1, sizeof *o);
	if (!o) {
		return sky_fail_mem(err, "creating %s", prefix);
	}
	o->lock = (struct sky_lock)SKY_LOCK_INIT;
	o->journal_fd = -1;
	for (int i = 0; i < OUT_FILES; i++) {
		o->file[i].fd = -1;
	}
	o->opt = *opt;
	o->opt.key = NULL;
	o->durable = !(opt->out_flags & SKY_OUT_NO_FSYNC);
	o->prefix = tok_path(prefix, "", err);
	o->work = tok_path(prefix, ".work", err);
	o->key = tok_path(opt->key ? opt->key : "", "", err);
	rc = o->prefix && o->work && o->key ? 0 : SKY_E_LIMIT;
	rc = rc ? rc : sky_lock_take(&o->lock, prefix, 0, err);
	rc = rc ? rc : out_start(o, err);
	if (rc < 0) {
		out_free(o);
		return rc;
	}
	*o_p = o;
	return 0;
}

/* ids → little-endian elements; *bad_p ≥ 0: position of the first id that does not fit. */
__attribute__((optimize("tree-vectorize")))
static void pack(uint8_t *to, const int32_t *ids, int64_t n, int bytes, int32_t *max_p, int64_t *bad_p)
{
	uint32_t all = 0, limit = bytes == 2 ? 0xffff : 0x7fffffff;
	int32_t hi = *max_p;

	for (int64_t i = 0; i < n; i++) {
		all |= (uint32_t)ids[i];
		hi = ids[i] > hi ? ids[i] : hi;
	}
	if (all & ~limit) {
		for (*bad_p = 0; !((uint32_t)ids[*bad_p] & ~limit); ++*bad_p) {
		}
		return;
	}
	*max_p = hi;
	if (bytes == 2) {
		for (int64_t i = 0; i < n; i++) {
			uint16_t v = htole16((uint16_t)ids[i]);

			memcpy(to + 2 * i, &v, 2);
		}
	} else {
		for (int64_t i = 0; i < n; i++) {
			uint32_t v = htole32((uint32_t)ids[i]);

			memcpy(to + 4 * i, &v, 4);
		}
	}
}

static int add_ids(struct sky_tokens_out *o, const int32_t *ids, int64_t n, struct sky_err *err)
{
	struct out_stream *s = &o->file[OUT_BIN];
	const int64_t at_once = 32768;
	int32_t max = (int32_t)o->n.max_id;
	int64_t bad = -1, part;
	uint8_t *room;
	int rc;

	for (int64_t i = 0; i < n; i += part) {
		part = n - i < at_once ? n - i : at_once;
		rc = stream_room(s, (size_t)(part * o->opt.dtype_bytes), &room, err);
		if (rc < 0) {
			return rc;
		}
		pack(room, ids + i, part, o->opt.dtype_bytes, &max, &bad);
		if (bad >= 0) {
			return sky_fail(err, SKY_E_DATA, "%s: row %lld, token %lld: id %d does not fit %s", o->prefix,
					(long long)o->n.n_row, (long long)(i + bad), ids[i + bad],
					o->opt.dtype_bytes == 2 ? "uint16 (--dtype u32)" : "a dataset (0 or more)");
		}
		s->n_buf += (size_t)(part * o->opt.dtype_bytes);
		s->n_bytes += (uint64_t)(part * o->opt.dtype_bytes);
	}
	o->n.max_id = max;
	return 0;
}

__attribute__((optimize("tree-vectorize")))
static int add_mask(struct sky_tokens_out *o, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct out_stream *s = &o->file[OUT_MASK_BIN];
	int64_t part, trained = 0;
	uint8_t *room;
	int rc;

	for (int64_t i = 0; i < n; i += part) {
		part = n - i < 65536 ? n - i : 65536;
		rc = stream_room(s, (size_t)part, &room, err);
		if (rc < 0) {
			return rc;
		}
		for (int64_t k = 0; k < part; k++) {
			room[k] = mask ? mask[i + k] != 0 : 1;
			trained += room[k];
		}
		s->n_buf += (size_t)part;
		s->n_bytes += (uint64_t)part;
	}
	o->n.n_trained += trained;
	return 0;
}

int sky_tokens_add(struct sky_tokens_out *o, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	uint8_t len[4];
	int rc;

	if (o->failed) {
		return sky_fail(err, SKY_E_USAGE, "%s: cannot go on after a failed write", o->prefix);
	}
	if (n < 0 || n > INT32_MAX) {
		return sky_fail(err, SKY_E_LIMIT,
				"%s: row %lld has %lld tokens; the index counts at most 2147483647 (split it "
				"with --max-length)", o->prefix, (long long)o->n.n_row, (long long)n);
	}
	rc = add_ids(o, ids, n, err);
	if (!rc && o->opt.with_mask) {
		rc = add_mask(o, mask, n, err);
	} else if (!rc) {
		o->n.n_trained += n;
	}
	sky_store_u32(len, (uint32_t)n);
	rc = rc ? rc : stream_write(&o->file[OUT_IDX], len, 4, err);
	if (rc < 0) {
		o->failed = true;
		return rc;
	}
	o->n.n_row++;
	o->n.n_token += n;
	o->n.n_longest = n > o->n.n_longest ? n : o->n.n_longest;
	return 0;
}

int64_t sky_tokens_out_rows(const struct sky_tokens_out *o)
{
	return o->n.n_row;
}

int64_t sky_tokens_out_total(const struct sky_tokens_out *o)
{
	return o->n.n_token;
}

int64_t sky_tokens_out_trained(const struct sky_tokens_out *o)
{
	return o->n.n_trained;
}

int sky_tokens_checkpoint(struct sky_tokens_out *o, const char *state, struct sky_err *err)
{
	int rc = 0;

	for (int i = 0; !rc && i <= (o->opt.with_mask ? OUT_MASK_BIN : OUT_IDX); i++) {
		rc = stream_sync(&o->file[i], o->durable, err);
	}
	return rc ? rc : journal_add(o, state, err);
}

const struct sky_jnode *sky_tokens_state(const struct sky_tokens_out *o)
{
	return o->state_doc ? sky_j_get(sky_json_root(o->state_doc), "state") : NULL;
}

void sky_tokens_abort(struct sky_tokens_out *o)
{
	if (o) {
		if (!o->has_checkpoint) {
			(void)!sky_remove_tree(o->work, NULL);
		}
		out_free(o);
	}
}
