/* skyrl-pretok convert: token sets from and to the formats of others. Nothing is encoded again. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/pretok_int.h"

static struct {
	const char *to, *from, *column;
	int64_t width, eod;
	int dtype;
	uint64_t shard_bytes;
	bool skip_empty;
} o;

const struct opt_row pretok_convert_rows[] = {
	OPT_HEAD("Options"),
	OPT_TEXT(0, "to", &o.to, "FORMAT", NULL, "megatron, ds, mds, dolma, llmc, arrow or jsonl", .flags = OPT_REQUIRED),
	OPT_TEXT(0, "from", &o.from, "FORMAT", "auto",
		"tokens, megatron, ds, mds, dolma, llmc, litdata, arrow, parquet, jsonl; auto: by name and content"),
	CMD_OPT_OUTPUT("OUT", "what to write: a prefix, a file or a folder, as the format has it"),
	CMD_OPT_FORCE,
	OPT_COUNT(0, "width", &o.width, "BYTES", "0",
			"bytes of an id where the input does not tell (dolma, MDS of bytes)", .max = 8),
	OPT_INT(0, "eod-id", &o.eod, "ID", "-1", "id between documents (llm.c, dolma without its csv)"),
	OPT_TEXT(0, "column", &o.column, "NAME", NULL, "column of ids in an MDS folder (without it: tokens, input_ids)"),
	OPT_CHOICE(0, "dtype", &o.dtype, "auto|u16|u32", "auto", "width of an id in the output; auto: that of the input"),
	OPT_SIZE(0, "shard-size", &o.shard_bytes, "SIZE", "0",
			"bytes of a shard (MDS, Arrow), 0 for the format's own custom"),
	OPT_FLAG(0, "skip-empty", &o.skip_empty, NULL, "leave rows without tokens out"),
	CMD_OPT_JSON,
	OPT_END
};

/* Rows from either side: a token set, or a corpus of ready ids. */
struct input {
	struct sky_tokens_src *src;
	struct sky_corpus *corpus;
	struct sky_rows *rows;
	struct sky_block *block;
	const char *p, *end;
	int64_t row;
	int width;
};

static bool is_corpus(const char *path)
{
	static const char *const suffix[] = { ".jsonl", ".ndjson", ".json", ".arrow", ".parquet" };
	char state[SKY_MAX_PATH];
	size_t n = strlen(path);

	if (o.from && strcmp(o.from, "auto")) {
		return !strcmp(o.from, "arrow") || !strcmp(o.from, "parquet") || !strcmp(o.from, "jsonl");
	}
	if (sky_is_dir(path)) {
		return sky_path_join(state, sizeof state, path, "index.json", NULL) || !sky_file_exists(state);
	}
	for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
		size_t m = strlen(suffix[i]);

		if (n > m && !strcmp(path + n - m, suffix[i])) {
			char idx[SKY_MAX_PATH];

			/* PREFIX.json of a token set is not a corpus. */
			snprintf(idx, sizeof idx, "%.*s.idx", (int)(n - m), path);
			return strcmp(suffix[i], ".json") || !sky_file_exists(idx);
		}
	}
	return false;
}

static int input_open(struct input *in, const char *path, struct sky_exchange_opt *x, struct sky_err *err)
{
	struct sky_corpus_opt c = { 0 };
	struct sky_rows_opt r = { .schema = SKY_SCHEMA_TOKENS };
	int rc = 0;

	if (!is_corpus(path)) {
		if (o.from && strcmp(o.from, "auto")) {
			rc = sky_tokens_format_parse(o.from, &x->format, err);
		}
		rc = rc ? rc : sky_tokens_src_open(path, x, &in->src, err);
		in->width = rc ? 0 : sky_tokens_src_width(in->src);
		return rc;
	}
	in->width = 4;
	rc = sky_corpus_open(&path, 1, &c, &in->corpus, err);
	return rc ? rc : sky_rows_new(&r, &in->rows, err);
}

static void input_close(struct input *in)
{
	sky_tokens_src_close(in->src);
	sky_corpus_close(in->corpus);
	sky_rows_free(in->rows);
	sky_block_free(in->block);
}

static int corpus_next(struct input *in, const int32_t **ids, const uint8_t **mask, int64_t *n, struct sky_err *err)
{
	static const uint8_t none[1];
	const struct sky_sample *s = NULL;
	enum sky_reason why = SKY_ROW_BLANK;
	const char *nl;
	int rc = 0;

	while (!rc && why == SKY_ROW_BLANK) {
		if (in->p == in->end) {
			sky_block_free(in->block);
			in->block = NULL;
			rc = sky_corpus_next(in->corpus, &in->block, err);
			if (rc) {
				return rc;
			}
			in->p = in->block->data.ptr;
			in->end = in->p + in->block->data.n;
			in->row = in->block->row;
		}
		nl = memchr(in->p, '\n', (size_t)(in->end - in->p));
		nl = nl ? nl : in->end;
		rc = sky_rows_sample(in->rows, SKY_BLOCK_JSON, in->p, (size_t)(nl - in->p), &s, &why, err);
		in->p = nl < in->end ? nl + 1 : nl;
		in->row++;
	}
	if (rc < 0) {
		return rc;
	}
	if (why == SKY_ROW_EMPTY) {
		*ids = NULL;
		*mask = none;
		*n = 0;
		return 0;
	}
	if (why != SKY_ROW_OK) {
		return sky_while(err, SKY_E_DATA, "%s:%lld", in->block->file, (long long)in->row - 1);
	}
	*ids = s->ids;
	*mask = s->mask;
	*n = s->n_ids;
	return 0;
}

static int input_next(struct input *in, const int32_t **ids, const uint8_t **mask, int64_t *n, struct sky_err *err)
{
	return in->src ? sky_tokens_src_next(in->src, ids, mask, n, err) : corpus_next(in, ids, mask, n, err);
}

/* The first row tells whether there is a mask, so the output is opened behind it. */
static int run(struct input *in, struct sky_exchange_opt *x, int64_t *rows_p, int64_t *tokens_p, struct sky_err *err)
{
	struct sky_tokens_dst *d = NULL;
	const int32_t *ids = NULL;
	const uint8_t *mask = NULL;
	int64_t n = 0, empty = 0;
	int rc = input_next(in, &ids, &mask, &n, err), rc2;

	if (rc < 0) {
		return rc;
	}
	x->with_mask = mask != NULL;
	rc2 = sky_tokens_dst_open(cmd.output, x, &d, err);
	if (rc2 < 0) {
		return rc2;
	}
	for (; !rc; rc = rc ? rc : input_next(in, &ids, &mask, &n, err)) {
		if (cmd_stopping()) {
			rc = cmd_stop_err(err, "nothing was written");
		} else if (!n && o.skip_empty) {
			empty++;
		} else {
			rc = sky_tokens_dst_add(d, ids, mask, n, err);
			++*rows_p;
			*tokens_p += n;
		}
	}
	if (rc != SKY_EOF) {
		sky_tokens_dst_abort(d);
		return rc;
	}
	if (empty) {
		cmd_note("left out: %lld empty rows", (long long)empty);
	}
	return sky_tokens_dst_commit(d, err);
}

/* From one set of ours to another the tokenizer stays known. */
static int keep_tokenizer(const char *path, struct sky_buf *extra, struct sky_err *err)
{
	struct sky_tokens *t = NULL;
	const struct sky_jnode *tok = NULL;
	int rc = 0;

	if (!sky_tokens_open(path, &t, NULL) && sky_tokens_manifest(t)) {
		tok = sky_j_get(sky_json_root(sky_tokens_manifest(t)), "tokenizer");
	}
	if (tok) {
		rc = sky_buf_adds(extra, "\"tokenizer\":", err);
		rc = rc ? rc : sky_j_print(tok, extra, err);
	}
	sky_tokens_close(t);
	return rc;
}

int pretok_convert(int argc, char **argv, struct sky_err *err)
{
	struct sky_exchange_opt x = { .width = (int)o.width, .eod = o.eod, .column = o.column };
	struct sky_buf extra = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	struct input in = { 0 };
	int64_t rows = 0, tokens = 0;
	struct sky_jw *w;
	int rc;

	if (argc != 1 || !cmd.output) {
		return sky_fail(err, SKY_E_USAGE, "--to FORMAT -o OUT and one input are expected");
	}
	rc = input_open(&in, argv[0], &x, err);
	x.dtype_bytes = o.dtype == DTYPE_U16 ? 2 : o.dtype == DTYPE_U32 ? 4 : in.width == 2 ? 2 : 4;
	x.out_flags = cmd.force ? SKY_OUT_REPLACE : 0;
	x.shard_bytes = o.shard_bytes;
	rc = rc ? rc : sky_tokens_format_parse(o.to, &x.format, err);
	if (!rc && in.src && x.format == SKY_TF_TOKENS) {
		rc = keep_tokenizer(argv[0], &extra, err);
		x.extra = extra.n ? extra.ptr : NULL;
	}
	rc = rc ? rc : run(&in, &x, &rows, &tokens, err);
	input_close(&in);
	sky_buf_release(&extra);
	if (!rc) {
		cmd_note("%s: %lld rows, %lld tokens", cmd.output, (long long)rows, (long long)tokens);
	}
	if (!rc && cmd.json) {
		w = cmd_rec("result", err);
		sky_jw_kbool(w, "ok", true);
		sky_jw_kstr(w, "op", "convert");
		sky_jw_kstr(w, "destination", cmd.output);
		sky_jw_ki64(w, "rows", rows);
		sky_jw_ki64(w, "tokens", tokens);
		rc = cmd_rec_end(err);
	}
	return rc;
}
