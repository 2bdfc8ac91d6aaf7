/* store, inside: HTTP. Two levels: a try is one exchange over the wire, done by a thread of the engine; a call is one
 * request with all its tries, driven by the thread that wants the answer. */
#ifndef SKY_STORE_HTTP_INT_H
#define SKY_STORE_HTTP_INT_H

#include <pthread.h>
#include "store/store_int.h"

#define SKY_HTTP_ANSWER_MAX     (64u << 20)     /* bytes of an answer kept in memory: pages of listings, errors */
#define SKY_HTTP_HEADS          24
#define SKY_HTTP_RETRY_CAP_S    30.0
#define SKY_HTTP_RETRY_AFTER_S  600.0           /* longest Retry-After that is honoured */

/* Header fields of a request; names as sent, at most SKY_HTTP_HEADS. */
struct sky_heads {
	struct { const char *name; char *value; } v[SKY_HTTP_HEADS];    /* name borrowed (literals), value owned */
	int n;
};
int sky_heads_add(struct sky_heads *h, struct sky_err *err, const char *name, const char *fmt, ...)
	SKY_PRINTF(4, 5) SKY_MUST_CHECK;
void sky_heads_release(struct sky_heads *h);

struct sky_http;
struct sky_http_group;          /* those who wait together */

struct sky_try {
	/* request; untouched by the caller from submit to wait */
	const char *method;
	char *url;              /* owned */
	struct sky_heads heads;
	const uint8_t *body;    /* borrowed */
	uint64_t n_body;
	double timeout_s;       /* of the whole exchange, for calls that think long; 0: only the idle limit */
	/* where the body of a 2xx answer goes: `mem`, or the file `fd` at fd_off, or `answer`; at most n_room bytes
	 * (for `answer` 0 = SKY_HTTP_ANSWER_MAX) */
	uint8_t *mem;
	int fd;                 /* -1: none */
	uint64_t fd_off, n_room;
	/* answer */
	int status;             /* 0: none came */
	int curl_code;
	int too_long;           /* stopped since the body is longer than n_room; `length` tells */
	int sink_errno;         /* writing to fd failed */
	char why[256];          /* what the transport says */
	uint64_t length;        /* Content-Length, UINT64_MAX when not told */
	uint64_t n_got;         /* body bytes that arrived */
	uint32_t crc32c;        /* of them */
	struct sky_buf answer;  /* body of an error, or of a 2xx without mem and fd */
	struct sky_buf head;    /* "name: value\n" lines of the last answer, names in lower case */
	/* engine */
	void *easy, *slist;
	uint64_t n_sent;
	int paused, cancelled, done;
	void *lane;
	struct sky_http_group *group;
	struct sky_try *next, *live_next;
};
void sky_try_init(struct sky_try *t);
void sky_try_release(struct sky_try *t);
/* Value of an answer's field (lower-case name) copied into out; returns out, or NULL when absent. */
char *sky_try_head(const struct sky_try *t, const char *name, char *out, size_t cap);

struct sky_http_opt {
	double timeout_s;               /* a transfer that moves less than a trickle for so long is dead */
	double connect_s;
	int n_parallel;
	uint64_t bw_limit;
};
int sky_http_new(const struct sky_http_opt *opt, struct sky_http **h_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_http_free(struct sky_http *h);         /* nothing may be in flight */
/* Between engine and calls. */
struct sky_http_group *sky_http_group_new(void);
void sky_http_group_free(struct sky_http_group *g);
void sky_http_submit(struct sky_http *h, struct sky_http_group *g, struct sky_try *t);
struct sky_try *sky_http_wait(struct sky_http *h, struct sky_http_group *g, double s);
void sky_http_cancel(struct sky_http *h, struct sky_try *t);

/* One request with its tries. */
struct sky_call {
	/* by the caller */
	const char *what;       /* borrowed: "GET s3://b/k", for messages */
	void *ctx;
	/* Fills the request part of t afresh; called before every try, so that signatures are never old. */
	int (*build)(struct sky_call *c, struct sky_try *t, struct sky_err *err);
	/* Judges an answer: 0 done, SKY_EOF try again (t->why or *err tells why), negative for good. */
	int (*judge)(struct sky_call *c, struct sky_try *t, struct sky_err *err);
	int i_tag;              /* caller's number */
	/* progress */
	struct sky_try t;
	int n_try;              /* tries begun */
	double t_begin, t_next, retry_after_s;
	int waiting;            /* for t_next */
	int rc;
	struct sky_err err;
	struct sky_call *next;
};

/* Calls in flight together; owned by one thread. */
struct sky_calls {
	struct sky_http *http;
	struct sky_store *s;            /* for limits and statistics */
	struct sky_http_group *group;
	struct sky_call *active;
	int n_active;
	int no_stop;                    /* cleaning up: goes on when the program is asked to stop */
	int no_sleep;                   /* tests: pauses are nothing */
};
int sky_calls_init(struct sky_calls *cs, struct sky_http *http, struct sky_store *s,
                   struct sky_err *err) SKY_MUST_CHECK;
void sky_calls_start(struct sky_calls *cs, struct sky_call *c);
/* Waits until a call has its last word and hands it back (c->rc, c->err). NULL when none is active. */
struct sky_call *sky_calls_next(struct sky_calls *cs);
/* As above without waiting: NULL when none has ended yet. */
struct sky_call *sky_calls_poll(struct sky_calls *cs);
void sky_calls_cancel(struct sky_calls *cs);    /* stops what is active; calls stay the caller's to release */
void sky_calls_release(struct sky_calls *cs);
void sky_call_release(struct sky_call *c);
/* One call alone, to its end. */
int sky_call_run(struct sky_http *http, struct sky_store *s, struct sky_call *c, struct sky_err *err) SKY_MUST_CHECK;

/* The part of judging that all services share: SKY_EOF for transport errors and statuses of the retry class (reason
 * left in err), 0 otherwise. Notes Retry-After in the call. */
int sky_judge_common(struct sky_call *c, struct sky_try *t, struct sky_err *err);

#endif
