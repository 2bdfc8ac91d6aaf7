/* skyrl-pretok encode, decode, render: one line in, one line out, for looking and for scripts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/pretok_int.h"

#define MAX_RAW_TEXT (4ull << 30)

/* Calls fn for every line of the operands, or of stdin. */
static int each_line(int argc, char **argv, int (*fn)(void *ctx, const char *p, size_t n, struct sky_err *err), void *ctx,
                     struct sky_err *err)
{
	static const char *const from_stdin[] = { "-" };
	struct sky_corpus_opt o = { .format = SKY_IN_JSONL, .max_line = pt.max_line };
	struct sky_corpus *c = NULL;
	struct sky_block *b = NULL;
	int rc = argc ? sky_corpus_open((const char *const *)argv, argc, &o, &c, err) :
		 sky_corpus_open(from_stdin, 1, &o, &c, err);

	while (!rc && !(rc = sky_corpus_next(c, &b, err))) {
		const char *p = b->data.ptr, *end = p + b->data.n, *nl;

		for (int64_t row = b->row; !rc && p < end; p = nl + 1, row++) {
			size_t n;

			nl = memchr(p, '\n', (size_t)(end - p));
			nl = nl ? nl : end;
			n = (size_t)(nl - p);
			n -= n && p[n - 1] == '\r';
			if (n) {
				rc = fn(ctx, p, n, err);
				rc = sky_while(err, rc, "%s:%lld", b->file, (long long)row);
			}
		}
		sky_block_free(b);
	}
	sky_corpus_close(c);
	return rc == SKY_EOF ? 0 : rc;
}

static int need_tokenizer(struct pretok_text *t, struct sky_err *err)
{
	if (!pt.tokenizer) {
		return sky_fail(err, SKY_E_USAGE, "--tokenizer DIR is missing");
	}
	return pretok_text_open(t, err);
}

static int put_ids(const int32_t *id, int64_t n, struct sky_err *err)
{
	int rc = cmd_outs("[", err);

	for (int64_t i = 0; !rc && i < n; i++) {
		rc = cmd_outf(err, i ? ",%d" : "%d", id[i]);
	}
	return rc ? rc : cmd_outs("]\n", err);
}

struct encode_ctx {
	struct pretok_text text;
	struct sky_encoder *enc;
	struct sky_ids ids;
	struct sky_jdoc doc;
};

static int encode_text(struct encode_ctx *c, const char *p, size_t n, struct sky_err *err)
{
	unsigned flags = (pt.special ? SKY_ENC_SPECIAL : 0) | (pt.no_special ? SKY_ENC_NO_ADDED : 0);
	size_t ok = sky_utf8_valid(p, n);
	int rc;

	if (ok != n) {
		return sky_fail(err, SKY_E_DATA, "invalid UTF-8 or a lone surrogate at byte %zu of the text", ok);
	}
	c->ids.n = 0;
	rc = sky_encode(c->enc, p, n, flags, &c->ids, err);
	return rc ? rc : put_ids(c->ids.id, c->ids.n, err);
}

static int encode_line(void *ctx, const char *p, size_t n, struct sky_err *err)
{
	struct encode_ctx *c = ctx;
	int rc = sky_jdoc_parse(&c->doc, p, n, err);

	if (rc < 0) {
		return rc;
	}
	if (c->doc.val[0].tag != SKY_JT_STRING) {
		return sky_fail(err, SKY_E_DATA, "one JSON string a line is expected (--raw takes plain text)");
	}
	return encode_text(c, c->doc.val[0].str, c->doc.val[0].n_str, err);
}

static int encode_raw(struct encode_ctx *c, int argc, char **argv, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(MAX_RAW_TEXT);
	struct sky_stream *s = NULL;
	int64_t got = 1;
	int rc = argc > 1 ? sky_fail(err, SKY_E_USAGE, "--raw takes one file or standard input") :
		 sky_stream_open(argc ? argv[0] : "-", NULL, &s, err);

	while (!rc && got > 0) {
		rc = sky_buf_reserve(&text, 1u << 20, err);
		got = rc ? 0 : sky_stream_read(s, text.ptr + text.n, 1u << 20, err);
		rc = got < 0 ? (int)got : rc;
		text.n += got > 0 ? (size_t)got : 0;
	}
	rc = rc ? rc : encode_text(c, text.ptr ? text.ptr : "", text.n, err);
	sky_stream_close(s);
	sky_buf_release(&text);
	return rc;
}

int pretok_encode(int argc, char **argv, struct sky_err *err)
{
	struct encode_ctx c = { .enc = NULL };
	int rc = need_tokenizer(&c.text, err);

	rc = rc ? rc : sky_encoder_new(c.text.tok, &c.enc, err);
	if (!rc) {
		rc = pt.raw ? encode_raw(&c, argc, argv, err) : each_line(argc, argv, encode_line, &c, err);
	}
	sky_encoder_free(c.enc);
	sky_ids_release(&c.ids);
	sky_jdoc_release(&c.doc);
	pretok_text_close(&c.text);
	return rc;
}

struct decode_ctx {
	struct pretok_text text;
	struct sky_jdoc doc;
	int32_t *ids;
	int64_t cap;
	struct sky_buf out, line;
};

static int decode_line(void *ctx, const char *p, size_t n, struct sky_err *err)
{
	struct decode_ctx *c = ctx;
	struct sky_jw w;
	int64_t k = 0, v;
	int rc = sky_jdoc_parse(&c->doc, p, n, err);

	if (rc < 0) {
		return rc;
	}
	if (c->doc.val[0].tag != SKY_JT_ARRAY) {
		return sky_fail(err, SKY_E_DATA, "one JSON array of ids a line is expected");
	}
	if (c->doc.val[0].n_child > c->cap) {
		int32_t *q = sky_realloc_array(c->ids, c->doc.val[0].n_child, sizeof *q);

		if (!q) {
			return sky_fail_mem(err, "a row of %u ids", c->doc.val[0].n_child);
		}
		c->ids = q;
		c->cap = c->doc.val[0].n_child;
	}
	for (const struct sky_jval *e = sky_jval_first(&c->doc, &c->doc.val[0]); e; e = sky_jval_next(&c->doc,
			&c->doc.val[0], e)) {
		if (!sky_jval_i64(e, &v) || v < 0 || v > INT32_MAX) {
			return sky_fail(err, SKY_E_DATA, "element %lld is no token id", (long long)k);
		}
		c->ids[k++] = (int32_t)v;
	}
	sky_buf_clear(&c->out);
	sky_buf_clear(&c->line);
	rc = sky_decode(c->text.tok, c->ids, k, pt.skip_special, &c->out, err);
	if (!rc && pt.raw) {
		return cmd_out(c->out.ptr, c->out.n, err);
	}
	sky_jw_init(&w, &c->line, err);
	sky_jw_strn(&w, c->out.ptr ? c->out.ptr : "", c->out.n);
	rc = rc ? rc : sky_jw_end(&w);
	rc = rc ? rc : sky_buf_addc(&c->line, '\n', err);
	return rc ? rc : cmd_out(c->line.ptr, c->line.n, err);
}

int pretok_decode(int argc, char **argv, struct sky_err *err)
{
	struct decode_ctx c = { .out = SKY_BUF_INIT(MAX_RAW_TEXT), .line = SKY_BUF_INIT(SIZE_MAX) };
	int rc = need_tokenizer(&c.text, err);

	rc = rc ? rc : each_line(argc, argv, decode_line, &c, err);
	free(c.ids);
	sky_jdoc_release(&c.doc);
	sky_buf_release(&c.out);
	sky_buf_release(&c.line);
	pretok_text_close(&c.text);
	return rc;
}

struct render_ctx {
	struct pretok_text text;
	struct pretok_worker w;
	struct sky_buf line;
};

static int render_line(void *ctx, const char *p, size_t n, struct sky_err *err)
{
	struct render_ctx *c = ctx;
	const struct sky_sample *s = NULL;
	enum sky_reason why = SKY_ROW_OK;
	const struct sky_render *r = NULL;
	struct sky_jw w;
	int rc = sky_rows_sample(c->w.rows, SKY_BLOCK_JSON, p, n, &s, &why, err);

	if (rc || why == SKY_ROW_BLANK) {
		return rc;
	}
	if (why != SKY_ROW_OK) {
		return SKY_E_DATA;
	}
	if (s->kind != SKY_SAMPLE_CHAT) {
		return sky_fail(err, SKY_E_DATA, "no conversation to render (schema %s)", sky_schema_name(s->schema));
	}
	rc = pretok_chat_spans(&c->w, s, pt.generation_prompt, &r, err);
	if (rc < 0) {
		return rc;
	}
	sky_buf_clear(&c->line);
	sky_jw_init(&w, &c->line, err);
	sky_jw_obj(&w);
	sky_jw_key(&w, "text");
	sky_jw_strn(&w, r->text.ptr ? r->text.ptr : "", r->text.n);
	sky_jw_key(&w, "spans");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < c->w.n_span; i++) {
		sky_jw_arr(&w);
		sky_jw_i64(&w, c->w.span[i][0]);
		sky_jw_i64(&w, c->w.span[i][1]);
		sky_jw_close_arr(&w);
	}
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_buf_addc(&c->line, '\n', err);
	return rc ? rc : cmd_out(c->line.ptr, c->line.n, err);
}

int pretok_render(int argc, char **argv, struct sky_err *err)
{
	struct render_ctx c = { .line = SKY_BUF_INIT(SIZE_MAX) };
	enum sky_schema schema = SKY_SCHEMA_AUTO;
	int rc = sky_schema_parse(pt.schema ? pt.schema : "auto", &schema, err);

	rc = rc ? rc : need_tokenizer(&c.text, err);
	rc = rc ? rc : pretok_need_template(&c.text, err);
	rc = rc ? rc : pretok_worker_open(&c.w, &c.text, schema, err);
	rc = rc ? rc : each_line(argc, argv, render_line, &c, err);
	pretok_worker_close(&c.w);
	sky_buf_release(&c.line);
	pretok_text_close(&c.text);
	return rc;
}
