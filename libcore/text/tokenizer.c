/* Opening a tokenizer: the large tables of a tokenizer.json are read by tokjson.c, the rest by config.c. */
#include "text/tok_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part {
	PART_NORM,
	PART_PRE,
	PART_POST,
	PART_DEC,
	PART_ADDED,
	PART_MODEL,
	PART_TRUNCATION,
	PART_PADDING,
	PART_COUNT
};
static const char *const part_key[PART_COUNT] = {
	"normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "model", "truncation", "padding",
};
struct extent {
	const char *p;
	size_t n;
};

int tok_warn(struct sky_tokenizer *t, struct sky_err *err, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	return sky_buf_addf(&t->warnings, err, "%s%s", t->warnings.n ? "\n" : "", line);
}

/* Spans of the members of an object that we want; every other member is stepped over. */
static int find_members(struct tj *j, const char *const *key, struct extent *out, int n, struct sky_err *err)
{
	bool first = true;
	int rc = tj_expect(j, '{', err);

	while (rc == 0 && (rc = tj_more(j, '}', &first, err)) == 1) {
		const char *s;
		size_t len;
		int which = n;

		rc = tj_string(j, &s, &len, err);
		for (int i = 0; rc == 0 && i < n; i++) {
			which = strlen(key[i]) == len && memcmp(key[i], s, len) == 0 ? i : which;
		}
		rc = rc < 0 ? rc : tj_expect(j, ':', err);
		tj_peek(j);
		s = j->p;
		rc = rc < 0 ? rc : tj_skip(j, 1, err);
		if (rc == 0 && which < n) {
			out[which].p = s;
			out[which].n = (size_t)(j->p - s);
		}
	}
	return rc;
}

/* ---- the model ---- */

struct spelling {
	char *bytes;
	size_t cap;
}; /* scratch for unmapped token texts */

static int unmap(const struct sky_tokenizer *t, struct spelling *sp, const char **s, size_t *n, bool *foreign,
		 struct sky_err *err)
{
	int64_t k;

	*foreign = false;
	if (!t->byte_level) {
		return 0;
	}
	if (*n > sp->cap) {
		char *p = realloc(sp->bytes, *n * 2 + 256);

		if (!p) {
			return sky_fail_mem(err, "vocabulary");
		}
		sp->bytes = p;
		sp->cap = *n * 2 + 256;
	}
	k = tok_unmap(*s, *n, sp->bytes);
	if (k < 0) {
		*foreign = true;
		return 0;
	}
	*s = sp->bytes;
	*n = (size_t)k;
	return 0;
}

static int load_vocab(struct sky_tokenizer *t, struct extent at, struct sky_err *err)
{
	struct spelling sp = { NULL, 0 };
	struct tj j;
	bool first = true, foreign;
	int rc;

	tj_init(&j, at.p, at.n, t->name);
	rc = tj_expect(&j, '{', err);
	while (rc == 0 && (rc = tj_more(&j, '}', &first, err)) == 1) {
		const char *s;
		size_t n;
		uint32_t id;

		rc = tj_string(&j, &s, &n, err);
		rc = rc < 0 ? rc : unmap(t, &sp, &s, &n, &foreign, err);
		rc = rc < 0 ? rc : tj_expect(&j, ':', err);
		rc = rc < 0 ? rc : tj_u32(&j, &id, err);
		rc = rc < 0 ? rc : tok_vocab_add(&t->vocab, s, n, id, TOK_MODEL | (foreign ? TOK_FOREIGN : 0), err);
		t->vocab.n_token++;
	}
	free(sp.bytes);
	tj_release(&j);
	return rc < 0 ? rc : tok_vocab_index(&t->vocab, err);
}

struct merge_load {
	struct sky_tokenizer *t;
	struct spelling sp;
	struct sky_buf pair; /* the union's text */
	size_t n_prefix;
	uint32_t guess; /* unions mostly come in the order of their ids */
};

static uint32_t find_union(struct merge_load *l)
{
	const struct tok_vocab *v = &l->t->vocab;
	const uint32_t g = l->guess;
	uint32_t id;

	if (g < v->n_id && v->tok[g].len == l->pair.n && v->tok[g].flag == TOK_MODEL &&
	    memcmp(v->bytes + v->tok[g].off, l->pair.ptr, l->pair.n) == 0) {
		id = g;
	} else {
		id = tok_vocab_find(v, l->pair.ptr, l->pair.n, false);
	}
	l->guess = id + 1;
	return id;
}

static bool is_byte_name(const char *s, size_t n)
{
	return n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>';
}

/* Texts as they stand in the file. */
static int load_merge(struct merge_load *l, const char *a, size_t n_a, const char *b, size_t n_b, struct sky_err *err)
{
	struct sky_tokenizer *t = l->t;
	uint32_t id[3];
	bool foreign = false;
	const bool bytes = is_byte_name(a, n_a) || is_byte_name(b, n_b);
	int rc;

	sky_buf_clear(&l->pair);
	rc = unmap(t, &l->sp, &a, &n_a, &foreign, err);
	rc = rc < 0 ? rc : sky_buf_add(&l->pair, a, n_a, err);
	if (rc < 0) {
		return rc;
	}
	id[0] = foreign ? TOK_NO_ID : tok_vocab_find(&t->vocab, a, n_a, false);
	rc = unmap(t, &l->sp, &b, &n_b, &foreign, err);
	if (rc < 0) {
		return rc;
	}
	id[1] = foreign ? TOK_NO_ID : tok_vocab_find(&t->vocab, b, n_b, false);
	if (n_b >= l->n_prefix) {
		rc = sky_buf_add(&l->pair, b + l->n_prefix, n_b - l->n_prefix, err);
	}
	id[2] = rc == 0 && l->pair.ptr ? find_union(l) : TOK_NO_ID;
	if (rc == 0 && (id[0] == TOK_NO_ID || id[1] == TOK_NO_ID || id[2] == TOK_NO_ID)) {
		return sky_fail(err, SKY_E_DATA, "%s: merge %u: %s is not in the vocabulary", t->name, t->merges.n_rank,
				id[0] == TOK_NO_ID   ? "its first part"
				: id[1] == TOK_NO_ID ? "its second part"
						     : "the union");
	}
	t->merges_of_bytes |= bytes;
	return rc < 0 ? rc : tok_merges_add(&t->merges, id[0], id[1], t->merges.n_rank, id[2], err);
}

/* "a b" or ["a", "b"] */
static int read_merge(struct merge_load *l, struct tj *j, struct sky_buf *left, struct sky_err *err)
{
	const char *s, *cut;
	size_t n;
	bool first = true;
	int rc;

	if (tj_peek(j) == '"') {
		rc = tj_string(j, &s, &n, err);
		cut = rc == 0 ? memchr(s, ' ', n) : NULL;
		if (rc == 0 && (!cut || memchr(cut + 1, ' ', n - (size_t)(cut + 1 - s)))) {
			return tj_fail(j, "a merge must have two parts with one space between them", err);
		}
		return rc < 0 ? rc : load_merge(l, s, (size_t)(cut - s), cut + 1, n - (size_t)(cut + 1 - s), err);
	}
	rc = tj_expect(j, '[', err);
	rc = rc < 0 ? rc : tj_string(j, &s, &n, err);
	sky_buf_clear(left);
	rc = rc < 0 ? rc : sky_buf_add(left, s, n, err);
	rc = rc < 0 ? rc : tj_expect(j, ',', err);
	rc = rc < 0 ? rc : tj_string(j, &s, &n, err);
	rc = rc < 0 ? rc : load_merge(l, left->ptr ? left->ptr : "", left->n, s, n, err);
	if (rc == 0 && tj_more(j, ']', &first, err) != 0) {
		return tj_fail(j, "a merge must have two parts", err);
	}
	return rc;
}

static int load_merges(struct sky_tokenizer *t, struct extent at, struct sky_err *err)
{
	struct merge_load l = { t, { NULL, 0 }, SKY_BUF_INIT(1 << 24), t->sub_prefix ? strlen(t->sub_prefix) : 0, 0 };
	struct sky_buf left = SKY_BUF_INIT(1 << 24);
	struct tj j;
	bool first = true;
	int rc;

	tj_init(&j, at.p, at.n, t->name);
	rc = tj_expect(&j, '[', err);
	while (rc == 0 && (rc = tj_more(&j, ']', &first, err)) == 1) {
		rc = read_merge(&l, &j, &left, err);
	}
	free(l.sp.bytes);
	sky_buf_release(&l.pair);
	sky_buf_release(&left);
	tj_release(&j);
	return rc < 0 ? rc : tok_merges_index(&t->merges, err);
}

static int optional_text(const struct sky_jnode *v, const char *key, char **out, struct sky_err *err)
{
	const char *s;
	int rc = sky_j_get_str(v, key, "", &s, err);

	if (rc < 0 || !*s) {
		return rc;
	}
	if (strlen(s) > 128) {
		return sky_fail(err, SKY_E_LIMIT, "model: \"%s\" is longer than 128 bytes", key);
	}
	*out = strdup(s);
	return *out ? 0 : sky_fail_mem(err, "tokenizer");
}

static int load_flags(struct sky_tokenizer *t, const struct sky_jnode *v, char **unk_p, struct sky_err *err)
{
	const char *type = sky_j_str(sky_j_get(v, "type"));
	double dropout;
	int rc;

	if (type && strcmp(type, "BPE") != 0) {
		return sky_fail(err, SKY_E_DATA, "model type \"%s\" is not supported (only BPE is)", type);
	}
	rc = sky_j_get_f64(v, "dropout", 0, &dropout, err);
	if (rc == 0 && dropout > 0) {
		rc = sky_fail(err, SKY_E_DATA, "model: \"dropout\" makes ids random; set it to null");
	}
	rc = rc < 0 ? rc : sky_j_get_bool(v, "fuse_unk", false, &t->fuse_unk, err);
	rc = rc < 0 ? rc : sky_j_get_bool(v, "byte_fallback", false, &t->byte_fallback, err);
	rc = rc < 0 ? rc : sky_j_get_bool(v, "ignore_merges", false, &t->ignore_merges, err);
	rc = rc < 0 ? rc : optional_text(v, "unk_token", unk_p, err);
	rc = rc < 0 ? rc : optional_text(v, "continuing_subword_prefix", &t->sub_prefix, err);
	return rc < 0 ? rc : optional_text(v, "end_of_word_suffix", &t->word_suffix, err);
}

/* What is left of the model object without its two tables, as a small document. */
static int model_flags(struct sky_tokenizer *t, struct tj *j, struct extent *vocab, struct extent *merges, char **unk_p,
		       struct sky_err *err)
{
	static const char *const key[] = {
		"vocab",
		"merges",
		"type",
		"dropout",
		"unk_token",
		"continuing_subword_prefix",
		"end_of_word_suffix",
		"fuse_unk",
		"byte_fallback",
		"ignore_merges",
	};
	struct extent at[10] = { { NULL, 0 } };
	struct sky_buf small = SKY_BUF_INIT(1 << 20);
	struct sky_json *doc = NULL;
	int rc = find_members(j, key, at, 10, err);

	rc = rc < 0 ? rc : sky_buf_adds(&small, "{", err);
	for (int i = 2; i < 10 && rc == 0; i++) {
		if (at[i].p) {
			rc = sky_buf_addf(&small, err, "%s\"%s\":", small.n > 1 ? "," : "", key[i]);
			rc = rc < 0 ? rc : sky_buf_add(&small, at[i].p, at[i].n, err);
		}
	}
	rc = rc < 0 ? rc : sky_buf_adds(&small, "}", err);
	rc = rc < 0 ? rc : sky_json_parse(small.ptr, small.n, "model", 0, &doc, err);
	rc = rc < 0 ? rc : load_flags(t, sky_json_root(doc), unk_p, err);
	sky_json_free(doc);
	sky_buf_release(&small);
	if (rc == 0 && (!at[0].p || !at[1].p)) {
		rc = sky_fail(err, SKY_E_DATA, "the model has no \"%s\"", at[0].p ? "merges" : "vocab");
	}
	*vocab = at[0];
	*merges = at[1];
	return rc;
}

void tok_find_bytes(struct sky_tokenizer *t)
{
	char name[8];

	t->all_bytes = t->byte_level;
	for (unsigned b = 0; b < 256; b++) {
		char c = (char)b;

		snprintf(name, sizeof(name), "<0x%02X>", b);
		t->byte_id[b] = t->byte_level ? tok_vocab_find(&t->vocab, &c, 1, false)
					      : tok_vocab_find(&t->vocab, name, 6, false);
		if (t->byte_id[b] == TOK_NO_ID && b != 0xc0 && b != 0xc1 && b < 0xf5) {
			t->all_bytes = false;
		}
	}
}

static int load_model(struct sky_tokenizer *t, struct extent at, struct sky_err *err)
{
	struct extent vocab, merges;
	char *unk = NULL;
	struct tj j;
	int rc;

	tj_init(&j, at.p, at.n, t->name);
	rc = model_flags(t, &j, &vocab, &merges, &unk, err);
	rc = rc < 0 ? rc : load_vocab(t, vocab, err);
	rc = rc < 0 ? rc : load_merges(t, merges, err);
	if (rc == 0) {
		tok_find_bytes(t);
		t->unk = unk ? tok_vocab_find(&t->vocab, unk, strlen(unk), false) : TOK_NO_ID;
		if (unk && t->unk == TOK_NO_ID) {
			rc = sky_fail(err, SKY_E_DATA, "%s: unk_token \"%s\" is not in the vocabulary", t->name, unk);
		}
	}
	free(unk);
	tj_release(&j);
	return rc;
}

/* ---- the whole file ---- */

static int parse_into(struct sky_tokenizer *t, const char *json, size_t n, struct sky_err *err)
{
	struct extent at[PART_COUNT] = { { NULL, 0 } };
	struct sky_json *doc[PART_COUNT] = { NULL };
	const struct sky_jnode *root[PART_COUNT] = { NULL };
	size_t good = uc_valid((const uint8_t *)json, n);
	struct tj j;
	int rc;

	if (good < n) {
		return sky_fail(err, SKY_E_DATA, "%s: byte %zu: not UTF-8", t->name, good);
	}
	tj_init(&j, json, n, t->name);
	rc = find_members(&j, part_key, at, PART_COUNT, err);
	if (rc == 0 && (tj_peek(&j), j.p != j.end)) {
		rc = tj_fail(&j, "text behind the end of the document", err);
	}
	for (int i = 0; i < PART_MODEL && rc == 0; i++) {
		if (at[i].p) {
			rc = sky_json_parse(at[i].p, at[i].n, part_key[i], 0, &doc[i], err);
			root[i] = rc == 0 ? sky_json_root(doc[i]) : NULL;
		}
	}
	rc = rc < 0 ? sky_while(err, rc, "%s", t->name) : tok_config_parts(t, root[0], root[1], root[2], root[3], err);
	if (rc == 0 && !at[PART_MODEL].p) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no \"model\"; is this a tokenizer.json?", t->name);
	}
	for (int i = PART_TRUNCATION; i <= PART_PADDING && rc == 0; i++) {
		if (at[i].p && strncmp(at[i].p, "null", 4) != 0) {
			rc = tok_warn(t, err, "%s: \"%s\" is ignored: lengths are the caller's business", t->name,
				      part_key[i]);
		}
	}
	rc = rc < 0 ? rc : load_model(t, at[PART_MODEL], err);
	rc = rc < 0 ? rc : tok_config_added(t, root[PART_ADDED], err);
	rc = rc < 0 ? rc : tok_finish(t, err);
	for (int i = 0; i < PART_COUNT; i++) {
		sky_json_free(doc[i]);
	}
	tj_release(&j);
	return rc;
}

int tok_new(const char *name, struct sky_tokenizer **t_p, struct sky_err *err)
{
	struct sky_tokenizer *t;
	int rc = uc_init(err);

	if (rc < 0) {
		return rc;
	}
	t = calloc(1, sizeof(*t));
	if (!t || !(t->name = strdup(name))) {
		free(t);
		return sky_fail_mem(err, "tokenizer");
	}
	sky_buf_init(&t->warnings, 1 << 20);
	t->unk = TOK_NO_ID;
	*t_p = t;
	return 0;
}

int sky_tokenizer_parse(const char *json, size_t n, const char *name, struct sky_tokenizer **t_p, struct sky_err *err)
{
	struct sky_tokenizer *t = NULL;
	int rc = tok_new(name, &t, err);

	if (rc == 0) {
		sky_sha256(json, n, t->sha);
		rc = parse_into(t, json, n, err);
	}
	if (rc < 0) {
		sky_tokenizer_close(t);
		return rc;
	}
	*t_p = t;
	return 0;
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), k = strlen(tail);

	return n >= k && strcmp(s + n - k, tail) == 0;
}

int sky_tokenizer_open(const char *path, struct sky_tokenizer **t_p, struct sky_err *err)
{
	char file[SKY_MAX_PATH];
	struct sky_map m = SKY_MAP_INIT;
	int rc = 0;

	if (snprintf(file, sizeof(file), "%s", path) >= (int)sizeof(file)) {
		return sky_fail(err, SKY_E_LIMIT, "%.64s…: the path is longer than %d bytes", path, SKY_MAX_PATH);
	}
	if (sky_is_dir(path)) {
		rc = sky_path_join(file, sizeof(file), path, "tokenizer.json", err);
		if (rc == 0 && !sky_file_exists(file)) {
			rc = sky_path_join(file, sizeof(file), path, "tiktoken.model", err);
		}
		if (rc == 0 && !sky_file_exists(file)) {
			return sky_fail(err, SKY_E_MISSING,
					"%s: no tokenizer.json and no tiktoken.model in this folder", path);
		}
	}
	if (rc < 0) {
		return rc;
	}
	if (ends_with(file, ".tiktoken") || ends_with(file, "tiktoken.model")) {
		return tok_open_tiktoken(file, t_p, err);
	}
	rc = sky_map_open(&m, file, err);
	if (rc == 0 && m.n > SKY_MAX_JSON_BYTES) {
		rc = sky_fail(err, SKY_E_LIMIT, "%s: larger than %llu bytes", file,
			      (unsigned long long)SKY_MAX_JSON_BYTES);
	}
	rc = rc < 0 ? rc : sky_tokenizer_parse((const char *)m.ptr, m.n, file, t_p, err);
	sky_map_close(&m);
	return rc;
}

void sky_tokenizer_close(struct sky_tokenizer *t)
{
	if (!t) {
		return;
	}
	tok_vocab_release(&t->vocab);
	tok_merges_release(&t->merges);
	for (size_t i = 0; i < t->n_added; i++) {
		free(t->added[i].text);
		free(t->added[i].match);
	}
	for (size_t i = 0; i < t->n_norm; i++) {
		tok_regex_free(t->norm[i].pattern);
		free(t->norm[i].text);
	}
	for (size_t i = 0; i < t->n_pre; i++) {
		tok_regex_free(t->pre[i].pattern);
		free(t->pre[i].source);
	}
	for (size_t i = 0; i < t->n_dec; i++) {
		tok_regex_free(t->dec[i].pattern);
		free(t->dec[i].text);
	}
	tok_trie_free(t->trie_raw);
	tok_trie_free(t->trie_norm);
	free(t->added);
	free(t->norm);
	free(t->pre);
	free(t->dec);
	free(t->post_before);
	free(t->post_after);
	free(t->lexicon);
	free(t->cut_pair);
	free(t->cut_part);
	free(t->sub_prefix);
	free(t->word_suffix);
	sky_buf_release(&t->warnings);
	free(t->name);
	free(t);
}
