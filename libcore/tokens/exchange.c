/* Other formats of token sets: which one, and what their readers and writers share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokens/exchange_int.h"

static const struct {
	enum sky_tokens_format f;
	const char *name;
	const struct src_ops *src;
	const struct dst_ops *dst;
} formats[] = {
	{ SKY_TF_TOKENS, "tokens", &src_tokens, &dst_tokens },
	{ SKY_TF_TOKENS, "megatron", &src_tokens, &dst_tokens },
	{ SKY_TF_DATATROVE, "ds", &src_datatrove, &dst_datatrove },
	{ SKY_TF_MDS, "mds", &src_mds, &dst_mds },
	{ SKY_TF_DOLMA, "dolma", &src_dolma, &dst_dolma },
	{ SKY_TF_LLMC, "llmc", &src_llmc, &dst_llmc },
	{ SKY_TF_ARROW, "arrow", NULL, &dst_arrow },
	{ SKY_TF_JSONL, "jsonl", NULL, &dst_jsonl },
	{ SKY_TF_LITDATA, "litdata", &src_litdata, NULL },
};

#define N_FORMAT (sizeof formats / sizeof *formats)

int sky_tokens_format_parse(const char *name, enum sky_tokens_format *f_p, struct sky_err *err)
{
	for (size_t i = 0; i < N_FORMAT; i++) {
		if (!strcmp(name, formats[i].name)) {
			*f_p = formats[i].f;
			return 0;
		}
	}
	return sky_fail(err, SKY_E_USAGE,
			"unknown format \"%s\": tokens, megatron, ds, mds, dolma, llmc, litdata, arrow, jsonl", name);
}

int row_room(struct row *r, int64_t n, struct sky_err *err)
{
	int32_t *ids;
	uint8_t *mask;

	if (n <= r->cap) {
		return 0;
	}
	ids = sky_realloc_array(r->ids, (size_t)n, sizeof *ids);
	r->ids = ids ? ids : r->ids;
	mask = ids ? sky_realloc_array(r->mask, (size_t)n, 1) : NULL;
	if (!mask) {
		return sky_fail_mem(err, "a row of %lld tokens", (long long)n);
	}
	r->mask = mask;
	r->cap = n;
	return 0;
}

static int64_t load_one(const uint8_t *p, int width)
{
	switch (width) {
	case 1:
		return *p;
	case -1:
		return (int8_t)*p;
	case 2:
		return sky_load_u16(p);
	case -2:
		return (int16_t)sky_load_u16(p);
	case 4:
		return sky_load_u32(p);
	case -4:
		return (int32_t)sky_load_u32(p);
	default:
		return (int64_t)sky_load_u64(p);
	}
}

int row_load(struct row *r, const uint8_t *p, int width, int64_t n, const char *path, struct sky_err *err)
{
	int step = width < 0 ? -width : width, rc = row_room(r, n, err);

	r->n = rc ? 0 : n;
	for (int64_t i = 0; !rc && i < n; i++) {
		int64_t v = load_one(p + i * step, width);

		if (v < 0 || v > INT32_MAX) {
			return sky_fail(err, SKY_E_DATA, "%s: a token is %lld, no id", path, (long long)v);
		}
		r->ids[i] = (int32_t)v;
	}
	return rc;
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && !strcmp(s + n - m, suffix);
}

/* By name, and for folders by what their index.json looks like. */
static enum sky_tokens_format recognise(const char *path)
{
	char index[SKY_MAX_PATH];
	struct sky_json *doc = NULL;
	enum sky_tokens_format f = SKY_TF_TOKENS;

	if (ends_with(path, ".ds")) {
		return SKY_TF_DATATROVE;
	}
	if (ends_with(path, ".npy")) {
		return SKY_TF_DOLMA;
	}
	if (sky_is_dir(path)) {
		if (!sky_path_join(index, sizeof index, path, "index.json", NULL) && !sky_json_load(index, 0, &doc, NULL)) {
			f = sky_j_get(sky_json_root(doc), "chunks") ? SKY_TF_LITDATA : SKY_TF_MDS;
		}
		sky_json_free(doc);
		return f;
	}
	if (ends_with(path, ".bin") && sky_file_exists(path)) {
		size_t n = strlen(path);

		snprintf(index, sizeof index, "%.*s.idx", (int)(n - 4), path);
		return sky_file_exists(index) ? SKY_TF_TOKENS : SKY_TF_LLMC;
	}
	return SKY_TF_TOKENS;
}

int sky_tokens_src_open(const char *path, const struct sky_exchange_opt *opt, struct sky_tokens_src **s_p,
		struct sky_err *err)
{
	struct sky_tokens_src *s = calloc(1, sizeof *s);
	int rc = s ? 0 : sky_fail_mem(err, "opening %s", path);

	if (rc < 0) {
		return rc;
	}
	s->opt = *opt;
	s->path = tok_path(path, "", err);
	rc = s->path ? 0 : SKY_E_LIMIT;
	if (s->opt.format == SKY_TF_AUTO) {
		s->opt.format = recognise(path);
	}
	for (size_t i = 0; i < N_FORMAT; i++) {
		s->ops = formats[i].f == s->opt.format && formats[i].src ? formats[i].src : s->ops;
	}
	if (!rc && !s->ops) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: this format is only written", path);
	}
	rc = rc ? rc : s->ops->open(s, err);
	if (rc < 0) {
		sky_tokens_src_close(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

int sky_tokens_src_next(struct sky_tokens_src *s, const int32_t **ids_p, const uint8_t **mask_p, int64_t *n_p,
		struct sky_err *err)
{
	int rc = s->ops->next(s, err);

	if (!rc) {
		*ids_p = s->row.ids;
		*mask_p = s->has_mask ? s->row.mask : NULL;
		*n_p = s->row.n;
	}
	return rc;
}

int sky_tokens_src_width(const struct sky_tokens_src *s)
{
	return s->width ? s->width : 4;
}

void sky_tokens_src_close(struct sky_tokens_src *s)
{
	if (s) {
		if (s->ops && s->state) {
			s->ops->close(s);
		}
		free(s->row.ids);
		free(s->row.mask);
		free(s->path);
		free(s);
	}
}

int sky_tokens_dst_open(const char *path, const struct sky_exchange_opt *opt, struct sky_tokens_dst **d_p,
		struct sky_err *err)
{
	struct sky_tokens_dst *d = calloc(1, sizeof *d);
	int rc = d ? 0 : sky_fail_mem(err, "creating %s", path);

	if (rc < 0) {
		return rc;
	}
	d->opt = *opt;
	d->path = tok_path(path, "", err);
	rc = d->path ? 0 : SKY_E_LIMIT;
	for (size_t i = 0; i < N_FORMAT; i++) {
		d->ops = formats[i].f == opt->format && formats[i].dst ? formats[i].dst : d->ops;
	}
	if (!rc && !d->ops) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: this format is only read", path);
	}
	rc = rc ? rc : d->ops->open(d, err);
	if (rc < 0) {
		sky_tokens_dst_abort(d);
		return rc;
	}
	*d_p = d;
	return 0;
}

int sky_tokens_dst_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	int rc = d->ops->add(d, ids, mask, n, err);

	d->n_row += !rc;
	d->n_token += rc ? 0 : n;
	return rc;
}

int sky_tokens_dst_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	int rc = d->ops->commit(d, err);

	sky_tokens_dst_abort(d);
	return rc;
}

void sky_tokens_dst_abort(struct sky_tokens_dst *d)
{
	if (d) {
		if (d->ops && d->state) {
			d->ops->abort(d);
		}
		free(d->bytes);
		free(d->path);
		free(d);
	}
}

static int bytes_room(struct sky_tokens_dst *d, size_t n, struct sky_err *err)
{
	if (n > d->cap) {
		uint8_t *p = sky_realloc_array(d->bytes, n, 1);

		if (!p) {
			return sky_fail_mem(err, "a row of %zu bytes", n);
		}
		d->bytes = p;
		d->cap = n;
	}
	return 0;
}

int dst_pack(struct sky_tokens_dst *d, const int32_t *ids, int64_t n, int width, struct sky_err *err)
{
	int rc = bytes_room(d, (size_t)n * (unsigned)width + 1, err);

	for (int64_t i = 0; !rc && i < n; i++) {
		if (ids[i] < 0 || (width == 2 && ids[i] > 65535)) {
			return sky_fail(err, SKY_E_DATA, "%s: row %lld: id %d does not fit %d bytes", d->path,
					(long long)d->n_row,
					ids[i], width);
		}
		if (width == 2) {
			sky_store_u16(d->bytes + 2 * i, (uint16_t)ids[i]);
		} else {
			sky_store_u32(d->bytes + 4 * i, (uint32_t)ids[i]);
		}
	}
	return rc;
}

int dst_pack_mask(struct sky_tokens_dst *d, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	int rc = bytes_room(d, (size_t)n + 1, err);

	for (int64_t i = 0; !rc && i < n; i++) {
		d->bytes[i] = mask ? mask[i] != 0 : i > 0;
	}
	return rc;
}

int folder_begin(const char *path, char **work_p, struct sky_err *err)
{
	int rc = sky_file_exists(path) || sky_is_dir(path) ?
		 sky_fail(err, SKY_E_USAGE, "%s: exists; a folder is not replaced, choose another name", path) : 0;

	*work_p = rc ? NULL : tok_path(path, ".work", err);
	if (!*work_p) {
		return rc ? rc : SKY_E_LIMIT;
	}
	rc = sky_remove_tree(*work_p, err);
	return rc ? rc : sky_mkdirs(*work_p, err);
}

int folder_commit(const char *work, const char *path, struct sky_err *err)
{
	int rc = sky_fsync_dir(work, err);

	return rc ? rc : rename(work, path) ? sky_fail_sys(err, "renaming %s to %s", work, path) : 0;
}
