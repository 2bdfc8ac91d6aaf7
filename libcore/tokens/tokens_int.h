/* Private to libcore/tokens: one Megatron pair (BASE.bin, BASE.idx), checked and mapped; names of the files of a set. */
#ifndef SKY_TOKENS_INT_H
#define SKY_TOKENS_INT_H

#include <endian.h>
#include <string.h>

#include "tokens/tokens.h"

#define IDX_MAGIC "MMIDIDX\0\0"
#define IDX_MAGIC_BYTES 9
#define IDX_HEADER_BYTES 34     /* magic, u64 version, u8 code, u64 sequences, u64 bounds */

/* Element codes of the format, ours and others'. */
enum idx_code {
	IDX_U8 = 1, IDX_I8 = 2, IDX_I16 = 3, IDX_I32 = 4, IDX_I64 = 5, IDX_F64 = 6, IDX_F32 = 7, IDX_U16 = 8,
};

struct pair {
	struct sky_map bin, idx;
	char *base;             /* owned: path without suffix */
	int code, size;         /* element code and its bytes */
	int64_t n_seq, n_bound; /* bounds = documents + 1 */
	int64_t n_total, n_longest;
	int has_modes, contiguous, one_doc_each;        /* one_doc_each: bounds are 0, 1, …, S */
	const uint8_t *len, *ptr, *bound, *mode;        /* unaligned arrays in idx */
};

/* Maps and checks everything that the index says against itself and the size of the .bin. */
int pair_open(const char *base, struct pair *p, struct sky_err *err) SKY_MUST_CHECK;
void pair_close(struct pair *p);        /* safe on a zeroed struct */
int idx_code_bytes(int code);           /* 0 for an unknown code */
const char *idx_code_name(int code);

/* Inline, because an index has up to 10^9 rows. */
static inline int64_t pair_len(const struct pair *p, int64_t i)
{
	uint32_t v;

	memcpy(&v, p->len + 4 * i, 4);
	return (int32_t)le32toh(v);
}

static inline int64_t pair_ptr(const struct pair *p, int64_t i)
{
	uint64_t v;

	memcpy(&v, p->ptr + 8 * i, 8);
	return (int64_t)le64toh(v);
}

static inline int64_t pair_bound(const struct pair *p, int64_t i)
{
	uint64_t v;

	memcpy(&v, p->bound + 8 * i, 8);
	return (int64_t)le64toh(v);
}

/* Header of an .idx into out (IDX_HEADER_BYTES). */
void idx_header(uint8_t *out, int code, uint64_t n_seq, uint64_t n_bound);

/* malloc'd PREFIX + suffix. NULL when memory is gone (err filled). */
char *tok_path(const char *prefix, const char *suffix, struct sky_err *err);

/* Text of a manifest ends with ,"check":"<hex>"}\n where hex is XXH3-128 of all bytes before that comma. */
#define TOK_CHECK_KEY ",\"check\":\""
int manifest_seal(struct sky_buf *text, struct sky_err *err) SKY_MUST_CHECK;    /* text: {… without the last brace */
int manifest_check(const char *text, size_t n, const char *path, struct sky_err *err) SKY_MUST_CHECK;

struct sky_tokens {
	char *prefix;                   /* owned */
	struct pair tok, mask;
	int has_mask;
	struct sky_json *manifest;      /* NULL for a bare pair */
	int64_t max_id;
};

#endif
