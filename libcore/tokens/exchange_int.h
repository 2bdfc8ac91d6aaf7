/* Private to libcore/tokens: readers and writers of other formats. */
#ifndef SKY_TOKENS_EXCHANGE_INT_H
#define SKY_TOKENS_EXCHANGE_INT_H

#include <stdbool.h>

#include "tokens/tokens_int.h"

/* A row that a reader builds; grows. */
struct row {
	int32_t *ids;
	uint8_t *mask;
	int64_t n, cap;
};
int row_room(struct row *r, int64_t n, struct sky_err *err) SKY_MUST_CHECK;
/* n elements of width bytes (negative width: signed) into r->ids; SKY_E_DATA for a value that is no id. */
int row_load(struct row *r, const uint8_t *p, int width, int64_t n, const char *path, struct sky_err *err) SKY_MUST_CHECK;

struct src_ops {
	int (*open)(struct sky_tokens_src *s, struct sky_err *err);
	int (*next)(struct sky_tokens_src *s, struct sky_err *err);     /* fills s->row, s->has_mask */
	void (*close)(struct sky_tokens_src *s);
};
struct sky_tokens_src {
	const struct src_ops *ops;
	struct sky_exchange_opt opt;
	char *path;
	struct row row;
	bool has_mask;
	int width;              /* bytes of a stored id, 0: unknown */
	void *state;
};
extern const struct src_ops src_tokens, src_datatrove, src_dolma, src_llmc, src_mds, src_litdata;

struct dst_ops {
	int (*open)(struct sky_tokens_dst *d, struct sky_err *err);
	int (*add)(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err);
	int (*commit)(struct sky_tokens_dst *d, struct sky_err *err);
	void (*abort)(struct sky_tokens_dst *d);        /* state may be NULL */
};
struct sky_tokens_dst {
	const struct dst_ops *ops;
	struct sky_exchange_opt opt;
	char *path;
	void *state;
	uint8_t *bytes;         /* scratch for one row */
	size_t cap;
	int64_t n_row, n_token;
};
extern const struct dst_ops dst_tokens, dst_datatrove, dst_dolma, dst_llmc, dst_mds, dst_arrow, dst_jsonl;
/* ids as little-endian elements in d->bytes; SKY_E_DATA when one does not fit. */
int dst_pack(struct sky_tokens_dst *d, const int32_t *ids, int64_t n, int width, struct sky_err *err) SKY_MUST_CHECK;
/* The mask of a row as bytes of 0 and 1 in d->bytes. */
int dst_pack_mask(struct sky_tokens_dst *d, const uint8_t *mask, int64_t n, struct sky_err *err) SKY_MUST_CHECK;
/* A folder under construction: PATH.work, renamed to PATH at the end. */
int folder_begin(const char *path, char **work_p, struct sky_err *err) SKY_MUST_CHECK;
int folder_commit(const char *work, const char *path, struct sky_err *err) SKY_MUST_CHECK;

#endif
