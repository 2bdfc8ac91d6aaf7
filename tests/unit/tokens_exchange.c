/* Token sets of other tools: read against their truth, written and read back, bytes equal where the peer's are known. */
#include "tokens/exchange_int.h"
#include "tests/testlib.h"

static struct sky_err err;

static const char *golden(const char *dir, const char *name)
{
	static char ring[8][T_PATH_MAX];
	static int at;
	const char *base = t_shared("data/formats/README.md");

	at = (at + 1) % 8;
	snprintf(ring[at], sizeof ring[at], "%.*s%s/%s", (int)strlen(base) - 9, base, dir, name);
	return ring[at];
}

/* rows: array of arrays of ids; mask: the same of masks, flat, or NULL. */
static bool same_rows(const char *path, const struct sky_exchange_opt *opt, const struct sky_jnode *rows,
		const struct sky_jnode *mask)
{
	struct sky_tokens_src *s = NULL;
	const struct sky_jnode *r = sky_j_first(rows), *m = sky_j_first(mask), *e, *k = NULL;
	bool flat = m && sky_j_type(m) == SKY_J_NUMBER, ok = true;
	const int32_t *ids;
	const uint8_t *have;
	int64_t n, v, i;
	int rc = sky_tokens_src_open(path, opt, &s, &err);

	while (!rc && ok && !(rc = sky_tokens_src_next(s, &ids, &have, &n, &err))) {
		const struct sky_jnode *list = sky_j_get(r, "tokens") ? sky_j_get(r, "tokens") : r;

		ok = r && (int64_t)sky_j_len(list) == n && (!mask || have);
		k = flat ? m : sky_j_first(m);
		for (i = 0, e = sky_j_first(list); ok && e; e = sky_j_next(e), i++) {
			ok = sky_j_i64(e, &v) && v == ids[i];
			if (ok && mask) {
				ok = k && sky_j_i64(k, &v) && v == have[i];
				k = sky_j_next(k);
			}
		}
		m = flat ? k : m ? sky_j_next(m) : NULL;
		r = r ? sky_j_next(r) : NULL;
	}
	if (rc < 0 || r || !ok) {
		t_note("%s: %s", path, rc < 0 ? err.msg : r ? "rows are missing or differ" : "a row differs");
	}
	sky_tokens_src_close(s);
	return rc == SKY_EOF && ok && !r;
}

static int first_error(const char *path, const struct sky_exchange_opt *opt)
{
	struct sky_tokens_src *s = NULL;
	const int32_t *ids;
	const uint8_t *mask;
	int64_t n;
	int rc = sky_tokens_src_open(path, opt, &s, &err);

	while (!rc) {
		rc = sky_tokens_src_next(s, &ids, &mask, &n, &err);
	}
	sky_tokens_src_close(s);
	return rc;
}

static void datatrove(void)
{
	struct sky_exchange_opt opt = { .eod = -1 };
	struct sky_json *doc = NULL;
	int n = 0, bad = 0;

	T_RC(sky_json_load(golden("datatrove", "truth.json"), 0, &doc, &err), 0, &err, "datatrove truth");
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t)) {
		const struct sky_jnode *docs = sky_j_get(t, "documents"), *loss = sky_j_get(t, "loss");
		const char *name = sky_j_key(t);

		if (!docs || !strstr(name, ".ds")) {
			continue;
		}
		n++;
		if (!strcmp(name, "u32-loss.ds")) {     /* ids beyond 31 bits */
			bad += first_error(golden("datatrove", name), &opt) != SKY_E_DATA;
		} else {
			bad += !same_rows(golden("datatrove", name), &opt, docs, sky_j_type(loss) == SKY_J_ARRAY ?
					loss : NULL);
		}
	}
	T_OK(n >= 8 && !bad, "%d sets of datatrove read as it wrote them", n);
	sky_json_free(doc);
}

static void mds(void)
{
	struct sky_exchange_opt opt = { .eod = -1, .width = 8 };
	struct sky_json *doc = NULL;
	int n = 0, bad = 0;

	T_RC(sky_json_load(golden("mds", "truth.json"), SKY_JSON_PYTHON, &doc, &err), 0, &err, "MDS truth");
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t), n++) {
		const char *name = sky_j_key(t);

		if (!strcmp(name, "zip-br")) {
			bad += first_error(golden("mds", name), &opt) != SKY_E_DATA || !strstr(err.msg, "brotli");
		} else if (strcmp(name, "mixed")) {
			bad += !same_rows(golden("mds", name), &opt, sky_j_get(t, "rows"), NULL);
		}
	}
	T_OK(n >= 10 && !bad, "%d MDS folders read as their writer meant them", n);
	opt.width = 0;
	T_RC(first_error(golden("mds", "tokens-bytes-int64"), &opt), SKY_E_USAGE, &err,
			"bare bytes need a width (llm-foundry 321)");
	T_HAS(err.msg, "--width", "and the message says so");
	sky_json_free(doc);
	doc = NULL;
	n = bad = 0;
	T_RC(sky_json_load(golden("litdata", "truth.json"), 0, &doc, &err), 0, &err, "litdata truth");
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t), n++) {
		bad += !same_rows(golden("litdata", sky_j_key(t)), &opt, sky_j_get(t, "documents"), NULL);
	}
	T_OK(n == 3 && !bad, "litdata folders");
	sky_json_free(doc);
}

static void raw(void)
{
	struct sky_exchange_opt opt = { .eod = -1 };
	struct sky_json *doc = NULL;
	int n = 0, bad = 0;

	T_RC(sky_json_load(golden("raw", "truth.json"), 0, &doc, &err), 0, &err, "raw truth");
	for (const struct sky_jnode *t = sky_j_first(sky_json_root(doc)); t; t = sky_j_next(t), n++) {
		const char *name = sky_j_key(t), *kind = sky_j_str(sky_j_get(t, "kind"));

		if (sky_j_get(t, "refuse") || !strcmp(kind, "npy")) {
			bad += first_error(golden("raw", name), &opt) != SKY_E_DATA;
		} else if (!strcmp(kind, "dolma")) {
			bad += !same_rows(golden("raw", name), &opt, sky_j_get(t, "documents"), sky_j_get(t, "mask"));
		} else {
			struct sky_tokens_src *s = NULL;
			const struct sky_jnode *e = sky_j_first(sky_j_get(t, "tokens"));
			const int32_t *ids;
			const uint8_t *mask;
			int64_t k, v, rows = 0;
			int rc = sky_tokens_src_open(golden("raw", name), &opt, &s, &err);

			while (!rc && !(rc = sky_tokens_src_next(s, &ids, &mask, &k, &err))) {
				for (int64_t i = 0; i < k; i++, e = sky_j_next(e)) {
					bad += !sky_j_i64(e, &v) || v != ids[i];
				}
				rows++;
			}
			bad += rc != SKY_EOF || e || rows != 2;
			sky_tokens_src_close(s);
		}
	}
	T_OK(n >= 12 && !bad, "%d bare arrays: read or refused, %d wrong", n, bad);
	opt.width = 2;
	opt.eod = 2;
	sky_json_free(doc);
}

static const struct { int32_t ids[8]; uint8_t mask[8]; int64_t n; } rows[] = {
	{ { 5, 6, 7 }, { 0, 1, 1 }, 3 }, { { 8, 9, 10, 11 }, { 0, 1, 1, 1 }, 4 }, { { 12 }, { 0 }, 1 },
	{ { 13, 14 }, { 0, 0 }, 2 }, { { 65535, 0, 1 }, { 0, 0, 1 }, 3 },
};

static int write_rows(const char *path, struct sky_exchange_opt *opt)
{
	struct sky_tokens_dst *d = NULL;
	int rc = sky_tokens_dst_open(path, opt, &d, &err);

	for (size_t i = 0; !rc && i < 5; i++) {
		rc = sky_tokens_dst_add(d, rows[i].ids, opt->with_mask ? rows[i].mask : NULL, rows[i].n, &err);
	}
	if (rc < 0) {
		sky_tokens_dst_abort(d);
		return rc;
	}
	return sky_tokens_dst_commit(d, &err);
}

static void read_back(const char *path, struct sky_exchange_opt *opt)
{
	struct sky_tokens_src *s = NULL;
	const int32_t *ids;
	const uint8_t *mask;
	int64_t n, i = 0;
	int bad = 0, rc = sky_tokens_src_open(path, opt, &s, &err);

	for (; !rc && !(rc = sky_tokens_src_next(s, &ids, &mask, &n, &err)); i++) {
		bad += i >= 5 || n != rows[i].n || memcmp(ids, rows[i].ids, (size_t)n * 4) || (mask && memcmp(mask,
				rows[i].mask, (size_t)n));
		bad += (mask != NULL) != opt->with_mask;
	}
	T_RC(rc, SKY_EOF, &err, "%s is read", path);
	T_OK(i == 5 && !bad, "the rows come back");
	sky_tokens_src_close(s);
}

static bool same_file(const char *a, const char *b)
{
	struct sky_buf x = SKY_BUF_INIT(1 << 20), y = SKY_BUF_INIT(1 << 20);
	bool same = !sky_file_read(a, &x, &err) && !sky_file_read(b, &y, &err) && x.n == y.n && !memcmp(x.ptr, y.ptr, x.n);

	sky_buf_release(&x);
	sky_buf_release(&y);
	return same;
}

static void writers(void)
{
	static const struct { enum sky_tokens_format f; const char *name, *again; } t[] = {
		{ SKY_TF_TOKENS, "own", "own" }, { SKY_TF_DATATROVE, "x.ds", "x.ds" }, { SKY_TF_DOLMA, "part.npy",
				"part.npy" },
		{ SKY_TF_MDS, "mds", "mds" },
	};
	char path[T_PATH_MAX], back[T_PATH_MAX + 16];

	for (size_t i = 0; i < 8; i++) {
		struct sky_exchange_opt opt = { .format = t[i / 2].f, .dtype_bytes = 2 + 2 * (int)(i % 2),
				.with_mask = 1 - (int)(i % 2),
						.eod = -1, .out_flags = SKY_OUT_NO_FSYNC, .shard_bytes = 300 };

		snprintf(path, sizeof path, "%s-%d-%s", t_path("w"), (int)(i % 2), t[i / 2].name);
		snprintf(back, sizeof back, "%s-%d-%s", t_path("w"), (int)(i % 2), t[i / 2].again);
		T_RC(write_rows(path, &opt), 0, &err, "%s is written", t[i / 2].name);
		opt.format = SKY_TF_AUTO;
		read_back(back, &opt);
	}
	if (t_shared("data/formats/README.md")) {
		struct sky_exchange_opt opt = { .format = SKY_TF_DATATROVE, .dtype_bytes = 2, .with_mask = 0, .eod = -1,
						.tokenizer = "tiny-words" };

		snprintf(path, sizeof path, "%s", t_path("same.ds"));
		T_RC(write_rows(path, &opt), 0, &err, "datatrove");
		T_OK(same_file(path, golden("datatrove", "u16.ds")), "ids as datatrove writes them");
		snprintf(back, sizeof back, "%s.index", path);
		T_OK(same_file(back, golden("datatrove", "u16.ds.index")), "index as datatrove writes it");
		snprintf(back, sizeof back, "%s.metadata", path);
		T_OK(same_file(back, golden("datatrove", "u16.ds.metadata")), "metadata as datatrove writes it");
	}
}

static void llmc(void)
{
	static const int32_t a[] = { 50256, 1, 2, 3 }, b[] = { 4, 5 };
	struct sky_exchange_opt opt = { .format = SKY_TF_LLMC, .dtype_bytes = 2, .eod = 50256,
			.out_flags = SKY_OUT_NO_FSYNC };
	struct sky_tokens_dst *d = NULL;
	char path[T_PATH_MAX];

	snprintf(path, sizeof path, "%s", t_path("gpt2.bin"));
	T_RC(sky_tokens_dst_open(path, &opt, &d, &err), 0, &err, "llm.c");
	T_RC(sky_tokens_dst_add(d, a, NULL, 4, &err), 0, &err, "a row that begins with the separator");
	T_RC(sky_tokens_dst_add(d, b, NULL, 2, &err), 0, &err, "and one that does not");
	T_RC(sky_tokens_dst_commit(d, &err), 0, &err, "commit");
	if (t_shared("data/formats/README.md")) {
		T_OK(same_file(path, golden("raw", "llmc-gpt2.bin")), "bytes of the golden file");
	}
}

int main(void)
{
	writers();
	llmc();
	if (t_shared("data/formats/README.md")) {
		datatrove();
		mds();
		raw();
	} else {
		t_skip("golden data are not here");
	}
	return t_done();
}
