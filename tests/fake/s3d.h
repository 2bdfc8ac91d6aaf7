/* The fault-injecting object store of the tests, inside. A thread for each connection; objects in memory; one lock. */
#ifndef SKY_TESTS_S3D_H
#define SKY_TESTS_S3D_H

#include <pthread.h>
#include <stdint.h>
#include "base/base.h"

#define S3D_PAGE_DEFAULT 1000

struct s3d_object {
	struct s3d_object *next;
	char *key;              /* bucket/key */
	char *p;
	uint64_t n;
	uint32_t crc;
	int has_crc;            /* the writer gave a checksum */
	uint64_t generation;
	char etag[64], id[64];  /* id: the writer's mark */
	double mtime;
};

struct s3d_part { char *p; uint64_t n; int have; };

struct s3d_upload {
	struct s3d_upload *next;
	char id[40], *key, mark[64];
	struct s3d_part parts[10001];
	double begun;
};

/* One request and its answer. */
struct s3d_req {
	int fd;
	char method[16], path[4096], query[4096];       /* as sent, path without query */
	char *head;             /* "Name: value\r\n" lines */
	char *body;
	uint64_t n_body;
	int status;             /* answer */
	struct sky_buf out_head;
	const char *out;        /* body of the answer, borrowed or in own */
	uint64_t n_out, n_length;       /* bytes to send; Content-Length */
	struct sky_buf own;
	struct s3d_object *hold;        /* object whose bytes are being sent */
	int close;
};

/* What to do wrong, to how many requests, after how many good ones. */
struct s3d_fault {
	char mode[24], method[16], on[24];      /* on: text that path or query must hold, "" = any */
	int n, skip;
};

struct s3d {
	pthread_mutex_t lock;
	struct s3d_object *objects;
	struct s3d_upload *uploads;
	uint64_t generation, n_request, n_denied;
	char access[64], secret[64], token[64], region[32];     /* region "": any */
	int verify, page;
	int loop;               /* listings give the first page for ever */
	int half;               /* the next chunk of a resumable upload is kept by half */
	char jwt_key[512];      /* public key of service accounts, PEM */
	double skew_s;
	struct s3d_fault faults[8];
};
extern struct s3d s3d;

/* Value of a header field copied to out, or NULL. */
char *s3d_head(const struct s3d_req *r, const char *name, char *out, size_t cap);
/* Decoded value of a query parameter (present without a value: ""), or NULL. */
char *s3d_arg(const struct s3d_req *r, const char *name, char *out, size_t cap);
void s3d_text(struct s3d_req *r, int status, const char *fmt, ...) SKY_PRINTF(3, 4);
void s3d_error(struct s3d_req *r, int status, const char *code);
void s3d_add_head(struct s3d_req *r, const char *fmt, ...) SKY_PRINTF(2, 3);
/* The S3 part; under the lock. */
void s3d_serve(struct s3d_req *r);
/* Neighbours: metadata, token services, control. 1 when it was one of them. Under the lock. */
int s3d_side_door(struct s3d_req *r);
/* Google: the JSON interface, sessions, tokens. */
int s3d_is_gs(const struct s3d_req *r);
void s3d_serve_gs(struct s3d_req *r);
void s3d_begin_xml_session(struct s3d_req *r, const char *key);
/* The token service: for a signed JWT, or the refresh token "refresh-me". */
void s3d_give_token(struct s3d_req *r);
/* Objects, by "bucket/key". */
struct s3d_object *s3d_find(const char *key);
void s3d_delete(const char *key);
void s3d_send_object(struct s3d_req *r, const char *key);
void s3d_write_object(const char *key, const char *p, uint64_t n, const char *mark, int has_crc);

#endif
