/* tokens: the token dataset, PREFIX.{bin,idx}, PREFIX.mask.{bin,idx}, PREFIX.json. Layer 2; skyrl-tokens(5).
 *
 * In: rows of ids with loss masks. Out: Megatron pairs that Megatron maps as they are, our mask as a second pair with
 * the same bounds, and a manifest (tokenizer and template fingerprints, special ids, counts, largest id, inputs, options,
 * checksums). A row is one sequence and one document. Writers publish the manifest last; readers start from it when it is
 * there and accept a bare Megatron pair (no mask: everything is trained). */
#ifndef SKY_TOKENS_TOKENS_H
#define SKY_TOKENS_TOKENS_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reader ---- */
struct sky_tokens;
int sky_tokens_open(const char *prefix, struct sky_tokens **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_tokens_close(struct sky_tokens *t);
int64_t sky_tokens_rows(const struct sky_tokens *t);
int64_t sky_tokens_total(const struct sky_tokens *t);           /* tokens */
int sky_tokens_dtype_bytes(const struct sky_tokens *t);         /* 1, 2, 4, 8 */
int64_t sky_tokens_max_id(const struct sky_tokens *t);          /* from the manifest, −1 when unknown */
int64_t sky_tokens_row_len(const struct sky_tokens *t, int64_t row);
/* Copies [from, from + n) of a row as int32; a value outside int32 is SKY_E_DATA naming row and position. */
int sky_tokens_ids(const struct sky_tokens *t, int64_t row, int64_t from, int64_t n, int32_t *out, struct sky_err *err) SKY_MUST_CHECK;
/* Mask bytes of the row (view, row_len bytes), or NULL when the set has no mask (all trained). */
const uint8_t *sky_tokens_mask(const struct sky_tokens *t, int64_t row);
int sky_tokens_has_mask(const struct sky_tokens *t);
const struct sky_json *sky_tokens_manifest(const struct sky_tokens *t);         /* NULL for a bare pair */

/* ---- writer ---- */
struct sky_tokens_out;
struct sky_tokens_opt {
	int dtype_bytes;        /* 2 or 4 */
	int with_mask;
	unsigned out_flags;     /* SKY_OUT_* */
};
int sky_tokens_create(const char *prefix, const struct sky_tokens_opt *opt, struct sky_tokens_out **o_p, struct sky_err *err) SKY_MUST_CHECK;
int sky_tokens_add(struct sky_tokens_out *o, const int32_t *ids, const uint8_t *mask /* NULL: all 1 */, int64_t n, struct sky_err *err) SKY_MUST_CHECK;
/* extra: members for the manifest, as the inside of a JSON object ("\"tokenizer\":{…},…"), may be empty. Frees o. */
int sky_tokens_commit(struct sky_tokens_out *o, const char *extra, struct sky_err *err) SKY_MUST_CHECK;
void sky_tokens_abort(struct sky_tokens_out *o);

#ifdef __cplusplus
}
#endif
#endif
