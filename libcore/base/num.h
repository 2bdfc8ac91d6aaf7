/* Numbers as people write them, and sums that cannot wrap. All parsing of text numbers goes through here (C locale). */
#ifndef SKY_BASE_NUM_H
#define SKY_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* true when the result overflowed (and *r is then undefined) */
static inline bool sky_add_u64(uint64_t a, uint64_t b, uint64_t *r) { return __builtin_add_overflow(a, b, r); }
static inline bool sky_mul_u64(uint64_t a, uint64_t b, uint64_t *r) { return __builtin_mul_overflow(a, b, r); }
static inline bool sky_add_i64(int64_t a, int64_t b, int64_t *r) { return __builtin_add_overflow(a, b, r); }
static inline bool sky_mul_i64(int64_t a, int64_t b, int64_t *r) { return __builtin_mul_overflow(a, b, r); }

/* Whole string must be a number; the message names what was expected and shows the text. */
int sky_parse_i64(const char *s, int64_t *v_p, struct sky_err *err) SKY_MUST_CHECK;
int sky_parse_u64(const char *s, uint64_t *v_p, struct sky_err *err) SKY_MUST_CHECK;
int sky_parse_f64(const char *s, double *v_p, struct sky_err *err) SKY_MUST_CHECK;
/* 1000, 1k, 2.5M, 1G or 1B, 1T: decimal, for tokens, rows, steps. */
int sky_parse_count(const char *s, int64_t *v_p, struct sky_err *err) SKY_MUST_CHECK;
/* 64M, 64MiB = 1024-based; 64MB = 1000-based; plain = bytes. */
int sky_parse_size(const char *s, uint64_t *v_p, struct sky_err *err) SKY_MUST_CHECK;
/* 90, 90s, 250ms, 15m, 2h, 1d: seconds. */
int sky_parse_duration(const char *s, double *seconds_p, struct sky_err *err) SKY_MUST_CHECK;

/* Text for people and for JSON. Each writes at most cap bytes with NUL and returns out. */
char *sky_fmt_count(char *out, size_t cap, double v);       /* 1.25M */
char *sky_fmt_size(char *out, size_t cap, uint64_t bytes);  /* 1.5 GiB */
char *sky_fmt_duration(char *out, size_t cap, double s);    /* 1h02m */
char *sky_fmt_f64(char *out, size_t cap, double v);         /* shortest of %.15g..%.17g that reads back equal; "null" if not finite */
char *sky_fmt_f32(char *out, size_t cap, float v);          /* shortest of %.6g..%.9g that reads back equal; "null" if not finite */

#ifdef __cplusplus
}
#endif
#endif
