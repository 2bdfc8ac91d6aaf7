/* Schemas without a template: text, prompt and completion, segments. */
#include <string.h>

#include "corpus/rows_int.h"

/* A string, or a list of strings that are encoded one by one. */
int rows_text(struct sky_rows *r)
{
	const struct sky_jval *v = row_get(r, r->opt.text_key);
	const char *p;
	size_t n, sum = 0;
	int rc = 0;

	if (!v) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"%s\" (--text-key)", r->opt.text_key);
	}
	if (v->tag != SKY_JT_ARRAY) {
		rc = row_text(r, v, r->opt.text_key, &p, &n);
		if (!rc && !n) {
			return row_bad(r, SKY_ROW_EMPTY, "\"%s\" is empty", r->opt.text_key);
		}
		return rc ? rc : row_piece(r, p, n, 1);
	}
	for (const struct sky_jval *c = sky_jval_first(&r->doc, v); !rc && c; c = sky_jval_next(&r->doc, v, c)) {
		rc = row_text(r, c, r->opt.text_key, &p, &n);
		rc = rc ? rc : row_piece(r, p, n, 1);
		sum += rc ? 0 : n;
	}
	return !rc && !sum ? row_bad(r, SKY_ROW_EMPTY, "\"%s\" is empty", r->opt.text_key) : rc;
}

/* Prompt and completion as strings, as message lists, or as the chosen side of a preference row. */
int rows_prompt_completion(struct sky_rows *r)
{
	const struct sky_jval *prompt = row_get(r, "prompt"), *done = row_get(r, "completion");
	const char *column = done ? "completion" : "chosen", *p;
	struct chat c;
	int64_t n_prompt;
	size_t n;
	int rc;

	done = done ? done : row_get(r, "chosen");
	if (!done) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"completion\" (or \"chosen\")");
	}
	if (done->tag == SKY_JT_ARRAY) {
		rc = chat_begin(&c, r);
		if (!rc && prompt && prompt->tag == SKY_JT_STRING) {
			rc = row_text(r, prompt, "prompt", &p, &n);
			rc = rc ? rc : chat_plain(&c, "user", p, n);
		} else if (!rc && prompt) {
			rc = chat_list(&c, prompt, "prompt");
		}
		n_prompt = r->s.n_message;
		rc = rc ? rc : chat_list(&c, done, column);
		r->s.n_completion = prompt ? r->s.n_message - n_prompt : 0;
		return rc ? rc : chat_end(&c);
	}
	rc = 0;
	if (prompt) {
		rc = row_text(r, prompt, "prompt", &p, &n);
		rc = rc ? rc : row_piece(r, p, n, 0);
	}
	rc = rc ? rc : row_text(r, done, column, &p, &n);
	rc = rc ? rc : row_piece(r, p, n, 1);
	return rc;
}

/* Template-free texts with a label each: the caller controls every byte. */
int rows_segments(struct sky_rows *r)
{
	const struct sky_jval *v = row_get(r, "segments"), *text, *label;
	const char *p;
	size_t n, sum = 0;
	int rc = 0;

	if (!v || v->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"segments\" is no list");
	}
	for (const struct sky_jval *c = sky_jval_first(&r->doc, v); !rc && c; c = sky_jval_next(&r->doc, v, c)) {
		text = sky_jval_get(&r->doc, c, "text");
		label = sky_jval_get(&r->doc, c, "label");
		if (!text || !label || (label->tag != SKY_JT_TRUE && label->tag != SKY_JT_FALSE)) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "a segment needs \"text\" and \"label\" (true or false)");
		}
		rc = row_text(r, text, "segments.text", &p, &n);
		rc = rc ? rc : row_piece(r, p, n, label->tag == SKY_JT_TRUE);
		sum += rc ? 0 : n;
	}
	return !rc && !sum ? row_bad(r, SKY_ROW_EMPTY, "\"segments\" hold no text") : rc;
}
