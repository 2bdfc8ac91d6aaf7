/* Private to libcore/corpus: the parts of an Arrow IPC reader. */
#ifndef SKY_CORPUS_ARROW_INT_H
#define SKY_CORPUS_ARROW_INT_H

#include "corpus/table.h"

/* A flatbuffer and positions in it. Every access is checked; a violation sets bad and reads as absent. */
struct fb { const uint8_t *p; size_t n; bool bad; };
size_t fb_root(struct fb *b);                                   /* table, 0 when broken */
size_t fb_table(struct fb *b, size_t tab, int id);              /* table or vector a field points to; 0: absent */
int64_t fb_int(struct fb *b, size_t tab, int id, int width, int64_t def);
/* Elements of a vector field; *at_p: position of the first. 0 when absent. */
size_t fb_vector(struct fb *b, size_t tab, int id, size_t elem_bytes, size_t *at_p);
size_t fb_deref(struct fb *b, size_t at);                       /* element of a vector of tables */
const char *fb_string(struct fb *b, size_t tab, int id, size_t *n_p);

enum {
	ARROW_NULL = 1, ARROW_INT, ARROW_FLOAT, ARROW_BINARY, ARROW_UTF8, ARROW_BOOL, ARROW_DECIMAL, ARROW_DATE, ARROW_TIME,
	ARROW_TIMESTAMP, ARROW_INTERVAL, ARROW_LIST, ARROW_STRUCT, ARROW_UNION, ARROW_FIXED_BINARY, ARROW_FIXED_LIST,
			ARROW_MAP,
	ARROW_DURATION, ARROW_LARGE_BINARY, ARROW_LARGE_UTF8, ARROW_LARGE_LIST, ARROW_RUN_END, ARROW_BINARY_VIEW,
	ARROW_UTF8_VIEW, ARROW_LIST_VIEW, ARROW_LARGE_LIST_VIEW,
};

struct afield {
	const char *name;               /* in the reader's arena */
	int type, width, is_signed, fixed;
	bool in_dict;
	int64_t dict_id;
	int index_width, index_signed;
	struct afield *child;
	int n_child;
};

/* Schema table → fields in arena. */
int arrow_schema(struct fb *b, size_t schema, struct sky_arena *arena, const char *file, struct afield **f_p, int *n_p,
                 struct sky_err *err) SKY_MUST_CHECK;

/* One RecordBatch table with its body → columns in arena. dicts: known dictionaries. v4: old layout of unions is not met. */
struct abatch {
	struct fb *b;
	size_t tab;
	const uint8_t *body;
	uint64_t n_body;
	struct sky_arena *arena;
	struct tdict *dict;
	int n_dict;
	const char *file;
};
int arrow_batch(struct abatch *a, const struct afield *f, int n_f, bool values, struct tcol **col_p, int64_t *n_row_p,
                struct sky_err *err) SKY_MUST_CHECK;

#endif
