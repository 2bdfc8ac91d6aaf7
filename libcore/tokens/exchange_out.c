/* Writers of formats that are plain files: datatrove, dolma, llm.c, JSON lines; and our own sets behind the same face. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tokens/exchange_int.h"

struct files {
	struct sky_out tok, side, mask;         /* ids; bounds; mask */
	struct sky_tokens_out *own;
	struct sky_buf text;
	uint8_t *zip;                           /* scratch of deflate */
	z_stream z;
	bool z_open;
};

static int files_open(struct sky_tokens_dst *d, const char *tok, const char *side, const char *mask, struct sky_err *err)
{
	struct files *f = calloc(1, sizeof *f);
	const char *suffix[3] = { tok, side, mask };
	struct sky_out *out[3];
	int rc = 0;

	if (!f) {
		return sky_fail_mem(err, "creating %s", d->path);
	}
	d->state = f;
	sky_buf_init(&f->text, SIZE_MAX);
	out[0] = &f->tok;
	out[1] = &f->side;
	out[2] = &f->mask;
	for (int i = 0; i < 3; i++) {
		out[i]->fd = -1;
	}
	for (int i = 0; !rc && i < 3; i++) {
		char *path = suffix[i] ? tok_path(d->path, suffix[i], err) : NULL;

		rc = !suffix[i] ? 0 : path ? sky_out_open(out[i], path, d->opt.out_flags, err) : SKY_E_LIMIT;
		free(path);
	}
	return rc;
}

static void files_abort(struct sky_tokens_dst *d)
{
	struct files *f = d->state;

	sky_out_abort(&f->tok);
	sky_out_abort(&f->side);
	sky_out_abort(&f->mask);
	sky_tokens_abort(f->own);
	sky_buf_release(&f->text);
	if (f->z_open) {
		deflateEnd(&f->z);
	}
	free(f->zip);
	free(f);
}

/* Files that others depend on last: ids, mask, then what names them. */
static int files_commit(struct files *f, struct sky_err *err)
{
	int rc = f->mask.fd >= 0 ? sky_out_commit(&f->mask, err) : 0;

	rc = rc || f->tok.fd < 0 ? rc : sky_out_commit(&f->tok, err);
	return rc || f->side.fd < 0 ? rc : sky_out_commit(&f->side, err);
}

static int add_ids(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct files *f = d->state;
	int rc = dst_pack(d, ids, n, d->opt.dtype_bytes, err);

	rc = rc ? rc : sky_out_write(&f->tok, d->bytes, (size_t)n * (unsigned)d->opt.dtype_bytes, err);
	if (!rc && f->mask.fd >= 0) {
		rc = dst_pack_mask(d, mask, n, err);
		rc = rc ? rc : sky_out_write(&f->mask, d->bytes, (size_t)n, err);
	}
	return rc;
}

/* ---- datatrove ---- */

static int ds_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	return files_open(d, "", ".index", d->opt.with_mask ? ".loss" : NULL, err);
}

static int ds_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct files *f = d->state;
	uint8_t end[8];
	int rc = add_ids(d, ids, mask, n, err);

	sky_store_u64(end, (uint64_t)(d->n_token + n));
	return rc ? rc : sky_out_write(&f->side, end, 8, err);
}

/* Three digits and a prefix, as the peer prints it: 13.0 T, 1.50 kT. */
static void human(char *out, size_t cap, int64_t n)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E" };
	double v = (double)n;
	int k = 0, digits;

	while (v >= 1000 && k < 6) {
		v /= 1000;
		k++;
	}
	digits = v >= 100 ? 0 : v >= 10 ? 1 : 2;
	snprintf(out, cap, "%.*f %sT", digits, v, prefix[k]);
}

static int ds_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	char *path = tok_path(d->path, ".metadata", err), text[512], count[64];
	int n, rc = path ? files_commit(d->state, err) : SKY_E_LIMIT;

	human(count, sizeof count, d->n_token);
	n = snprintf(text, sizeof text, "%.200s|%d\n%lld\n%s", d->opt.tokenizer ? d->opt.tokenizer : "Unknown Tokenizer",
		     d->opt.dtype_bytes, (long long)d->n_token, count);
	rc = rc ? rc : sky_file_publish(path, text, (size_t)n, d->opt.out_flags, err);
	free(path);
	return rc;
}

const struct dst_ops dst_datatrove = { ds_open, ds_add, ds_commit, files_abort };

/* ---- dolma: OUT.npy, OUT.csv.gz, OUT.label_mask.npy ---- */

static int dolma_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	size_t n = strlen(d->path);
	struct files *f;
	int rc;

	if (n > 4 && !strcmp(d->path + n - 4, ".npy")) {
		d->path[n - 4] = '\0';
	}
	rc = files_open(d, ".npy", ".csv.gz", d->opt.with_mask ? ".label_mask.npy" : NULL, err);
	f = d->state;
	if (!rc) {
		f->zip = malloc(1u << 16);
		f->z_open = f->zip && deflateInit2(&f->z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK;
		rc = f->z_open ? 0 : sky_fail_mem(err, "%s.csv.gz", d->path);
	}
	return rc;
}

static int squeeze(struct files *f, const char *p, size_t n, int flush, struct sky_err *err)
{
	int how, rc = 0;

	f->z.next_in = (Bytef *)(uintptr_t)p;
	f->z.avail_in = (uInt)n;
	do {
		f->z.next_out = f->zip;
		f->z.avail_out = 1u << 16;
		how = deflate(&f->z, flush);
		rc = sky_out_write(&f->side, f->zip, (1u << 16) - f->z.avail_out, err);
	} while (!rc && how == Z_OK && (f->z.avail_in || f->z.avail_out == 0 || flush == Z_FINISH));
	return rc;
}

static int dolma_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	char line[128];
	int k, rc = add_ids(d, ids, mask, n, err);

	k = snprintf(line, sizeof line, "%lld,%lld,row-%lld,skyrl-pretok,%lld\n", (long long)d->n_token,
			(long long)(d->n_token + n),
		     (long long)d->n_row, (long long)d->n_row + 1);
	return rc ? rc : squeeze(d->state, line, (size_t)k, Z_NO_FLUSH, err);
}

static int dolma_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	int rc = squeeze(d->state, "", 0, Z_FINISH, err);

	return rc ? rc : files_commit(d->state, err);
}

const struct dst_ops dst_dolma = { dolma_open, dolma_add, dolma_commit, files_abort };

/* ---- llm.c ---- */

static int llmc_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	uint8_t head[1024] = { 0 };
	struct files *f;
	int rc = files_open(d, "", NULL, NULL, err);

	f = d->state;
	return rc ? rc : sky_out_write(&f->tok, head, sizeof head, err);
}

/* The separating id stands before each document; a row that begins with it keeps it. */
static int llmc_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	int32_t eod = (int32_t)d->opt.eod;
	int rc = 0;

	if (d->n_token + n + 1 > INT32_MAX) {
		return sky_fail(err, SKY_E_LIMIT,
				"%s: llm.c counts tokens in 31 bits and the set has more; split it first", d->path);
	}
	if (d->opt.eod >= 0 && (!n || ids[0] != eod)) {
		rc = add_ids(d, &eod, NULL, 1, err);
		d->n_token += !rc;
	}
	return rc ? rc : add_ids(d, ids, mask, n, err);
}

static int llmc_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct files *f = d->state;
	uint8_t head[12];
	int rc = sky_out_flush(&f->tok, err);

	sky_store_u32(head, d->opt.dtype_bytes == 2 ? 20240520 : 20240801);
	sky_store_u32(head + 4, d->opt.dtype_bytes == 2 ? 1 : 7);
	sky_store_u32(head + 8, (uint32_t)d->n_token);
	rc = rc ? rc : sky_pwrite_full(f->tok.fd, head, sizeof head, 0, d->path, err);
	return rc ? rc : files_commit(f, err);
}

const struct dst_ops dst_llmc = { llmc_open, llmc_add, llmc_commit, files_abort };

/* ---- JSON lines: {"input_ids":[…],"loss_mask":[…]} ---- */

static int jsonl_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	return files_open(d, "", NULL, NULL, err);
}

static int jsonl_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct files *f = d->state;
	struct sky_jw w;
	int rc;

	sky_buf_clear(&f->text);
	sky_jw_init(&w, &f->text, err);
	sky_jw_obj(&w);
	sky_jw_key(&w, "input_ids");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < n; i++) {
		sky_jw_i64(&w, ids[i]);
	}
	sky_jw_close_arr(&w);
	sky_jw_key(&w, "loss_mask");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < n; i++) {
		sky_jw_i64(&w, mask ? mask[i] != 0 : i > 0);
	}
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_buf_addc(&f->text, '\n', err);
	return rc ? rc : sky_out_write(&f->tok, f->text.ptr, f->text.n, err);
}

static int jsonl_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	return files_commit(d->state, err);
}

const struct dst_ops dst_jsonl = { jsonl_open, jsonl_add, jsonl_commit, files_abort };

/* ---- our own ---- */

static int own_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct sky_tokens_opt o = { .dtype_bytes = d->opt.dtype_bytes, .with_mask = d->opt.with_mask,
			.out_flags = d->opt.out_flags };
	int rc = files_open(d, NULL, NULL, NULL, err);

	return rc ? rc : sky_tokens_create(d->path, &o, &((struct files *)d->state)->own, err);
}

static int own_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	return sky_tokens_add(((struct files *)d->state)->own, ids, mask, n, err);
}

static int own_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct files *f = d->state;
	struct sky_tokens_out *o = f->own;

	f->own = NULL;
	return sky_tokens_commit(o, d->opt.extra ? d->opt.extra : "", err);
}

const struct dst_ops dst_tokens = { own_open, own_add, own_commit, files_abort };
