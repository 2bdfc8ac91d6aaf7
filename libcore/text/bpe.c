/* One piece → ids, exactly: the pair of smallest rank merges first, the leftmost of equals.
 *
 * Short pieces scan for the minimum (everything lies in a few cache lines); long ones keep a heap, so a run of a
 * million equal characters costs n log n. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_MAX 48

struct bpe_scratch {
	uint32_t *id, *pos;    /* (cap) symbols and where they start in the piece */
	uint32_t *next, *prev; /* (cap) linked list for the heap variant */
	uint64_t *heap;
	size_t n, cap, n_heap, heap_cap;
};

void bpe_scratch_free(struct bpe_scratch *s)
{
	if (s) {
		free(s->id);
		free(s->pos);
		free(s->next);
		free(s->prev);
		free(s->heap);
		free(s);
	}
}

static int grow(struct bpe_scratch *s, size_t n, struct sky_err *err)
{
	uint32_t **part[4] = { &s->id, &s->pos, &s->next, &s->prev };
	size_t cap = n * 2 + 256;

	if (n <= s->cap) {
		return 0;
	}
	for (int i = 0; i < 4; i++) {
		uint32_t *p = sky_realloc_array(*part[i], cap, sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "a piece of %zu bytes", n);
		}
		*part[i] = p;
	}
	s->cap = cap;
	return 0;
}

/* ---- heap of rank << 32 | symbol ---- */

static int heap_push(struct bpe_scratch *s, uint64_t v, struct sky_err *err)
{
	size_t i = s->n_heap;

	if (i == s->heap_cap) {
		size_t cap = i * 2 + 1024;
		uint64_t *p = sky_realloc_array(s->heap, cap, sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "merges of a piece");
		}
		s->heap = p;
		s->heap_cap = cap;
	}
	s->n_heap++;
	while (i > 0 && s->heap[(i - 1) / 2] > v) {
		s->heap[i] = s->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->heap[i] = v;
	return 0;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
	uint64_t top = s->heap[0], v = s->heap[--s->n_heap];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < s->n_heap) {
		c += c + 1 < s->n_heap && s->heap[c + 1] < s->heap[c];
		if (s->heap[c] >= v) {
			break;
		}
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = v;
	return top;
}

static int merge_by_heap(const struct tok_merges *m, struct bpe_scratch *s, struct sky_err *err)
{
	size_t n = s->n, k = 0;
	uint32_t rank;
	int rc = 0;

	s->n_heap = 0;
	for (size_t i = 0; i < n && rc == 0; i++) {
		s->prev[i] = i ? (uint32_t)i - 1 : UINT32_MAX;
		s->next[i] = i + 1 < n ? (uint32_t)i + 1 : UINT32_MAX;
		rank = i + 1 < n ? tok_merges_find(m, s->id[i], s->id[i + 1]) : TOK_NO_ID;
		rc = rank == TOK_NO_ID ? 0 : heap_push(s, (uint64_t)rank << 32 | i, err);
	}
	while (s->n_heap && rc == 0) {
		uint64_t top = heap_pop(s);
		uint32_t i = (uint32_t)top, j;

		if (s->id[i] == TOK_NO_ID || (j = s->next[i]) == UINT32_MAX ||
		    tok_merges_find(m, s->id[i], s->id[j]) != (uint32_t)(top >> 32)) {
			continue; /* stale: one side has merged meanwhile */
		}
		s->id[i] = tok_merges_id(m, (uint32_t)(top >> 32));
		s->id[j] = TOK_NO_ID;
		s->next[i] = s->next[j];
		if (s->next[i] != UINT32_MAX) {
			s->prev[s->next[i]] = i;
			rank = tok_merges_find(m, s->id[i], s->id[s->next[i]]);
			rc = rank == TOK_NO_ID ? 0 : heap_push(s, (uint64_t)rank << 32 | i, err);
		}
		if (s->prev[i] != UINT32_MAX && rc == 0) {
			rank = tok_merges_find(m, s->id[s->prev[i]], s->id[i]);
			rc = rank == TOK_NO_ID ? 0 : heap_push(s, (uint64_t)rank << 32 | s->prev[i], err);
		}
	}
	for (uint32_t i = 0; i != UINT32_MAX && n; i = s->next[i]) {
		s->id[k] = s->id[i];
		s->pos[k++] = s->pos[i];
	}
	s->n = k;
	return rc;
}

/* Ranks of the pairs on both sides of a new symbol. Memory is slow: both filter bits, then both slots are on their way
 * before either is looked at. */
static inline void rank_neighbours(const struct tok_merges *m, const uint32_t *id, uint32_t *rank, size_t at, size_t n)
{
	const bool right = at + 1 < n, left = at > 0;
	const uint64_t hr = tok_merges_hash(id[at], right ? id[at + 1] : 0),
		       hl = tok_merges_hash(left ? id[at - 1] : 0, id[at]);
	const bool try_right = right & tok_merges_maybe(m, hr), try_left = left & tok_merges_maybe(m, hl);

	if (try_left) {
		__builtin_prefetch(&m->slot[hl >> m->shift & m->mask]);
	}
	if (right) {
		rank[at] = try_right ? tok_merges_probe(m, id[at], id[at + 1], hr) : TOK_NO_ID;
	}
	if (left) {
		rank[at - 1] = try_left ? tok_merges_probe(m, id[at - 1], id[at], hl) : TOK_NO_ID;
	}
}

/* bytes: the symbols are the tokens of these bytes, one each; else NULL. */
static void merge_by_scan(const struct tok_merges *m, struct bpe_scratch *s, const uint8_t *bytes)
{
	uint32_t rank[SCAN_MAX];
	size_t n = s->n;

	for (size_t i = 0; i + 1 < n; i++) {
		rank[i] = bytes ? m->first[bytes[i] << 8 | bytes[i + 1]] : tok_merges_find(m, s->id[i], s->id[i + 1]);
	}
	while (n > 1) {
		uint32_t best = rank[0];
		size_t at = 0;

		for (size_t i = 1; i + 1 < n; i++) {
			if (rank[i] < best) {
				best = rank[i];
				at = i;
			}
		}
		if (best == TOK_NO_ID) {
			break;
		}
		s->id[at] = tok_merges_id(m, best);
		for (size_t i = at + 1; i + 1 < n; i++) {
			s->id[i] = s->id[i + 1];
			s->pos[i] = s->pos[i + 1];
			rank[i - 1] = rank[i];
		}
		n--;
		rank_neighbours(m, s->id, rank, at, n);
	}
	s->n = n;
}

/* ---- the symbols a piece starts from ---- */

static void add_symbol(struct bpe_scratch *s, uint32_t id, size_t pos)
{
	s->id[s->n] = id;
	s->pos[s->n++] = (uint32_t)pos;
}

struct unknown {
	bool pending;
	size_t pos;
};

static void flush_unknown(const struct sky_tokenizer *t, struct bpe_scratch *s, struct unknown *u)
{
	if (u->pending) {
		add_symbol(s, t->unk, u->pos);
		u->pending = false;
	}
}

/* A character without a token: its bytes' tokens, the unknown token, or nothing. An unknown that waits for its
 * neighbours is not flushed by byte tokens: so does `tokenizers`. */
static void missing_char(const struct sky_tokenizer *t, struct bpe_scratch *s, struct unknown *u, const uint8_t *p,
			 size_t pos, size_t k)
{
	bool all = t->byte_fallback;

	for (size_t i = 0; i < k && all; i++) {
		all = t->byte_id[p[pos + i]] != TOK_NO_ID;
	}
	if (all) {
		for (size_t i = 0; i < k; i++) {
			add_symbol(s, t->byte_id[p[pos + i]], pos + i);
		}
	} else if (t->unk != TOK_NO_ID) {
		if (u->pending && !t->fuse_unk) {
			flush_unknown(t, s, u);
		}
		if (!u->pending) {
			u->pending = true;
			u->pos = pos;
		}
	}
}

/* Character with prefix and suffix as they are spelled inside a word. */
static uint32_t find_char(const struct sky_tokenizer *t, const uint8_t *p, size_t pos, size_t k, bool last)
{
	char spelled[272];
	size_t n = 0;

	if (pos && t->sub_prefix) {
		n = strlen(t->sub_prefix);
		memcpy(spelled, t->sub_prefix, n);
	}
	memcpy(spelled + n, p + pos, k);
	n += k;
	if (last && t->word_suffix) {
		memcpy(spelled + n, t->word_suffix, strlen(t->word_suffix));
		n += strlen(t->word_suffix);
	}
	return tok_vocab_find(&t->vocab, spelled, n, false);
}

static void chars_of(const struct sky_tokenizer *t, struct bpe_scratch *s, const uint8_t *p, size_t n)
{
	struct unknown u = { false, 0 };

	for (size_t i = 0; i < n;) {
		unsigned k = t->byte_level ? 1 : uc_length(p[i]);
		uint32_t id = t->byte_level ? t->byte_id[p[i]] : find_char(t, p, i, k, i + k == n);

		if (id != TOK_NO_ID) {
			flush_unknown(t, s, &u);
			add_symbol(s, id, i);
		} else {
			missing_char(t, s, &u, p, i, t->byte_level ? 0 : k);
		}
		i += k;
	}
	flush_unknown(t, s, &u);
}

/* Byte-level, every byte has a token. */
static void bytes_of(const struct sky_tokenizer *t, struct bpe_scratch *s, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		s->id[i] = t->byte_id[p[i]];
		s->pos[i] = (uint32_t)i;
	}
	s->n = n;
}

/* ---- many short words at once ---- */

/* Bytes without a token vanish (callers make sure that no unknown token is asked for). */
void bpe_word_start(struct sky_encoder *e, const uint8_t *p, size_t n, struct bpe_word *w)
{
	const struct sky_tokenizer *t = e->t;

	w->n = 0;
	if (t->byte_level) {
		for (size_t i = 0; i < n; i++) {
			w->id[w->n] = t->byte_id[p[i]];
			w->n += t->byte_id[p[i]] != TOK_NO_ID;
		}
	} else {
		struct bpe_scratch one = { .id = w->id, .pos = w->rank };

		chars_of(t, &one, p, n);
		w->n = (uint32_t)one.n;
	}
	for (uint32_t i = 0; i + 1 < w->n; i++) {
		w->rank[i] = t->merges.first ? t->merges.first[p[i] << 8 | p[i + 1]]
					     : tok_merges_find(&t->merges, w->id[i], w->id[i + 1]);
	}
}

/* Merges the best pair and asks for what the pairs around it need; false when nothing merges any more. */
static bool word_step(const struct tok_merges *m, struct bpe_word *w)
{
	uint32_t best = TOK_NO_ID, at = 0;

	for (uint32_t i = 0; i + 1 < w->n; i++) {
		at = w->rank[i] < best ? i : at;
		best = w->rank[i] < best ? w->rank[i] : best;
	}
	if (best == TOK_NO_ID) {
		return false;
	}
	w->id[at] = tok_merges_id(m, best);
	w->n--;
	for (uint32_t i = at + 1; i < w->n; i++) {
		w->id[i] = w->id[i + 1];
		w->rank[i - 1] = w->rank[i];
	}
	w->at = at;
	if (at + 1 < w->n) {
		w->right = tok_merges_hash(w->id[at], w->id[at + 1]);
		__builtin_prefetch(&m->maybe[w->right >> (64 - TOK_FILTER_BITS + 3)]);
		__builtin_prefetch(&m->slot[w->right >> m->shift & m->mask]);
	}
	if (at > 0) {
		w->left = tok_merges_hash(w->id[at - 1], w->id[at]);
		__builtin_prefetch(&m->maybe[w->left >> (64 - TOK_FILTER_BITS + 3)]);
		__builtin_prefetch(&m->slot[w->left >> m->shift & m->mask]);
	}
	return true;
}

static void word_ranks(const struct tok_merges *m, struct bpe_word *w)
{
	const uint32_t at = w->at, *id = w->id;

	if (at + 1 < w->n) {
		w->rank[at] =
			tok_merges_maybe(m, w->right) ? tok_merges_probe(m, id[at], id[at + 1], w->right) : TOK_NO_ID;
	}
	if (at > 0) {
		w->rank[at - 1] =
			tok_merges_maybe(m, w->left) ? tok_merges_probe(m, id[at - 1], id[at], w->left) : TOK_NO_ID;
	}
}

void bpe_merge_words(const struct tok_merges *m, struct bpe_word *w, size_t count, struct bpe_word **scratch)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		scratch[i] = &w[i];
	}
	while (count) {
		n = 0;
		for (size_t i = 0; i < count; i++) {
			scratch[n] = scratch[i];
			n += word_step(m, scratch[i]);
		}
		for (size_t i = 0; i < n; i++) {
			word_ranks(m, scratch[i]);
		}
		count = n;
	}
}

/* ---- ids ---- */

int ids_reserve(struct sky_ids *v, int64_t more, bool offsets, struct sky_err *err)
{
	int64_t cap = v->cap;
	void *p;

	if (v->n + more > cap) {
		cap = (v->n + more) * 3 / 2 + 64;
		p = sky_realloc_array(v->id, (size_t)cap, sizeof(*v->id));
		if (!p) {
			return sky_fail_mem(err, "token ids");
		}
		v->id = p;
	}
	if ((offsets || v->off) && (cap > v->cap || !v->off)) { /* both arrays have cap elements */
		p = sky_realloc_array(v->off, (size_t)cap, sizeof(*v->off));
		if (!p) {
			return sky_fail_mem(err, "token offsets");
		}
		v->off = p;
	}
	v->cap = cap;
	return 0;
}

int ids_add(struct sky_ids *v, uint32_t id, size_t off, bool offsets, struct sky_err *err)
{
	int rc = ids_reserve(v, 1, offsets, err);

	if (rc == 0) {
		v->id[v->n] = (int32_t)id;
		if (offsets) {
			v->off[v->n] = (uint32_t)off;
		}
		v->n++;
	}
	return rc;
}

int bpe_merge(struct sky_encoder *e, const uint8_t *p, size_t n, struct sky_ids *out, const uint32_t *map, size_t base,
	      struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;
	const bool offsets = e->offsets;
	struct bpe_scratch *s;
	int rc;

	if (!e->bpe && !(e->bpe = calloc(1, sizeof(*e->bpe)))) {
		return sky_fail_mem(err, "encoder");
	}
	s = e->bpe;
	rc = grow(s, n + 1, err);
	if (rc < 0) {
		return rc;
	}
	s->n = 0;
	if (t->merges.first) {
		bytes_of(t, s, p, n);
	} else {
		chars_of(t, s, p, n);
	}
	if (s->n <= SCAN_MAX) {
		merge_by_scan(&t->merges, s, t->merges.first ? p : NULL);
	} else {
		rc = merge_by_heap(&t->merges, s, err);
	}
	if (rc == 0) {
		rc = ids_reserve(out, (int64_t)s->n, offsets, err);
	}
	for (size_t i = 0; i < s->n && rc == 0; i++) {
		out->id[out->n + (int64_t)i] = (int32_t)s->id[i];
		if (offsets) {
			out->off[out->n + (int64_t)i] = map ? map[s->pos[i]] : (uint32_t)(base + s->pos[i]);
		}
	}
	out->n += rc == 0 ? (int64_t)s->n : 0;
	return rc;
}

int bpe_encode(struct sky_encoder *e, const uint8_t *p, size_t n, struct sky_ids *out, const uint32_t *map, size_t base,
	       struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;

	if (t->ignore_merges || (t->self_known && n <= BPE_SELF_MAX)) {
		uint32_t id = tok_vocab_find(&t->vocab, (const char *)p, n, false);

		if (id != TOK_NO_ID && (t->ignore_merges || (t->vocab.tok[id].flag & TOK_SELF))) {
			return ids_add(out, id, map ? map[0] : base, e->offsets, err);
		}
	}
	return bpe_merge(e, p, n, out, map, base, err);
}
