/* Rows to samples: which schema, and what all schemas share. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "corpus/rows_int.h"

static const struct {
	enum sky_schema schema;
	const char *name;
	int (*sample)(struct sky_rows *r);
} schemas[] = {
	{ SKY_SCHEMA_AUTO, "auto", NULL },
	{ SKY_SCHEMA_TEXT, "text", rows_text },
	{ SKY_SCHEMA_MESSAGES, "messages", rows_messages },
	{ SKY_SCHEMA_SHAREGPT, "sharegpt", rows_sharegpt },
	{ SKY_SCHEMA_ALPACA, "alpaca", rows_alpaca },
	{ SKY_SCHEMA_PROMPT_COMPLETION, "prompt-completion", rows_prompt_completion },
	{ SKY_SCHEMA_SEGMENTS, "segments", rows_segments },
	{ SKY_SCHEMA_TOKENS, "tokens", rows_tokens },
};

#define N_SCHEMA (sizeof schemas / sizeof *schemas)

int sky_schema_parse(const char *name, enum sky_schema *s_p, struct sky_err *err)
{
	for (size_t i = 0; i < N_SCHEMA; i++) {
		if (!strcmp(name, schemas[i].name)) {
			*s_p = schemas[i].schema;
			return 0;
		}
	}
	return sky_fail(err, SKY_E_USAGE, "unknown schema \"%s\": auto, text, messages, sharegpt, alpaca, prompt-completion, "
			"segments, tokens", name);
}

const char *sky_schema_name(enum sky_schema s)
{
	return schemas[s].name;
}

const char *sky_reason_name(enum sky_reason r)
{
	static const char *const name[SKY_ROW_REASONS] = {
		"ok", "blank", "empty", "bad_json", "bad_utf8", "bad_schema", "id_range", "template_error",
		"no_trained_tokens", "too_long", "lost_content", "duplicate",
	};

	return name[r];
}

int row_bad(struct sky_rows *r, enum sky_reason why, const char *fmt, ...)
{
	char msg[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof msg, fmt, ap);
	va_end(ap);
	r->reason = why;
	return sky_fail(r->err, SKY_E_DATA, "%s", msg);
}

const struct sky_jval *row_get(struct sky_rows *r, const char *key)
{
	const struct sky_jval *v = NULL;

	for (const char *const *m = r->opt.map; m && m[0] && m[1]; m += 2) {
		if (!strcmp(m[1], key)) {
			v = sky_jval_get(&r->doc, r->root, m[0]);
			if (v) {
				break;
			}
		}
	}
	v = v ? v : sky_jval_get(&r->doc, r->root, key);
	return v && v->tag != SKY_JT_NULL ? v : NULL;
}

/* The UTF-8 policy on bytes. */
static int text_policy(struct sky_rows *r, const char *what, const char **p_p, size_t *n_p)
{
	size_t ok = sky_utf8_valid(*p_p, *n_p), at;
	int rc;

	if (ok == *n_p) {
		return 0;
	}
	if (r->opt.utf8 != SKY_UTF8_REPLACE) {
		return row_bad(r, SKY_ROW_BAD_UTF8, "%s: %s at byte %zu of the text (--invalid-utf8 replace or skip)", what,
			       (unsigned char)(*p_p)[ok] == 0xff ? "lone surrogate or invalid byte 0xff" :
					"invalid UTF-8", ok);
	}
	/* The buffer must not move under texts taken before: every row reserves three bytes for each of its bytes. */
	at = r->fixed.n;
	rc = sky_utf8_replace(*p_p, *n_p, &r->fixed, r->err);
	*p_p = r->fixed.ptr + at;
	*n_p = r->fixed.n - at;
	return rc;
}

int row_text(struct sky_rows *r, const struct sky_jval *v, const char *what, const char **p_p, size_t *n_p)
{
	if (v->tag != SKY_JT_STRING) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" is no string", what);
	}
	*p_p = v->str;
	*n_p = v->n_str;
	return text_policy(r, what, p_p, n_p);
}

int row_piece(struct sky_rows *r, const char *p, size_t n, int trained)
{
	struct sky_sample *s = &r->s;

	if (s->n_piece == r->cap_piece) {
		int64_t cap = r->cap_piece ? 2 * r->cap_piece : 16;
		struct sky_piece *q = sky_realloc_array(s->piece, (size_t)cap, sizeof *q);

		if (!q) {
			return sky_fail_mem(r->err, "a row of %lld texts", (long long)s->n_piece);
		}
		s->piece = q;
		r->cap_piece = cap;
	}
	s->piece[s->n_piece++] = (struct sky_piece){ p, n, trained };
	return 0;
}

int row_message(struct sky_rows *r, unsigned holds)
{
	struct sky_sample *s = &r->s;

	if (s->n_message == r->cap_message) {
		int64_t cap = r->cap_message ? 2 * r->cap_message : 64;
		uint8_t *q = sky_realloc_array(s->holds, (size_t)cap, 1);

		if (!q) {
			return sky_fail_mem(r->err, "a row of %lld messages", (long long)s->n_message);
		}
		s->holds = q;
		r->cap_message = cap;
	}
	s->holds[s->n_message++] = (uint8_t)holds;
	return 0;
}

int sky_rows_new(const struct sky_rows_opt *opt, struct sky_rows **r_p, struct sky_err *err)
{
	struct sky_rows *r = calloc(1, sizeof *r);

	if (!r) {
		return sky_fail_mem(err, "reading rows");
	}
	r->opt = *opt;
	r->opt.text_key = opt->text_key ? opt->text_key : "text";
	r->opt.messages_key = opt->messages_key ? opt->messages_key : "messages";
	r->opt.tools_key = opt->tools_key ? opt->tools_key : "tools";
	r->opt.system_key = opt->system_key ? opt->system_key : "system";
	sky_buf_init(&r->fixed, SIZE_MAX);
	sky_buf_init(&r->join, SIZE_MAX);
	sky_buf_init(&r->s.messages, SIZE_MAX);
	sky_buf_init(&r->s.tools, SIZE_MAX);
	sky_buf_init(&r->s.args, SIZE_MAX);
	*r_p = r;
	return 0;
}

void sky_rows_free(struct sky_rows *r)
{
	if (r) {
		sky_jdoc_release(&r->doc);
		sky_jdoc_release(&r->inner);
		sky_buf_release(&r->fixed);
		sky_buf_release(&r->join);
		sky_buf_release(&r->s.messages);
		sky_buf_release(&r->s.tools);
		sky_buf_release(&r->s.args);
		free(r->s.piece);
		free(r->s.holds);
		free(r->s.ids);
		free(r->s.mask);
		free(r);
	}
}

void sky_rows_set_schema(struct sky_rows *r, enum sky_schema s)
{
	r->opt.schema = s;
}

static enum sky_schema detect(struct sky_rows *r)
{
	const struct sky_jval *v;

	if (row_get(r, "input_ids") || row_get(r, "prompt_token_ids")) {
		return SKY_SCHEMA_TOKENS;
	}
	if (row_get(r, r->opt.messages_key)) {
		return SKY_SCHEMA_MESSAGES;
	}
	if (row_get(r, "conversations")) {
		return SKY_SCHEMA_SHAREGPT;
	}
	if (row_get(r, "segments")) {
		return SKY_SCHEMA_SEGMENTS;
	}
	if (row_get(r, "instruction") && row_get(r, "output")) {
		return SKY_SCHEMA_ALPACA;
	}
	v = row_get(r, "chosen");
	if (v || (row_get(r, "prompt") && row_get(r, "completion"))) {
		return SKY_SCHEMA_PROMPT_COMPLETION;
	}
	return row_get(r, r->opt.text_key) ? SKY_SCHEMA_TEXT : SKY_SCHEMA_AUTO;
}

enum sky_schema sky_rows_detect(struct sky_rows *r, const char *p, size_t n)
{
	if (sky_jdoc_parse(&r->doc, p, n, NULL) || r->doc.val[0].tag != SKY_JT_OBJECT) {
		return SKY_SCHEMA_AUTO;
	}
	r->root = &r->doc.val[0];
	return detect(r);
}

static bool is_blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r' && p[i] != '\n') {
			return false;
		}
	}
	return true;
}

static int plain_row(struct sky_rows *r, const char *p, size_t n)
{
	int rc = text_policy(r, "text", &p, &n);

	r->s.schema = SKY_SCHEMA_TEXT;
	if (!rc && !n) {
		return row_bad(r, SKY_ROW_EMPTY, "no text");
	}
	return rc ? rc : row_piece(r, p, n, 1);
}

static int json_row(struct sky_rows *r, const char *p, size_t n)
{
	enum sky_schema schema = r->opt.schema;
	int rc = sky_jdoc_parse(&r->doc, p, n, r->err);

	if (rc == SKY_E_DATA) {
		r->reason = SKY_ROW_BAD_JSON;
		if (n >= 2 && (!memcmp(p, "\xff\xfe", 2) || !memcmp(p, "\xfe\xff", 2))) {
			return row_bad(r, SKY_ROW_BAD_JSON, "byte 0: UTF-16, UTF-8 is expected (iconv -f UTF-16 -t UTF-8)");
		}
	}
	if (rc < 0) {
		return rc;
	}
	r->root = &r->doc.val[0];
	if (r->root->tag != SKY_JT_OBJECT) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "the row is no JSON object");
	}
	if (schema == SKY_SCHEMA_AUTO) {
		schema = detect(r);
	}
	if (schema == SKY_SCHEMA_AUTO) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA,
				"no known columns (text, messages, conversations, instruction and output, "
			       "prompt and completion, segments, input_ids); name them with --schema, --text-key or --map");
	}
	r->s.schema = schema;
	return schemas[schema].sample(r);
}

int sky_rows_sample(struct sky_rows *r, enum sky_block_kind kind, const char *p, size_t n, const struct sky_sample **s_p,
                    enum sky_reason *reason_p, struct sky_err *err)
{
	struct sky_err local;
	int rc = 0;

	r->err = err ? err : &local;
	r->reason = SKY_ROW_OK;
	r->s.kind = SKY_SAMPLE_PIECES;
	r->s.n_piece = r->s.n_message = r->s.n_completion = r->s.n_ids = 0;
	sky_buf_clear(&r->fixed);
	sky_buf_clear(&r->join);
	sky_buf_clear(&r->s.messages);
	sky_buf_clear(&r->s.tools);
	sky_buf_clear(&r->s.args);
	if (r->opt.utf8 == SKY_UTF8_REPLACE) {
		rc = sky_buf_reserve(&r->fixed, 3 * n + 64, r->err);
	}
	if (!rc && kind != SKY_BLOCK_DOC && is_blank(p, n)) {
		*reason_p = kind == SKY_BLOCK_LINES ? SKY_ROW_EMPTY : SKY_ROW_BLANK;
		return 0;
	}
	if (!rc) {
		rc = kind == SKY_BLOCK_JSON ? json_row(r, p, n) : plain_row(r, p, n);
	}
	if (rc == SKY_E_DATA && r->reason != SKY_ROW_OK) {
		*reason_p = r->reason;
		return 0;
	}
	if (rc < 0) {
		return rc;
	}
	*reason_p = SKY_ROW_OK;
	*s_p = &r->s;
	return 0;
}
