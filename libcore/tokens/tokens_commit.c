/* End of a token dataset: the index arrays from the lengths, the manifest, the step to published. */
#include <stdlib.h>
#include <string.h>

#include "tokens/tokens_out_int.h"

#define ROWS_AT_ONCE 32768

static int stream_hex(struct sky_tokens_out *o, struct out_stream *s, struct sky_err *err)
{
	int rc = stream_sync(s, o->durable, err);

	if (!rc) {
		sky_h128_hex(sky_xxh_digest(s->hash), s->hex);
	}
	return rc;
}

/* Reads lengths [row, row + n) back from the index file of the work folder. */
static int read_lengths(struct sky_tokens_out *o, int64_t row, int64_t n, uint8_t *to, struct sky_err *err)
{
	struct out_stream *s = &o->file[OUT_IDX];
	int64_t got = sky_pread_full(s->fd, to, (size_t)n * 4, IDX_HEADER_BYTES + 4 * (uint64_t)row, s->path, err);

	if (got >= 0 && got != n * 4) {
		return sky_fail(err, SKY_E_DATA, "%s: ended while being read back", s->path);
	}
	return got < 0 ? (int)got : 0;
}

/* Byte offsets of all sequences, from their lengths. */
static int write_pointers(struct sky_tokens_out *o, struct out_stream *to, unsigned size, uint8_t *len, struct sky_err *err)
{
	uint64_t at = 0;
	int64_t n;
	uint8_t *room;
	int rc = 0;

	for (int64_t row = 0; !rc && row < o->n.n_row; row += n) {
		n = o->n.n_row - row < ROWS_AT_ONCE ? o->n.n_row - row : ROWS_AT_ONCE;
		rc = read_lengths(o, row, n, len, err);
		rc = rc ? rc : stream_room(to, (size_t)n * 8, &room, err);
		for (int64_t i = 0; !rc && i < n; i++) {
			sky_store_u64(room + 8 * i, at);
			at += (uint64_t)sky_load_u32(len + 4 * i) * size;
		}
		if (!rc) {
			to->n_buf += (size_t)n * 8;
			to->n_bytes += (uint64_t)n * 8;
		}
	}
	return rc;
}

/* Every row is a document: bounds 0, 1, …, rows. */
static int write_bounds(struct out_stream *to, int64_t n_row, struct sky_err *err)
{
	uint8_t *room;
	int rc = 0;

	for (int64_t i = 0; !rc && i <= n_row; i++) {
		rc = stream_room(to, 8, &room, err);
		if (!rc) {
			sky_store_u64(room, (uint64_t)i);
			to->n_buf += 8;
			to->n_bytes += 8;
		}
	}
	return rc;
}

/* Header over the placeholder, then the hash of the finished file from its start. */
static int finish_index(struct sky_tokens_out *o, struct out_stream *s, int code, struct sky_err *err)
{
	uint8_t head[IDX_HEADER_BYTES];
	uint64_t bytes = s->n_bytes;
	char *path;
	int rc = stream_flush(s, err);

	idx_header(head, code, (uint64_t)o->n.n_row, (uint64_t)o->n.n_row + 1);
	rc = rc ? rc : sky_pwrite_full(s->fd, head, sizeof head, 0, s->path, err);
	path = rc ? NULL : tok_path(s->path, "", err);
	if (!path) {
		return rc ? rc : SKY_E_LIMIT;
	}
	stream_close(s);
	rc = stream_open(s, path, bytes, true, err);
	rc = rc ? rc : stream_hex(o, s, err);
	free(path);
	return rc;
}

static int write_mask_index(struct sky_tokens_out *o, uint8_t *len, struct sky_err *err)
{
	struct out_stream *s = &o->file[OUT_MASK_IDX];
	uint8_t head[IDX_HEADER_BYTES];
	char *path = work_path(o, out_name[OUT_MASK_IDX], err);
	int64_t n;
	int rc = path ? stream_open(s, path, 0, true, err) : SKY_E_LIMIT;

	free(path);
	idx_header(head, IDX_U8, (uint64_t)o->n.n_row, (uint64_t)o->n.n_row + 1);
	rc = rc ? rc : stream_write(s, head, sizeof head, err);
	for (int64_t row = 0; !rc && row < o->n.n_row; row += n) {
		n = o->n.n_row - row < ROWS_AT_ONCE ? o->n.n_row - row : ROWS_AT_ONCE;
		rc = read_lengths(o, row, n, len, err);
		rc = rc ? rc : stream_write(s, len, (size_t)n * 4, err);
	}
	rc = rc ? rc : write_pointers(o, s, 1, len, err);
	rc = rc ? rc : write_bounds(s, o->n.n_row, err);
	return rc ? rc : stream_hex(o, s, err);
}

static void manifest_files(struct sky_tokens_out *o, struct sky_jw *w)
{
	sky_jw_key(w, "files");
	sky_jw_obj(w);
	for (int i = 0; i < (o->opt.with_mask ? OUT_FILES : OUT_MASK_BIN); i++) {
		sky_jw_key(w, out_name[i]);
		sky_jw_obj(w);
		sky_jw_ki64(w, "bytes", (int64_t)o->file[i].n_bytes);
		sky_jw_kstr(w, "xxh3_128", o->file[i].hex);
		sky_jw_close_obj(w);
	}
	sky_jw_close_obj(w);
}

static int write_manifest(struct sky_tokens_out *o, const char *extra, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	char *path = work_path(o, "manifest", err);
	struct sky_jw w;
	int rc = path ? 0 : SKY_E_LIMIT;

	sky_jw_init(&w, &text, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "format", "skyrl-tokens");
	sky_jw_ki64(&w, "version", 1);
	sky_jw_kstr(&w, "state", "complete");
	sky_jw_kstr(&w, "dtype", o->opt.dtype_bytes == 2 ? "uint16" : "int32");
	sky_jw_ki64(&w, "rows", o->n.n_row);
	sky_jw_ki64(&w, "tokens", o->n.n_token);
	sky_jw_ki64(&w, "trained_tokens", o->n.n_trained);
	sky_jw_ki64(&w, "longest_row", o->n.n_longest);
	sky_jw_ki64(&w, "max_id", o->n.max_id);
	sky_jw_kbool(&w, "mask", o->opt.with_mask);
	manifest_files(o, &w);
	if (*o->key) {
		sky_jw_kstr(&w, "key", o->key);
	}
	sky_jw_close_obj(&w);
	rc = rc ? rc : sky_jw_end(&w);
	if (!rc) {
		text.n--;       /* the brace that manifest_seal writes */
		rc = *extra ? sky_buf_addc(&text, ',', err) : 0;
		rc = rc ? rc : sky_buf_adds(&text, extra, err);
		rc = rc ? rc : manifest_seal(&text, err);
	}
	rc = rc ? rc : sky_file_publish(path, text.ptr, text.n, SKY_OUT_REPLACE, err);
	sky_buf_release(&text);
	free(path);
	return rc;
}

static int finish_files(struct sky_tokens_out *o, struct sky_err *err)
{
	struct out_stream *idx = &o->file[OUT_IDX];
	uint8_t *len = malloc(ROWS_AT_ONCE * 4);
	int rc = len ? 0 : sky_fail_mem(err, "%s", idx->path);

	rc = rc ? rc : stream_flush(idx, err);
	rc = rc ? rc : write_pointers(o, idx, (unsigned)o->opt.dtype_bytes, len, err);
	rc = rc ? rc : write_bounds(idx, o->n.n_row, err);
	rc = rc ? rc : finish_index(o, idx, o->opt.dtype_bytes == 2 ? IDX_U16 : IDX_I32, err);
	rc = rc ? rc : stream_hex(o, &o->file[OUT_BIN], err);
	if (!rc && o->opt.with_mask) {
		rc = stream_hex(o, &o->file[OUT_MASK_BIN], err);
		rc = rc ? rc : write_mask_index(o, len, err);
	}
	free(len);
	return rc;
}

int sky_tokens_commit(struct sky_tokens_out *o, const char *extra, struct sky_err *err)
{
	int rc;

	if (o->failed) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: cannot be finished after a failed write", o->prefix);
	} else {
		rc = finish_files(o, err);
	}
	rc = rc ? rc : write_manifest(o, extra, err);
	if (!rc) {
		o->has_checkpoint = true;       /* finished work is never thrown away */
		rc = work_publish(o->prefix, o->work, o->opt.with_mask, err);
	}
	sky_tokens_abort(o);
	return rc;
}
