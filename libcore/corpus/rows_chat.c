/* Conversations: OpenAI messages, ShareGPT and Alpaca rows to one normal form, a JSON array of
 * {"role","content","tool_calls":[{"id","type","function":{"name","arguments"}}],…}, other keys passed through. */
#include <string.h>

#include "corpus/rows_int.h"

int row_json(struct sky_rows *r, const struct sky_jdoc *doc, const struct sky_jval *v, struct sky_jw *w)
{
	const char *p;
	size_t n;
	int rc = 0;

	switch (v->tag) {
	case SKY_JT_STRING:
		rc = row_text(r, v, "a text", &p, &n);
		if (!rc) {
			sky_jw_strn(w, p, n);
		}
		return rc;
	case SKY_JT_ARRAY:
		sky_jw_arr(w);
		for (const struct sky_jval *c = sky_jval_first(doc, v); !rc && c; c = sky_jval_next(doc, v, c)) {
			rc = row_json(r, doc, c, w);
		}
		if (!rc) {
			sky_jw_close_arr(w);
		}
		return rc;
	case SKY_JT_OBJECT:
		sky_jw_obj(w);
		for (const struct sky_jval *c = sky_jval_first(doc, v); !rc && c; c = sky_jval_next(doc, v, c)) {
			if (memchr(c->key, '\0', c->n_key) || sky_utf8_valid(c->key, c->n_key) != c->n_key) {
				return row_bad(r, SKY_ROW_BAD_UTF8, "a key is not valid UTF-8 or holds NUL");
			}
			rc = sky_buf_add(&r->join, c->key, c->n_key, r->err);
			rc = rc ? rc : sky_buf_addc(&r->join, '\0', r->err);
			if (!rc) {
				sky_jw_key(w, r->join.ptr + r->join.n - c->n_key - 1);
				r->join.n -= c->n_key + 1;
				rc = row_json(r, doc, c, w);
			}
		}
		if (!rc) {
			sky_jw_close_obj(w);
		}
		return rc;
	default:
		sky_jw_raw(w, v->str, v->n_str);
		return 0;
	}
}

static bool str_is(const struct sky_jval *v, const char *s)
{
	return v && v->tag == SKY_JT_STRING && v->n_str == strlen(s) && !memcmp(v->str, s, v->n_str);
}

static bool key_is(const struct sky_jval *v, const char *s)
{
	return v->n_key == strlen(s) && !memcmp(v->key, s, v->n_key);
}

int chat_begin(struct chat *c, struct sky_rows *r)
{
	r->s.kind = SKY_SAMPLE_CHAT;
	c->r = r;
	sky_jw_init(&c->w, &r->s.messages, r->err);
	sky_jw_arr(&c->w);
	return 0;
}

int chat_plain(struct chat *c, const char *role, const char *text, size_t n)
{
	sky_jw_obj(&c->w);
	sky_jw_kstr(&c->w, "role", role);
	sky_jw_key(&c->w, "content");
	sky_jw_strn(&c->w, text, n);
	sky_jw_close_obj(&c->w);
	return row_message(c->r, n ? SKY_HOLDS_CONTENT : 0);
}

/* Normal name of a role; NULL for an unknown one. *call_p: the message is a ShareGPT tool call. */
static const char *normal_role(const struct sky_rows *r, const struct sky_jval *v, int *call_p)
{
	static const char *const same[] = { "system", "user", "assistant", "tool", "developer" };
	static const char *const pairs[][2] = {
		{ "human", "user" }, { "gpt", "assistant" }, { "chatgpt", "assistant" }, { "bing", "assistant" },
		{ "bard", "assistant" }, { "model", "assistant" }, { "function", "tool" }, { "observation", "tool" },
	};

	*call_p = str_is(v, "function_call");
	for (const char *const *m = r->opt.role; m && m[0] && m[1]; m += 2) {
		if (str_is(v, m[0])) {
			return m[1];
		}
	}
	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		if (str_is(v, same[i])) {
			return same[i];
		}
	}
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		if (str_is(v, pairs[i][0])) {
			return pairs[i][1];
		}
	}
	return *call_p ? "assistant" : NULL;
}

/* String, null, or a list of text parts, as one string. */
static int put_content(struct chat *c, const struct sky_jval *v)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *text, *type;
	const char *p;
	size_t n;
	int rc = 0;

	if (!v || v->tag == SKY_JT_NULL) {
		sky_jw_str(&c->w, "");
		return 0;
	}
	if (v->tag == SKY_JT_STRING) {
		rc = row_text(r, v, "content", &p, &n);
		if (!rc) {
			sky_jw_strn(&c->w, p, n);
		}
		return rc;
	}
	if (v->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"content\" is neither text nor a list of parts");
	}
	sky_buf_clear(&r->join);
	for (const struct sky_jval *e = sky_jval_first(&r->doc, v); !rc && e; e = sky_jval_next(&r->doc, v, e)) {
		text = e->tag == SKY_JT_STRING ? e : sky_jval_get(&r->doc, e, "text");
		type = sky_jval_get(&r->doc, e, "type");
		if (!text || (type && type->tag != SKY_JT_NULL && !str_is(type, "text"))) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA,
					"a part of \"content\" is no text; images and sound are not supported");
		}
		rc = row_text(r, text, "content", &p, &n);
		rc = rc ? rc : sky_buf_add(&r->join, p, n, r->err);
	}
	if (!rc) {
		sky_jw_strn(&c->w, r->join.ptr ? r->join.ptr : "", r->join.n);
	}
	return rc;
}

/* arguments: an object, or a string that holds one. */
static int put_arguments(struct chat *c, const struct sky_jdoc *doc, const struct sky_jval *v)
{
	struct sky_rows *r = c->r;
	struct sky_jdoc args = { 0 };
	struct sky_buf text = SKY_BUF_INIT(SIZE_MAX);
	struct sky_jw w;
	int rc;

	if (v && v->tag == SKY_JT_STRING && !r->opt.arguments_as_text &&
	    !sky_jdoc_parse(&args, v->str, v->n_str, NULL) && args.val[0].tag == SKY_JT_OBJECT) {
		rc = row_json(r, &args, &args.val[0], &c->w);
	} else if (v && v->tag != SKY_JT_STRING && v->tag != SKY_JT_NULL && r->opt.arguments_as_text) {
		sky_jw_init(&w, &text, r->err);
		w.spaced = true;
		rc = row_json(r, doc, v, &w);
		rc = rc ? rc : sky_jw_end(&w);
		if (!rc) {
			sky_jw_strn(&c->w, text.ptr, text.n);
		}
	} else if (v) {
		rc = row_json(r, doc, v, &c->w);
	} else {
		sky_jw_raw(&c->w, "{}", 2);
		rc = 0;
	}
	sky_jdoc_release(&args);
	sky_buf_release(&text);
	return rc;
}

/* One call: {"function":{"name","arguments"},…} or {"name","arguments",…}. */
static int put_call(struct chat *c, const struct sky_jdoc *doc, const struct sky_jval *v)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *id = sky_jval_get(doc, v, "id"), *f = sky_jval_get(doc, v, "function"), *name;
	int rc = 0;

	f = f ? f : v;
	name = sky_jval_get(doc, f, "name");
	if (!name || name->tag != SKY_JT_STRING) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "a tool call without a name");
	}
	sky_jw_obj(&c->w);
	if (id && id->tag == SKY_JT_STRING) {
		sky_jw_key(&c->w, "id");
		rc = row_json(r, doc, id, &c->w);
	}
	if (!rc) {
		sky_jw_kstr(&c->w, "type", "function");
		sky_jw_key(&c->w, "function");
		sky_jw_obj(&c->w);
		sky_jw_key(&c->w, "name");
		rc = row_json(r, doc, name, &c->w);
	}
	if (!rc) {
		sky_jw_key(&c->w, "arguments");
		rc = put_arguments(c, doc, sky_jval_get(doc, f, "arguments"));
	}
	if (!rc) {      /* a writer must not go on behind a key without a value */
		sky_jw_close_obj(&c->w);
		sky_jw_close_obj(&c->w);
	}
	return rc;
}

/* tool_calls as a list, one object, or a string with either. */
static int put_calls(struct chat *c, const struct sky_jdoc *doc, const struct sky_jval *v)
{
	struct sky_rows *r = c->r;
	int rc = 0;

	if (v->tag == SKY_JT_STRING && doc == &r->doc) {
		if (sky_jdoc_parse(&r->inner, v->str, v->n_str, NULL)) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "a tool call is a string that is no JSON");
		}
		return put_calls(c, &r->inner, &r->inner.val[0]);
	}
	sky_jw_arr(&c->w);
	if (v->tag == SKY_JT_OBJECT) {
		rc = put_call(c, doc, v);
	} else if (v->tag == SKY_JT_ARRAY) {
		for (const struct sky_jval *e = sky_jval_first(doc, v); !rc && e; e = sky_jval_next(doc, v, e)) {
			rc = put_call(c, doc, e);
		}
	} else {
		rc = row_bad(r, SKY_ROW_BAD_SCHEMA, "\"tool_calls\" is neither a list nor an object");
	}
	if (!rc) {
		sky_jw_close_arr(&c->w);
	}
	return rc;
}

static bool has_text(const struct sky_jdoc *d, const struct sky_jval *v)
{
	if (!v) {
		return false;
	}
	if (v->tag == SKY_JT_ARRAY) {
		for (const struct sky_jval *e = sky_jval_first(d, v); e; e = sky_jval_next(d, v, e)) {
			if (has_text(d, e->tag == SKY_JT_OBJECT ? sky_jval_get(d, e, "text") : e)) {
				return true;
			}
		}
		return false;
	}
	for (uint32_t i = 0; v->tag == SKY_JT_STRING && i < v->n_str; i++) {
		if (!memchr(" \t\r\n", v->str[i], 4)) {
			return true;
		}
	}
	return false;
}

/* What a template should print of a message. */
static unsigned holds(const struct sky_jdoc *d, const struct sky_jval *m, const struct sky_jval *content, bool calls)
{
	static const char *const keys[] = { "reasoning_content", "reasoning", "thinking" };
	unsigned h = (calls ? SKY_HOLDS_CALLS : 0) | (has_text(d, content) ? SKY_HOLDS_CONTENT : 0);

	for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
		h |= has_text(d, sky_jval_get(d, m, keys[k])) ? SKY_HOLDS_REASONING : 0;
	}
	return h;
}

static int put_rest(struct chat *c, const struct sky_jval *m)
{
	static const char *const done[] = { "role", "from", "content", "value", "tool_calls", "function_call" };
	struct sky_rows *r = c->r;
	int rc = 0;

	for (const struct sky_jval *e = sky_jval_first(&r->doc, m); !rc && e; e = sky_jval_next(&r->doc, m, e)) {
		size_t i = 0;

		while (i < sizeof done / sizeof *done && !key_is(e, done[i])) {
			i++;
		}
		if (i < sizeof done / sizeof *done || e->tag == SKY_JT_NULL || memchr(e->key, '\0', e->n_key) ||
		    sky_utf8_valid(e->key, e->n_key) != e->n_key) {
			continue;
		}
		sky_buf_clear(&r->join);
		rc = sky_buf_add(&r->join, e->key, e->n_key, r->err);
		if (!rc) {
			sky_jw_key(&c->w, r->join.ptr ? r->join.ptr : "");
			rc = row_json(r, &r->doc, e, &c->w);
		}
	}
	return rc;
}

static int put_message(struct chat *c, const struct sky_jval *m, const char *column)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *role = sky_jval_get(&r->doc, m, "role"), *content, *calls;
	const char *name;
	bool has_calls;
	int rc, is_call;

	role = role ? role : sky_jval_get(&r->doc, m, "from");
	if (!role || role->tag != SKY_JT_STRING) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "message %lld of \"%s\" has no role", (long long)r->s.n_message,
				column);
	}
	name = normal_role(r, role, &is_call);
	if (!name) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "message %lld of \"%s\" has the unknown role \"%.*s\" (--role FROM=TO)",
			       (long long)r->s.n_message, column, (int)(role->n_str < 40 ? role->n_str : 40), role->str);
	}
	content = sky_jval_get(&r->doc, m, "content");
	content = content ? content : sky_jval_get(&r->doc, m, "value");
	calls = is_call ? content : sky_jval_get(&r->doc, m, "tool_calls");
	calls = calls && calls->tag != SKY_JT_NULL ? calls : sky_jval_get(&r->doc, m, "function_call");
	sky_jw_obj(&c->w);
	sky_jw_kstr(&c->w, "role", name);
	sky_jw_key(&c->w, "content");
	rc = put_content(c, is_call ? NULL : content);
	has_calls = calls && calls->tag != SKY_JT_NULL && !strcmp(name, "assistant") &&
		    (calls->tag != SKY_JT_ARRAY || calls->n_child);
	if (!rc && has_calls) {
		sky_jw_key(&c->w, "tool_calls");
		rc = put_calls(c, &r->doc, calls);
	}
	rc = rc ? rc : put_rest(c, m);
	if (!rc) {
		sky_jw_close_obj(&c->w);
		rc = row_message(r, holds(&r->doc, m, is_call ? NULL : content, has_calls));
	}
	return rc;
}

int chat_list(struct chat *c, const struct sky_jval *list, const char *column)
{
	struct sky_rows *r = c->r;
	int rc = 0;

	if (list->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" is no list of messages", column);
	}
	for (const struct sky_jval *e = sky_jval_first(&r->doc, list); !rc && e; e = sky_jval_next(&r->doc, list, e)) {
		rc = put_message(c, e, column);
	}
	return rc;
}

int chat_system(struct chat *c, const struct sky_jval *first_role)
{
	struct sky_rows *r = c->r;
	const struct sky_jval *v = row_get(r, r->opt.system_key);
	const char *p;
	size_t n;
	int rc;

	if (!v || str_is(first_role, "system") || (v->tag == SKY_JT_STRING && !v->n_str)) {
		return 0;
	}
	rc = row_text(r, v, r->opt.system_key, &p, &n);
	return rc ? rc : chat_plain(c, "system", p, n);
}

/* The tools column: a list, or a string with one; empty is none. */
static int put_tools(struct sky_rows *r)
{
	const struct sky_jval *v = row_get(r, r->opt.tools_key);
	const struct sky_jdoc *d = &r->doc;
	struct sky_jw w;
	int rc;

	if (v && v->tag == SKY_JT_STRING) {
		if (!v->n_str) {
			return 0;
		}
		if (sky_jdoc_parse(&r->inner, v->str, v->n_str, NULL)) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" is a string that is no JSON", r->opt.tools_key);
		}
		d = &r->inner;
		v = &r->inner.val[0];
	}
	if (!v || v->tag == SKY_JT_NULL || (v->tag == SKY_JT_ARRAY && !v->n_child)) {
		return 0;
	}
	if (v->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" is no list", r->opt.tools_key);
	}
	sky_jw_init(&w, &r->s.tools, r->err);
	rc = row_json(r, d, v, &w);
	return rc ? rc : sky_jw_end(&w);
}

/* Per-row template arguments, as transformers reads them. */
static int put_args(struct sky_rows *r)
{
	const struct sky_jval *v = row_get(r, "chat_template_kwargs");
	struct sky_jw w;
	int rc;

	if (!v || v->tag != SKY_JT_OBJECT) {
		return 0;
	}
	sky_jw_init(&w, &r->s.args, r->err);
	rc = row_json(r, &r->doc, v, &w);
	return rc ? rc : sky_jw_end(&w);
}

int chat_end(struct chat *c)
{
	struct sky_rows *r = c->r;
	int rc;

	sky_jw_close_arr(&c->w);
	rc = sky_jw_end(&c->w);
	if (!rc && !r->s.n_message) {
		return row_bad(r, SKY_ROW_EMPTY, "no messages");
	}
	rc = rc ? rc : put_tools(r);
	return rc ? rc : put_args(r);
}

static int conversation(struct sky_rows *r, const char *column)
{
	const struct sky_jval *list = row_get(r, column), *first;
	struct chat c;
	int rc;

	if (!list) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"%s\"", column);
	}
	first = list->tag == SKY_JT_ARRAY ? sky_jval_first(&r->doc, list) : NULL;
	rc = chat_begin(&c, r);
	if (!rc && first) {
		const struct sky_jval *role = sky_jval_get(&r->doc, first, "role");

		rc = chat_system(&c, role ? role : sky_jval_get(&r->doc, first, "from"));
	}
	rc = rc ? rc : chat_list(&c, list, column);
	return rc ? rc : chat_end(&c);
}

int rows_messages(struct sky_rows *r)
{
	return conversation(r, r->opt.messages_key);
}

int rows_sharegpt(struct sky_rows *r)
{
	return conversation(r, row_get(r, "conversations") ? "conversations" : r->opt.messages_key);
}
