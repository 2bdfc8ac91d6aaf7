/* The lexicon: short pieces that are one token, shared by all encoders of a tokenizer. */
#include "text/words.h"

#include <stdlib.h>

#define GROUP 64 /* words merged side by side while loading */

static void put(struct sky_tokenizer *t, const struct word_entry *e)
{
	const uint64_t mask = ((uint64_t)1 << (64 - t->lexicon_shift)) - 1;
	uint64_t i = word_hash(e->key[0], e->key[1]) >> t->lexicon_shift;

	while (t->lexicon[i].e[0].count && t->lexicon[i].e[1].count) {
		i = (i + 1) & mask;
	}
	t->lexicon[i].e[t->lexicon[i].e[0].count != 0] = *e;
}

static inline bool same_key(const struct word_entry *e, const uint64_t key[2])
{
	return e->key[0] == key[0] && e->key[1] == key[1];
}

const struct word_entry *tok_lexicon_find(const struct sky_tokenizer *t, const uint64_t key[2], uint64_t hash)
{
	const uint64_t mask = ((uint64_t)1 << (64 - t->lexicon_shift)) - 1;

	for (uint64_t i = hash >> t->lexicon_shift;; i = (i + 1) & mask) {
		const struct word_line *l = &t->lexicon[i];

		if (same_key(&l->e[0], key)) {
			return &l->e[0];
		}
		if (same_key(&l->e[1], key)) {
			return &l->e[1];
		}
		if (!l->e[1].count) { /* entries fill a line from its front */
			return NULL;
		}
	}
}

/* A piece with the bytes of this token becomes the token. */
static void know(struct sky_tokenizer *t, uint32_t id)
{
	struct tok_token *k = &t->vocab.tok[id];
	struct word_entry one = { { 0, 0 }, { id }, 1 };

	k->flag |= TOK_SELF;
	if (k->len <= BPE_WORD_MAX) {
		word_key((const uint8_t *)t->vocab.bytes + k->off, k->len, k->len, one.key);
		put(t, &one);
	}
}

struct group {
	struct bpe_word word[GROUP], *active[GROUP];
	uint32_t id[GROUP];
	size_t n;
};

static void settle(struct sky_tokenizer *t, struct group *g)
{
	bpe_merge_words(&t->merges, g->word, g->n, g->active);
	for (size_t i = 0; i < g->n; i++) {
		if (g->word[i].n == 1 && g->word[i].id[0] == g->id[i]) {
			know(t, g->id[i]);
		}
	}
	g->n = 0;
}

/* Is the token what merging makes of its bytes? Always taken so with ignore_merges; else it nearly always is. */
static int mark(struct sky_tokenizer *t, struct sky_encoder *e, uint32_t id, struct group *g, struct sky_ids *ids,
		struct sky_err *err)
{
	const struct tok_token *k = &t->vocab.tok[id];
	const uint8_t *s = (const uint8_t *)t->vocab.bytes + k->off;
	int rc = 0;

	if (!(k->flag & TOK_MODEL) || (k->flag & TOK_FOREIGN) || k->len > BPE_SELF_MAX || k->len == 0) {
		return 0;
	}
	if (t->ignore_merges) {
		know(t, id);
	} else if (k->len <= BPE_WORD_MAX) {
		g->id[g->n] = id;
		bpe_word_start(e, s, k->len, &g->word[g->n++]);
		if (g->n == GROUP) {
			settle(t, g);
		}
	} else {
		ids->n = 0;
		rc = bpe_merge(e, s, k->len, ids, NULL, 0, err);
		if (rc == 0 && ids->n == 1 && ids->id[0] == (int32_t)id) {
			know(t, id);
		}
	}
	return rc;
}

int tok_lexicon_build(struct sky_tokenizer *t, struct sky_encoder *e, struct sky_err *err)
{
	struct group *g = calloc(1, sizeof(*g));
	struct sky_ids ids = { 0 };
	size_t n_line = 1024;
	int rc = 0;

	for (t->lexicon_shift = 54; n_line < t->vocab.n_id * 2 / 3; t->lexicon_shift--) {
		n_line *= 2;
	}
	t->lexicon = sky_aligned_alloc(n_line * sizeof(*t->lexicon));
	if (!t->lexicon || !g) {
		free(g);
		return sky_fail_mem(err, "tokenizer");
	}
	memset(t->lexicon, 0, n_line * sizeof(*t->lexicon));
	for (uint32_t id = 0; id < t->vocab.n_id && rc == 0; id++) {
		rc = mark(t, e, id, g, &ids, err);
	}
	settle(t, g);
	free(g);
	sky_ids_release(&ids);
	t->self_known = rc == 0;
	return rc;
}
