/* Formats that are one array of ids with bounds beside it: datatrove's .ds, dolma and OLMo .npy, llm.c .bin; and our own
 * sets behind the same face. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tokens/exchange_int.h"

struct flat {
	struct sky_map tok, ends, mask;
	struct sky_tokens *set;         /* src_tokens only */
	uint64_t off;                   /* of the first token in tok */
	int width;
	int64_t n_tok, at, row, n_end;
	int64_t eod;                    /* splits where there are no bounds; −1 */
	bool eod_first;                 /* it stands before its document */
	gzFile csv;
	int64_t csv_line;
};

static int flat_new(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f = calloc(1, sizeof *f);

	if (!f) {
		return sky_fail_mem(err, "reading %s", s->path);
	}
	f->tok = f->ends = f->mask = (struct sky_map)SKY_MAP_INIT;
	f->eod = -1;
	s->state = f;
	return 0;
}

static void flat_close(struct sky_tokens_src *s)
{
	struct flat *f = s->state;

	sky_map_close(&f->tok);
	sky_map_close(&f->ends);
	sky_map_close(&f->mask);
	sky_tokens_close(f->set);
	if (f->csv) {
		gzclose(f->csv);
	}
	free(f);
}

/* Row [at, end) of the array. */
static int flat_row(struct sky_tokens_src *s, int64_t end, struct sky_err *err)
{
	struct flat *f = s->state;
	int64_t n = end - f->at;
	int rc = row_load(&s->row, f->tok.ptr ? f->tok.ptr + f->off + (uint64_t)f->at * (unsigned)f->width :
			(const uint8_t *)"",
			  f->width, n, s->path, err);

	s->has_mask = f->mask.ptr != NULL;
	for (int64_t i = 0; !rc && s->has_mask && i < n; i++) {
		s->row.mask[i] = f->mask.ptr[f->at + i] != 0;
	}
	f->at = end;
	f->row++;
	return rc;
}

static int map_beside(struct sky_tokens_src *s, const char *suffix, struct sky_map *m, bool needed, struct sky_err *err)
{
	char *path = tok_path(s->path, suffix, err);
	int rc = path ? 0 : SKY_E_LIMIT;

	if (!rc && (needed || sky_file_exists(path))) {
		rc = sky_map_open(m, path, err);
	}
	free(path);
	return rc;
}

/* ---- datatrove ---- */

/* "name|width" on the first line: the width is behind the last bar. */
static int ds_width(struct sky_tokens_src *s, int *width_p, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 16);
	char *path = tok_path(s->path, ".metadata", err), *nl, *bar;
	int rc = path ? 0 : SKY_E_LIMIT;

	*width_p = s->opt.width;
	if (!rc && sky_file_exists(path)) {
		rc = sky_file_read(path, &text, err);
		nl = rc || !text.n ? NULL : memchr(text.ptr, '\n', text.n);
		if (nl) {
			*nl = '\0';
		}
		bar = rc || !text.n ? NULL : strrchr(text.ptr, '|');
		*width_p = bar && (bar[1] == '2' || bar[1] == '4') && !bar[2] ? bar[1] - '0' : *width_p;
	}
	if (!rc && *width_p != 2 && *width_p != 4) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: no width in its .metadata; tell it with --width 2 or 4", s->path);
	}
	sky_buf_release(&text);
	free(path);
	return rc;
}

static int ds_open(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f;
	int64_t last = 0, end;
	int rc = flat_new(s, err);

	f = s->state;
	rc = rc ? rc : ds_width(s, &f->width, err);
	rc = rc ? rc : sky_map_open(&f->tok, s->path, err);
	rc = rc ? rc : map_beside(s, ".index", &f->ends, true, err);
	rc = rc ? rc : map_beside(s, ".loss", &f->mask, false, err);
	if (rc < 0) {
		return rc;
	}
	f->n_end = (int64_t)(f->ends.n / 8);
	s->width = f->width;
	for (int64_t i = 0; i < f->n_end; i++) {
		end = (int64_t)sky_load_u64(f->ends.ptr + 8 * i);
		if (end < last) {
			return sky_fail(err, SKY_E_DATA, "%s.index: entry %lld runs backwards", s->path, (long long)i);
		}
		last = end;
	}
	if (f->ends.n % 8 || (uint64_t)last != f->tok.n / (unsigned)f->width || f->tok.n % (unsigned)f->width ||
	    (f->mask.path && f->mask.n != (uint64_t)last)) {
		return sky_fail(err, SKY_E_DATA,
				"%s: its index ends at token %lld, the files hold %llu of %d bytes; cut, or another "
				"width", s->path, (long long)last, (unsigned long long)(f->tok.n / (unsigned)f->width),
						f->width);
	}
	return 0;
}

static int ds_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f = s->state;

	return f->row == f->n_end ? SKY_EOF : flat_row(s, (int64_t)sky_load_u64(f->ends.ptr + 8 * f->row), err);
}

const struct src_ops src_datatrove = { ds_open, ds_next, flat_close };

/* ---- dolma, OLMo ---- */

/* Next end of the sidecar "start,end,id,source,line"; SKY_EOF behind the last. */
static int csv_next(struct sky_tokens_src *s, int64_t *end_p, struct sky_err *err)
{
	struct flat *f = s->state;
	char line[65536], *comma, *second;
	int64_t from = -1, to = -1;
	int bad;

	if (!gzgets(f->csv, line, sizeof line)) {
		(void)gzerror(f->csv, &bad);
		return bad < 0 ? sky_fail(err, SKY_E_DATA, "%s: damaged csv.gz beside it", s->path) : SKY_EOF;
	}
	f->csv_line++;
	comma = strchr(line, ',');
	second = comma ? strchr(comma + 1, ',') : NULL;
	if (second) {
		*comma = *second = '\0';
	}
	if (!second || sky_parse_i64(line, &from, NULL) || sky_parse_i64(comma + 1, &to, NULL) || to < from) {
		return sky_fail(err, SKY_E_DATA, "%s: line %lld of the csv.gz beside it is no start,end,…", s->path,
				(long long)f->csv_line);
	}
	if (from != f->at || to > f->n_tok) {
		return sky_fail(err, SKY_E_DATA,
				"%s: document %lld of its csv.gz is tokens %lld to %lld, expected from %lld to at "
				"most %lld (another --width?)", s->path, (long long)f->csv_line, (long long)from,
						(long long)to,
				(long long)f->at, (long long)f->n_tok);
	}
	*end_p = to;
	return 0;
}

/* part.npy → part.csv.gz, part.label_mask.npy */
static char *sibling(const struct sky_tokens_src *s, const char *suffix, struct sky_err *err)
{
	size_t n = strlen(s->path);
	char *stem = tok_path(s->path, "", err), *p;

	if (!stem) {
		return NULL;
	}
	if (n > 4 && !strcmp(stem + n - 4, ".npy")) {
		stem[n - 4] = '\0';
	}
	p = tok_path(stem, suffix, err);
	free(stem);
	return p;
}

/* Width from the last end of the sidecar against the size of the array. */
static int csv_width(struct sky_tokens_src *s, const char *path, struct sky_err *err)
{
	struct flat *f = s->state;
	int64_t last = 0, end;
	int rc = 0;

	f->csv = gzopen(path, "rb");
	if (!f->csv) {
		return sky_fail_sys(err, "%s", path);
	}
	f->n_tok = INT64_MAX;
	while (!rc) {
		rc = csv_next(s, &end, err);
		last = rc ? last : end;
		f->at = last;
	}
	if (rc < 0) {
		return rc;
	}
	f->at = 0;
	f->csv_line = 0;
	gzrewind(f->csv);
	for (int w = 2; w <= 8; w *= 2) {
		if (last && (uint64_t)last == f->tok.n / (unsigned)w && f->tok.n % (unsigned)w == 0) {
			f->width = w;
		}
	}
	if (!f->width) {
		return sky_fail(err, SKY_E_DATA,
				"%s: %llu bytes do not hold the %lld tokens of its csv.gz at any width; cut?", s->path,
				(unsigned long long)f->tok.n, (long long)last);
	}
	return 0;
}

static int dolma_open(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f;
	char *csv = sibling(s, ".csv.gz", err), *mask = sibling(s, ".label_mask.npy", err);
	int rc = csv && mask ? flat_new(s, err) : SKY_E_LIMIT;

	f = s->state;
	rc = rc ? rc : sky_map_open(&f->tok, s->path, err);
	if (!rc && f->tok.n >= 6 && !memcmp(f->tok.ptr, "\x93NUMPY", 6)) {
		rc = sky_fail(err, SKY_E_DATA,
				"%s: a real NumPy file with a header, not the bare array that dolma writes", s->path);
	}
	f->width = rc ? 0 : s->opt.width;
	f->eod = s->opt.eod;
	if (!rc && sky_file_exists(csv)) {
		rc = csv_width(s, csv, err);
	} else if (!rc && (!f->width || f->eod < 0)) {
		rc = sky_fail(err, SKY_E_USAGE,
				"%s: nothing beside it tells the width and the documents; tell them with --width and "
			      "--eod-id", s->path);
	}
	if (!rc && f->tok.n % (unsigned)f->width) {
		rc = sky_fail(err, SKY_E_DATA, "%s: %llu bytes are no array of %d-byte ids", s->path,
				(unsigned long long)f->tok.n,
			      f->width);
	}
	if (!rc) {
		s->width = f->width;
		f->n_tok = (int64_t)(f->tok.n / (unsigned)f->width);
		rc = sky_file_exists(mask) ? sky_map_open(&f->mask, mask, err) : 0;
	}
	if (!rc && f->mask.path && f->mask.n != (uint64_t)f->n_tok) {
		rc = sky_fail(err, SKY_E_DATA, "%s: %llu bytes for %lld tokens", mask, (unsigned long long)f->mask.n,
				(long long)f->n_tok);
	}
	free(csv);
	free(mask);
	return rc;
}

/* End of the row that begins at f->at, by the separating id. */
static int64_t scan_eod(const struct flat *f)
{
	const uint8_t *p = f->tok.ptr + f->off;
	int64_t i = f->at;

	for (; i < f->n_tok; i++) {
		int64_t v = f->width == 2 ? sky_load_u16(p + 2 * i) : f->width == 4 ? sky_load_u32(p + 4 * i) :
			    (int64_t)sky_load_u64(p + 8 * i);

		if (v == f->eod && (!f->eod_first || i > f->at)) {
			return f->eod_first ? i : i + 1;
		}
	}
	return f->n_tok;
}

static int dolma_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f = s->state;
	int64_t end;
	int rc;

	if (!f->csv) {
		return f->at == f->n_tok ? SKY_EOF : flat_row(s, scan_eod(f), err);
	}
	rc = csv_next(s, &end, err);
	if (rc == SKY_EOF && f->at != f->n_tok) {
		return sky_fail(err, SKY_E_DATA, "%s: its csv.gz ends at token %lld of %lld", s->path, (long long)f->at,
				(long long)f->n_tok);
	}
	return rc ? rc : flat_row(s, end, err);
}

const struct src_ops src_dolma = { dolma_open, dolma_next, flat_close };

/* ---- llm.c ---- */

static int llmc_open(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f;
	const uint8_t *h;
	int rc = flat_new(s, err);

	f = s->state;
	rc = rc ? rc : sky_map_open(&f->tok, s->path, err);
	if (rc < 0) {
		return rc;
	}
	h = f->tok.ptr;
	if (f->tok.n < 1024) {
		return sky_fail(err, SKY_E_DATA, "%s: shorter than the header of llm.c, 1024 bytes", s->path);
	}
	if (sky_load_u32(h) == 20240520 && sky_load_u32(h + 4) == 1) {
		f->width = 2;
		f->eod = 50256;
	} else if (sky_load_u32(h) == 20240801 && sky_load_u32(h + 4) == 7) {
		f->width = 4;
		f->eod = 128000;
	} else {
		return sky_fail(err, SKY_E_DATA,
				"%s: neither a GPT-2 (20240520, 1) nor a Llama-3 (20240801, 7) token file of llm.c: "
				"%u, %u", s->path, sky_load_u32(h), sky_load_u32(h + 4));
	}
	s->width = f->width;
	f->off = 1024;
	f->n_tok = (int32_t)sky_load_u32(h + 8);
	if (f->n_tok < 0 || f->tok.n - 1024 != (uint64_t)f->n_tok * (unsigned)f->width) {
		return sky_fail(err, SKY_E_DATA,
				"%s: its header counts %lld tokens, the file holds %llu bytes of them", s->path,
				(long long)f->n_tok, (unsigned long long)(f->tok.n - 1024));
	}
	f->eod = s->opt.eod >= 0 ? s->opt.eod : f->eod;
	f->eod_first = true;
	return 0;
}

static int llmc_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f = s->state;

	return f->at == f->n_tok ? SKY_EOF : flat_row(s, scan_eod(f), err);
}

const struct src_ops src_llmc = { llmc_open, llmc_next, flat_close };

/* ---- our own ---- */

static int own_open(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f;
	int rc = flat_new(s, err);

	f = s->state;
	rc = rc ? rc : sky_tokens_open(s->path, &f->set, err);
	if (!rc) {
		s->width = sky_tokens_dtype_bytes(f->set);
		s->width = s->width <= 2 && strcmp(sky_tokens_dtype_name(f->set), "int16") ? 2 : 4;
	}
	return rc;
}

static int own_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct flat *f = s->state;
	const uint8_t *mask;
	int64_t n;
	int rc;

	if (f->row == sky_tokens_rows(f->set)) {
		return SKY_EOF;
	}
	n = sky_tokens_row_len(f->set, f->row);
	rc = row_room(&s->row, n, err);
	rc = rc || !n ? rc : sky_tokens_ids(f->set, f->row, 0, n, s->row.ids, err);
	mask = sky_tokens_mask(f->set, f->row);
	s->has_mask = mask != NULL;
	if (!rc && mask && n) {
		memcpy(s->row.mask, mask, (size_t)n);
	}
	s->row.n = n;
	f->row++;
	return rc;
}

const struct src_ops src_tokens = { own_open, own_next, flat_close };
