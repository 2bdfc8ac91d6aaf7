/* json: strict syntax, exact numbers, large objects, the writer. */
#include "base/base.h"
#include "../testlib.h"

static struct sky_err err;

static const struct sky_jnode *parse(struct sky_json **doc, const char *text, unsigned flags)
{
	*doc = NULL;
	memset(&err, 0, sizeof(err));
	return sky_json_parse(text, strlen(text), "t.json", flags, doc, &err) == 0 ? sky_json_root(*doc) : NULL;
}

static void refuses(const char *text, unsigned flags, const char *why)
{
	struct sky_json *doc;

	T_OK(!parse(&doc, text, flags) && err.code == SKY_E_DATA, "refused: %.60s", text);
	T_HAS(err.msg, why, "the message of %.60s", text);
	sky_json_free(doc);
}

static void test_bad(void)
{
	static const char *const bad[] = {
		"", " ", "{", "[1,", "[1 2]", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "01", "1.", ".5", "+1",
			"1e", "1e+", "-",
		"nul", "tru", "'a'", "\"a", "\"\\x\"", "\"\\u12g4\"", "\"\\u0000\"", "\"a\nb\"", "NaN", "Infinity",
			"-Infinity",
		"1 2", "{} x", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"",
			"[\"a\"}",
		"// c\n1", "[1]]", "{\"a\":}", "{,}", "[,]", "\"\t\"", "\v1", "-Inf", "{\"a\\u0000b\":1}",
	};
	char deep[200];
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		refuses(bad[i], 0, "t.json:");
	}
	refuses("{\n  \"a\": 1,\n  \"\xc3\xa9\": tru\n}", 0, "t.json:3:8: a value is expected");
	refuses("[1,\n2\n3]", 0, "t.json:3:1: ',' or ']' is expected");
	refuses("{\"a\":1,\"b\":2,\"a\":3}", SKY_JSON_NO_DUP, "t.json:1:14: this key occurs twice");
	memset(deep, '[', 65);
	memset(deep + 65, ']', 65);
	deep[130] = '\0';
	refuses(deep, 0, "nested deeper");
	refuses("{\"a\\u0000b\":1}", SKY_JSON_NUL, "in a key");
}

static void test_numbers(void)
{
	static const struct { const char *text; bool ok; int64_t v; } ints[] = {
		{ "0", true, 0 }, { "-0", true, 0 }, { "9223372036854775807", true, INT64_MAX },
		{ "-9223372036854775808", true, INT64_MIN }, { "9223372036854775808", false, 0 },
		{ "9007199254740993", true, 9007199254740993 }, { "1.0", true, 1 }, { "1.50", false, 0 },
		{ "12e2", true, 1200 },
		{ "1.25e2", true, 125 }, { "1.25e1", false, 0 }, { "1e400", false, 0 }, { "0e999999999999", true, 0 },
		{ "100e-2", true, 1 }, { "9007199254740993.000", true, 9007199254740993 },
		{ "-1e18", true, -1000000000000000000 },
		{ "1e-400", false, 0 }, { "1e999999999999999999999", false, 0 }, { "0.0001e4", true, 1 },
	};
	struct sky_json *doc;
	const struct sky_jnode *v;
	int64_t i64 = 0;
	uint64_t u64 = 0;
	double d = 0;
	size_t i;

	for (i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
		v = parse(&doc, ints[i].text, 0);
		i64 = 0;
		T_OK(v && sky_j_i64(v, &i64) == ints[i].ok && i64 == ints[i].v, "integer %s", ints[i].text);
		T_STR(sky_j_raw(v), ints[i].text, "raw text of %s", ints[i].text);
		sky_json_free(doc);
	}
	v = parse(&doc, "[18446744073709551615, 1e400, 1.5 ,-2.5e-3\n]", 0);
	T_OK(sky_j_u64(sky_j_at(v, 0), &u64) && u64 == UINT64_MAX, "largest unsigned");
	T_OK(!sky_j_f64(sky_j_at(v, 1), &d), "1e400 parses but is no double");
	T_OK(sky_j_f64(sky_j_at(v, 2), &d) && d == 1.5, "double before a blank");
	T_OK(sky_j_f64(sky_j_at(v, 3), &d) && d == -2.5e-3, "double before a line end");
	T_OK(sky_j_at(v, 4) == NULL && sky_j_at(NULL, 0) == NULL, "index outside");
	sky_json_free(doc);
	v = parse(&doc, "[NaN, -Infinity, Infinity]", SKY_JSON_PYTHON);
	T_OK(sky_j_f64(sky_j_at(v, 0), &d) && isnan(d), "NaN");
	T_OK(sky_j_f64(sky_j_at(v, 1), &d) && d == -INFINITY, "-Infinity");
	T_OK(!sky_j_i64(sky_j_at(v, 2), &i64), "Infinity is no integer");
	sky_json_free(doc);
}

static void test_strings(void)
{
	struct sky_json *doc;
	const struct sky_jnode *v;
	size_t n = 0;

	v = parse(&doc, "\xef\xbb\xbf[\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00 plain text"
	          " behind escapes\", \"\", \"\\udc80x\\ud800\"]", 0);
	T_STR(sky_j_str(sky_j_at(v, 0)), "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80 plain text behind escapes",
	      "escapes");
	T_STR(sky_j_str(sky_j_at(v, 1)), "", "empty string");
	T_STR(sky_j_str(sky_j_at(v, 2)), "\xef\xbf\xbdx\xef\xbf\xbd", "lone surrogates become U+FFFD");
	sky_json_free(doc);
	v = parse(&doc, "\"a\\u0000b\"", SKY_JSON_NUL);
	T_OK(v && memcmp(sky_j_strn(v, &n), "a\0b", 3) == 0 && n == 3, "NUL where the flag allows it");
	sky_json_free(doc);
}

static void test_objects(void)
{
	struct sky_buf b = SKY_BUF_INIT(SIZE_MAX);
	struct sky_json *doc;
	const struct sky_jnode *v, *k;
	const char *s = NULL;
	int64_t x = 0, i, n_bad = 0;
	bool flag = false;
	char key[32];
	int rc;

	v = parse(&doc, "{\"a\":1,\"b\":{\"c\":[true,null]},\"a\":2,\"n\":null}", 0);
	T_I64(sky_j_len(v), 3, "a repeated key counts once");
	T_OK(sky_j_get_i64(v, "a", 0, &x, &err) == 0 && x == 2, "the last value of a repeated key");
	T_STR(sky_j_key(sky_j_next(sky_j_first(v))), "b", "order of the file");
	T_OK(sky_j_bool(sky_j_at(sky_j_get(sky_j_get(v, "b"), "c"), 0), &flag) && flag, "nested");
	T_OK(sky_j_get_i64(v, "n", 7, &x, &err) == 0 && x == 7, "null gives the default");
	T_RC(sky_j_get_str(v, "a", NULL, &s, &err), SKY_E_DATA, &err, "a wrong type is an error");
	T_HAS(err.msg, "\"a\" must be a string, not 2", "its message");
	sky_json_free(doc);

	/* Large enough for several sizes of the table; each third key repeats an earlier one. */
	rc = sky_buf_adds(&b, "{", &err);
	for (i = 0; rc == 0 && i < 90000; i++) {
		rc = sky_buf_addf(&b, &err, "%s\"model.layers.%lld.w\":%lld", i ? "," : "", (long long)(i % 60000),
		                  (long long)i);
	}
	T_OK(rc == 0 && sky_buf_adds(&b, "}", &err) == 0, "text of a large object");
	v = parse(&doc, b.ptr, 0);
	T_I64(sky_j_len(v), 60000, "members of a large object");
	for (i = 0; i < 60000; i++) {
		snprintf(key, sizeof(key), "model.layers.%lld.w", (long long)i);
		n_bad += !sky_j_i64(sky_j_get(v, key), &x) || x != (i < 30000 ? i + 60000 : i);
	}
	T_I64(n_bad, 0, "every member is found");
	T_OK(!sky_j_get(v, "model.layers.60000.w"), "an absent key is not");
	for (i = 0, k = sky_j_first(v); k; k = sky_j_next(k)) {
		i++;
	}
	T_I64(i, 60000, "iteration meets each once");
	sky_json_free(doc);
	sky_buf_clear(&b);
	/* Duplicates that move the object below the limit of the table. */
	v = parse(&doc, "{\"a\":0,\"a\":1,\"a\":2,\"a\":3,\"a\":4,\"a\":5,"
	          "\"a\":6,\"a\":7,\"a\":8,\"a\":9,\"a\":10,\"a\":11,\"b\":12}", 0);
	T_OK(sky_j_len(v) == 2 && sky_j_i64(sky_j_get(v, "a"), &x) && x == 11 && sky_j_get(v, "b"), "many duplicates");
	sky_json_free(doc);
	sky_buf_release(&b);
}

static void test_print(void)
{
	static const char text[] = "{\"a\":[1.50,-0,1e400,9223372036854775807],"
		"\"s\":\"\\u00e9\\n\\\"\",\"o\":{},\"e\":[],\"t\":true,\"n\":null}";
	struct sky_buf b = SKY_BUF_INIT(4096);
	struct sky_json *doc;
	struct sky_jw w;

	T_RC(sky_j_print(parse(&doc, text, 0), &b, &err), 0, &err, "printing");
	T_STR(b.ptr, "{\"a\":[1.50,-0,1e400,9223372036854775807],"
	      "\"s\":\"\xc3\xa9\\n\\\"\",\"o\":{},\"e\":[],\"t\":true,\"n\":null}",
	      "compact, numbers as they were");
	sky_json_free(doc);
	sky_buf_clear(&b);
	sky_jw_init(&w, &b, &err);
	w.spaced = true;
	w.ascii = true;
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "k\x01", "\xc3\xa9\xf0\x9f\x98\x80\x7f");
	sky_jw_key(&w, "l");
	sky_jw_arr(&w);
	sky_jw_f64(&w, 0.1);
	sky_jw_f32(&w, 0.1f);
	sky_jw_f64(&w, NAN);
	sky_jw_i64(&w, INT64_MIN);
	sky_jw_u64(&w, UINT64_MAX);
	sky_jw_arr(&w);
	sky_jw_close_arr(&w);
	sky_jw_close_arr(&w);
	sky_jw_kstr(&w, "z", NULL);
	sky_jw_close_obj(&w);
	T_RC(sky_jw_end(&w), 0, &err, "writer");
	T_STR(b.ptr, "{\"k\\u0001\": \"\\u00e9\\ud83d\\ude00\\u007f\", \"l\": [0.1, 0.1, null, -9223372036854775808, "
	      "18446744073709551615, []], "
	      "\"z\": null}", "as Python's json.dumps");
	sky_buf_clear(&b);
	sky_jw_init(&w, &b, &err);
	sky_jw_strn(&w, "a\xff\xc3(\xed\xa0\x80" "b\0", 9);
	T_RC(sky_jw_end(&w), 0, &err, "bytes that are not UTF-8");
	T_STR(b.ptr, "\"a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "b\\u0000\"", "become U+FFFD");
	sky_buf_release(&b);
	sky_buf_init(&b, 8);
	sky_jw_init(&w, &b, &err);
	sky_jw_str(&w, "longer than eight");
	T_RC(sky_jw_end(&w), SKY_E_LIMIT, &err, "an error sticks and comes out at the end");
	sky_buf_release(&b);
}

int main(void)
{
	test_bad();
	test_numbers();
	test_strings();
	test_objects();
	test_print();
	return t_done();
}
