/* The small parts of a tokenizer.json: normalizers, pre-tokenizers, post-processors, decoders. Everything that is not
 * understood is refused by name: a tokenizer that is nearly right is worse than none. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

static const char *type_of(const struct sky_jnode *v)
{
	const char *s = sky_j_str(sky_j_get(v, "type"));

	return s ? s : "?";
}

static bool is(const struct sky_jnode *v, const char *type)
{
	return strcmp(type_of(v), type) == 0;
}

/* "X": {"type": "Sequence", list: [...]} or one component: calls add for each. */
static int each(struct sky_tokenizer *t, const struct sky_jnode *v, const char *list,
		int (*add)(struct sky_tokenizer *, const struct sky_jnode *, struct sky_err *), int depth,
		struct sky_err *err)
{
	int rc = 0;

	if (sky_j_type(v) == SKY_J_NULL) {
		return 0;
	}
	if (!is(v, "Sequence")) {
		return add(t, v, err);
	}
	if (depth > 8) {
		return sky_fail(err, SKY_E_DATA, "%s: sequences nested more than 8 deep", t->name);
	}
	for (v = sky_j_first(sky_j_get(v, list)); v && rc == 0; v = sky_j_next(v)) {
		rc = each(t, v, list, add, depth + 1, err);
	}
	return rc;
}

static int get_bool(const struct sky_jnode *v, const char *key, bool def, bool *out, struct sky_err *err)
{
	return sky_j_get_bool(v, key, def, out, err);
}

/* {"String": s} or {"Regex": r}; source_p (may be NULL) gets a copy of r. */
static int pattern_of(const struct sky_jnode *v, struct tok_regex **r_p, char **source_p, struct sky_err *err)
{
	const char *s = sky_j_str(sky_j_get(v, "String")), *r = sky_j_str(sky_j_get(v, "Regex"));

	if (r) {
		if (source_p && !(*source_p = strdup(r))) {
			return sky_fail_mem(err, "pattern");
		}
		return tok_regex_new(r, TOK_ONIG, r_p, err);
	}
	return s ? tok_literal_new(s, strlen(s), r_p, err)
		 : sky_fail(err, SKY_E_DATA, "\"pattern\" is neither a String nor a Regex");
}

static int text_of(const struct sky_jnode *v, const char *key, const char *def, char **out, struct sky_err *err)
{
	const char *s;
	int rc = sky_j_get_str(v, key, def, &s, err);

	if (rc < 0) {
		return rc;
	}
	if (!s) {
		return sky_fail(err, SKY_E_DATA, "\"%s\" is missing", key);
	}
	*out = strdup(s);
	return *out ? 0 : sky_fail_mem(err, "tokenizer");
}

static void *grow_list(void *list, size_t n, size_t size, struct sky_err *err)
{
	char *p = sky_realloc_array(list, n + 1, size);

	if (!p) {
		sky_fail_mem(err, "tokenizer");
		return NULL;
	}
	memset(p + n * size, 0, size);
	return p;
}

/* ---- normalizers ---- */

static int add_norm(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	static const char *const forms[] = { "NFC", "NFD", "NFKC", "NFKD" };
	struct tok_norm *p = grow_list(t->norm, t->n_norm, sizeof(*p), err), *s;
	int rc = 0;

	if (!p) {
		return SKY_E_LIMIT;
	}
	t->norm = p;
	s = &p[t->n_norm++];
	for (int i = 0; i < 4; i++) {
		if (is(v, forms[i])) {
			s->kind = NORM_FORM;
			s->form = (enum uc_form)i;
			return 0;
		}
	}
	if (is(v, "Lowercase")) {
		s->kind = NORM_LOWER;
	} else if (is(v, "StripAccents")) {
		s->kind = NORM_ACCENTS;
	} else if (is(v, "Strip")) {
		s->kind = NORM_STRIP;
		rc = get_bool(v, "strip_left", true, &s->left, err);
		rc = rc < 0 ? rc : get_bool(v, "strip_right", true, &s->right, err);
	} else if (is(v, "Prepend")) {
		s->kind = NORM_PREPEND;
		rc = text_of(v, "prepend", NULL, &s->text, err);
	} else if (is(v, "Replace")) {
		s->kind = NORM_REPLACE;
		rc = pattern_of(sky_j_get(v, "pattern"), &s->pattern, NULL, err);
		rc = rc < 0 ? rc : text_of(v, "content", NULL, &s->text, err);
	} else {
		rc = sky_fail(err, SKY_E_DATA, "normalizer \"%s\" is not supported", type_of(v));
	}
	return rc;
}

/* ---- pre-tokenizers ---- */

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static int behavior_of(const struct sky_jnode *v, enum tok_behavior def, enum tok_behavior *out, struct sky_err *err)
{
	static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
					     "Contiguous" };
	const char *s;
	int rc = sky_j_get_str(v, "behavior", names[def], &s, err);

	for (int i = 0; i < 5 && rc == 0; i++) {
		if (strcmp(s, names[i]) == 0) {
			*out = (enum tok_behavior)i;
			return 0;
		}
	}
	return rc < 0 ? rc : sky_fail(err, SKY_E_DATA, "split behavior \"%s\" is unknown", s);
}

static int prepend_of(const struct sky_jnode *v, enum tok_prepend *out, struct sky_err *err)
{
	static const char *const names[] = { "always", "first", "never" };
	const char *s;
	bool old;
	int rc = get_bool(v, "add_prefix_space", true, &old, err);

	rc = rc < 0 ? rc : sky_j_get_str(v, "prepend_scheme", old ? "always" : "never", &s, err);
	for (int i = 0; i < 3 && rc == 0; i++) {
		if (strcmp(s, names[i]) == 0) {
			*out = (enum tok_prepend)i;
			return 0;
		}
	}
	return rc < 0 ? rc : sky_fail(err, SKY_E_DATA, "prepend_scheme \"%s\" is unknown", s);
}

static int short_text(const struct sky_jnode *v, const char *key, char out[8], struct sky_err *err)
{
	const char *s;
	int rc = sky_j_get_str(v, key, "\xe2\x96\x81", &s, err);

	if (rc == 0 && (strlen(s) > 7 || !*s)) {
		return sky_fail(err, SKY_E_DATA, "\"%s\" is not one character", key);
	}
	if (rc == 0) {
		memcpy(out, s, strlen(s) + 1);
	}
	return rc;
}

static int pre_byte_level(struct tok_pre *s, const struct sky_jnode *v, struct sky_err *err)
{
	int rc = get_bool(v, "add_prefix_space", true, &s->prefix_space, err);

	s->kind = PRE_BYTE_LEVEL;
	s->behavior = SPLIT_ISOLATED;
	rc = rc < 0 ? rc : get_bool(v, "use_regex", true, &s->use_regex, err);
	return rc < 0 || !s->use_regex ? rc : tok_regex_new(GPT2_PATTERN, TOK_ONIG, &s->pattern, err);
}

static int pre_split(struct tok_pre *s, const struct sky_jnode *v, struct sky_err *err)
{
	int rc = behavior_of(v, SPLIT_ISOLATED, &s->behavior, err);

	s->kind = PRE_SPLIT;
	rc = rc < 0 ? rc : get_bool(v, "invert", false, &s->invert, err);
	return rc < 0 ? rc : pattern_of(sky_j_get(v, "pattern"), &s->pattern, &s->source, err);
}

static int pre_metaspace(struct tok_pre *s, const struct sky_jnode *v, struct sky_err *err)
{
	int rc = short_text(v, "replacement", s->text, err);

	s->kind = PRE_METASPACE;
	s->behavior = SPLIT_NEXT;
	rc = rc < 0 ? rc : prepend_of(v, &s->prepend, err);
	rc = rc < 0 ? rc : get_bool(v, "split", true, &s->split, err);
	return rc < 0 || !s->split ? rc : tok_literal_new(s->text, strlen(s->text), &s->pattern, err);
}

static int add_pre(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	struct tok_pre *p = grow_list(t->pre, t->n_pre, sizeof(*p), err), *s;

	if (!p) {
		return SKY_E_LIMIT;
	}
	t->pre = p;
	s = &p[t->n_pre++];
	if (t->byte_level) {
		return sky_fail(err, SKY_E_DATA, "pre-tokenizer \"%s\" behind ByteLevel is not supported", type_of(v));
	}
	if (is(v, "Split")) {
		return pre_split(s, v, err);
	}
	if (is(v, "ByteLevel")) {
		t->byte_level = true;
		return pre_byte_level(s, v, err);
	}
	if (is(v, "Metaspace")) {
		return pre_metaspace(s, v, err);
	}
	if (is(v, "Digits")) {
		s->kind = PRE_DIGITS;
		return get_bool(v, "individual_digits", false, &s->individual, err);
	}
	if (is(v, "Punctuation")) {
		s->kind = PRE_PUNCT;
		return behavior_of(v, SPLIT_ISOLATED, &s->behavior, err);
	}
	if (is(v, "CharDelimiterSplit")) {
		int rc = short_text(v, "delimiter", s->text, err);

		s->kind = PRE_DELIMITER;
		s->behavior = SPLIT_REMOVED;
		return rc < 0 ? rc : tok_literal_new(s->text, strlen(s->text), &s->pattern, err);
	}
	if (is(v, "Whitespace") || is(v, "WhitespaceSplit")) {
		s->kind = is(v, "Whitespace") ? PRE_WHITESPACE : PRE_WHITESPACE_SPLIT;
		return 0;
	}
	return sky_fail(err, SKY_E_DATA, "pre-tokenizer \"%s\" is not supported", type_of(v));
}

/* ---- post-processors ---- */

static int add_ids(uint32_t **list, size_t *n, const struct sky_jnode *ids, bool front, struct sky_err *err)
{
	size_t m = sky_j_len(ids), i = 0;
	uint32_t *p = sky_realloc_array(*list, *n + m + 1, sizeof(*p));

	if (!p) {
		return sky_fail_mem(err, "post-processor");
	}
	*list = p;
	if (front) {
		memmove(p + m, p, *n * sizeof(*p));
	}
	for (const struct sky_jnode *v = sky_j_first(ids); v; v = sky_j_next(v), i++) {
		int64_t id;

		if (!sky_j_i64(v, &id) || id < 0 || id > TOK_MAX_ID) {
			return sky_fail(err, SKY_E_DATA, "post-processor: an id of a special token is not an id");
		}
		p[(front ? 0 : *n) + i] = (uint32_t)id;
	}
	*n += m;
	return 0;
}

/* single: special tokens before and behind the sequence A */
static int add_template(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	const struct sky_jnode *special = sky_j_get(v, "special_tokens"), *x;
	uint32_t *before = NULL;
	size_t n_before = 0;
	int n_seq = 0, rc = 0;

	for (x = sky_j_first(sky_j_get(v, "single")); x && rc == 0; x = sky_j_next(x)) {
		const char *id = sky_j_str(sky_j_get(sky_j_get(x, "SpecialToken"), "id"));
		const struct sky_jnode *ids = id ? sky_j_get(sky_j_get(special, id), "ids") : NULL;

		if (sky_j_get(x, "Sequence")) {
			n_seq++;
		} else if (!ids) {
			rc = sky_fail(err, SKY_E_DATA, "post-processor: special token \"%s\" has no ids",
				      id ? id : "?");
		} else {
			rc = n_seq ? add_ids(&t->post_after, &t->n_after, ids, false, err)
				   : add_ids(&before, &n_before, ids, false, err);
		}
	}
	if (rc == 0 && n_seq != 1) {
		rc = sky_fail(err, SKY_E_DATA, "post-processor: the template for one text names it %d times", n_seq);
	}
	for (size_t i = 0; i < t->n_before && rc == 0; i++) {
		uint32_t *p = sky_realloc_array(before, n_before + 1, sizeof(*p));

		if (!p) {
			rc = sky_fail_mem(err, "post-processor");
			break;
		}
		before = p;
		before[n_before++] = t->post_before[i];
	}
	if (rc < 0) {
		free(before);
		return rc;
	}
	free(t->post_before);
	t->post_before = before;
	t->n_before = n_before;
	return 0;
}

/* "sep": ["</s>", 2] */
static int add_pair(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	const char *const keys[2] = { "cls", "sep" };

	for (int i = 0; i < 2; i++) {
		int64_t id;
		uint32_t **list = i ? &t->post_after : &t->post_before, *p;
		size_t *n = i ? &t->n_after : &t->n_before;

		if (!sky_j_i64(sky_j_at(sky_j_get(v, keys[i]), 1), &id) || id < 0 || id > TOK_MAX_ID) {
			return sky_fail(err, SKY_E_DATA, "post-processor: \"%s\" has no id", keys[i]);
		}
		p = sky_realloc_array(*list, *n + 1, sizeof(*p));
		if (!p) {
			return sky_fail_mem(err, "post-processor");
		}
		*list = p;
		if (i == 0) {
			memmove(p + 1, p, *n * sizeof(*p));
		}
		p[i ? *n : 0] = (uint32_t)id;
		(*n)++;
	}
	return 0;
}

static int add_post(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	if (is(v, "ByteLevel")) {
		return 0; /* changes offsets only */
	}
	if (is(v, "TemplateProcessing")) {
		return add_template(t, v, err);
	}
	if (is(v, "BertProcessing") || is(v, "RobertaProcessing")) {
		return add_pair(t, v, err);
	}
	return sky_fail(err, SKY_E_DATA, "post-processor \"%s\" is not supported", type_of(v));
}

/* ---- decoders ---- */

static int add_dec(struct sky_tokenizer *t, const struct sky_jnode *v, struct sky_err *err)
{
	struct tok_dec *p = grow_list(t->dec, t->n_dec, sizeof(*p), err), *s;
	int rc = 0;

	if (!p) {
		return SKY_E_LIMIT;
	}
	t->dec = p;
	s = &p[t->n_dec++];
	if (is(v, "ByteLevel") || is(v, "ByteFallback") || is(v, "Fuse")) {
		s->kind = is(v, "ByteLevel") ? DEC_BYTE_LEVEL : is(v, "Fuse") ? DEC_FUSE : DEC_BYTE_FALLBACK;
	} else if (is(v, "Strip")) {
		s->kind = DEC_STRIP;
		rc = text_of(v, "content", " ", &s->text, err);
		rc = rc < 0 ? rc : sky_j_get_i64(v, "start", 0, &s->start, err);
		rc = rc < 0 ? rc : sky_j_get_i64(v, "stop", 0, &s->stop, err);
	} else if (is(v, "Replace")) {
		s->kind = DEC_REPLACE;
		rc = pattern_of(sky_j_get(v, "pattern"), &s->pattern, NULL, err);
		rc = rc < 0 ? rc : text_of(v, "content", NULL, &s->text, err);
	} else if (is(v, "Metaspace")) {
		s->kind = DEC_METASPACE;
		rc = prepend_of(v, &s->prepend, err);
		rc = rc < 0 ? rc : text_of(v, "replacement", "\xe2\x96\x81", &s->text, err);
	} else if (is(v, "WordPiece")) {
		s->kind = DEC_WORDPIECE;
		rc = text_of(v, "prefix", "##", &s->text, err);
		rc = rc < 0 ? rc : get_bool(v, "cleanup", true, &s->cleanup, err);
	} else if (is(v, "BPEDecoder")) {
		s->kind = DEC_BPE;
		rc = text_of(v, "suffix", "</w>", &s->text, err);
	} else {
		rc = sky_fail(err, SKY_E_DATA, "decoder \"%s\" is not supported", type_of(v));
	}
	return rc;
}

int tok_config_parts(struct sky_tokenizer *t, const struct sky_jnode *norm, const struct sky_jnode *pre,
		     const struct sky_jnode *post, const struct sky_jnode *dec, struct sky_err *err)
{
	int rc = each(t, norm, "normalizers", add_norm, 0, err);

	rc = rc < 0 ? rc : each(t, pre, "pretokenizers", add_pre, 0, err);
	rc = rc < 0 ? rc : each(t, post, "processors", add_post, 0, err);
	rc = rc < 0 ? rc : each(t, dec, "decoders", add_dec, 0, err);
	t->has_decoder = sky_j_type(dec) != SKY_J_NULL;
	t->norm_nfc_only = t->n_norm == 1 && t->norm[0].kind == NORM_FORM && t->norm[0].form == UC_NFC_FORM;
	return sky_while(err, rc, "%s", t->name);
}

/* ---- added tokens ---- */

static int read_added(const struct sky_jnode *v, struct tok_added *a, int64_t *id_p, struct sky_err *err)
{
	static const char *const keys[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };
	const char *s;
	bool on[5];
	int rc = sky_j_get_str(v, "content", NULL, &s, err);

	rc = rc < 0 ? rc : sky_j_get_i64(v, "id", -1, id_p, err);
	rc = rc < 0 ? rc : get_bool(v, "special", false, &on[4], err);
	for (int i = 0; i < 4 && rc == 0; i++) {
		rc = get_bool(v, keys[i], i == 3 && !on[4], &on[i], err);
	}
	if (rc < 0) {
		return rc;
	}
	if (!s) {
		return sky_fail(err, SKY_E_DATA, "an added token has no content");
	}
	a->n = strlen(s);
	a->text = strdup(s);
	for (int i = 0; i < 5; i++) {
		a->flags |= on[i] ? 1u << i : 0;
	}
	return a->text ? 0 : sky_fail_mem(err, "added tokens");
}

uint32_t tok_find_spelled(const struct sky_tokenizer *t, const char *s, size_t n)
{
	char *bytes;
	uint32_t id;
	int64_t k;

	if (!t->byte_level) {
		return tok_vocab_find(&t->vocab, s, n, false);
	}
	bytes = malloc(n + 1);
	if (!bytes) {
		return TOK_NO_ID;
	}
	k = tok_unmap(s, n, bytes);
	id = k < 0 ? tok_vocab_find(&t->vocab, s, n, true) : tok_vocab_find(&t->vocab, bytes, (size_t)k, false);
	free(bytes);
	return id;
}

static bool listed_already(const struct sky_tokenizer *t, const struct tok_added *a)
{
	if (a->id != TOK_NO_ID) {
		return t->vocab.tok[a->id].flag & TOK_ADDED;
	}
	for (size_t i = 0; i < t->n_added; i++) {
		if (t->added[i].n == a->n && memcmp(t->added[i].text, a->text, a->n) == 0) {
			return true;
		}
	}
	return false;
}

/* A token that the model's vocabulary lacks, stored as decode writes it. */
int tok_store_added(struct sky_tokenizer *t, const char *text, size_t n, uint32_t id, struct sky_err *err)
{
	char *bytes = malloc(n + 1);
	int64_t k;
	int rc;

	if (!bytes) {
		return sky_fail_mem(err, "added tokens");
	}
	k = t->byte_level ? tok_unmap(text, n, bytes) : -1;
	rc = k < 0 ? tok_vocab_add(&t->vocab, text, n, id, TOK_FOREIGN, err)
		   : tok_vocab_add(&t->vocab, bytes, (size_t)k, id, 0, err);
	free(bytes);
	return rc;
}

/* Takes *a over or, when it is a duplicate, frees it. The id is the one `tokenizers` gives: that of the vocabulary,
 * else the next free one. want: the id that the file names, or −1. */
int tok_add_added(struct sky_tokenizer *t, struct tok_added *a, int64_t want, struct sky_err *err)
{
	int rc = 0;

	a->id = tok_find_spelled(t, a->text, a->n);
	if (a->n == 0 || listed_already(t, a)) {
		free(a->text);
		return 0;
	}
	t->next_added = t->next_added < t->vocab.n_token ? t->vocab.n_token : t->next_added;
	if (a->id == TOK_NO_ID) {
		a->id = t->next_added;
		if (a->id < t->vocab.n_id && t->vocab.tok[a->id].len != TOK_NO_LEN) {
			rc = sky_fail(err, SKY_E_DATA, "\"%s\" gets id %u, which another token of the vocabulary has",
				      a->text, a->id);
		}
		rc = rc < 0 ? rc : tok_store_added(t, a->text, a->n, a->id, err);
	}
	if (rc < 0) {
		free(a->text);
		return rc;
	}
	t->next_added = a->id >= t->next_added ? a->id + 1 : t->next_added;
	t->vocab.tok[a->id].flag |= TOK_ADDED | (a->flags & ADDED_SPECIAL ? TOK_SPECIAL : 0);
	t->added[t->n_added++] = *a;
	if (want >= 0 && want != (int64_t)a->id) {
		rc = tok_warn(t, err,
			      "%s: added token \"%s\" is listed with id %lld; tokenizers gives it %u, and so do we",
			      t->name, a->text, (long long)want, a->id);
	}
	return rc;
}

int tok_config_added(struct sky_tokenizer *t, const struct sky_jnode *list, struct sky_err *err)
{
	size_t n = sky_j_len(list);
	int rc = 0;

	t->added = sky_calloc_array(n + 1, sizeof(*t->added));
	if (!t->added) {
		return sky_fail_mem(err, "added tokens");
	}
	for (const struct sky_jnode *v = sky_j_first(list); v && rc == 0; v = sky_j_next(v)) {
		struct tok_added a = { 0 };
		int64_t id = -1;

		rc = read_added(v, &a, &id, err);
		if (rc < 0) {
			free(a.text);
			break;
		}
		rc = tok_add_added(t, &a, id, err);
	}
	return sky_while(err, rc, "%s: added_tokens", t->name);
}
