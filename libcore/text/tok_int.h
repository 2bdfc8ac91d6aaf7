/* Private to the tokenizer half of libcore/text: what a loaded tokenizer is made of.
 *
 * Flow of one text: added.c cuts added tokens out, normalize.c rewrites what lies between, pretok.c (general) or scan.c
 * (known patterns) splits it into pieces, bpe.c turns a piece into ids, words.c remembers short pieces. */
#ifndef SKY_TEXT_TOK_INT_H
#define SKY_TEXT_TOK_INT_H

#include <stdbool.h>
#include <stdint.h>
#include "text/text.h"
#include "text/unicode.h"

#define TOK_MAX_ID ((1u << 21) - 2) /* ids fit 21 bits in the pair table */
#define TOK_MAX_RANK ((1u << 22) - 2)
#define TOK_NO_ID UINT32_MAX

/* ---- vocab.c: strings ↔ ids, merges ---- */
#define TOK_NO_LEN 0xffffffu
struct tok_token {
	uint32_t off;      /* start in bytes */
	uint32_t len : 24; /* TOK_NO_LEN: no token has this id */
	uint32_t flag : 8; /* enum tok_flag */
};
struct tok_vocab {
	char *bytes; /* all token texts, one after the other */
	size_t n_bytes, bytes_cap;
	struct tok_token *tok; /* (cap) by id */
	uint32_t n_id, cap;    /* largest id + 1 */
	uint32_t n_token;      /* entries of the model's vocabulary */
	uint64_t *slot;        /* hash << 32 | id, or all ones */
	uint64_t mask;
};
enum tok_flag {
	TOK_FOREIGN =
		1u << 0, /* byte-level vocabularies: the text is no sequence of mapped bytes, no piece can equal it */
	TOK_MODEL = 1u << 1, /* in the model's vocabulary */
	TOK_ADDED = 1u << 2,
	TOK_SPECIAL = 1u << 3,
	TOK_SELF = 1u << 4, /* the bytes of the token are merged to the token itself */
};
int tok_vocab_add(struct tok_vocab *v, const char *s, size_t n, uint32_t id, unsigned flag,
		  struct sky_err *err) SKY_MUST_CHECK;
int tok_vocab_index(struct tok_vocab *v,
		    struct sky_err *err) SKY_MUST_CHECK; /* after the last _add, before any _find */
/* Id of a model entry, or TOK_NO_ID. */
uint32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t n, bool foreign);
void tok_vocab_release(struct tok_vocab *v);

#define TOK_FILTER_BITS 21
/* Pair of ids → rank (the smaller merges first) and id of the union. */
struct tok_merges {
	uint64_t *slot; /* left << 43 | right << 22 | rank, or all ones */
	uint64_t mask;  /* slots − 1 */
	int shift;
	uint8_t *maybe;   /* filter of FILTER_BITS hash bits: most pairs do not merge, and this fits a small cache */
	uint32_t *new_id; /* by rank */
	uint32_t id_base; /* new_id[r] is r + id_base for every rank, as in most vocabularies; or TOK_NO_ID */
	uint32_t n_rank, rank_cap;
	uint32_t *first; /* (256 × 256) rank of pairs of bytes; NULL unless byte-level with all bytes */
	uint64_t *list;  /* while loading: as slot, in the order of the file */
	size_t n_list, list_cap;
};
int tok_merges_add(struct tok_merges *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t new_id,
		   struct sky_err *err) SKY_MUST_CHECK;
int tok_merges_index(struct tok_merges *m, struct sky_err *err) SKY_MUST_CHECK;
/* Fills m->first; byte_id has all 256 tokens or TOK_NO_ID. */
int tok_merges_bytes(struct tok_merges *m, const uint32_t byte_id[256], struct sky_err *err) SKY_MUST_CHECK;
void tok_merges_release(struct tok_merges *m);

static inline uint64_t tok_merges_hash(uint32_t left, uint32_t right)
{
	return ((uint64_t)left << 21 | right) * 0x9e3779b97f4a7c15ull;
}

static inline bool tok_merges_maybe(const struct tok_merges *m, uint64_t hash)
{
	return m->maybe[hash >> (64 - TOK_FILTER_BITS + 3)] >> (hash >> (64 - TOK_FILTER_BITS) & 7) & 1;
}

/* Rank of a pair that passed the filter, or TOK_NO_ID. */
static inline uint32_t tok_merges_probe(const struct tok_merges *m, uint32_t left, uint32_t right, uint64_t hash)
{
	const uint64_t key = (uint64_t)left << 21 | right;

	for (uint64_t i = hash >> m->shift;; i++) {
		uint64_t s = m->slot[i & m->mask];

		if (s >> 22 == key) {
			return (uint32_t)(s & 0x3fffff);
		}
		if (s == UINT64_MAX) {
			return TOK_NO_ID;
		}
	}
}

static inline uint32_t tok_merges_find(const struct tok_merges *m, uint32_t left, uint32_t right)
{
	const uint64_t h = tok_merges_hash(left, right);

	return tok_merges_maybe(m, h) ? tok_merges_probe(m, left, right, h) : TOK_NO_ID;
}

static inline uint32_t tok_merges_id(const struct tok_merges *m, uint32_t rank)
{
	return m->id_base != TOK_NO_ID ? rank + m->id_base : m->new_id[rank];
}

/* ---- bytemap.c: the printable spelling of bytes in byte-level vocabularies ---- */
int tok_byte_of_char(uint32_t cp); /* −1: not a mapped byte */
uint32_t tok_char_of_byte(uint8_t b);
/* UTF-8 spelling → bytes in out (n bytes suffice); −1 when a character is no mapped byte. */
int64_t tok_unmap(const char *s, size_t n, char *out);

/* ---- tokjson.c: a scanner for large tokenizer.json files ---- */
struct tj {
	const char *p, *end, *start;
	const char *name;    /* for messages */
	struct sky_buf text; /* of the string read last, when it had escapes */
};
void tj_init(struct tj *j, const char *s, size_t n, const char *name);
void tj_release(struct tj *j);
int tj_fail(const struct tj *j, const char *what, struct sky_err *err);
char tj_peek(struct tj *j); /* next byte after white space; 0 at the end */
int tj_expect(struct tj *j, char c, struct sky_err *err) SKY_MUST_CHECK;
int tj_string(struct tj *j, const char **s_p, size_t *n_p,
	      struct sky_err *err) SKY_MUST_CHECK; /* view until the next call */
int tj_u32(struct tj *j, uint32_t *v_p, struct sky_err *err) SKY_MUST_CHECK;
int tj_skip(struct tj *j, int depth, struct sky_err *err) SKY_MUST_CHECK;
/* In an object or array: 1 when another item follows, 0 after the closing bracket. first is cleared. */
int tj_more(struct tj *j, char close, bool *first, struct sky_err *err) SKY_MUST_CHECK;

/* ---- added.c: added tokens ---- */
enum tok_added_flag {
	ADDED_SINGLE_WORD = 1u << 0,
	ADDED_LSTRIP = 1u << 1,
	ADDED_RSTRIP = 1u << 2,
	ADDED_NORMALIZED = 1u << 3,
	ADDED_SPECIAL = 1u << 4,
};
struct tok_added {
	char *text; /* owned; as in the file */
	size_t n;
	char *match; /* owned; what is looked for: text, normalized when the flag says so */
	size_t n_match;
	uint32_t id;
	unsigned flags;
};
struct tok_trie; /* matcher over one class of added tokens */
int tok_trie_new(const struct tok_added *a, size_t n, bool normalized, struct tok_trie **t_p,
		 struct sky_err *err) SKY_MUST_CHECK;
void tok_trie_free(struct tok_trie *t);
struct tok_hit {
	size_t from, to;
	const struct tok_added *token;
};
/* Next match at or after *pos, stripped white space included; false when there is none. floor: no left strip below it.
 */
bool tok_trie_next(const struct tok_trie *t, const uint8_t *p, size_t n, size_t *pos, size_t floor, bool skip_special,
		   struct tok_hit *hit);

/* ---- regex.c: patterns of Split and Replace ---- */
struct tok_regex;
enum tok_dialect { TOK_ONIG, TOK_RUST };
int tok_regex_new(const char *pattern, enum tok_dialect dialect, struct tok_regex **r_p,
		  struct sky_err *err) SKY_MUST_CHECK;
int tok_literal_new(const char *s, size_t n, struct tok_regex **r_p, struct sky_err *err) SKY_MUST_CHECK;
void tok_regex_free(struct tok_regex *r);
struct tok_match; /* per-thread scratch */
int tok_match_new(struct tok_match **m_p, struct sky_err *err) SKY_MUST_CHECK;
void tok_match_free(struct tok_match *m);
/* First match in [from, n): 1 and its span, 0 when there is none. last: where the match before it ended (SIZE_MAX:
 * none). */
int tok_regex_find(const struct tok_regex *r, struct tok_match *m, const uint8_t *p, size_t n, size_t from, size_t last,
		   size_t *at_p, size_t *end_p, struct sky_err *err) SKY_MUST_CHECK;

/* ---- normalize.c ---- */
enum tok_norm_kind {
	NORM_FORM,
	NORM_LOWER,
	NORM_STRIP,
	NORM_ACCENTS,
	NORM_PREPEND,
	NORM_REPLACE,
};
struct tok_norm {
	enum tok_norm_kind kind;
	enum uc_form form;
	bool left, right; /* NORM_STRIP */
	struct tok_regex *pattern;
	char *text; /* owned: prepended text, replacement */
};
struct tok_text { /* a text and where its bytes came from */
	struct sky_buf buf;
	struct uc_map map;
};
struct sky_tokenizer;
/* Rewrites p through all normalizers; *out_p, *n_p = p, n when nothing changed. The origin of byte i of the result is
 * (*map_p)[i], or base + i when *map_p is NULL. Buffers belong to e. */
int tok_normalize(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, const uint8_t **out_p, size_t *n_p,
		  const uint32_t **map_p, struct sky_err *err) SKY_MUST_CHECK;

/* ---- pretok.c: general pre-tokenizers ---- */
enum tok_pre_kind {
	PRE_SPLIT,
	PRE_BYTE_LEVEL,
	PRE_METASPACE,
	PRE_DIGITS,
	PRE_PUNCT,
	PRE_WHITESPACE,
	PRE_WHITESPACE_SPLIT,
	PRE_DELIMITER,
};
enum tok_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_PREVIOUS, SPLIT_NEXT, SPLIT_CONTIGUOUS };
enum tok_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };
struct tok_pre {
	enum tok_pre_kind kind;
	enum tok_behavior behavior;
	bool invert, prefix_space, use_regex, individual, split;
	enum tok_prepend prepend;
	struct tok_regex *pattern;
	char *source; /* owned: the pattern as the file has it, NULL for a literal */
	char text[8]; /* Metaspace replacement, delimiter */
};
struct tok_piece {
	size_t from, to;
};

/* ---- scan.h: known patterns ---- */
enum tok_scan {
	SCAN_NONE,
	SCAN_GPT2,
	SCAN_DIGITS_GPT2,
	SCAN_CL100K,
	SCAN_LLAMA3,
	SCAN_QWEN2,
	SCAN_QWEN35,
	SCAN_O200K,
	SCAN_TEKKEN,
	SCAN_KIMI,
	SCAN_DEEPSEEK,
	SCAN_COUNT
};

/* ---- decode.c ---- */
enum tok_dec_kind {
	DEC_BYTE_LEVEL,
	DEC_BYTE_FALLBACK,
	DEC_FUSE,
	DEC_STRIP,
	DEC_REPLACE,
	DEC_METASPACE,
	DEC_WORDPIECE,
	DEC_BPE
};
struct tok_dec {
	enum tok_dec_kind kind;
	struct tok_regex *pattern;
	char *text; /* owned: replacement, content, prefix or suffix */
	int64_t start, stop;
	bool cleanup;
	enum tok_prepend prepend;
};

struct sky_tokenizer {
	char *name; /* owned, for messages */
	struct tok_vocab vocab;
	struct tok_merges merges;
	bool byte_level; /* pieces are bytes; tokens hold bytes */
	bool ignore_merges, byte_fallback, fuse_unk;
	bool chunked;                   /* very long texts are cut as Kimi's tokenizer does */
	uint32_t unk;                   /* TOK_NO_ID: none */
	char *sub_prefix, *word_suffix; /* owned, NULL or not empty */
	uint32_t byte_id[256];          /* byte-level: token of a byte; byte_fallback: of <0xXX> */
	bool merges_of_bytes;           /* byte_fallback: some merge has the token of a byte as its part */
	bool all_bytes;                 /* byte-level: every byte that text can hold has a token */
	bool self_known;                /* TOK_SELF is set where it holds, for tokens of at most BPE_SELF_MAX bytes */

	struct tok_added *added;
	size_t n_added;
	uint32_t next_added;                   /* id of the next added token that the vocabulary lacks */
	struct tok_trie *trie_raw, *trie_norm; /* NULL: no such token */

	struct tok_norm *norm;
	size_t n_norm;
	bool norm_nfc_only; /* the only normalizer is NFC */
	struct tok_pre *pre;
	size_t n_pre;
	enum tok_scan scan; /* the pre-tokenizers are this pattern and byte-level */
	bool fast;          /* words.c may be used: the ids of a piece are those of its parts */
	struct tok_dec *dec;
	size_t n_dec;
	bool has_decoder;

	uint32_t *post_before, *post_after; /* ids that the post-processor adds */
	size_t n_before, n_after;

	struct word_line *lexicon; /* words.c: short pieces that are one token */
	int lexicon_shift;
	uint8_t *cut_pair; /* words.c: hashed set of the character pairs that tokens hold; NULL: pieces are not cut */
	uint8_t (*cut_part)[256]; /* last and first byte of neighbours that some token holds in part */
	struct sky_buf warnings;
	uint8_t sha[32];
};

struct sky_encoder {
	const struct sky_tokenizer *t;
	struct tok_match *match;
	struct tok_text norm[2];
	struct tok_text work[2]; /* pre-tokenizers that change text */
	struct tok_piece *piece, *piece2;
	size_t n_piece, piece_cap, n_piece2, piece2_cap;
	struct bpe_scratch *bpe;
	struct tok_words *words;
	int isa;               /* enum scan_isa: tests choose a lower one */
	bool offsets;          /* of the call in progress */
	bool general;          /* tests: no hand scanner, no cache */
	uint64_t n_normalized; /* statistics: rewrites of a text */
};

/* ---- bpe.c ---- */
#define BPE_SELF_MAX 32 /* longer tokens are merged even where one lookup would do */
struct bpe_scratch;
void bpe_scratch_free(struct bpe_scratch *s);
/* Ids of one piece appended to out; with e->offsets, out->off[i] = origin of the token's first byte (map NULL: base +
 * i). */
int bpe_encode(struct sky_encoder *e, const uint8_t *p, size_t n, struct sky_ids *out, const uint32_t *map, size_t base,
	       struct sky_err *err) SKY_MUST_CHECK;
/* The same without looking the whole piece up first. */
int bpe_merge(struct sky_encoder *e, const uint8_t *p, size_t n, struct sky_ids *out, const uint32_t *map, size_t base,
	      struct sky_err *err) SKY_MUST_CHECK;
/* Short words merged side by side: the look-ups of one word are on their way while another is worked on. */
#define BPE_WORD_MAX 15
struct bpe_word {
	uint32_t id[BPE_WORD_MAX + 1];   /* n symbols; the ids at the end */
	uint32_t rank[BPE_WORD_MAX + 1]; /* of the pair (i, i + 1) */
	uint32_t n, at;                  /* at: the symbol that was merged last */
	uint64_t left, right;            /* hashes of the pairs around it */
};
void bpe_word_start(struct sky_encoder *e, const uint8_t *p, size_t n, struct bpe_word *w);
/* scratch: room for count pointers. */
void bpe_merge_words(const struct tok_merges *m, struct bpe_word *w, size_t count, struct bpe_word **scratch);
int ids_reserve(struct sky_ids *v, int64_t more, bool offsets, struct sky_err *err) SKY_MUST_CHECK;
int ids_add(struct sky_ids *v, uint32_t id, size_t off, bool offsets, struct sky_err *err) SKY_MUST_CHECK;

/* ---- words.c: the fast path for known patterns ---- */
void tok_words_free(struct tok_words *w);
/* cut.c: fills cut_pair and cut_part. */
int tok_cut_prepare(struct sky_tokenizer *t, struct sky_err *err) SKY_MUST_CHECK;
/* lexicon.c: finds out which tokens are TOK_SELF and builds the lexicon of the short ones. */
int tok_lexicon_build(struct sky_tokenizer *t, struct sky_encoder *e, struct sky_err *err) SKY_MUST_CHECK;
int tok_words_encode(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, struct sky_ids *out,
		     struct sky_err *err) SKY_MUST_CHECK;

/* Splits p into e->piece over *out_p (p itself unless a step rewrites it). first: p is the start of the whole text. */
int tok_pretokenize(struct sky_encoder *e, const uint8_t *p, size_t n, const uint32_t *map, size_t base, bool first,
		    const uint8_t **out_p, const uint32_t **map_p, struct sky_err *err) SKY_MUST_CHECK;

/* ---- config.c: tokenizer.json → parts ---- */
int tok_config_parts(struct sky_tokenizer *t, const struct sky_jnode *norm, const struct sky_jnode *pre,
		     const struct sky_jnode *post, const struct sky_jnode *dec, struct sky_err *err) SKY_MUST_CHECK;
int tok_config_added(struct sky_tokenizer *t, const struct sky_jnode *list, struct sky_err *err) SKY_MUST_CHECK;
int tok_add_added(struct sky_tokenizer *t, struct tok_added *a, int64_t want, struct sky_err *err) SKY_MUST_CHECK;
int tok_store_added(struct sky_tokenizer *t, const char *text, size_t n, uint32_t id,
		    struct sky_err *err) SKY_MUST_CHECK;
/* Id of a token as the file spells it, in the model's vocabulary; TOK_NO_ID when it has none. */
uint32_t tok_find_spelled(const struct sky_tokenizer *t, const char *s, size_t n);
int tok_warn(struct sky_tokenizer *t, struct sky_err *err, const char *fmt, ...) SKY_PRINTF(3, 4) SKY_MUST_CHECK;
int tok_new(const char *name, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;
void tok_find_bytes(struct sky_tokenizer *t); /* byte_id, all_bytes */
/* After vocabulary, merges and added tokens: derived tables. */
int tok_finish(struct sky_tokenizer *t, struct sky_err *err) SKY_MUST_CHECK;

/* ---- tiktoken.c ---- */
int tok_open_tiktoken(const char *path, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;

#endif
