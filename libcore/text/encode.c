/* Text → ids: cut added tokens out, normalize, split, merge. */
#include "text/scan.h"

#include <stdlib.h>
#include <string.h>

#define NORM_MAX ((size_t)1 << 32)

void sky_ids_release(struct sky_ids *v)
{
	free(v->id);
	free(v->off);
	memset(v, 0, sizeof(*v));
}

int sky_encoder_new(const struct sky_tokenizer *t, struct sky_encoder **e_p, struct sky_err *err)
{
	struct sky_encoder *e = calloc(1, sizeof(*e));
	int rc;

	if (!e) {
		return sky_fail_mem(err, "encoder");
	}
	e->t = t;
	e->isa = SCAN_AVX512;
	for (int i = 0; i < 2; i++) {
		sky_buf_init(&e->norm[i].buf, NORM_MAX);
		sky_buf_init(&e->work[i].buf, NORM_MAX);
	}
	rc = tok_match_new(&e->match, err);
	if (rc < 0) {
		sky_encoder_free(e);
		return rc;
	}
	*e_p = e;
	return 0;
}

void sky_encoder_free(struct sky_encoder *e)
{
	if (!e) {
		return;
	}
	for (int i = 0; i < 2; i++) {
		sky_buf_release(&e->norm[i].buf);
		sky_buf_release(&e->work[i].buf);
		free(e->norm[i].map.at);
		free(e->work[i].map.at);
	}
	tok_match_free(e->match);
	bpe_scratch_free(e->bpe);
	tok_words_free(e->words);
	free(e->piece);
	free(e->piece2);
	free(e);
}

/* Normalized text without added tokens. */
static int encode_plain(struct sky_encoder *e, const uint8_t *p, size_t n, const uint32_t *map, size_t base,
			struct sky_ids *out, struct sky_err *err)
{
	/* offsets follow from the lengths of tokens only where every byte of the text is in one */
	const bool fast = e->t->fast && !map && (e->t->all_bytes || !e->offsets) && !e->general;
	const uint8_t *q;
	int rc;

	if (n == 0) {
		return 0;
	}
	if (fast && e->t->scan != SCAN_NONE) {
		return tok_words_encode(e, p, n, base, out, err);
	}
	rc = tok_pretokenize(e, p, n, map, base, (map ? map[0] : base) == 0, &q, &map, err);
	for (size_t i = 0; i < e->n_piece && rc == 0; i++) {
		const struct tok_piece w = e->piece[i];

		rc = fast && !map ? tok_words_encode(e, q + w.from, w.to - w.from, base + w.from, out, err)
				  : bpe_encode(e, q + w.from, w.to - w.from, out, map ? map + w.from : NULL,
					       base + w.from, err);
	}
	return rc;
}

/* Text between added tokens that are matched in raw text: normalized, then searched for the others. */
static int encode_gap(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, bool skip_special,
		      struct sky_ids *out, struct sky_err *err)
{
	const struct tok_trie *trie = e->t->trie_norm;
	struct tok_hit hit;
	size_t done = 0, pos = 0;
	const uint32_t *map;
	int rc;

	if (n == 0) {
		return 0;
	}
	rc = tok_normalize(e, p, n, base, &p, &n, &map, err);
	while (rc == 0 && trie && tok_trie_next(trie, p, n, &pos, done, skip_special, &hit)) {
		if (hit.from > done) {
			rc = encode_plain(e, p + done, hit.from - done, map ? map + done : NULL, base + done, out, err);
		}
		if (rc == 0) {
			rc = ids_add(out, hit.token->id, map ? map[hit.from] : base + hit.from, e->offsets, err);
		}
		done = hit.to;
	}
	return rc < 0 || done >= n
		       ? rc
		       : encode_plain(e, p + done, n - done, map ? map + done : NULL, base + done, out, err);
}

static int encode_text(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, bool skip_special,
		       struct sky_ids *out, struct sky_err *err)
{
	const struct tok_trie *trie = e->t->trie_raw;
	struct tok_hit hit;
	size_t done = 0, pos = 0;
	int rc = 0;

	while (rc == 0 && trie && tok_trie_next(trie, p, n, &pos, done, skip_special, &hit)) {
		if (hit.from > done) {
			rc = encode_gap(e, p + done, hit.from - done, base + done, skip_special, out, err);
		}
		if (rc == 0) {
			rc = ids_add(out, hit.token->id, base + hit.from, e->offsets, err);
		}
		done = hit.to;
	}
	return rc < 0 || done >= n ? rc : encode_gap(e, p + done, n - done, base + done, skip_special, out, err);
}

/* End of the next chunk as Kimi's tokenizer cuts long texts: blocks of 400,000 characters, and in them runs of 25,000
 * characters that are all white space or all not (Python's isspace also takes U+001C to U+001F). */
static size_t chunk_end(const uint8_t *p, size_t n, size_t from, size_t *in_block)
{
	size_t run = 0;
	bool space = false;
	unsigned k;

	for (size_t i = from; i < n; i += k) {
		uint32_t c = uc_decode(p + i, &k);
		bool now = (uc_class(c) & UC_S) || (c >= 0x1c && c <= 0x1f);

		if (*in_block == 400000) {
			*in_block = 0;
			return i;
		}
		if (now != space) {
			run = 0;
			space = now;
		} else if (run == 25000) {
			return i;
		}
		run++;
		(*in_block)++;
	}
	return n;
}

static int encode_chunks(struct sky_encoder *e, const uint8_t *p, size_t n, bool skip_special, struct sky_ids *out,
			 struct sky_err *err)
{
	size_t in_block = 0, from = 0;
	int rc = 0;

	while (from < n && rc == 0) {
		size_t to = chunk_end(p, n, from, &in_block);

		rc = encode_text(e, p + from, to - from, from, skip_special, out, err);
		from = to;
	}
	return rc;
}

static int encode(struct sky_encoder *e, const char *text, size_t n, unsigned flags, struct sky_ids *out,
		  struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;
	const bool special = flags & SKY_ENC_SPECIAL, skip = flags & SKY_ENC_NO_ADDED;
	const int64_t n_before = out->n;
	int rc = ids_reserve(out, 16, e->offsets, err);

	if (rc == 0 && n > UINT32_MAX) {
		rc = sky_fail(err, SKY_E_LIMIT, "a text of %zu bytes: the limit is 4 GiB", n);
	}
	for (size_t i = 0; special && i < t->n_before && rc == 0; i++) {
		rc = ids_add(out, t->post_before[i], 0, e->offsets, err);
	}
	if (rc == 0) {
		rc = t->chunked ? encode_chunks(e, (const uint8_t *)text, n, skip, out, err)
				: encode_text(e, (const uint8_t *)text, n, 0, skip, out, err);
	}
	for (size_t i = 0; special && i < t->n_after && rc == 0; i++) {
		rc = ids_add(out, t->post_after[i], n, e->offsets, err);
	}
	if (rc < 0) {
		out->n = n_before;
	}
	return rc;
}

int sky_encode(struct sky_encoder *e, const char *text, size_t n, unsigned flags, struct sky_ids *out,
	       struct sky_err *err)
{
	e->offsets = false;
	return encode(e, text, n, flags, out, err);
}

int sky_encode_offsets(struct sky_encoder *e, const char *text, size_t n, unsigned flags, struct sky_ids *out,
		       struct sky_err *err)
{
	e->offsets = true;
	return encode(e, text, n, flags, out, err);
}

/* ---- what loading derives at its end ---- */

/* Added tokens that are looked for in normalized text are normalized themselves, and that is what decoding gives. */
static int set_match(struct sky_tokenizer *t, struct sky_encoder *e, struct tok_added *a, struct sky_err *err)
{
	const uint8_t *p = (const uint8_t *)a->text;
	const uint32_t *map;
	size_t n = a->n;
	int rc = 0;

	if (a->flags & ADDED_NORMALIZED && t->n_norm) {
		rc = tok_normalize(e, p, n, 0, &p, &n, &map, err);
	}
	if (rc == 0 && !(a->match = malloc(n + 1))) {
		rc = sky_fail_mem(err, "added tokens");
	}
	if (rc == 0) {
		if (n) {
			memcpy(a->match, p, n);
		}
		a->n_match = n;
	}
	if (rc == 0 && (n != a->n || memcmp(a->match, a->text, n) != 0) && !(t->vocab.tok[a->id].flag & TOK_MODEL)) {
		rc = tok_store_added(t, a->match, n, a->id, err);
	}
	return rc;
}

/* Do the ids of a piece depend on nothing but its text, and those of its parts on nothing beyond the part? An unknown
 * token may join with its neighbour, prefix and suffix depend on the place in the word, and byte tokens must not merge.
 */
static bool independent_parts(const struct sky_tokenizer *t)
{
	if (t->byte_level) {
		return t->all_bytes || (t->unk == TOK_NO_ID && !t->byte_fallback);
	}
	if (!t->byte_fallback || t->sub_prefix || t->word_suffix) {
		return false;
	}
	for (unsigned b = 0; b < 256; b++) {
		if (t->byte_id[b] == TOK_NO_ID || t->merges_of_bytes) {
			return false;
		}
	}
	return true;
}

int tok_finish(struct sky_tokenizer *t, struct sky_err *err)
{
	struct sky_encoder *e = NULL;
	int rc = sky_encoder_new(t, &e, err);

	if (t->scan == SCAN_NONE && t->byte_level) {
		t->scan = scan_recognize(t->pre, t->n_pre);
	}
	t->fast = independent_parts(t);
	if (rc == 0 && t->all_bytes) {
		rc = tok_merges_bytes(&t->merges, t->byte_id, err);
		rc = rc < 0 ? rc : tok_lexicon_build(t, e, err);
	}
	if (rc == 0 && t->fast && (t->all_bytes || !t->byte_level)) {
		rc = tok_cut_prepare(t, err);
	}
	for (size_t i = 0; i < t->n_added && rc == 0; i++) {
		rc = set_match(t, e, &t->added[i], err);
	}
	sky_encoder_free(e);
	rc = rc < 0 ? rc : tok_trie_new(t->added, t->n_added, false, &t->trie_raw, err);
	return rc < 0 ? rc : tok_trie_new(t->added, t->n_added, true, &t->trie_norm, err);
}
