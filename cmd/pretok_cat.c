/* skyrl-pretok cat: rows of a token dataset as NDJSON, or as text with the trained tokens in colour or brackets. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

static struct {
	const char *rows;
	bool decode, show;
} o;

const struct opt_row pretok_cat_rows[] = {
	OPT_HEAD("Options"),
	OPT_TEXT(0, "rows", &o.rows, "A:B", NULL,
			"rows A up to, without, B; either may be left out, negative ones count from the end"),
	OPT_FLAG(0, "decode", &o.decode, NULL, "add the text of each row (needs --tokenizer)"),
	OPT_FLAG(0, "show", &o.show, NULL, "text for people: trained tokens in colour or [brackets] (needs --tokenizer)"),
	OPT_DIR('t', "tokenizer", &pt.tokenizer, "DIR", NULL, "tokenizer.json, model directory or .tiktoken file"),
	CMD_OPT_JSON,
	OPT_END
};

/* "A:B", "A:", ":B", "A" (one row). */
static int parse_range(int64_t n, int64_t *from_p, int64_t *to_p, struct sky_err *err)
{
	const char *colon = o.rows ? strchr(o.rows, ':') : NULL;
	char head[32] = "";
	int64_t a = 0, b = n;
	int rc = 0;

	if (o.rows) {
		size_t k = colon ? (size_t)(colon - o.rows) : strlen(o.rows);

		if (k >= sizeof head) {
			return sky_fail(err, SKY_E_USAGE, "--rows \"%s\": A:B is expected", o.rows);
		}
		memcpy(head, o.rows, k);
		rc = *head ? sky_parse_i64(head, &a, err) : 0;
		rc = rc || !colon || !colon[1] ? rc : sky_parse_i64(colon + 1, &b, err);
		a = a < 0 ? a + n : a;
		b = b < 0 ? b + n : b;
		b = colon ? b : a + 1;
	}
	if (!rc && (a < 0 || a > n || b > n || (o.rows && !colon && a == n))) {
		rc = sky_fail(err, SKY_E_USAGE, "--rows %s: the set has %lld rows", o.rows, (long long)n);
	}
	*from_p = a;
	*to_p = b;
	return sky_while(err, rc, "--rows");
}

struct cat {
	struct sky_tokens *set;
	struct pretok_text text;
	int32_t *ids;
	int64_t cap;
	struct sky_buf out, word;
	bool color;
};

/* Text of tokens [from, to) of the row, for people: control characters visible. */
static int show_run(struct cat *c, int64_t from, int64_t to, bool trained, struct sky_err *err)
{
	int rc;

	sky_buf_clear(&c->word);
	rc = sky_decode(c->text.tok, c->ids + from, to - from, 0, &c->word, err);
	if (!rc && trained) {
		rc = sky_buf_adds(&c->out, c->color ? "\033[32m" : "[", err);
	}
	for (size_t i = 0; !rc && i < c->word.n; i++) {
		unsigned char ch = (unsigned char)c->word.ptr[i];

		rc = ch == '\n' ? sky_buf_adds(&c->out, "\\n\n", err) : ch < 0x20 || ch == 0x7f ?
		     sky_buf_addf(&c->out, err, "\\x%02x", ch) : sky_buf_addc(&c->out, (char)ch, err);
	}
	if (!rc && trained) {
		rc = sky_buf_adds(&c->out, c->color ? "\033[0m" : "]", err);
	}
	return rc;
}

static int show_row(struct cat *c, int64_t row, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	int64_t trained = 0, k;
	int rc;

	for (int64_t i = 0; i < n; i++) {
		trained += mask ? mask[i] != 0 : 1;
	}
	rc = sky_buf_addf(&c->out, err, "--- row %lld: %lld tokens, %lld trained\n", (long long)row, (long long)n,
			  (long long)trained);
	for (int64_t i = 0; !rc && i < n; i = k) {
		bool on = mask ? mask[i] != 0 : true;

		for (k = i + 1; k < n && (mask ? mask[k] != 0 : true) == on; k++) {
		}
		rc = show_run(c, i, k, on, err);
	}
	return rc ? rc : sky_buf_addc(&c->out, '\n', err);
}

static int json_row(struct cat *c, int64_t row, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct sky_jw w;
	int rc = 0;

	sky_jw_init(&w, &c->out, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "row", row);
	sky_jw_key(&w, "ids");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < n; i++) {
		sky_jw_i64(&w, c->ids[i]);
	}
	sky_jw_close_arr(&w);
	if (mask) {
		sky_jw_key(&w, "mask");
		sky_jw_arr(&w);
		for (int64_t i = 0; i < n; i++) {
			sky_jw_i64(&w, mask[i]);
		}
		sky_jw_close_arr(&w);
	}
	if (o.decode) {
		sky_buf_clear(&c->word);
		rc = sky_decode(c->text.tok, c->ids, n, 0, &c->word, err);
		sky_jw_key(&w, "text");
		sky_jw_strn(&w, c->word.ptr ? c->word.ptr : "", c->word.n);
	}
	sky_jw_close_obj(&w);
	rc = rc ? rc : sky_jw_end(&w);
	return rc ? rc : sky_buf_addc(&c->out, '\n', err);
}

static int cat_row(struct cat *c, int64_t row, struct sky_err *err)
{
	int64_t n = sky_tokens_row_len(c->set, row);
	const uint8_t *mask = sky_tokens_mask(c->set, row);
	int rc;

	if (n > c->cap) {
		int32_t *p = sky_realloc_array(c->ids, (size_t)n, sizeof *p);

		if (!p) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)n);
		}
		c->ids = p;
		c->cap = n;
	}
	sky_buf_clear(&c->out);
	rc = n ? sky_tokens_ids(c->set, row, 0, n, c->ids, err) : 0;
	if (!rc) {
		rc = o.show ? show_row(c, row, mask, n, err) : json_row(c, row, mask, n, err);
	}
	return rc ? rc : cmd_out(c->out.ptr, c->out.n, err);
}

int pretok_cat(int argc, char **argv, struct sky_err *err)
{
	struct cat c = { .out = SKY_BUF_INIT(SIZE_MAX), .word = SKY_BUF_INIT(SIZE_MAX), .color = cmd_color(1) };
	int64_t from = 0, to = 0;
	int rc = argc == 1 ? 0 : sky_fail(err, SKY_E_USAGE, "one PREFIX is expected");

	if (!rc && (o.decode || o.show) && !pt.tokenizer) {
		rc = sky_fail(err, SKY_E_USAGE, "--%s needs --tokenizer", o.decode ? "decode" : "show");
	}
	if (!rc && pt.tokenizer) {
		rc = pretok_text_open(&c.text, err);
	}
	rc = rc ? rc : sky_tokens_open(argv[0], &c.set, err);
	rc = rc ? rc : parse_range(sky_tokens_rows(c.set), &from, &to, err);
	for (int64_t i = from; !rc && i < to; i++) {
		rc = cat_row(&c, i, err);
	}
	sky_tokens_close(c.set);
	pretok_text_close(&c.text);
	free(c.ids);
	sky_buf_release(&c.out);
	sky_buf_release(&c.word);
	return rc;
}
