/* store, inside: where keys and settings come from. */
#ifndef SKY_STORE_CRED_INT_H
#define SKY_STORE_CRED_INT_H

#include "store/http_int.h"

#define SKY_CRED_MARGIN_S 300.0         /* refresh so long before the end */

/* ---- AWS ---- */

struct sky_creds {
	char access[256], secret[256], token[8192];     /* token "" when none */
	double expires;         /* seconds since 1970; 0 = never */
};

/* The ini files of the AWS tools. A nested line "  k = v" below "s3 =" has the key "s3.k". */
struct sky_ini {
	struct sky_ini_row { char *section, *key, *value; } *v;
	size_t n, cap;
};
int sky_ini_parse(const char *p, size_t n, const char *name, struct sky_ini *ini,
                  struct sky_err *err) SKY_MUST_CHECK; /* appends */
const char *sky_ini_get(const struct sky_ini *ini, const char *section, const char *key);       /* the last one; NULL */
int sky_ini_has(const struct sky_ini *ini, const char *section);
void sky_ini_release(struct sky_ini *ini);

/* Files, environment and options read once. */
struct sky_aws_conf {
	struct sky_ini config, credentials;
	char profile[128];
	int profile_chosen;             /* by --profile: then the environment's keys are passed over */
	char region[64];
	int region_known;
	char endpoint[1024];            /* "" = AWS itself */
	char addressing[16];
};
int sky_aws_conf_load(struct sky_aws_conf *a, const struct sky_store_set *set, struct sky_err *err) SKY_MUST_CHECK;
const char *sky_aws_conf_get(const struct sky_aws_conf *a, const char *profile, const char *key);
void sky_aws_conf_release(struct sky_aws_conf *a);

struct sky_cred;
int sky_cred_new(const struct sky_aws_conf *conf, struct sky_cred **c_p,
                 struct sky_err *err) SKY_MUST_CHECK; /* conf borrowed */
int sky_cred_fixed(const struct sky_creds *keys, struct sky_cred **c_p,
                   struct sky_err *err) SKY_MUST_CHECK; /* these and no others */
void sky_cred_free(struct sky_cred *c);
/* Keys that hold for some minutes; threads share one refresh. stale: keys that the server refused: fetch others. */
int sky_cred_get(struct sky_cred *c, const struct sky_creds *stale, struct sky_creds *out,
                 struct sky_err *err) SKY_MUST_CHECK;
/* {"AccessKeyId":…} of credential_process, containers and the instance metadata. */
int sky_cred_parse(const char *p, size_t n, const char *name, struct sky_creds *out,
                   struct sky_err *err) SKY_MUST_CHECK;

/* A small request to a neighbour: metadata, token service. *answer is appended; http status in *status_p. */
struct sky_ask {
	const char *what, *method, *url;
	struct sky_heads heads;         /* consumed */
	const char *body;               /* or NULL */
	double timeout_s;
	int n_tries;
};
int sky_ask_run(struct sky_ask *q, int *status_p, struct sky_buf *answer, struct sky_err *err) SKY_MUST_CHECK;

/* 2026-01-31T12:00:00Z, with or without a fraction or an offset, to seconds since 1970. */
int sky_iso_time(const char *s, double *t_p);
/* Fri, 24 May 2013 00:00:00 GMT */
int sky_http_date(const char *s, double *t_p);

/* ---- Google ---- */

struct sky_gcred;
int sky_gcred_new(struct sky_gcred **c_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_gcred_free(struct sky_gcred *c);
/* A bearer token that holds for some minutes. refused: one that the store did not take, or NULL. */
int sky_gcred_get(struct sky_gcred *c, const char *refused, char *out, size_t cap, struct sky_err *err) SKY_MUST_CHECK;
/* {"access_token":…,"expires_in":…} */
int sky_gcred_parse(const char *p, size_t n, const char *name, char *out, size_t cap, double *expires_in_p,
                    struct sky_err *err) SKY_MUST_CHECK;

#endif
