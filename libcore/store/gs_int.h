/* store, inside: Google Cloud Storage by its JSON interface. */
#ifndef SKY_STORE_GS_INT_H
#define SKY_STORE_GS_INT_H

#include "store/cred_int.h"
#include "store/s3_int.h"

#define GS_GRAIN (256u << 10)           /* chunks of a resumable upload are multiples of this */

struct gs {
	struct sky_gcred *cred;         /* NULL: no token is sent */
	struct sky_http *http;
	char bucket[256], base[1024];   /* base: scheme and host, no slash behind */
	char *prefix;                   /* "" or ends with '/' */
};

struct gs_req {
	struct sky_call c;
	struct sky_store *s;
	struct gs *gs;
	const char *method;
	char *url;                      /* owned */
	const char *type;               /* Content-Type of the body */
	const uint8_t *body;
	uint64_t n_body;
	int range;                      /* ask for [off, off + n_expect) */
	uint64_t off;
	uint8_t *mem;                   /* sink as in sky_try */
	int fd;
	uint64_t fd_off, n_room, n_expect;
	int whole, peek;                /* as in s3_req */
	/* answer */
	char reason[80], message[256];
	char token[8192];
	int n_refused;
	char *what;
};

int gs_req_init(struct gs_req *r, struct sky_store *s, const char *method, const char *key,
                struct sky_err *err) SKY_MUST_CHECK;
/* URL = base + path + query of the pairs (NULL values are skipped). */
int gs_req_url(struct gs_req *r, const char *path, const char *const pairs[][2], int n,
               struct sky_err *err) SKY_MUST_CHECK;
int gs_object_url(struct gs_req *r, const char *key, const char *media, struct sky_err *err) SKY_MUST_CHECK;
int gs_req_run(struct gs_req *r, struct sky_err *err) SKY_MUST_CHECK;
void gs_req_release(struct gs_req *r);
/* Host, token and errors, for calls that build themselves. */
int gs_add_auth(struct gs *b, struct sky_try *t, const char *refused, char *token, size_t cap,
                struct sky_err *err) SKY_MUST_CHECK;
int gs_judge_answer(struct gs_req *r, struct sky_try *t, struct sky_err *err);
/* Fields of an object resource: size, generation, crc32c, updated, our mark. */
struct gs_meta { uint64_t bytes; char generation[32], mark[64]; double mtime; uint32_t crc; int has_crc; };
int gs_parse_object(const struct sky_jnode *v, struct gs_meta *m, struct sky_err *err) SKY_MUST_CHECK;
int gs_stat(struct sky_store *s, const char *key, struct gs_meta *m, struct sky_err *err) SKY_MUST_CHECK;
int gs_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err);
int gs_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, struct sky_err *err);
int gs_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err);
int gs_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err);
int gs_del(struct sky_store *s, const char *key, struct sky_err *err);
int gs_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p, struct sky_err *err);
int gs_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags, const char *tag_expect,
           struct sky_err *err);
int gs_delete_if(struct sky_store *s, const char *key, const char *generation, struct sky_err *err) SKY_MUST_CHECK;

/* Resumable uploads; the XML interface (keys) begins them in its own way. */
int gs_upload_open(struct sky_upload *u, struct sky_err *err);
int gs_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err);
int gs_upload_commit(struct sky_upload *u, struct sky_err *err);
void gs_upload_abort(struct sky_upload *u);

extern const struct sky_store_ops sky_store_gs_xml;

#endif
