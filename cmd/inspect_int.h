/* Shared by the files of skyrl-inspect. */
#ifndef SKY_CMD_INSPECT_INT_H
#define SKY_CMD_INSPECT_INT_H

#include "base/base.h"
#include "weights/weights.h"

/* What is said about one operand: the same facts as text for people and as members of a JSON record. */
struct report {
	const char *path;
	bool check, list;
	struct sky_buf text, json, rows;        /* rows: one line or record for each tensor, sample, … with --list */
	struct sky_buf unused;                  /* where the members of a row go when text is asked for */
	struct sky_jw w;                        /* into json */
	struct sky_err *err;
	int rc;                                 /* first failure of the above; sticks */
	char kind[64];
};

/* Facts. key is the JSON name (with its unit); the text shows it with blanks. */
void rep_kind(struct report *r, const char *kind);
void rep_str(struct report *r, const char *key, const char *v);         /* nothing when v is NULL */
void rep_i64(struct report *r, const char *key, int64_t v);
void rep_f64(struct report *r, const char *key, double v);
void rep_bytes(struct report *r, const char *key, uint64_t v);
void rep_bool(struct report *r, const char *key, bool v);
/* A warning: something odd that is no damage. */
void rep_note(struct report *r, const char *fmt, ...) SKY_PRINTF(2, 3);
/* {"A":1,"B":2} in JSON, "A 1, B 2" in text; zero counts are left out. */
void rep_counts(struct report *r, const char *key, const char *const *names, const int64_t *n, int n_names);
/* One row with --list: JSON members by the caller between begin and end, and the line for people. */
struct sky_jw *rep_row_begin(struct report *r, struct sky_jw *w, const char *type);
void rep_row_end(struct report *r, struct sky_jw *w, const char *fmt, ...) SKY_PRINTF(3, 4);

/* Each fills the report, or returns the failure. */
int inspect_safetensors(struct report *r, const char *path, struct sky_err *err) SKY_MUST_CHECK;
int inspect_hf(struct report *r, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
int inspect_traj(struct report *r, const char *path, struct sky_err *err) SKY_MUST_CHECK;
int inspect_tokens(struct report *r, const char *prefix, struct sky_err *err) SKY_MUST_CHECK;
int inspect_delta(struct report *r, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
int inspect_delta_store(struct report *r, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
int inspect_run(struct report *r, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
/* Files that the toolkit reads but did not make: named by their first bytes. */
int inspect_other(struct report *r, const char *path, struct sky_err *err) SKY_MUST_CHECK;

/* Names of DIR that are versions of a delta chain: delta-NNNNNNNN. */
bool inspect_is_delta_name(const char *name, int64_t *version_p);

#endif
