/* Private to libcore/corpus: the parts of a Parquet reader. */
#ifndef SKY_CORPUS_PARQUET_INT_H
#define SKY_CORPUS_PARQUET_INT_H

#include "corpus/table.h"

/* ---- Thrift compact protocol, read-only ---- */
struct thrift { const uint8_t *p; size_t at, n; bool bad; int depth; };
enum { TH_STOP = 0, TH_TRUE = 1, TH_FALSE = 2, TH_BYTE = 3, TH_I16 = 4, TH_I32 = 5, TH_I64 = 6, TH_DOUBLE = 7, TH_BINARY = 8,
       TH_LIST = 9, TH_SET = 10, TH_MAP = 11, TH_STRUCT = 12 };
/* Next field of a struct: *id_p goes up from what it was (0 at the start); TH_STOP at the end. */
int th_field(struct thrift *t, int *id_p);
int64_t th_int(struct thrift *t);               /* zigzag */
const char *th_binary(struct thrift *t, size_t *n_p);
size_t th_list(struct thrift *t, int *type_p);
void th_skip(struct thrift *t, int type);
/* A struct begins or ends inside another: nesting is limited. */
bool th_enter(struct thrift *t);
void th_leave(struct thrift *t);

/* ---- schema ---- */
enum { PQ_BOOLEAN, PQ_INT32, PQ_INT64, PQ_INT96, PQ_FLOAT, PQ_DOUBLE, PQ_BYTES, PQ_FIXED };
enum { PQ_REQUIRED, PQ_OPTIONAL, PQ_REPEATED };

struct pq_node {
	char *name;                     /* in the arena */
	int type, type_length, repetition, n_child, converted;
	bool is_list, is_map, is_unsigned, is_text;
	int def, rep;                   /* levels at which it is present / of its own repetition */
	struct pq_node *child;
	int first_leaf, n_leaf;         /* leaves below it, in order */
};

struct pq_chunk {                       /* a column of a row group */
	int type, codec;
	int64_t n_value, data_off, dict_off, n_stored;  /* dict_off: −1 when none */
};
struct pq_group { int64_t n_row; struct pq_chunk *chunk; };

struct parquet {
	struct sky_map map;
	struct sky_arena arena, batch;  /* file; row group in hand */
	struct pq_node root;
	int n_leaf;
	struct pq_node **leaf;
	struct pq_group *group;
	int64_t n_group, i_group;
	int64_t n_file_row;
	struct tcol *col;               /* row group in hand */
	int64_t n_row, row, first;
	const char *file;               /* for messages */
};

int pq_footer(struct parquet *q, struct sky_err *err) SKY_MUST_CHECK;

/* ---- one column chunk, decoded ---- */
struct pq_values {
	int64_t n_level, cap;           /* entries: values and nulls */
	uint16_t *def, *rep;
	int64_t n_value, cap_value;     /* values present */
	uint8_t *fixed;                 /* width bytes each; booleans one byte */
	struct tstr *str;               /* or texts */
	int width;
};
/* Reads every page of chunk c of leaf; memory from q->batch. */
int pq_read_chunk(struct parquet *q, const struct pq_node *leaf, const struct pq_chunk *c, struct pq_values *v,
                  struct sky_err *err) SKY_MUST_CHECK;
/* Page payload → raw bytes of exactly n_raw. */
int pq_unpack(struct parquet *q, int codec, const uint8_t *in, size_t n_in, size_t n_raw, const uint8_t **out_p,
              struct sky_err *err) SKY_MUST_CHECK;
/* Encodings: n values from in; how many bytes were used is not needed. */
struct pq_in { const uint8_t *p; size_t n; const char *file; struct sky_arena *arena; struct sky_err *err; };
int pq_rle(struct pq_in *in, int bits, int64_t n, uint32_t *out) SKY_MUST_CHECK;
/* DELTA_BINARY_PACKED; *used_p: bytes taken. out: n int64. n < 0: as many as it holds, *n_p tells. */
int pq_delta_ints(struct pq_in *in, int64_t max, int64_t *out, int64_t *n_p, size_t *used_p) SKY_MUST_CHECK;
int pq_delta_lengths(struct pq_in *in, int64_t n, struct tstr *out) SKY_MUST_CHECK;
int pq_delta_bytes(struct pq_in *in, int64_t n, struct tstr *out) SKY_MUST_CHECK;

#endif
