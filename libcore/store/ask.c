/* store: small requests to metadata and token services, and the two ways in which servers write times. */
#include "store/cred_int.h"

static int ask_build(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct sky_ask *q = c->ctx;
	int rc = 0;

	t->method = q->method;
	t->timeout_s = q->timeout_s;
	t->url = strdup(q->url);
	if (q->body) {
		t->body = (const uint8_t *)q->body;
		t->n_body = strlen(q->body);
	}
	for (int i = 0; rc == 0 && i < q->heads.n; i++) {
		rc = sky_heads_add(&t->heads, err, q->heads.v[i].name, "%s", q->heads.v[i].value);
	}
	return rc < 0 || t->url ? rc : sky_fail_mem(err, "%s", q->what);
}

static int ask_judge(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	return sky_judge_common(c, t, err);
}

int sky_ask_run(struct sky_ask *q, int *status_p, struct sky_buf *answer, struct sky_err *err)
{
	struct sky_http_opt opt = { .timeout_s = q->timeout_s, .connect_s = q->timeout_s, .n_parallel = 1 };
	struct sky_store limits = { .set = { .n_tries = q->n_tries, .retry_time_s = 4 * q->timeout_s } };
	struct sky_call c = { .what = q->what, .ctx = q, .build = ask_build, .judge = ask_judge };
	struct sky_http *http = NULL;
	int rc = sky_http_new(&opt, &http, err);

	if (rc == 0) {
		rc = sky_call_run(http, &limits, &c, err);
		if (rc == 0) {
			*status_p = c.t.status;
			rc = sky_buf_add(answer, c.t.answer.ptr ? c.t.answer.ptr : "", c.t.answer.n, err);
		}
		sky_call_release(&c);
		sky_http_free(http);
	}
	sky_heads_release(&q->heads);
	return rc;
}

/* n digits to a number; -1 when they are none. */
static int digits(const char *s, int n)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9') {
			return -1;
		}
		v = v * 10 + s[i] - '0';
	}
	return v;
}

static int to_seconds(const int f[6], double *t_p)
{
	if (f[0] < 0 || f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > 31 || f[3] < 0 || f[3] > 24 || f[4] < 0 ||
	    f[4] > 59 || f[5] < 0 || f[5] > 60) {
		return -1;
	}
	*t_p = (double)sky_utc_seconds(f);
	return 0;
}

int sky_iso_time(const char *s, double *t_p)
{
	int f[6], rc, sign;

	if (strlen(s) < 19 || s[4] != '-' || s[7] != '-' || (s[10] != 'T' && s[10] != ' ') || s[13] != ':' ||
	    s[16] != ':') {
		return -1;
	}
	f[0] = digits(s, 4);
	f[1] = digits(s + 5, 2);
	f[2] = digits(s + 8, 2);
	f[3] = digits(s + 11, 2);
	f[4] = digits(s + 14, 2);
	f[5] = digits(s + 17, 2);
	rc = to_seconds(f, t_p);
	s += 19;
	if (rc == 0 && *s == '.') {
		for (s++; *s >= '0' && *s <= '9'; s++) {
			;
		}
	}
	if (rc < 0 || !*s || strcmp(s, "Z") == 0) {
		return rc;
	}
	sign = *s == '+' ? 1 : *s == '-' ? -1 : 0;
	if (sign == 0 || strlen(s) < 5 || digits(s + 1, 2) < 0) {
		return -1;
	}
	f[4] = digits(s + (s[3] == ':' ? 4 : 3), 2);
	if (f[4] < 0) {
		return -1;
	}
	*t_p -= sign * (digits(s + 1, 2) * 3600.0 + f[4] * 60.0);
	return 0;
}

int sky_http_date(const char *s, double *t_p)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const char *m;
	char name[4] = "";
	int f[6];

	if (strlen(s) < 29 || s[3] != ',' || s[7] != ' ') {
		return -1;
	}
	memcpy(name, s + 8, 3);
	m = strstr(months, name);
	if (!m || (m - months) % 3 != 0) {
		return -1;
	}
	f[0] = digits(s + 12, 4);
	f[1] = (int)(m - months) / 3 + 1;
	f[2] = digits(s + 5, 2);
	f[3] = digits(s + 17, 2);
	f[4] = digits(s + 20, 2);
	f[5] = digits(s + 23, 2);
	return to_seconds(f, t_p);
}
