/* JSON documents: configuration, manifests, tokenizers, records between programs.
 *
 * Not for the hot path (corpus rows have their own scanner). Strict syntax, UTF-8, depth at most SKY_MAX_JSON_DEPTH.
 * Numbers keep their raw text, so 64-bit integers survive; duplicate keys: the last value wins, at the first place; NaN
 * and Infinity, as Python writes them, are numbers where the flag allows; a lone surrogate escape becomes U+FFFD. A node
 * is borrowed from its document and dies with it. A document never changes once parsed: threads may share it. */
#ifndef SKY_BASE_JSON_H
#define SKY_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_json;        /* a document; owns all nodes */
struct sky_jnode;       /* a value, borrowed */

enum sky_jtype { SKY_J_NULL, SKY_J_BOOL, SKY_J_NUMBER, SKY_J_STRING, SKY_J_ARRAY, SKY_J_OBJECT };
enum sky_json_flags {
	SKY_JSON_PYTHON = 1u << 0,      /* accept bare NaN, Infinity, -Infinity */
	SKY_JSON_NO_DUP = 1u << 1,      /* duplicate keys are an error */
	SKY_JSON_NUL = 1u << 2,         /* accept \u0000 in string values; read them with sky_j_strn */
};

/* name is for messages ("config.json"); errors give line and column. text need not be NUL-terminated. */
int sky_json_parse(const char *text, size_t n, const char *name, unsigned flags, struct sky_json **doc_p,
                   struct sky_err *err) SKY_MUST_CHECK;
int sky_json_load(const char *path, unsigned flags, struct sky_json **doc_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_json_free(struct sky_json *doc);
const struct sky_jnode *sky_json_root(const struct sky_json *doc);

enum sky_jtype sky_j_type(const struct sky_jnode *v);           /* NULL node counts as SKY_J_NULL */
/* Object member (hashed) or array element; NULL when absent or v is not a container of that kind (v may be NULL). */
const struct sky_jnode *sky_j_get(const struct sky_jnode *v, const char *key);
const struct sky_jnode *sky_j_at(const struct sky_jnode *v, size_t i);          /* O(1) */
size_t sky_j_len(const struct sky_jnode *v);                    /* members or elements, 0 otherwise */
/* Iteration in order of the file. first of a container, next of a sibling; key is NULL inside arrays. */
const struct sky_jnode *sky_j_first(const struct sky_jnode *v);
const struct sky_jnode *sky_j_next(const struct sky_jnode *v);
const char *sky_j_key(const struct sky_jnode *v);
/* Strings may hold NUL bytes only as \u0000, which is refused at parse time. NULL when v is not a string. */
const char *sky_j_str(const struct sky_jnode *v);
const char *sky_j_strn(const struct sky_jnode *v, size_t *n_p);
/* Exact: false when v is not a number, not integral ("1.0" is integral), or out of range. */
bool sky_j_i64(const struct sky_jnode *v, int64_t *out);
bool sky_j_u64(const struct sky_jnode *v, uint64_t *out);
bool sky_j_f64(const struct sky_jnode *v, double *out);
bool sky_j_bool(const struct sky_jnode *v, bool *out);
const char *sky_j_raw(const struct sky_jnode *v);               /* raw text of a number */

/* Getters with defaults that complain about a wrong type, naming the key. Absent or null gives def. */
int sky_j_get_i64(const struct sky_jnode *v, const char *key, int64_t def, int64_t *out, struct sky_err *err) SKY_MUST_CHECK;
int sky_j_get_f64(const struct sky_jnode *v, const char *key, double def, double *out, struct sky_err *err) SKY_MUST_CHECK;
int sky_j_get_bool(const struct sky_jnode *v, const char *key, bool def, bool *out, struct sky_err *err) SKY_MUST_CHECK;
int sky_j_get_str(const struct sky_jnode *v, const char *key, const char *def, const char **out, struct sky_err *err) SKY_MUST_CHECK;

/* Serialise a node compactly (numbers by raw text, order kept). */
int sky_j_print(const struct sky_jnode *v, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

/* Writer: builds text piece by piece, commas are its business. Errors stick and come out of _end. */
struct sky_jw {
	struct sky_buf *out;    /* borrowed */
	struct sky_err *err;    /* borrowed */
	int rc, depth;
	bool comma, keyed;      /* comma: the next item needs one; keyed: a key was just written */
	bool spaced;            /* ", " and ": " as Python's json.dumps */
	bool ascii;             /* non-ASCII as \uXXXX */
};
void sky_jw_init(struct sky_jw *w, struct sky_buf *out, struct sky_err *err);
void sky_jw_obj(struct sky_jw *w);
void sky_jw_arr(struct sky_jw *w);
void sky_jw_close_obj(struct sky_jw *w);
void sky_jw_close_arr(struct sky_jw *w);
void sky_jw_key(struct sky_jw *w, const char *key);
void sky_jw_str(struct sky_jw *w, const char *s);               /* NULL writes null; bytes that are not UTF-8 become U+FFFD */
void sky_jw_strn(struct sky_jw *w, const char *s, size_t n);
void sky_jw_i64(struct sky_jw *w, int64_t v);
void sky_jw_u64(struct sky_jw *w, uint64_t v);
void sky_jw_f64(struct sky_jw *w, double v);            /* null when not finite */
void sky_jw_f32(struct sky_jw *w, float v);
void sky_jw_bool(struct sky_jw *w, bool v);
void sky_jw_null(struct sky_jw *w);
void sky_jw_raw(struct sky_jw *w, const char *s, size_t n);     /* text that is JSON already */
void sky_jw_node(struct sky_jw *w, const struct sky_jnode *v);  /* a parsed value, numbers by raw text */
/* key and value in one call */
void sky_jw_kstr(struct sky_jw *w, const char *key, const char *s);
void sky_jw_ki64(struct sky_jw *w, const char *key, int64_t v);
void sky_jw_kf64(struct sky_jw *w, const char *key, double v);
void sky_jw_kbool(struct sky_jw *w, const char *key, bool v);
int sky_jw_end(struct sky_jw *w) SKY_MUST_CHECK;        /* first error, or 0 */

#ifdef __cplusplus
}
#endif
#endif
