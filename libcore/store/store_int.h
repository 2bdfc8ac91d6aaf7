/* store, inside: the table of backends and what they share. */
#ifndef SKY_STORE_STORE_INT_H
#define SKY_STORE_STORE_INT_H

#include <stdatomic.h>
#include "store/store.h"

#define SKY_MAX_KEY             1024            /* bytes of a key, as S3 and GCS */
#define SKY_MAX_OBJECTS         (16 << 20)      /* entries of one listing */
#define SKY_PART_MIN            (5ull << 20)    /* S3: smallest part that is not the last */
#define SKY_PART_MAX            (5ull << 30)
#define SKY_PARTS_MAX           10000

/* Strings of the options copied, every zero replaced by its default. */
struct sky_store_set {
	char *endpoint_url, *region, *profile, *addressing;     /* NULL when not given */
	int no_sign_request, n_parallel, n_tries;
	uint64_t part_bytes, bw_limit;
	double timeout_s, retry_time_s;
};

struct sky_store {
	const struct sky_store_ops *ops;
	struct sky_store_set set;
	char *url;              /* as given */
	void *be;               /* the backend's own state */
	_Atomic uint64_t bytes_get, bytes_put, n_request, n_retry;
};

struct sky_upload {
	struct sky_store *s;
	char *key;
	unsigned flags;
	void *be;
};

/* A listing under construction: unsorted, may be any size up to SKY_MAX_OBJECTS. */
struct sky_listing {
	struct sky_object *v;
	int64_t n, cap;
};
int sky_listing_add(struct sky_listing *l, const char *key, size_t n_key, uint64_t bytes, const char *tag,
                    double mtime, struct sky_err *err) SKY_MUST_CHECK;
void sky_listing_release(struct sky_listing *l);
/* Adds KEY, or in a shallow listing the prefix up to the next '/' (once). */
int sky_listing_fold(struct sky_listing *l, const char *prefix, unsigned flags, const struct sky_object *o,
                     struct sky_err *err) SKY_MUST_CHECK;

/* One row per kind of store. Keys arrive checked. upload_commit and upload_abort free u->be; get appends at most n
 * bytes and never less unless n was UINT64_MAX. */
struct sky_store_ops {
	const char *scheme;     /* "file", "mem", "s3", "gs" */
	int (*open)(struct sky_store *s, const char *rest, struct sky_err *err); /* rest: behind scheme and "://" */
	void (*close)(struct sky_store *s);
	int (*head)(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err);
	int (*get)(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
	           struct sky_err *err);
	int (*get_fd)(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err);
	int (*put)(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags,
	           const char *tag_expect, struct sky_err *err);
	int (*upload_open)(struct sky_upload *u, struct sky_err *err);
	int (*upload_write)(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err);
	/* May be NULL. All of a file of n bytes. */
	int (*upload_fd)(struct sky_upload *u, int fd, uint64_t n, const char *name, struct sky_err *err);
	int (*upload_commit)(struct sky_upload *u, struct sky_err *err);
	void (*upload_abort)(struct sky_upload *u);
	int (*list)(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l,
	            struct sky_err *err);
	int (*del)(struct sky_store *s, const char *key, struct sky_err *err);
	int (*uploads)(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p,
	               struct sky_err *err);
};

extern const struct sky_store_ops sky_store_file, sky_store_mem, sky_store_s3, sky_store_gs;

int sky_key_check(const char *key, struct sky_err *err) SKY_MUST_CHECK;         /* SKY_E_USAGE */
int sky_lost_race(struct sky_store *s, const char *key, struct sky_err *err);   /* SKY_E_AGAIN: another writer won */
int sky_no_object(struct sky_store *s, const char *key, struct sky_err *err);   /* SKY_E_MISSING */

/* Decompressors of streams: one row each, found by the first bytes. */
struct sky_codec_io {
	const uint8_t *in;      /* next input byte */
	size_t n_in;
	uint8_t *out;
	size_t n_out;
	int eof;                /* no more input will come */
};
struct sky_codec {
	const char *name;
	int (*match)(const uint8_t *p, size_t n);               /* does this data look like mine? */
	void *(*init)(const struct sky_stream_opt *opt);        /* NULL: out of memory */
	/* Consumes and produces by moving the pointers. 0, SKY_EOF at a clean end of everything, or negative with a
	 * short reason in *why_p (static text). */
	int (*step)(void *state, struct sky_codec_io *io, const char **why_p);
	void (*done)(void *state);
};
extern const struct sky_codec sky_codec_gzip, sky_codec_zstd, sky_codec_xz, sky_codec_bzip2;

#endif
