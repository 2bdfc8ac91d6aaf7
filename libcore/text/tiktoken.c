/* Rank files of tiktoken: lines of base64(token) and rank. A piece that is a token is taken whole; otherwise the
 * adjacent pair whose union has the smallest rank merges first. The file names no pattern and no special tokens: both
 * come from the file's name, or, for the Kimi family (tiktoken.model), from tokenizer_config.json beside it. */
#include "text/tok_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS(u, l, tail) \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" u "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" l "]+" tail \
	"|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" u "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" l "]*" tail
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define NOT_HAN "&&[^\\p{Han}]"

static const char pattern_gpt2[] =
	"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s";
static const char pattern_cl100k[] = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
				     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s";
static const char pattern_qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
				   "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char pattern_o200k[] =
	WORDS("", "", CONTRACTION) "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char pattern_kimi[] = "[\\p{Han}]+|" WORDS(
	NOT_HAN, NOT_HAN, CONTRACTION) "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct special {
	const char *text;
	uint32_t id;
};
static const struct rank_file {
	const char *prefix; /* of the file's name */
	const char *pattern;
	enum tok_scan scan;
	bool nfc, kimi;
	struct special special[6];
} kinds[] = {
	{ "r50k", pattern_gpt2, SCAN_GPT2, false, false, { { "<|endoftext|>", 50256 } } },
	{ "gpt2", pattern_gpt2, SCAN_GPT2, false, false, { { "<|endoftext|>", 50256 } } },
	{ "p50k", pattern_gpt2, SCAN_GPT2, false, false, { { "<|endoftext|>", 50256 } } },
	{ "cl100k",
	  pattern_cl100k,
	  SCAN_CL100K,
	  false,
	  false,
	  { { "<|endoftext|>", 100257 },
	    { "<|fim_prefix|>", 100258 },
	    { "<|fim_middle|>", 100259 },
	    { "<|fim_suffix|>", 100260 },
	    { "<|endofprompt|>", 100276 } } },
	{ "o200k",
	  pattern_o200k,
	  SCAN_O200K,
	  false,
	  false,
	  { { "<|endoftext|>", 199999 }, { "<|endofprompt|>", 200018 } } },
	{ "qwen",
	  pattern_qwen,
	  SCAN_QWEN2,
	  true,
	  false,
	  { { "<|endoftext|>", 151643 }, { "<|im_start|>", 151644 }, { "<|im_end|>", 151645 } } },
	{ "tiktoken.model", pattern_kimi, SCAN_KIMI, false, true, { { NULL, 0 } } },
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define KIMI_SPECIALS 256

/* ---- lines ---- */

static int base64_value(char c)
{
	return c >= 'A' && c <= 'Z'   ? c - 'A'
	       : c >= 'a' && c <= 'z' ? c - 'a' + 26
	       : c >= '0' && c <= '9' ? c - '0' + 52
	       : c == '+'             ? 62
	       : c == '/'             ? 63
				      : -1;
}

/* n characters; bytes written, or −1. */
static int64_t base64(const char *s, size_t n, char *out)
{
	uint32_t bits = 0;
	int have = 0;
	int64_t k = 0;

	while (n && s[n - 1] == '=') {
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		int v = base64_value(s[i]);

		if (v < 0) {
			return -1;
		}
		bits = bits << 6 | (uint32_t)v;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[k++] = (char)(bits >> have & 0xff);
		}
	}
	return n % 4 == 1 ? -1 : k;
}

static int load_ranks(struct sky_tokenizer *t, const char *p, size_t n, struct sky_err *err)
{
	const char *end = p + n;
	char bytes[1024];
	int rc = 0;

	for (int64_t line = 1; p < end && rc == 0; line++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *gap;
		uint64_t rank = 0;
		int64_t k;

		gap = memchr(p, ' ', (size_t)(stop - p));
		if (stop == p) {
			p = stop + 1;
			continue;
		}
		k = gap && gap - p <= 1024 ? base64(p, (size_t)(gap - p), bytes) : -1;
		for (p = gap ? gap + 1 : stop; p < stop && *p >= '0' && *p <= '9' && rank <= TOK_MAX_ID; p++) {
			rank = rank * 10 + (uint64_t)(*p - '0');
		}
		p += p < stop && *p == '\r';
		if (k <= 0 || p != stop || stop[-1] == ' ') {
			return sky_fail(err, SKY_E_DATA,
					"%s: line %lld: expected base64 of a token (at most 768 bytes) and its rank",
					t->name, (long long)line);
		}
		rc = tok_vocab_add(&t->vocab, bytes, (size_t)k, (uint32_t)(rank > TOK_MAX_ID ? TOK_MAX_ID + 1 : rank),
				   TOK_MODEL, err);
		t->vocab.n_token++;
		p = stop + 1;
	}
	return rc < 0 ? rc : tok_vocab_index(&t->vocab, err);
}

/* Every way to cut a token into two tokens is a merge of the token's rank. */
static int derive_merges(struct sky_tokenizer *t, struct sky_err *err)
{
	const struct tok_vocab *v = &t->vocab;
	int rc = 0;

	for (uint32_t id = 0; id < v->n_id && rc == 0; id++) {
		const char *s = v->bytes + v->tok[id].off;

		for (uint32_t k = 1; v->tok[id].len != TOK_NO_LEN && k < v->tok[id].len && rc == 0; k++) {
			uint32_t a = tok_vocab_find(v, s, k, false);
			uint32_t b = a == TOK_NO_ID ? a : tok_vocab_find(v, s + k, v->tok[id].len - k, false);

			rc = b == TOK_NO_ID ? 0 : tok_merges_add(&t->merges, a, b, id, id, err);
		}
	}
	return rc < 0 ? rc : tok_merges_index(&t->merges, err);
}

/* ---- special tokens ---- */

static int add_special(struct sky_tokenizer *t, const char *text, uint32_t id, struct sky_err *err)
{
	struct tok_added a = { 0 };
	int rc = tok_vocab_add(&t->vocab, text, strlen(text), id, TOK_ADDED | TOK_SPECIAL, err);

	a.text = rc == 0 ? strdup(text) : NULL;
	if (rc == 0 && !a.text) {
		rc = sky_fail_mem(err, "special tokens");
	}
	if (rc == 0) {
		a.n = strlen(text);
		a.id = id;
		a.flags = ADDED_SPECIAL;
		t->added[t->n_added++] = a;
	}
	return rc;
}

/* The 256 ids behind the ranks: names from added_tokens_decoder, the others are reserved. */
static int kimi_specials(struct sky_tokenizer *t, struct sky_err *err)
{
	const uint32_t first = t->vocab.n_id;
	const struct sky_jnode *list = NULL;
	struct sky_json *doc = NULL;
	char path[SKY_MAX_PATH], dir[SKY_MAX_PATH], text[64];
	char *slash;
	int rc;

	snprintf(dir, sizeof(dir), "%s", t->name);
	slash = strrchr(dir, '/');
	dir[slash ? slash - dir : 0] = 0;
	rc = sky_path_join(path, sizeof(path), *dir ? dir : ".", "tokenizer_config.json", err);
	if (rc == 0 && sky_file_exists(path)) {
		rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err);
		list = rc == 0 ? sky_j_get(sky_json_root(doc), "added_tokens_decoder") : NULL;
	}
	for (uint32_t i = 0; i < KIMI_SPECIALS && rc == 0; i++) {
		const char *name;

		snprintf(text, sizeof(text), "%u", first + i);
		name = sky_j_str(sky_j_get(sky_j_get(list, text), "content"));
		snprintf(text, sizeof(text), "<|reserved_token_%u|>", first + i);
		rc = add_special(t, name && *name ? name : text, first + i, err);
	}
	sky_json_free(doc);
	return rc;
}

static int qwen_extras(struct sky_tokenizer *t, struct sky_err *err)
{
	char text[32];
	int rc = 0;

	for (uint32_t i = 0; i < 205 && rc == 0; i++) {
		snprintf(text, sizeof(text), "<|extra_%u|>", i);
		rc = add_special(t, text, 151646 + i, err);
	}
	return rc;
}

/* ---- the whole ---- */

static int set_steps(struct sky_tokenizer *t, const struct rank_file *k, struct sky_err *err)
{
	t->byte_level = t->ignore_merges = true;
	t->chunked = k->kimi;
	t->pre = sky_calloc_array(2, sizeof(*t->pre));
	t->dec = sky_calloc_array(1, sizeof(*t->dec));
	t->added = sky_calloc_array(KIMI_SPECIALS, sizeof(*t->added));
	if (!t->pre || !t->dec || !t->added) {
		return sky_fail_mem(err, "tokenizer");
	}
	if (k->nfc) {
		t->norm = sky_calloc_array(1, sizeof(*t->norm));
		if (!t->norm) {
			return sky_fail_mem(err, "tokenizer");
		}
		t->norm[t->n_norm++].kind = NORM_FORM; /* NFC */
		t->norm_nfc_only = true;
	}
	t->n_pre = 2;
	t->pre[0].kind = PRE_SPLIT;
	t->pre[0].behavior = SPLIT_ISOLATED;
	t->pre[1].kind = PRE_BYTE_LEVEL;
	t->scan = k->scan;
	t->n_dec = 1;
	t->dec[0].kind = DEC_BYTE_LEVEL;
	t->has_decoder = true;
	return tok_regex_new(k->pattern, TOK_RUST, &t->pre[0].pattern, err);
}

static int build(struct sky_tokenizer *t, const struct rank_file *k, const char *p, size_t n, struct sky_err *err)
{
	int rc = set_steps(t, k, err);

	rc = rc < 0 ? rc : load_ranks(t, p, n, err);
	rc = rc < 0 ? rc : derive_merges(t, err);
	if (rc < 0) {
		return rc;
	}
	tok_find_bytes(t);
	for (int i = 0; i < 6 && k->special[i].text && rc == 0; i++) {
		rc = add_special(t, k->special[i].text, k->special[i].id, err);
	}
	if (k->kimi) {
		rc = rc < 0 ? rc : kimi_specials(t, err);
	} else if (k->nfc) {
		rc = rc < 0 ? rc : qwen_extras(t, err);
	}
	return rc < 0 ? rc : tok_finish(t, err);
}

int tok_open_tiktoken(const char *path, struct sky_tokenizer **t_p, struct sky_err *err)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const struct rank_file *k = NULL;
	struct sky_tokenizer *t = NULL;
	struct sky_map m = SKY_MAP_INIT;
	int rc;

	for (size_t i = 0; i < N_KINDS; i++) {
		k = strncmp(base, kinds[i].prefix, strlen(kinds[i].prefix)) == 0 ? &kinds[i] : k;
	}
	if (!k) {
		return sky_fail(
			err, SKY_E_DATA,
			"%s: a rank file does not say its pattern; the name must begin with r50k, p50k, gpt2, cl100k, "
			"o200k or qwen, or be tiktoken.model",
			path);
	}
	rc = sky_map_open(&m, path, err);
	rc = rc < 0 ? rc : tok_new(path, &t, err);
	if (rc == 0) {
		sky_sha256(m.ptr, m.n, t->sha);
		rc = build(t, k, (const char *)m.ptr, m.n, err);
	}
	sky_map_close(&m);
	if (rc < 0) {
		sky_tokenizer_close(t);
		return rc;
	}
	*t_p = t;
	return 0;
}
