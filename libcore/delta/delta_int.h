/* Shared inside libcore/delta. */
#ifndef SKY_DELTA_DELTA_INT_H
#define SKY_DELTA_DELTA_INT_H

#include "delta/delta.h"

/* ---- dstate.c: STATE/weights with its hidden state file ---- */
struct dstate {
	int64_t version;
	struct sky_delta_id id;         /* writer: of this STATE */
};
/* weights: STATE/weights, or a directory that will become it. */
int dstate_load(const char *weights, struct dstate *s, struct sky_err *err) SKY_MUST_CHECK;
int dstate_save(const char *weights, const struct dstate *s, struct sky_err *err) SKY_MUST_CHECK;
void dstate_random_id(char out[33]);
int dstate_path(char *out, const char *dir, const char *name, struct sky_err *err) SKY_MUST_CHECK;
/* Copy of a directory's regular files: own bytes (reflink where the file system can), or with link hard links. */
int dstate_copy_dir(const char *from, const char *to, int link, struct sky_err *err) SKY_MUST_CHECK;
int dstate_copy_file(const char *from, const char *to, struct sky_err *err) SKY_MUST_CHECK;
/* STATE/weights becomes `fresh` by one rename; the old one is removed afterwards. */
int dstate_switch(const char *dir, const char *fresh, struct sky_err *err) SKY_MUST_CHECK;

/* ---- frame.c: XOR and zstd ---- */
/* One frame of old XOR new appended to *out; *changed_p = bytes that differ (0: nothing is appended). */
int frame_encode(const void *old, const void *fresh, uint64_t n, struct sky_buf *out, uint64_t *changed_p,
                 struct sky_err *err) SKY_MUST_CHECK;
/* dst [n] ^= content of the single frame, which must decode to exactly n bytes. scratch grows to n. */
int frame_apply(const void *frame, uint64_t n_frame, void *dst, uint64_t n, struct sky_buf *scratch, const char *name,
                struct sky_err *err) SKY_MUST_CHECK;
/* Checks the stated length without decoding into the model. */
int frame_check(const void *frame, uint64_t n_frame, uint64_t n, const char *name, struct sky_err *err) SKY_MUST_CHECK;
/* Hex of the hash that the manifest names. */
void frame_hash(int sha256, const void *p, uint64_t n, char out[65]);

/* ---- receive.c ---- */
/* Applies the versions (from, to] lying in deltas/ to the directory weights, whose files are private copies. */
int receive_apply_range(const char *deltas, const char *weights, int64_t from, int64_t to, int n_threads,
                        struct sky_delta_result *r, struct sky_err *err) SKY_MUST_CHECK;
int receive_fetch_one(struct sky_store *s, const char *deltas, int64_t version, struct sky_manifest *m, struct sky_delta_result *r,
                      struct sky_err *err) SKY_MUST_CHECK;

#endif
