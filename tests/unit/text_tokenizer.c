/* tokenizer: every kind of step on small tokenizers of our own, with the answers of Hugging Face tokenizers
 * (tests/data/tokenizer/make-cases.py); bad files; long runs; ids of added tokens. */
#include "../testlib.h"
#include "text/scan.h"

static struct sky_err err;

/* ---- cases ---- */

struct loaded {
	struct sky_json *doc;
	const struct sky_jnode *root;
	struct sky_tokenizer *t;
	struct sky_encoder *e;
};

static bool load(const char *name, struct loaded *l)
{
	struct sky_buf text = SKY_BUF_INIT(1 << 24);
	char rel[128];
	int rc;

	memset(l, 0, sizeof(*l));
	snprintf(rel, sizeof(rel), "tests/data/tokenizer/%s.json", name);
	rc = sky_json_load(t_src(rel), 0, &l->doc, &err);
	if (rc == 0) {
		l->root = sky_json_root(l->doc);
		rc = sky_j_print(sky_j_get(l->root, "tokenizer"), &text, &err);
	}
	rc = rc < 0 ? rc : sky_tokenizer_parse(text.ptr, text.n, name, &l->t, &err);
	rc = rc < 0 ? rc : sky_encoder_new(l->t, &l->e, &err);
	sky_buf_release(&text);
	return T_RC(rc, 0, &err, "%s loads", name);
}

static void unload(struct loaded *l)
{
	sky_encoder_free(l->e);
	sky_tokenizer_close(l->t);
	sky_json_free(l->doc);
}

static bool same_ids(const struct sky_jnode *want, const struct sky_ids *got)
{
	int64_t i = 0, id;

	for (want = sky_j_first(want); want; want = sky_j_next(want), i++) {
		if (i >= got->n || !sky_j_i64(want, &id) || id != got->id[i]) {
			return false;
		}
	}
	return i == got->n;
}

static void check_text(const struct loaded *l, const char *name, size_t i, int *n_bad)
{
	const char *text = sky_j_str(sky_j_at(sky_j_get(l->root, "texts"), i));
	const struct sky_jnode *want = sky_j_at(sky_j_get(l->root, "ids"), i),
			       *special = sky_j_at(sky_j_get(l->root, "special"), i);
	const char *decoded[2] = { sky_j_str(sky_j_at(sky_j_get(l->root, "decoded"), i)),
				   sky_j_str(sky_j_at(sky_j_get(l->root, "skipped"), i)) };
	struct sky_ids ids = { 0 }, off = { 0 };
	struct sky_buf back = SKY_BUF_INIT(1 << 20);
	bool ok = sky_encode(l->e, text, strlen(text), 0, &ids, &err) == 0 && same_ids(want, &ids);

	for (int general = 0; general < 2 && ok; general++) {
		off.n = 0;
		l->e->general = general;
		ok = sky_encode_offsets(l->e, text, strlen(text), 0, &off, &err) == 0 && same_ids(want, &off);
		for (int64_t k = 0; k < off.n && ok; k++) {
			ok = off.off[k] <= strlen(text) && (k == 0 || off.off[k - 1] <= off.off[k]);
		}
	}
	l->e->general = false;
	ids.n = 0;
	ok = ok && sky_encode(l->e, text, strlen(text), SKY_ENC_SPECIAL, &ids, &err) == 0 && same_ids(special, &ids);
	for (int skip = 0; skip < 2 && ok; skip++) {
		sky_buf_clear(&back);
		ok = sky_decode(l->t, ids.id, ids.n, skip, &back, &err) == 0 &&
		     strcmp(back.ptr ? back.ptr : "", decoded[skip]) == 0;
	}
	if (!ok) {
		t_note("%s: text %zu: %.80s; %lld ids, decoded %.80s", name, i, text, (long long)ids.n,
		       back.ptr ? back.ptr : "");
		++*n_bad;
	}
	sky_ids_release(&ids);
	sky_ids_release(&off);
	sky_buf_release(&back);
}

static void cases(void)
{
	static const char *const names[] = {
		"llama3-like",   "qwen-like",   "gpt2-prefix-space", "digits-missing-bytes", "normalizers",
		"compatibility", "contiguous",  "punctuation-words", "llama2-like",          "gemma-like",
		"metaspace",     "word-suffix", "word-prefix",
	};

	for (size_t c = 0; c < sizeof(names) / sizeof(names[0]); c++) {
		struct loaded l;
		int n_bad = 0;

		if (load(names[c], &l)) {
			size_t n = sky_j_len(sky_j_get(l.root, "texts"));

			for (size_t i = 0; i < n; i++) {
				check_text(&l, names[c], i, &n_bad);
			}
			T_I64(n_bad, 0, "%s: ids and text of %zu strings", names[c], n);
		}
		unload(&l);
	}
}

/* ---- what a tokenizer tells about itself ---- */

static void accessors(void)
{
	struct loaded l;
	const char *s;
	size_t n;
	int special = -1;
	int32_t id;

	if (!load("llama3-like", &l)) {
		return;
	}
	id = sky_tokenizer_id(l.t, "<mask>", 6);
	T_OK(id >= 0 && id < sky_tokenizer_vocab(l.t), "an added token has an id");
	s = sky_tokenizer_token(l.t, id, &n, &special);
	T_OK(s && n == 6 && memcmp(s, "<mask>", 6) == 0 && special == 1, "and text, and is special");
	s = sky_tokenizer_token(l.t, sky_tokenizer_id(l.t, "\xc4\xa0the", 5), &n, &special);
	T_OK(s && n == 4 && memcmp(s, " the", 4) == 0 && special == 0,
	     "a byte-level token is found as spelled and holds bytes");
	T_I64(sky_tokenizer_id(l.t, "nope", 4), -1, "an unknown token has no id");
	T_OK(!sky_tokenizer_token(l.t, -1, &n, NULL) && !sky_tokenizer_token(l.t, 1 << 20, &n, NULL),
	     "ids out of range have no text");
	unload(&l);
}

static void added_as_text(void)
{
	static const char text[] = "a<s>b";
	struct sky_ids with = { 0 }, without = { 0 };
	struct loaded l;

	if (!load("qwen-like", &l)) {
		return;
	}
	T_OK(sky_encode(l.e, text, 5, 0, &with, &err) == 0 && with.n == 3, "a special token in text is one token");
	T_OK(sky_encode(l.e, text, 5, SKY_ENC_NO_ADDED, &without, &err) == 0 && without.n == 5,
	     "and ordinary text when asked");
	sky_ids_release(&with);
	sky_ids_release(&without);
	unload(&l);
}

/* Pieces of a million characters: a quadratic algorithm would take minutes here. */
static void long_runs(void)
{
	const size_t n = 1000000;
	char *text = malloc(n);
	struct sky_ids ids = { 0 };
	struct loaded l;

	if (!load("llama3-like", &l)) {
		free(text);
		return;
	}
	for (const char *c = "x \n-1the"; *c; c++) {
		memset(text, *c, n);
		ids.n = 0;
		T_OK(sky_encode(l.e, text, n, 0, &ids, &err) == 0 && ids.n > 0, "a million times byte %d", *c);
	}
	for (size_t i = 0; i < n; i++) {
		text[i] = "the"[i % 3];
	}
	ids.n = 0;
	T_OK(sky_encode(l.e, text, n, 0, &ids, &err) == 0 && ids.n > 0, "a word of a million letters");
	sky_ids_release(&ids);
	unload(&l);
	free(text);
}

/* ---- bad files ---- */

static void refused(const char *json, const char *part, const char *what)
{
	struct sky_tokenizer *t = NULL;
	int rc = sky_tokenizer_parse(json, strlen(json), "bad.json", &t, &err);

	T_OK(rc == SKY_E_DATA, "%s is refused", what);
	T_HAS(err.msg, part, "%s: the message names it", what);
	if (rc == 0) {
		sky_tokenizer_close(t);
	}
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void bad_files(void)
{
	refused("", "expected '{'", "an empty file");
	refused("{", "too early", "a cut file");
	refused("{\"version\":\"1.0\"}", "no \"model\"", "a file without a model");
	refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[],\"unk_id\":0}}", "Unigram", "Unigram");
	refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece", "WordPiece");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "second part",
		"a merge of an unknown token");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "two parts", "half a merge");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "','", "half a pair");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "token id", "a negative id");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "dropout",
		"dropout");
	refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}", "unk_token",
		"an unknown token that is unknown");
	refused("{\"normalizer\":{\"type\":\"Precompiled\"}," MODEL "}", "Precompiled",
		"a normalizer that is not supported");
	refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", "UnicodeScripts",
		"a pre-tokenizer that is not supported");
	refused("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", "CTC", "a decoder that is not supported");
	refused("{\"post_processor\":{\"type\":\"Magic\"}," MODEL "}", "Magic",
		"a post-processor that is not supported");
	refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\","
		"\"invert\":false}," MODEL "}",
		"pattern", "a pattern that does not compile");
	refused("{" MODEL "}x", "behind the end", "text behind the document");
	refused("{\"added_tokens\":[{\"id\":5}]," MODEL "}", "content", "an added token without content");
	refused("\xff{}", "UTF-8", "a file that is not UTF-8");
}

static void warned(void)
{
	static const char json[] = "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"special\":true}]," MODEL "}";
	static const char cut[] = "{\"truncation\":{\"max_length\":8},\"padding\":null," MODEL "}";
	struct sky_tokenizer *t = NULL;

	if (T_RC(sky_tokenizer_parse(json, sizeof(json) - 1, "odd.json", &t, &err), 0, &err,
		 "an added token with an odd id loads")) {
		T_HAS(sky_tokenizer_warnings(t), "<x>", "and a warning names it");
		T_I64(sky_tokenizer_id(t, "<x>", 3), 3, "with the id that tokenizers gives");
		sky_tokenizer_close(t);
	}
	if (T_RC(sky_tokenizer_parse(cut, sizeof(cut) - 1, "cut.json", &t, &err), 0, &err,
		 "a file with truncation loads")) {
		T_HAS(sky_tokenizer_warnings(t), "truncation", "and a warning says that it is ignored");
		sky_tokenizer_close(t);
	}
}

/* ---- rank files ---- */

static void rank_file(void)
{
	static const char good[] = "YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nYWJh 4\n";
	struct sky_tokenizer *t = NULL;
	struct sky_encoder *e = NULL;
	struct sky_ids ids = { 0 };
	const char *path = t_path("cl100k_tiny.tiktoken");
	int rc = sky_file_publish(path, good, sizeof(good) - 1, SKY_OUT_NO_FSYNC, &err);

	rc = rc < 0 ? rc : sky_tokenizer_open(path, &t, &err);
	rc = rc < 0 ? rc : sky_encoder_new(t, &e, &err);
	rc = rc < 0 ? rc : sky_encode(e, "aba abab", 8, 0, &ids, &err);
	T_RC(rc, 0, &err, "a rank file loads and encodes");
	/* "aba" is a token; " abab": ab before aba, so ␣ ab ab */
	T_OK(ids.n == 4 && memcmp(ids.id, (int32_t[]){ 4, 2, 3, 3 }, 16) == 0,
	     "the union of smallest rank merges first");
	sky_ids_release(&ids);
	sky_encoder_free(e);
	sky_tokenizer_close(t);
	path = t_path("cl100k_bad.tiktoken");
	rc = sky_file_publish(path, "YQ== x\n", 7, SKY_OUT_NO_FSYNC, &err);
	T_RC(rc < 0 ? rc : sky_tokenizer_open(path, &t, &err), SKY_E_DATA, &err, "a line without a rank is refused");
	path = t_path("unknown.tiktoken");
	rc = sky_file_publish(path, good, sizeof(good) - 1, SKY_OUT_NO_FSYNC, &err);
	T_RC(rc < 0 ? rc : sky_tokenizer_open(path, &t, &err), SKY_E_DATA, &err,
	     "a rank file of unknown pattern is refused");
	T_RC(sky_tokenizer_open(t_path("nothing"), &t, &err), SKY_E_MISSING, &err, "a missing file is missing");
}

/* The Kimi family: 256 names behind the ranks, from tokenizer_config.json; runs of 25,000 characters are cut. */
static void kimi_files(void)
{
	static const char config[] = "{\"added_tokens_decoder\":{\"3\":{\"content\":\"[BOS]\",\"special\":true}}}";
	static const char ranks[] = "eA== 0\neQ== 1\neHg= 2\n"; /* x, y, xx */
	char *text = malloc(25001);
	struct sky_tokenizer *t = NULL;
	struct sky_encoder *e = NULL;
	struct sky_ids ids = { 0 };
	char dir[T_PATH_MAX], path[T_PATH_MAX + 32];
	int rc;

	snprintf(dir, sizeof(dir), "%s", t_path("kimi"));
	rc = sky_mkdirs(dir, &err);
	snprintf(path, sizeof(path), "%s/tiktoken.model", dir);
	rc = rc < 0 ? rc : sky_file_publish(path, ranks, sizeof(ranks) - 1, SKY_OUT_NO_FSYNC, &err);
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	rc = rc < 0 ? rc : sky_file_publish(path, config, sizeof(config) - 1, SKY_OUT_NO_FSYNC, &err);
	rc = rc < 0 ? rc : sky_tokenizer_open(dir, &t, &err);
	rc = rc < 0 ? rc : sky_encoder_new(t, &e, &err);
	if (T_RC(rc, 0, &err, "a folder with tiktoken.model loads")) {
		T_I64(sky_tokenizer_vocab(t), 3 + 256, "256 special tokens follow the ranks");
		T_I64(sky_tokenizer_id(t, "[BOS]", 5), 3, "named by tokenizer_config.json");
		T_I64(sky_tokenizer_id(t, "<|reserved_token_258|>", 22), 258, "or reserved");
		rc = sky_encode(e, "xx[BOS]y", 8, 0, &ids, &err);
		T_OK(rc == 0 && ids.n == 3 && memcmp(ids.id, (int32_t[]){ 2, 3, 1 }, 12) == 0,
		     "special tokens are found in text");
		memset(text, 'x', 25001);
		text[0] = 'y';
		ids.n = 0;
		rc = sky_encode(e, text, 25001, 0, &ids, &err);
		T_OK(rc == 0 && ids.n == 1 + 12499 + 2, "a run of 25,001 characters is cut behind 25,000");
	}
	sky_ids_release(&ids);
	sky_encoder_free(e);
	sky_tokenizer_close(t);
	free(text);
}

int main(void)
{
	cases();
	accessors();
	added_as_text();
	long_runs();
	bad_files();
	warned();
	rank_file();
	kimi_files();
	return t_done();
}
