/* tokens: the token dataset, PREFIX.{bin,idx}, PREFIX.mask.{bin,idx}, PREFIX.json. Layer 2; skyrl-tokens(5).
 *
 * In: rows of ids with loss masks. Out: Megatron pairs that Megatron maps as they are, our mask as a second pair with
 * the same bounds, and a manifest (tokenizer and template fingerprints, special ids, counts, largest id, inputs, options,
 * checksums). A row of ours is one sequence and one document; foreign pairs may have several sequences a document, and
 * a row is then one sequence. Writers publish the manifest last; readers start from it when it is there and accept a
 * bare Megatron pair (no mask: everything is trained). A set whose manifest says "writing" is refused. */
#ifndef SKY_TOKENS_TOKENS_H
#define SKY_TOKENS_TOKENS_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reader ---- */
struct sky_tokens;
/* prefix without suffix; the name of one of its files is understood too. The whole index is checked here (bounds,
 * pointers, lengths against the size of the .bin), the contents only by sky_tokens_verify. Thread-safe to read. */
int sky_tokens_open(const char *prefix, struct sky_tokens **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_tokens_close(struct sky_tokens *t);
int64_t sky_tokens_rows(const struct sky_tokens *t);
int64_t sky_tokens_total(const struct sky_tokens *t);           /* tokens */
int64_t sky_tokens_longest(const struct sky_tokens *t);         /* tokens of the longest row */
int sky_tokens_dtype_bytes(const struct sky_tokens *t);         /* 1, 2, 4, 8 */
const char *sky_tokens_dtype_name(const struct sky_tokens *t);  /* "uint16", "int32", … as NumPy calls it */
int64_t sky_tokens_max_id(const struct sky_tokens *t);          /* from the manifest, −1 when unknown */
int64_t sky_tokens_row_len(const struct sky_tokens *t, int64_t row);
/* Documents, and the rows [from, to) of one. */
int64_t sky_tokens_docs(const struct sky_tokens *t);
void sky_tokens_doc(const struct sky_tokens *t, int64_t doc, int64_t *from_p, int64_t *to_p);
/* Copies [from, from + n) of a row as int32; a value outside int32 is SKY_E_DATA naming row and position. */
int sky_tokens_ids(const struct sky_tokens *t, int64_t row, int64_t from, int64_t n, int32_t *out,
		struct sky_err *err) SKY_MUST_CHECK;
/* Mask bytes of the row (view, row_len bytes), or NULL when the set has no mask (all trained). */
const uint8_t *sky_tokens_mask(const struct sky_tokens *t, int64_t row);
int sky_tokens_has_mask(const struct sky_tokens *t);
const struct sky_json *sky_tokens_manifest(const struct sky_tokens *t);         /* NULL for a bare pair */

/* What a walk over the contents finds. Counts of rows unless said otherwise. */
struct sky_tokens_report {
	int64_t n_row, n_token, n_trained;      /* n_token, n_trained: tokens */
	int64_t max_id, min_len, max_len;       /* −1 without tokens or rows */
	int64_t n_empty, n_untrained;           /* no token; tokens but none trained */
	int64_t n_first_trained;                /* mask of the first token is 1: no log-prob exists for it */
	int64_t len_log2[32];                   /* rows with floor(log2(length)) = i; empty rows are not in it */
};
/* Checks that ids are in [0, vocab) (vocab < 0: any that fit int32), masks are 0 or 1, and everything that the manifest
 * promises: sizes, checksums, counts, largest id. First violation is SKY_E_DATA. *r (may be NULL) is filled on success. */
int sky_tokens_verify(const char *prefix, int64_t vocab, struct sky_tokens_report *r, struct sky_err *err) SKY_MUST_CHECK;
/* The same walk without the manifest's promises. */
int sky_tokens_scan(const struct sky_tokens *t, int64_t vocab, struct sky_tokens_report *r,
		struct sky_err *err) SKY_MUST_CHECK;

/* ---- writer ----
 * Works in the folder PREFIX.work and needs no memory that grows with the set. The set appears under its names by
 * renames, manifest last, and only in _commit. A killed writer leaves PREFIX.work: with resume, a writer of the same key
 * goes on at the last checkpoint, and the final bytes are those of an undisturbed run. PREFIX.lock is held meanwhile. */
struct sky_tokens_out;
struct sky_tokens_opt {
	int dtype_bytes;        /* 2 or 4: uint16 or int32 on disk, as Megatron writes */
	int with_mask;
	unsigned out_flags;     /* SKY_OUT_* */
	int resume;             /* go on with what a killed writer left; without it, that is removed */
	const char *key;        /* identity of the work: options and inputs (one line); NULL: none */
};
/* 2 when every id below vocab fits uint16, else 4. */
int sky_tokens_width(int64_t vocab);
/* SKY_E_UNCHANGED with resume: the set is complete already (a kill hit between publishing and cleaning up). */
int sky_tokens_create(const char *prefix, const struct sky_tokens_opt *opt, struct sky_tokens_out **o_p,
		struct sky_err *err) SKY_MUST_CHECK;
int sky_tokens_add(struct sky_tokens_out *o, const int32_t *ids, const uint8_t *mask /* NULL: all 1 */, int64_t n,
		struct sky_err *err) SKY_MUST_CHECK;
int64_t sky_tokens_out_rows(const struct sky_tokens_out *o);
int64_t sky_tokens_out_total(const struct sky_tokens_out *o);
int64_t sky_tokens_out_trained(const struct sky_tokens_out *o);
/* Makes what was added durable, with state (a JSON value on one line) to come back to. */
int sky_tokens_checkpoint(struct sky_tokens_out *o, const char *state, struct sky_err *err) SKY_MUST_CHECK;
/* State of the checkpoint that a resumed writer starts from; NULL when it starts from nothing. */
const struct sky_jnode *sky_tokens_state(const struct sky_tokens_out *o);
/* extra: members for the manifest, as the inside of a JSON object ("\"tokenizer\":{…},…"), may be empty. Frees o. */
int sky_tokens_commit(struct sky_tokens_out *o, const char *extra, struct sky_err *err) SKY_MUST_CHECK;
/* Gives up: the work is kept when it has a checkpoint to resume from, else removed. */
void sky_tokens_abort(struct sky_tokens_out *o);

/* ---- other formats, row by row ----
 * What the formats do not say must be told: the width of bare arrays, the id that separates documents. */
enum sky_tokens_format {
	SKY_TF_AUTO, SKY_TF_TOKENS /* ours and Megatron's */, SKY_TF_DATATROVE, SKY_TF_MDS, SKY_TF_DOLMA, SKY_TF_LLMC,
			SKY_TF_ARROW,
	SKY_TF_JSONL, SKY_TF_LITDATA,
};
int sky_tokens_format_parse(const char *name, enum sky_tokens_format *f_p, struct sky_err *err) SKY_MUST_CHECK;
struct sky_exchange_opt {
	enum sky_tokens_format format;
	int width;              /* bytes of an id where nothing tells: dolma without its csv, MDS of bare bytes; 0: unknown */
	int64_t eod;            /* id between documents (llm.c, dolma without its csv); −1: unknown */
	const char *column;     /* MDS: column of tokens; NULL: "tokens", else "input_ids" */
	const char *tokenizer;  /* name for datatrove's metadata */
	const char *extra;      /* members for the manifest of a set of ours, as for sky_tokens_commit; NULL: none */
	unsigned out_flags;     /* SKY_OUT_* */
	int with_mask, dtype_bytes;     /* output */
	uint64_t shard_bytes;   /* output in shards (MDS, Arrow); 0: the format's own custom */
};
/* Arrow and JSON lines are not read here: they are rows of a corpus (schema tokens). */
struct sky_tokens_src;
int sky_tokens_src_open(const char *path, const struct sky_exchange_opt *opt, struct sky_tokens_src **s_p,
		struct sky_err *err) SKY_MUST_CHECK;
/* Next row; views until the next call. *mask_p is NULL where the format has none. SKY_EOF behind the last. */
int sky_tokens_src_next(struct sky_tokens_src *s, const int32_t **ids_p, const uint8_t **mask_p, int64_t *n_p,
		struct sky_err *err) SKY_MUST_CHECK;
/* Bytes of an id as the source stores them, where that is known; else 4. */
int sky_tokens_src_width(const struct sky_tokens_src *s);
void sky_tokens_src_close(struct sky_tokens_src *s);

/* Nothing is visible under the final name before _commit. datatrove, dolma, llm.c and JSON lines: a file (and files beside
 * it); MDS and Arrow: a folder that must not exist. */
struct sky_tokens_dst;
int sky_tokens_dst_open(const char *path, const struct sky_exchange_opt *opt, struct sky_tokens_dst **d_p,
		struct sky_err *err) SKY_MUST_CHECK;
/* mask NULL: all trained but the first. */
int sky_tokens_dst_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n,
		struct sky_err *err) SKY_MUST_CHECK;
int sky_tokens_dst_commit(struct sky_tokens_dst *d, struct sky_err *err) SKY_MUST_CHECK;       /* frees d, also on failure */
void sky_tokens_dst_abort(struct sky_tokens_dst *d);

#ifdef __cplusplus
}
#endif
#endif
