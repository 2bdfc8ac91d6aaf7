/* The fast path: pieces by a hand scanner, or by the general pre-tokenizers, ids from a cache of short words.
 *
 * Words of at most 15 bytes sit in 32-byte entries, two to a cache line, keyed by their bytes; longer ones in a second
 * table. On a miss a piece is first cut where no token of the vocabulary can cross (exact: every merge makes a token),
 * which turns long Chinese or Japanese runs into words that repeat; then bpe.c merges. Memory is bounded: the short
 * table grows to SHORT_MAX lines and then replaces, the long one is emptied when its store is full. */
#include "text/scan.h"
#include "text/words.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 512            /* pieces scanned together */
#define PARTS 2048           /* and parts of them that are hashed, fetched and merged together, at most */
#define MISSES 256           /* new words among these */
#define SHORT_MIN 16    /* log2 of the lines at the start: 4 MiB */
#define SHORT_MAX 19         /* at most: 32 MiB */
#define SPILL_MAX (4u << 20) /* ids of words with more than three */
#define LONG_SLOTS (1u << 17)
#define LONG_BYTES (16u << 20)
#define LONG_WORD 255 /* longer pieces are merged anew each time */

struct long_slot {
	uint64_t hash;  /* 0: free */
	uint32_t at, n; /* its bytes in store, the ids behind them (aligned) */
	uint32_t n_ids;
};

struct tok_words {
	struct word_line *line;
	int shift; /* 64 − log2 of the lines */
	uint32_t n_used, n_limit;
	uint8_t victim;
	uint32_t *spill;
	uint32_t n_spill, spill_cap;
	struct long_slot *slot;
	char *store;
	size_t n_store, n_long;
	struct sky_ids one; /* ids of a miss */
	scan_fn *scan;
	uint32_t end[BATCH + SCAN_SLACK]; /* of the pieces */
	uint32_t stop[PARTS];             /* of the parts */
	bool cut[PARTS];                  /* not a whole piece */
	uint64_t key[PARTS][2], hash[PARTS];
	const struct word_entry *hit[PARTS]; /* in the table or the lexicon; NULL: new or long */
	uint32_t learnt[PARTS];              /* parts whose entry the lexicon gave */
	uint32_t missed[MISSES];             /* parts that were merged */
	struct bpe_word word[MISSES], *active[MISSES];
	size_t n_learnt, n_missed;
};

static inline bool is_ascii(const uint8_t *p, size_t n)
{
	size_t i = 0;

	while (i < n && p[i] < 0x80) {
		i++;
	}
	return i == n;
}

/* ---- tables ---- */

void tok_words_free(struct tok_words *w)
{
	if (w) {
		free(w->line);
		free(w->spill);
		free(w->slot);
		free(w->store);
		sky_ids_release(&w->one);
		free(w);
	}
}

/* Without a known pattern: the text is one piece. */
static size_t scan_whole(const uint8_t *p, size_t n, size_t *pos, uint32_t *end, size_t max)
{
	(void)p;
	(void)max;
	*pos = n;
	end[0] = (uint32_t)n;
	return 1;
}

static int words_new(struct sky_encoder *e, struct sky_err *err)
{
	struct tok_words *w = calloc(1, sizeof(*w));

	if (!w) {
		return sky_fail_mem(err, "word cache");
	}
	e->words = w;
	w->shift = 64 - SHORT_MIN;
	w->n_limit = 1u << SHORT_MIN;
	w->spill_cap = 4096;
	w->scan = e->t->scan == SCAN_NONE ? scan_whole : scan_best(e->t->scan, (enum scan_isa)e->isa);
	w->line = sky_aligned_alloc(sizeof(*w->line) << SHORT_MIN);
	w->spill = malloc(w->spill_cap * sizeof(*w->spill));
	w->slot = calloc(LONG_SLOTS, sizeof(*w->slot));
	w->store = malloc(LONG_BYTES);
	if (!w->line || !w->spill || !w->slot || !w->store) {
		return sky_fail_mem(err, "word cache");
	}
	memset(w->line, 0, sizeof(*w->line) << SHORT_MIN);
	return 0;
}

static void put_entry(struct tok_words *w, const struct word_entry *e)
{
	struct word_line *l = &w->line[word_hash(e->key[0], e->key[1]) >> w->shift];
	int i = !(l->e[0].key[1] | l->e[0].key[0]) ? 0 : !(l->e[1].key[1] | l->e[1].key[0]) ? 1 : -1;

	if (i < 0) {
		i = w->victim ^= 1;
	} else {
		w->n_used++;
	}
	l->e[i] = *e;
}

/* Twice the lines; without memory the old table stays. */
static void grow_short(struct tok_words *w)
{
	const size_t n = (size_t)1 << (64 - w->shift);
	struct word_line *old = w->line, *fresh = sky_aligned_alloc(2 * n * sizeof(*fresh));

	if (!fresh) {
		w->n_limit = UINT32_MAX;
		return;
	}
	memset(fresh, 0, 2 * n * sizeof(*fresh));
	w->line = fresh;
	w->shift--;
	w->n_used = 0;
	w->n_limit = 64 - w->shift >= SHORT_MAX ? UINT32_MAX : (uint32_t)(2 * n);
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < 2; k++) {
			if (old[i].e[k].key[0] | old[i].e[k].key[1]) {
				put_entry(w, &old[i].e[k]);
			}
		}
	}
	free(old);
}

static void remember(struct tok_words *w, const struct word_entry *e)
{
	put_entry(w, e);
	if (w->n_used > w->n_limit) {
		grow_short(w);
	}
}

/* Keeps the ids in the entry or in spill; false when there is no room left. */
static bool fill_entry(struct tok_words *w, struct word_entry *e, const int32_t *id, int64_t n)
{
	if (n <= 3) {
		for (int64_t i = 0; i < n; i++) {
			e->id[i] = (uint32_t)id[i];
		}
		e->count = (uint32_t)n;
		return true;
	}
	if (w->n_spill + n > w->spill_cap) {
		uint32_t cap = w->spill_cap * 2, *p;

		if (cap > SPILL_MAX || !(p = realloc(w->spill, cap * sizeof(*p)))) {
			return false;
		}
		w->spill = p;
		w->spill_cap = cap;
	}
	memcpy(w->spill + w->n_spill, id, (size_t)n * sizeof(*id));
	e->id[0] = w->n_spill;
	e->id[1] = (uint32_t)n;
	e->count = WORD_SPILLED;
	w->n_spill += (uint32_t)n;
	return true;
}

/* ---- one piece ---- */

static inline const struct word_entry *find(const struct tok_words *w, const uint64_t key[2], uint64_t hash)
{
	const struct word_line *l = &w->line[hash >> w->shift];
	__m128i k = _mm_loadu_si128((const __m128i *)key);

	if (_mm_movemask_epi8(_mm_cmpeq_epi8(k, _mm_load_si128((const __m128i *)l->e[0].key))) == 0xffff) {
		return &l->e[0];
	}
	if (_mm_movemask_epi8(_mm_cmpeq_epi8(k, _mm_load_si128((const __m128i *)l->e[1].key))) == 0xffff) {
		return &l->e[1];
	}
	return NULL;
}

static int add_ids(struct sky_ids *out, const void *id, int64_t n, struct sky_err *err)
{
	int rc = ids_reserve(out, n, false, err);

	if (rc == 0 && n) {
		memcpy(out->id + out->n, id, (size_t)n * sizeof(*out->id));
		out->n += n;
	}
	return rc;
}

static int merge_long(struct sky_encoder *e, const uint8_t *p, size_t n, bool part, struct sky_ids *out,
		      struct sky_err *err)
{
	return part ? bpe_merge(e, p, n, out, NULL, 0, err) : bpe_encode(e, p, n, out, NULL, 0, err);
}

/* More than 15 bytes. part: see KEY_OF_PART. */
static int encode_long(struct sky_encoder *e, const uint8_t *p, size_t n, bool part, struct sky_ids *out,
		       struct sky_err *err)
{
	struct tok_words *w = e->words;
	const int64_t n_before = out->n;
	uint64_t h = sky_xxh64(p, n, part) | 1;
	struct long_slot *s = &w->slot[h >> 47];
	size_t at;
	int rc;

	if (n > LONG_WORD) {
		return merge_long(e, p, n, part, out, err);
	}
	while (s->hash && (s->hash != h || s->n != n || memcmp(w->store + s->at, p, n) != 0)) {
		s = s + 1 == w->slot + LONG_SLOTS ? w->slot : s + 1;
	}
	if (s->hash) {
		return add_ids(out, w->store + ((s->at + n + 3) & ~(size_t)3), s->n_ids, err);
	}
	rc = merge_long(e, p, n, part, out, err);
	if (rc < 0) {
		return rc;
	}
	at = (w->n_store + n + 3) & ~(size_t)3;
	if (at + (size_t)(out->n - n_before) * 4 > LONG_BYTES || w->n_long > LONG_SLOTS / 2) {
		memset(w->slot, 0, LONG_SLOTS * sizeof(*w->slot));
		w->n_store = w->n_long = 0;
		return 0;
	}
	s->hash = h;
	s->at = (uint32_t)w->n_store;
	s->n = (uint32_t)n;
	s->n_ids = (uint32_t)(out->n - n_before);
	memcpy(w->store + w->n_store, p, n);
	memcpy(w->store + at, out->id + n_before, (size_t)s->n_ids * 4);
	w->n_store = at + (size_t)s->n_ids * 4;
	w->n_long++;
	return 0;
}

/* ---- a batch ---- */

/* Is a piece worth cutting? Text of 3-byte characters is, as few of its pieces repeat, and what is too long for the
 * table. The test that nearly always fails comes first: the length alone is a coin toss. */
static inline bool wants_cutting(const struct sky_tokenizer *t, const uint8_t *p, size_t n)
{
	if ((p[0] < 0xe2) & (p[n > 1] < 0xe3) & (n <= 15)) {
		return false;
	}
	return t->cut_pair && n > 5 && (!t->byte_level || !is_ascii(p, n));
}

/* Ends of the parts of the pieces k and following, the first of which may have begun before start. As many as fit.
 * begin: where piece k begins. */
static size_t part_batch(const struct sky_tokenizer *t, struct tok_words *w, const uint8_t *p, size_t begin,
			 size_t start, size_t k, size_t count)
{
	size_t n = 0;

	for (; k < count && n < PARTS; begin = w->end[k++]) {
		const size_t end = w->end[k];

		if (wants_cutting(t, p + start, end - start)) {
			while (start < end && n < PARTS) {
				size_t stop = tok_cut_end(t, p, start, end);

				w->cut[n] = start != begin || stop != end;
				w->stop[n++] = (uint32_t)stop;
				start = stop;
			}
		} else {
			w->cut[n] = start != begin;
			w->stop[n++] = (uint32_t)end;
			start = end;
		}
	}
	return n;
}

/* With ignore_merges a whole piece that is in the vocabulary is that token, whatever merging would make of it; a part
 * of a piece is always merged. The two have different keys then. */
#define KEY_OF_PART ((uint64_t)0x80 << 56)

static void hash_batch(const struct sky_tokenizer *t, struct tok_words *w, const uint8_t *p, size_t start, size_t n,
		       size_t count)
{
	const uint64_t part = t->ignore_merges ? KEY_OF_PART : 0;

	for (size_t k = 0; k < count; k++) {
		size_t len = w->stop[k] - start;

		if (len <= 15) {
			word_key(p + start, len, n - start, w->key[k]);
			w->key[k][1] |= w->cut[k] ? part : 0;
			w->hash[k] = word_hash(w->key[k][0], w->key[k][1]);
			__builtin_prefetch(&w->line[w->hash[k] >> w->shift]);
		}
		start = w->stop[k];
	}
}

/* Looks the short parts up; what the table lacks is fetched from the lexicon. */
static void find_batch(const struct sky_tokenizer *t, struct tok_words *w, size_t start, size_t count)
{
	w->n_learnt = 0;
	for (size_t k = 0; k < count; start = w->stop[k++]) {
		if (w->stop[k] - start > 15) {
			w->hit[k] = NULL;
			continue;
		}
		w->hit[k] = find(w, w->key[k], w->hash[k]);
		if (!w->hit[k]) {
			w->learnt[w->n_learnt++] = (uint32_t)k;
			if (t->lexicon) {
				__builtin_prefetch(&t->lexicon[w->hash[k] >> t->lexicon_shift]);
			}
		}
	}
}

/* The missing parts: from the lexicon, else merged, all side by side. Returns the number of parts that are settled: the
 * batch ends before one that finds no room. */
static size_t settle_batch(struct sky_encoder *e, const uint8_t *p, size_t start, size_t count)
{
	const struct sky_tokenizer *t = e->t;
	struct tok_words *w = e->words;
	const size_t n = w->n_learnt;

	w->n_learnt = w->n_missed = 0;
	for (size_t i = 0; i < n; i++) {
		const uint32_t k = w->learnt[i];
		const size_t from = k ? w->stop[k - 1] : start;

		w->hit[k] = t->lexicon ? tok_lexicon_find(t, w->key[k], w->hash[k]) : NULL; /* holds no key of a part */
		if (w->hit[k]) {
			w->learnt[w->n_learnt++] = k;
		} else if (w->n_missed < MISSES) {
			bpe_word_start(e, p + from, w->stop[k] - from, &w->word[w->n_missed]);
			w->missed[w->n_missed++] = k;
		} else {
			count = k;
			break;
		}
	}
	bpe_merge_words(&t->merges, w->word, w->n_missed, w->active);
	return count;
}

static int emit_batch(struct sky_encoder *e, const uint8_t *p, size_t start, size_t count, struct sky_ids *out,
		      struct sky_err *err)
{
	struct tok_words *w = e->words;
	int rc = ids_reserve(out, (int64_t)(w->stop[count - 1] - start) + 16, e->offsets, err);
	size_t next = 0;

	for (size_t k = 0; k < count && rc == 0; start = w->stop[k++]) {
		const struct word_entry *hit = w->hit[k];
		size_t len = w->stop[k] - start;

		if (hit && hit->count != WORD_SPILLED) {
			_mm_storeu_si128((__m128i *)(out->id + out->n), _mm_load_si128((const __m128i *)hit->id));
			out->n += hit->count;
		} else if (hit) {
			rc = add_ids(out, w->spill + hit->id[0], hit->id[1], err);
		} else if (len > 15) {
			rc = encode_long(e, p + start, len, w->cut[k] && e->t->ignore_merges, out, err);
		} else {
			rc = add_ids(out, w->word[next].id, w->word[next].n, err);
			next++;
		}
	}
	return rc;
}

/* Everything that the batch taught goes into the table, once. */
static void remember_batch(struct tok_words *w)
{
	for (size_t i = 0; i < w->n_learnt; i++) {
		const uint32_t k = w->learnt[i];

		if (!find(w, w->key[k], w->hash[k])) {
			remember(w, w->hit[k]);
		}
	}
	for (size_t i = 0; i < w->n_missed; i++) {
		const uint32_t k = w->missed[i];
		struct word_entry fresh = { { w->key[k][0], w->key[k][1] }, { 0 }, 0 };

		if (!find(w, w->key[k], w->hash[k]) &&
		    fill_entry(w, &fresh, (const int32_t *)w->word[i].id, w->word[i].n)) {
			remember(w, &fresh);
		}
	}
}

/* Offsets follow from the lengths of the tokens: every byte belongs to one. */
static int add_offsets(struct sky_encoder *e, int64_t from, size_t base, struct sky_ids *out, struct sky_err *err)
{
	int rc = ids_reserve(out, 0, true, err);

	for (int64_t i = from; i < out->n && rc == 0; i++) {
		out->off[i] = (uint32_t)base;
		base += e->t->vocab.tok[out->id[i]].len;
	}
	return rc;
}

int tok_words_encode(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, struct sky_ids *out,
		     struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;
	const int64_t n_before = out->n;
	struct tok_words *w;
	size_t pos = 0;
	int rc = e->words ? 0 : words_new(e, err);

	w = e->words;
	while (pos < n && rc == 0) {
		const size_t begin = pos, count = w->scan(p, n, &pos, w->end, BATCH);
		size_t start = begin, k = 0;

		while (k < count && rc == 0) {
			size_t n_part = part_batch(t, w, p, k ? w->end[k - 1] : begin, start, k, count);

			hash_batch(t, w, p, start, n, n_part);
			find_batch(t, w, start, n_part);
			n_part = settle_batch(e, p, start, n_part);
			rc = emit_batch(e, p, start, n_part, out, err);
			remember_batch(w);
			for (start = w->stop[n_part - 1]; k < count && w->end[k] <= start; k++) {
			}
		}
	}
	return rc < 0 || !e->offsets ? rc : add_offsets(e, n_before, base, out, err);
}
