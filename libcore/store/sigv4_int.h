/* store, inside: request signatures, version 4, as AWS and (with other words) Google want them. */
#ifndef SKY_STORE_SIGV4_INT_H
#define SKY_STORE_SIGV4_INT_H

#include "store/http_int.h"

struct sky_sig_style {
	const char *algorithm;          /* "AWS4-HMAC-SHA256" */
	const char *key_prefix;         /* "AWS4" */
	const char *h_date, *h_hash;    /* "x-amz-date", "x-amz-content-sha256": header fields, also signed */
	const char *h_token;            /* "x-amz-security-token"; NULL: there are no session tokens */
	const char *terminator;         /* "aws4_request" */
};
extern const struct sky_sig_style sky_sig_aws, sky_sig_goog;

struct sky_sig {
	const struct sky_sig_style *style;
	const char *method;
	const char *path;               /* encoded once, begins with '/' */
	const char *query;              /* canonical: encoded and sorted, "" when none */
	const struct sky_heads *heads;  /* all of them are signed; "host" among them */
	const char *hash;               /* hex SHA-256 of the body, or UNSIGNED-PAYLOAD */
	const char *access, *secret, *region, *service;
	int64_t when;                   /* seconds since 1970, of the signature */
};

#define SKY_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"

/* Percent-encodes as signatures want it: unreserved bytes stay, and '/' when keep_slash. */
int sky_uri_encode(struct sky_buf *out, const char *s, size_t n, int keep_slash, struct sky_err *err) SKY_MUST_CHECK;
int sky_uri_decode(struct sky_buf *out, const char *s, size_t n, struct sky_err *err) SKY_MUST_CHECK;   /* %XX only */
/* Canonical query of name, value pairs (a NULL value skips the pair): encoded, sorted, "name=" without a value. */
int sky_query_build(struct sky_buf *out, const char *const pairs[][2], int n, struct sky_err *err) SKY_MUST_CHECK;
/* "YYYYMMDDThhmmssZ" */
void sky_sig_date(int64_t when, char out[17]);
/* The canonical request; *names_p (appended) = signed header names joined by ';'. */
int sky_sig_canonical(const struct sky_sig *g, struct sky_buf *out, struct sky_buf *names,
                      struct sky_err *err) SKY_MUST_CHECK;
void sky_sig_key(const struct sky_sig *g, uint8_t key[32]);
/* Value of the Authorization field; sig gets the hex signature (may be NULL). */
int sky_sig_sign(const struct sky_sig *g, struct sky_buf *authorization, char sig[65],
                 struct sky_err *err) SKY_MUST_CHECK;

#endif
