/* Alpaca rows: instruction, input, output, with system and history, joined as SkyRL joins them. */
#include <ctype.h>
#include <string.h>

#include "corpus/rows_int.h"

/* Python's str.strip for ASCII white space. */
static void strip(const char **p, size_t *n)
{
	while (*n && strchr(" \t\n\v\f\r\x1c\x1d\x1e\x1f", **p) && **p) {
		++*p;
		--*n;
	}
	while (*n && (*p)[*n - 1] && strchr(" \t\n\v\f\r\x1c\x1d\x1e\x1f", (*p)[*n - 1])) {
		--*n;
	}
}

/* Instruction, a blank line, input; without input the instruction alone; stripped. */
static int put_user(struct chat *c)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *ins = row_get(r, "instruction"), *in = row_get(r, "input");
	const char *p;
	size_t n;
	int rc;

	if (!ins) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"instruction\"");
	}
	sky_buf_clear(&r->join);
	rc = row_text(r, ins, "instruction", &p, &n);
	rc = rc ? rc : sky_buf_add(&r->join, p, n, r->err);
	if (!rc && in) {
		rc = row_text(r, in, "input", &p, &n);
		if (!rc && n) {
			rc = sky_buf_add(&r->join, "\n\n", 2, r->err);
			rc = rc ? rc : sky_buf_add(&r->join, p, n, r->err);
		}
	}
	if (rc < 0) {
		return rc;
	}
	p = r->join.ptr ? r->join.ptr : "";
	n = r->join.n;
	strip(&p, &n);
	return chat_plain(c, "user", p, n);
}

static int put_history(struct chat *c)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *list = row_get(r, "history"), *a, *b;
	const char *p;
	size_t n;
	int rc = 0;

	if (!list) {
		return 0;
	}
	if (list->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"history\" is no list");
	}
	for (const struct sky_jval *e = sky_jval_first(&r->doc, list); !rc && e; e = sky_jval_next(&r->doc, list, e)) {
		a = e->tag == SKY_JT_ARRAY && e->n_child == 2 ? sky_jval_first(&r->doc, e) : NULL;
		b = a ? sky_jval_next(&r->doc, e, a) : NULL;
		if (!b) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA,
					"\"history\" holds something else than [user, assistant] pairs");
		}
		rc = row_text(r, a, "history", &p, &n);
		rc = rc ? rc : chat_plain(c, "user", p, n);
		rc = rc ? rc : row_text(r, b, "history", &p, &n);
		rc = rc ? rc : chat_plain(c, "assistant", p, n);
	}
	return rc;
}

int rows_alpaca(struct sky_rows *r)
{
	const struct sky_jval *out = row_get(r, "output");
	struct chat c;
	const char *p;
	size_t n;
	int rc;

	if (!out) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"output\"");
	}
	rc = chat_begin(&c, r);
	rc = rc ? rc : chat_system(&c, NULL);
	rc = rc ? rc : put_history(&c);
	rc = rc ? rc : put_user(&c);
	rc = rc ? rc : row_text(r, out, "output", &p, &n);
	rc = rc ? rc : chat_plain(&c, "assistant", p, n);
	r->s.n_completion = rc ? 0 : 1;
	return rc ? rc : chat_end(&c);
}
