/* Rows of every schema against the golden normal forms: OpenAI messages, ShareGPT, Alpaca, preference rows, prompt and completion,
 * segments, ready ids, texts; ids and masks that must be refused. */
#include "corpus/rows_int.h"
#include "tests/testlib.h"

static struct sky_err err;
static struct sky_rows *rows;

/* Calls of the truth are flat, ours are OpenAI's: {"type","function":{…}}. Absent and the same content otherwise. */
static bool same(const struct sky_jnode *a, const struct sky_jnode *b)
{
	const struct sky_jnode *f = sky_j_get(a, "function"), *x, *y;

	if (sky_j_type(a) == SKY_J_OBJECT && f && sky_j_get(a, "type") && !sky_j_get(b, "function")) {
		for (y = sky_j_first(b); y; y = sky_j_next(y)) {
			x = sky_j_get(a, sky_j_key(y));
			if (!same(x ? x : sky_j_get(f, sky_j_key(y)), y)) {
				return false;
			}
		}
		return true;
	}
	if (sky_j_type(a) != sky_j_type(b) || sky_j_len(a) != sky_j_len(b)) {
		return false;
	}
	switch (sky_j_type(a)) {
	case SKY_J_STRING:
		return !strcmp(sky_j_str(a), sky_j_str(b));
	case SKY_J_NUMBER:
		return !strcmp(sky_j_raw(a), sky_j_raw(b));
	case SKY_J_ARRAY:
		for (x = sky_j_first(a), y = sky_j_first(b); x && y; x = sky_j_next(x), y = sky_j_next(y)) {
			if (!same(x, y)) {
				return false;
			}
		}
		return true;
	case SKY_J_OBJECT:
		for (y = sky_j_first(b); y; y = sky_j_next(y)) {
			if (!same(sky_j_get(a, sky_j_key(y)), y)) {
				return false;
			}
		}
		return true;
	default:
		return true;
	}
}

static bool same_text(const struct sky_buf *have, const struct sky_jnode *want)
{
	struct sky_json *doc = NULL;
	bool ok;

	if (!have->n) {
		return !want;
	}
	if (sky_json_parse(have->ptr, have->n, "row", 0, &doc, &err)) {
		return false;
	}
	ok = same(sky_json_root(doc), want);
	sky_json_free(doc);
	return ok;
}

static bool piece_is(const struct sky_piece *p, const struct sky_jnode *want)
{
	const char *s = sky_j_str(want);

	return s && strlen(s) == p->n && !memcmp(s, p->p, p->n);
}

static bool same_list(const struct sky_jnode *list, const int32_t *ids, const uint8_t *mask, int64_t n)
{
	int64_t i = 0, v;

	for (const struct sky_jnode *e = sky_j_first(list); e; e = sky_j_next(e), i++) {
		if (i >= n || !sky_j_i64(e, &v) || v != (ids ? ids[i] : mask[i])) {
			return false;
		}
	}
	return i == n;
}

static bool same_sample(const struct sky_sample *s, const struct sky_jnode *want)
{
	const struct sky_jnode *v;

	if (sky_j_get(want, "messages")) {
		return s->kind == SKY_SAMPLE_CHAT && same_text(&s->messages, sky_j_get(want, "messages")) &&
		       same_text(&s->tools, sky_j_get(want, "tools"));
	}
	if (sky_j_get(want, "ids")) {
		return s->kind == SKY_SAMPLE_TOKENS && same_list(sky_j_get(want, "ids"), s->ids, NULL, s->n_ids) &&
		       same_list(sky_j_get(want, "mask"), NULL, s->mask, s->n_ids);
	}
	v = sky_j_get(want, "prompt");
	if (v && sky_j_type(v) == SKY_J_STRING) {
		return s->n_piece == 2 && piece_is(&s->piece[0], v) && piece_is(&s->piece[1], sky_j_get(want,
				"completion")) &&
		       !s->piece[0].trained && s->piece[1].trained;
	}
	if (v) {
		return s->kind == SKY_SAMPLE_CHAT && s->n_completion == (int64_t)sky_j_len(sky_j_get(want, "completion"));
	}
	v = sky_j_get(want, "segments");
	v = v ? v : sky_j_get(want, "parts");
	for (int64_t i = 0; i < s->n_piece; i++) {
		const struct sky_jnode *e = sky_j_at(v, (size_t)i);
		bool label = true;

		if (sky_j_type(e) == SKY_J_OBJECT) {
			(void)!sky_j_bool(sky_j_get(e, "label"), &label);
			e = sky_j_get(e, "text");
		}
		if (!piece_is(&s->piece[i], e) || s->piece[i].trained != label) {
			return false;
		}
	}
	return s->n_piece == (int64_t)sky_j_len(v);
}

static bool judge(const char *row, size_t n_row, const struct sky_jnode *want)
{
	const struct sky_sample *s = NULL;
	const char *reason = sky_j_str(sky_j_get(want, "reason"));
	const struct sky_jnode *segments = sky_j_get(want, "segments");
	enum sky_reason why;

	reason = reason ? reason : sky_j_str(sky_j_get(want, "error"));
	if (sky_rows_sample(rows, SKY_BLOCK_JSON, row, n_row, &s, &why, &err)) {
		return false;
	}
	if (reason) {
		return !strcmp(sky_reason_name(why), reason);
	}
	if (sky_j_get(want, "empty") || (segments && !sky_j_len(segments))) {
		return why == SKY_ROW_EMPTY;
	}
	return why == SKY_ROW_OK && same_sample(s, want);
}

static void file(const char *name, enum sky_schema schema, int n_want)
{
	struct sky_buf in = SKY_BUF_INIT(1 << 20), expect = SKY_BUF_INIT(1 << 20);
	char path[T_PATH_MAX];
	const char *p, *q;
	int n = 0, bad = 0;

	snprintf(path, sizeof path, "data/formats/chat/%s.jsonl", name);
	T_RC(sky_file_read(t_shared(path), &in, &err), 0, &err, "%s", name);
	snprintf(path, sizeof path, "data/formats/chat/%s.expect.jsonl", name);
	T_RC(sky_file_read(t_shared(path), &expect, &err), 0, &err, "%s expected", name);
	sky_rows_set_schema(rows, schema);
	for (p = in.ptr, q = expect.ptr; p < in.ptr + in.n && q < expect.ptr + expect.n; n++) {
		const char *pe = memchr(p, '\n', (size_t)(in.ptr + in.n - p)), *qe = memchr(q, '\n',
				(size_t)(expect.ptr + expect.n - q));
		struct sky_json *doc = NULL;

		pe = pe ? pe : in.ptr + in.n;
		qe = qe ? qe : expect.ptr + expect.n;
		if (pe == p) {
			break;
		}
		/* "a\u0000b" is a text for us, and no string for the reader of the truth. */
		if (memmem(q, (size_t)(qe - q), "\\u0000", 6)) {
			p = pe + 1;
			q = qe + 1;
			continue;
		}
		if (sky_json_parse(q, (size_t)(qe - q), name, 0, &doc, &err) || !judge(p, (size_t)(pe - p),
				sky_json_root(doc))) {
			t_note("%s row %d: %.*s", name, n + 1, (int)(qe - q), q);
			bad++;
		}
		sky_json_free(doc);
		p = pe + 1;
		q = qe + 1;
	}
	T_OK(n == n_want && !bad, "%s: %d rows as decided, %d not", name, n, bad);
	sky_buf_release(&in);
	sky_buf_release(&expect);
}

/* What the golden files do not have, so that the code is covered without them. */
static void own_rows(void)
{
	static const struct { const char *row; enum sky_schema schema; enum sky_reason why; } t[] = {
		{ "{\"text\":\"x\"}", SKY_SCHEMA_TEXT, SKY_ROW_OK },
		{ "{\"text\":5}", SKY_SCHEMA_TEXT, SKY_ROW_BAD_SCHEMA },
		{ "{\"messages\":[]}", SKY_SCHEMA_MESSAGES, SKY_ROW_EMPTY },
		{ "{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}", SKY_SCHEMA_MESSAGES, SKY_ROW_BAD_SCHEMA },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}", SKY_SCHEMA_MESSAGES,
				SKY_ROW_BAD_SCHEMA },
		{ "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":\"{\"}]}", SKY_SCHEMA_MESSAGES, SKY_ROW_BAD_SCHEMA },
		{ "{\"messages\":\"x\"}", SKY_SCHEMA_MESSAGES, SKY_ROW_BAD_SCHEMA },
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":5}", SKY_SCHEMA_MESSAGES,
				SKY_ROW_BAD_SCHEMA },
		{ "{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"x\"]]}", SKY_SCHEMA_ALPACA, SKY_ROW_BAD_SCHEMA },
		{ "{\"segments\":[{\"text\":\"a\"}]}", SKY_SCHEMA_SEGMENTS, SKY_ROW_BAD_SCHEMA },
		{ "{\"input_ids\":[1,2],\"prompt_length\":3}", SKY_SCHEMA_TOKENS, SKY_ROW_BAD_SCHEMA },
		{ "{\"input_ids\":[1,2],\"loss_mask\":[1,1]}", SKY_SCHEMA_TOKENS, SKY_ROW_BAD_SCHEMA },
		{ "{\"a\":1}", SKY_SCHEMA_AUTO, SKY_ROW_BAD_SCHEMA },
		{ "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"x\"}]}", SKY_SCHEMA_AUTO, SKY_ROW_OK },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		const struct sky_sample *s = NULL;
		enum sky_reason why;

		sky_rows_set_schema(rows, t[i].schema);
		T_RC(sky_rows_sample(rows, SKY_BLOCK_JSON, t[i].row, strlen(t[i].row), &s, &why, &err), 0, &err, "%s",
				t[i].row);
		T_STR(sky_reason_name(why), sky_reason_name(t[i].why), "is judged");
	}
}

int main(void)
{
	struct sky_rows_opt opt = { .schema = SKY_SCHEMA_AUTO };

	if (sky_rows_new(&opt, &rows, &err)) {
		t_bail("%s", err.msg);
	}
	own_rows();
	if (t_shared("data/formats/README.md")) {
		file("openai", SKY_SCHEMA_AUTO, 10);
		file("sharegpt", SKY_SCHEMA_AUTO, 6);
		file("alpaca", SKY_SCHEMA_AUTO, 7);
		file("preference", SKY_SCHEMA_AUTO, 5);
		file("prompt-completion", SKY_SCHEMA_AUTO, 6);
		file("segments", SKY_SCHEMA_AUTO, 3);
		file("pretokenized", SKY_SCHEMA_AUTO, 10);
		file("bad-ids", SKY_SCHEMA_TOKENS, 15);
		file("text", SKY_SCHEMA_AUTO, 8);
	} else {
		t_skip("golden data are not here");
	}
	sky_rows_free(rows);
	return t_done();
}
