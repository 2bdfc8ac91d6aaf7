/* store: byte stores behind one interface, and streams with compression. Layer 1.
 *
 * In: URLs (a path, file://, s3://bucket/prefix, gs://bucket/prefix, mem:name for tests) and options.
 * Out: range reads, streaming writes, conditional puts, listings. Every wait has a limit; every error has a class
 * (again, missing, denied, data). A store handle may be used by several threads; an upload by one. */
#ifndef SKY_STORE_STORE_H
#define SKY_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_store;

struct sky_store_opt {                  /* zero = default everywhere */
	const char *endpoint_url, *region, *profile, *addressing;       /* addressing: auto, path, virtual */
	int no_sign_request;
	int n_parallel;                 /* transfers in flight, default 8 */
	uint64_t part_bytes;            /* multipart part, default 8 MiB, grows with the object */
	double timeout_s, retry_time_s; /* of one idle wait; of all tries together */
	int n_tries;
	uint64_t bw_limit;              /* bytes per second, 0 = none */
};

int sky_store_open(const char *url, const struct sky_store_opt *opt, struct sky_store **s_p,
                   struct sky_err *err) SKY_MUST_CHECK;
void sky_store_close(struct sky_store *s);
const char *sky_store_url(const struct sky_store *s);
/* Process-wide: when stopping() turns true, waits for a server end soon with SKY_E_STOP; the clean-up of an upload
 * goes on. Programs get this through cmd_store_opt (cmd/storeopt.h). */
void sky_store_stop_on(bool (*stopping)(void));

struct sky_object {
	char *key;
	uint64_t bytes;
	char tag[128];          /* etag, generation, or what stands for it; "" when none */
	double mtime;           /* seconds since 1970; 0 when not known */
};

/* Keys are relative to the URL, '/'-separated, never start with '/' and never hold "..". */
/* SKY_E_MISSING when there is none. */
int sky_store_head(struct sky_store *s, const char *key, struct sky_object *o_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_object_release(struct sky_object *o);
/* Appends bytes [off, off + n) to *out; n = UINT64_MAX: to the end. Short objects are SKY_E_DATA. */
int sky_store_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
                  struct sky_err *err) SKY_MUST_CHECK;
/* Whole object into fd at its start, ranges in parallel; *bytes_p = length. A longer file is not cut; a disk without
 * room is told before the transfer. */
int sky_store_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p,
                     struct sky_err *err) SKY_MUST_CHECK;

enum sky_put_flags { SKY_PUT_CREATE = 1u << 0 }; /* fails with SKY_E_AGAIN when the key exists (another writer won) */
/* One request (the commit marker). tag_expect: NULL, or replace only while the object still has that tag. */
int sky_store_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags,
                  const char *tag_expect, struct sky_err *err) SKY_MUST_CHECK;
/* Streaming, multipart beyond part_bytes; nothing is visible before _commit. */
struct sky_upload;
int sky_upload_open(struct sky_store *s, const char *key, unsigned flags, struct sky_upload **u_p,
                    struct sky_err *err) SKY_MUST_CHECK;
int sky_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err) SKY_MUST_CHECK;
/* Frees u, also on failure; then the upload is aborted. */
int sky_upload_commit(struct sky_upload *u, struct sky_err *err) SKY_MUST_CHECK;
void sky_upload_abort(struct sky_upload *u);
int sky_store_put_file(struct sky_store *s, const char *key, const char *path, unsigned flags,
                       struct sky_err *err) SKY_MUST_CHECK;

/* Objects (prefixes when shallow: keys ending with '/') below prefix, sorted by bytes. */
enum sky_list_flags { SKY_LIST_SHALLOW = 1u << 0 };
int sky_store_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_object **v_p, int64_t *n_p,
                   struct sky_err *err) SKY_MUST_CHECK;
void sky_objects_free(struct sky_object *v, int64_t n);
int sky_store_delete(struct sky_store *s, const char *key, struct sky_err *err) SKY_MUST_CHECK; /* missing is fine */
/* Multipart uploads left behind below prefix, older than age_s: counted, and aborted when abort != 0. */
int sky_store_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p,
                      struct sky_err *err) SKY_MUST_CHECK;
struct sky_store_stats { uint64_t bytes_get, bytes_put, n_request, n_retry; };
void sky_store_stats(const struct sky_store *s, struct sky_store_stats *st);

/* ---- streams: "-", a path or a URL, decompressed by content (gz, zst, xz, bz2) ---- */
struct sky_stream;
struct sky_stream_opt {
	const struct sky_store_opt *store;
	int zstd_window_log;            /* largest accepted; 0 = 27 */
	int raw;                        /* no decompression */
};
int sky_stream_open(const char *name, const struct sky_stream_opt *opt, struct sky_stream **s_p,
                    struct sky_err *err) SKY_MUST_CHECK;
/* From an open descriptor (borrowed). */
int sky_stream_fd(int fd, const char *name, const struct sky_stream_opt *opt, struct sky_stream **s_p,
                  struct sky_err *err) SKY_MUST_CHECK;
/* Up to n bytes; 0 at the end; negative on failure. Truncated or damaged compressed data is SKY_E_DATA with the
 * offset. */
int64_t sky_stream_read(struct sky_stream *s, void *p, uint64_t n, struct sky_err *err) SKY_MUST_CHECK;
uint64_t sky_stream_offset(const struct sky_stream *s); /* bytes read from the source (compressed), for progress */
const char *sky_stream_kind(const struct sky_stream *s);        /* "plain", "gzip", "zstd", … */
void sky_stream_close(struct sky_stream *s);

#ifdef __cplusplus
}
#endif
#endif
