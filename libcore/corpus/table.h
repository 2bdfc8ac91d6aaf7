/* Private to libcore/corpus: columns of a record batch or row group, as Arrow lays them out, and their rows as JSON text.
 * Arrow fills them with views of its buffers, Parquet with arrays of its own. */
#ifndef SKY_CORPUS_TABLE_H
#define SKY_CORPUS_TABLE_H

#include "corpus/source_int.h"

#define MAX_TABLE_DEPTH 32

enum tkind {
	T_NULL,
	T_BOOL_BITS, T_BOOL_BYTES,      /* data: bits from the lowest, or bytes */
	T_INT,                          /* width 1, 2, 4, 8; is_signed */
	T_FLOAT,                        /* width 2, 4, 8 */
	T_STR_OFF,                      /* off of off_bytes, n + 1 of them; data: the bytes */
	T_STR_PTR,                      /* data: struct tstr[n] */
	T_STR_VIEW,                     /* data: Arrow's 16-byte views; extra: buffers */
	T_STR_FIXED,                    /* width bytes each */
	T_LIST_OFF,                     /* off as above into child[0] */
	T_LIST_FIXED,                   /* width elements each */
	T_LIST_VIEW,                    /* off and size of off_bytes, n of each */
	T_STRUCT,
	T_DICT,                         /* data: indices of width, is_signed; dict: the values */
	T_OPAQUE,                       /* a type that nobody reads as text or ids: every value prints as null */
};

struct tstr { const char *p; uint64_t n; };
struct tbytes { const uint8_t *p; uint64_t n; };

struct tcol {
	enum tkind kind;
	const char *name;
	int64_t n;                      /* values */
	const uint8_t *valid;           /* bitmap (valid_bytes 0) or bytes; NULL: no nulls */
	int valid_bytes;
	int width, off_bytes, is_signed;
	struct tbytes data, off, size;
	const struct tbytes *extra;     /* variadic buffers of T_STR_VIEW */
	int64_t n_extra;
	struct tcol *child;
	int n_child;
	const struct tdict *dict;
};

struct tdict {                          /* values of a dictionary: chunks, as delta batches add them */
	int64_t id;
	struct tcol *chunk;
	int n_chunk;
};

/* Bounds of every buffer, offset and child against each other, so that printing cannot leave them. */
int table_check(const struct tcol *c, const char *name, int depth, struct sky_err *err) SKY_MUST_CHECK;
/* Is a top-level column of that name wanted? */
bool table_wants(const struct source *s, const char *name);
/* Row i of the columns as one JSON object and a newline. Null members of any depth are left out unless keep_nulls. */
int table_row(const struct tcol *col, int n_col, int64_t i, int keep_nulls, struct sky_buf *out,
		struct sky_err *err) SKY_MUST_CHECK;
/* A block with rows [*row_p, …) of n, at most about the wanted bytes; moves *row_p. */
int table_block(struct source *s, const struct tcol *col, int n_col, int64_t n, int64_t *row_p, int64_t first,
                struct sky_block **b_p, struct sky_err *err) SKY_MUST_CHECK;

/* LZ4 block and frame formats; out has room for n_out bytes exactly. */
int lz4_block(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, size_t *got_p, struct sky_err *err) SKY_MUST_CHECK;
int lz4_frame(const uint8_t *in, size_t n_in, uint8_t *out, size_t n_out, struct sky_err *err) SKY_MUST_CHECK;

#endif
