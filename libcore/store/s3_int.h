/* store, inside: S3 and its dialects. */
#ifndef SKY_STORE_S3_INT_H
#define SKY_STORE_S3_INT_H

#include "store/cred_int.h"
#include "store/http_int.h"
#include "store/sigv4_int.h"

/* What differs between S3 and the XML interface of Google. */
struct s3_dialect {
	const char *scheme;             /* "s3", "gs" */
	const struct sky_sig_style *sig;
	const char *meta_id;            /* field that carries our mark of a put */
	const char *checksum_crc32c;    /* field with base64 CRC32C, request and answer; NULL: x-goog-hash */
	int generations;                /* tags are generations, conditions x-goog-if-generation-match */
};
extern const struct s3_dialect s3_dialect_aws, s3_dialect_goog;

struct s3 {
	const struct s3_dialect *d;
	struct sky_aws_conf conf;
	struct sky_cred *cred;          /* NULL: unsigned */
	struct sky_http *http;
	char bucket[256];
	char *prefix;                   /* "" or ends with '/' */
	int custom;                     /* an endpoint was given */
	pthread_mutex_t lock;           /* of what redirects change */
	char region[64], scheme[8], host[600],
		base[512]; /* host with port; base: path in front of the bucket or "" */
	int path_style;
	_Atomic int64_t clock_off;      /* server minus us, seconds */
	_Atomic int no_crc;             /* the store refuses x-amz-checksum-*: Content-MD5 instead */
	int no_sums, no_check; /* AWS_REQUEST_CHECKSUM_CALCULATION, AWS_RESPONSE_CHECKSUM_VALIDATION: when_required */
};

/* One request and what its answer said. */
struct s3_req {
	struct sky_call c;
	struct sky_store *s;
	struct s3 *s3;
	const char *method;
	char *key;                      /* full; NULL: the bucket itself */
	const char *pairs[8][2];        /* query */
	int n_pairs;
	struct sky_heads heads;         /* besides those of the signature; "range" and conditions */
	const uint8_t *body;
	uint64_t n_body;
	int with_sum;                   /* body carries a checksum */
	uint32_t crc;                   /* of the body, when with_sum */
	uint8_t *mem;                   /* sink as in sky_try */
	int fd;
	uint64_t fd_off, n_room, n_expect;      /* n_expect: body bytes of a good answer, UINT64_MAX unknown */
	int whole;                      /* answer is a whole object: check its checksum */
	int peek;                       /* a body longer than n_room is no error */
	uint64_t off;                   /* first byte of the range that is asked for; 0 without one */
	int may_lie;                    /* 200 with an error inside is possible */
	double timeout_s;
	/* answer */
	char code[80], message[256], region[64];
	/* once each */
	int n_skew, n_expired, n_moved, n_sum;
	struct sky_creds used;
	char *what;
};

int s3_req_init(struct s3_req *r, struct sky_store *s, const char *method, const char *key,
                struct sky_err *err) SKY_MUST_CHECK;
void s3_req_query(struct s3_req *r, const char *name, const char *value);
void s3_req_body(struct s3_req *r, const void *p, uint64_t n);
int s3_req_run(struct s3_req *r, struct sky_err *err) SKY_MUST_CHECK;
void s3_req_release(struct s3_req *r);
/* Tag (etag without quotes, or generation) of an answer. */
void s3_req_tag(const struct s3_req *r, char *tag, size_t cap);
/* CRC32C of the whole object when the answer tells one. */
int s3_req_crc(const struct s3_req *r, uint32_t *crc_p);

/* First byte and whole length from "Content-Range: bytes 5-9/10"; UINT64_MAX for a length of '*'. 0 or -1. */
int s3_req_range(const struct s3_req *r, uint64_t *first_p, uint64_t *total_p);

int s3_condition(struct s3_req *r, unsigned flags, const char *tag_expect, struct sky_err *err) SKY_MUST_CHECK;
/* 1 when the object carries our mark, 0 when it does not or is missing. */
int s3_is_ours(struct sky_store *s, const char *key, const char *id, struct sky_err *err) SKY_MUST_CHECK;
void s3_make_id(char id[33]);
/* Host of AWS for b->region; under b->lock once requests run. */
void s3_aws_host(struct s3 *b);
int s3_open_with(struct sky_store *s, const char *rest, const struct s3_dialect *d, const struct sky_creds *keys,
                 struct sky_err *err) SKY_MUST_CHECK;
void s3_close(struct sky_store *s);
int s3_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err);
int s3_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out, struct sky_err *err);
int s3_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err);
int s3_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags, const char *tag_expect,
           struct sky_err *err);
int s3_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err);
int s3_del(struct sky_store *s, const char *key, struct sky_err *err);
int s3_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p, struct sky_err *err);
int s3_upload_open(struct sky_upload *u, struct sky_err *err);
int s3_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err);
int s3_upload_commit(struct sky_upload *u, struct sky_err *err);
void s3_upload_abort(struct sky_upload *u);
int s3_upload_fd(struct sky_upload *u, int fd, uint64_t n, const char *name, struct sky_err *err);

/* Parallel reading, shared with gs: what one range needs is made by `make`. */
struct sky_ranges {
	struct sky_store *s;
	struct sky_http *http;
	/* A call that reads [off, off + n) into mem or fd; its tag after success; its release. */
	struct sky_call *(*make)(void *ctx, uint64_t off, uint64_t n, uint8_t *mem, int fd, struct sky_err *err);
	void (*tag)(struct sky_call *c, char *tag, size_t cap);
	void (*drop)(struct sky_call *c);
	void *ctx;
};
/* [off, off + n) of an object into mem, or into fd at at_off. *crc_p: CRC32C of all. */
int sky_ranges_get(struct sky_ranges *g, const char *what, uint64_t off, uint64_t n, uint8_t *mem, int fd,
                   uint64_t fd_off, uint32_t *crc_p, struct sky_err *err) SKY_MUST_CHECK;
uint32_t sky_crc32c_combine(uint32_t a, uint32_t b, uint64_t n_b);      /* CRC of A then B, n_b bytes of B */
int sky_base64(const uint8_t *p, size_t n, char *out, size_t cap);      /* 0, or -1 when it does not fit */
int sky_unbase64(const char *s, uint8_t *out, size_t cap, size_t *n_p); /* 0 or -1; standard or URL alphabet */

#endif
