/* Parquet and Arrow files of the real writers, row by row against their truth; damaged ones are refused. */
#include "corpus/table.h"
#include "tests/testlib.h"

static struct sky_err err;

static bool same_number(const struct sky_jval *a, const struct sky_jval *b)
{
	char x[64], y[64];
	int64_t i, k;
	double u, v;

	if (sky_jval_i64(a, &i) && sky_jval_i64(b, &k)) {
		return i == k;
	}
	if (a->n_str == b->n_str && !memcmp(a->str, b->str, a->n_str)) {
		return true;
	}
	snprintf(x, sizeof x, "%.*s", (int)a->n_str, a->str);
	snprintf(y, sizeof y, "%.*s", (int)b->n_str, b->str);
	return !sky_parse_f64(x, &u, NULL) && !sky_parse_f64(y, &v, NULL) && u == v;
}

/* Hexadecimal of the truth against the raw bytes of a binary cell. */
static bool same_hex(const struct sky_jval *raw, const struct sky_jval *hex)
{
	char two[3] = "";

	if (hex->n_str != 2 * raw->n_str) {
		return false;
	}
	for (uint32_t i = 0; i < raw->n_str; i++) {
		memcpy(two, hex->str + 2 * i, 2);
		if (strtoul(two, NULL, 16) != (unsigned char)raw->str[i]) {
			return false;
		}
	}
	return true;
}

static bool same(const struct sky_jdoc *d, const struct sky_jval *a, const struct sky_jdoc *e, const struct sky_jval *b)
{
	const struct sky_jval *x, *y;
	int64_t one;

	if (a->tag == SKY_JT_TRUE || a->tag == SKY_JT_FALSE) {  /* "true in a mask is 1" */
		return a->tag == b->tag || (sky_jval_i64(b, &one) && one == (a->tag == SKY_JT_TRUE));
	}
	if (a->tag != b->tag) {
		return false;
	}
	switch (a->tag) {
	case SKY_JT_NUMBER:
		return same_number(a, b);
	case SKY_JT_STRING:
		return (a->n_str == b->n_str && !memcmp(a->str, b->str, a->n_str)) || same_hex(a, b);
	case SKY_JT_ARRAY:
		if (a->n_child != b->n_child) {
			return false;
		}
		for (x = sky_jval_first(d, a), y = sky_jval_first(e, b); x; x = sky_jval_next(d, a, x),
				y = sky_jval_next(e, b, y)) {
			if (!same(d, x, e, y)) {
				return false;
			}
		}
		return true;
	case SKY_JT_OBJECT:
		if (a->n_child != b->n_child) {
			return false;
		}
		for (x = sky_jval_first(d, a); x; x = sky_jval_next(d, a, x)) {
			char key[128];

			snprintf(key, sizeof key, "%.*s", (int)x->n_key, x->key);
			y = sky_jval_get(e, b, key);
			if (!y || !same(d, x, e, y)) {
				return false;
			}
		}
		return true;
	default:
		return true;
	}
}

/* All rows of a file as JSON lines, nulls kept. */
static int read_all(const char *path, struct sky_buf *out, int64_t *n_p)
{
	struct sky_corpus_opt opt = { .keep_nulls = 1, .block_bytes = 700 };
	struct sky_corpus *c = NULL;
	struct sky_block *b;
	int64_t before = 0, i_file = 0;
	int rc = sky_corpus_open(&path, 1, &opt, &c, &err);

	*n_p = 0;
	while (!rc && !(rc = sky_corpus_next(c, &b, &err))) {
		if (b->i_file != i_file) {
			i_file = b->i_file;
			before = *n_p;
		}
		rc = b->row == *n_p - before + 1 ? sky_buf_add(out, b->data.ptr, b->data.n, &err) :
		     sky_fail(&err, SKY_E_DATA, "row numbers jump");
		*n_p += b->n_row;
		sky_block_free(b);
	}
	sky_corpus_close(c);
	return rc == SKY_EOF ? 0 : rc;
}

static const char *line_of(const char **p, const char *end, size_t *n)
{
	const char *s = *p, *nl = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;

	nl = nl ? nl : end;
	*n = (size_t)(nl - s);
	*p = nl + 1;
	return s;
}

/* Rows [first, first + count) of the truth. */
static bool compare(const char *name, const char *path, const char *truth, int64_t first, int64_t count)
{
	struct sky_buf got = SKY_BUF_INIT(1 << 26), want = SKY_BUF_INIT(1 << 26);
	struct sky_jdoc a = { 0 }, b = { 0 };
	const char *p, *q, *s;
	int64_t n, i = 0;
	size_t k;
	bool ok = !read_all(path, &got, &n) && !sky_file_read(truth, &want, &err);

	if (!ok) {
		t_note("%s: %s", name, err.msg);
	}
	p = got.ptr;
	q = want.ptr;
	for (int64_t skip = 0; ok && skip < first; skip++) {
		line_of(&q, want.ptr + want.n, &k);
	}
	for (i = 0; ok && q < want.ptr + want.n && (count < 0 || i < count); i++) {
		s = line_of(&q, want.ptr + want.n, &k);
		ok = !sky_jdoc_parse(&b, s, k, &err);
		s = line_of(&p, got.ptr + got.n, &k);
		ok = ok && i < n && !sky_jdoc_parse(&a, s, k, &err) && same(&a, &a.val[0], &b, &b.val[0]);
		if (!ok) {
			t_note("%s row %lld: %.*s", name, (long long)i, (int)(k < 300 ? k : 300), s);
		}
	}
	if (ok && i != n) {
		t_note("%s: %lld rows, want %lld", name, (long long)n, (long long)i);
		ok = false;
	}
	sky_jdoc_release(&a);
	sky_jdoc_release(&b);
	sky_buf_release(&got);
	sky_buf_release(&want);
	return ok;
}

/* A path below the golden folder; t_shared answers only for what exists. */
static const char *golden(const char *dir, const char *name)
{
	static char ring[4][T_PATH_MAX];
	static int at;
	const char *base = t_shared("data/formats/README.md");

	at = (at + 1) % 4;
	snprintf(ring[at], sizeof ring[at], "%.*s%s/%s", (int)strlen(base) - 9, base, dir, name);
	return ring[at];
}

static void truths(const char *dir)
{
	struct sky_json *doc = NULL;
	int n = 0, bad = 0, brotli = 0;

	T_RC(sky_json_load(golden(dir, "truth.json"), SKY_JSON_PYTHON, &doc, &err), 0, &err, "%s truth", dir);
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t)) {
		const char *rows = sky_j_str(sky_j_get(t, "rows")), *name = sky_j_key(t);
		int64_t first = 0, count = -1;

		if (!rows || strstr(name, "dict/")) {
			continue;
		}
		if (strstr(name, "brotli")) {
			struct sky_buf out = SKY_BUF_INIT(1 << 26);
			int64_t ignored;

			brotli += read_all(golden(dir, name), &out, &ignored) == SKY_E_DATA && strstr(err.msg, "brotli");
			sky_buf_release(&out);
			continue;
		}
		(void)!sky_j_i64(sky_j_get(t, "first"), &first);
		(void)!sky_j_i64(sky_j_get(t, "count"), &count);
		bad += !compare(name, golden(dir, name), golden(dir, rows), first, count);
		n++;
	}
	T_OK(n > 20 && !bad, "%s: %d files read as their writers meant them, %d wrong", dir, n, bad);
	if (!strcmp(dir, "parquet")) {
		T_OK(brotli >= 3, "brotli is refused by name");
	}
	sky_json_free(doc);
}

static void refused(const char *dir)
{
	struct sky_json *doc = NULL;
	int n = 0, bad = 0;

	T_RC(sky_json_load(golden(dir, "refuse.json"), 0, &doc, &err), 0, &err, "%s hostile files", dir);
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t), n++) {
		struct sky_buf out = SKY_BUF_INIT(1 << 26);
		int64_t rows;
		int rc = read_all(golden(dir, sky_j_key(t)), &out, &rows);

		if (rc != SKY_E_DATA) {
			t_note("%s: %d, %lld rows", sky_j_key(t), rc, (long long)rows);
			bad++;
		}
		sky_buf_release(&out);
	}
	T_OK(n > 5 && !bad, "%d damaged files are refused", n);
	sky_json_free(doc);
}

/* Every byte of a small file changed: never a crash, whatever the verdict. */
static void flips(const char *dir, const char *name)
{
	struct sky_buf text = SKY_BUF_INIT(1 << 22), out = SKY_BUF_INIT(1 << 26);
	char path[T_PATH_MAX];
	int64_t rows;
	int n = 0;

	snprintf(path, sizeof path, "%s%s", t_path("flip"), strrchr(name, '.'));
	T_RC(sky_file_read(golden(dir, name), &text, &err), 0, &err, "%s", name);
	for (size_t i = 0; i < text.n; i += 1 + text.n / 3000) {
		char was = text.ptr[i];

		text.ptr[i] = (char)(was ^ (1 << i % 8) ^ (i % 3 ? 0 : 0xff));
		if (sky_file_publish(path, text.ptr, text.n, SKY_OUT_REPLACE | SKY_OUT_NO_FSYNC, &err)) {
			break;
		}
		sky_buf_clear(&out);
		n += read_all(path, &out, &rows) <= 0;
		text.ptr[i] = was;
	}
	T_OK(n > 300, "%s: %d damaged copies end in order", name, n);
	sky_buf_release(&text);
	sky_buf_release(&out);
}

static void lz4(void)
{
	/* "aaaaaaaaaaaaaaaaaaaab": one literal, a match of 19 at distance 1, one literal. */
	static const uint8_t block[] = { 0x1f, 'a', 1, 0, 0, 0x10, 'b' };
	uint8_t out[64];
	size_t n;

	T_RC(lz4_block(block, sizeof block, out, sizeof out, &n, &err), 0, &err, "LZ4 block");
	T_OK(n == 21 && out[0] == 'a' && out[19] == 'a' && out[20] == 'b', "a match that overlaps itself");
	T_RC(lz4_block(block, sizeof block, out, 20, &n, &err), SKY_E_DATA, &err, "no room is damage");
	T_RC(lz4_block(block, 3, out, sizeof out, &n, &err), SKY_E_DATA, &err, "cut");
}

int main(void)
{
	lz4();
	if (!t_shared("data/formats/README.md")) {
		t_skip("golden data are not here");
		return t_done();
	}
	truths("hf");
	truths("parquet");
	refused("parquet");
	flips("parquet", "chat-dict-zstd-v1.parquet");
	flips("parquet", "text-delta-v2.parquet");
	flips("hf", "chat.file.arrow");
	flips("hf", "dictionary-delta.stream.arrow");
	flips("hf", "chat-view.stream.arrow");
	return t_done();
}
