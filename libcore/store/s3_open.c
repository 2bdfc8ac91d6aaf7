/* store: where an S3 bucket is: endpoint, region, addressing; opening and closing. */
#include <strings.h>
#include "store/s3_int.h"

static int parse_endpoint(struct s3 *b, const char *url, struct sky_err *err)
{
	const char *host = strstr(url, "://");
	size_t n;

	snprintf(b->scheme, sizeof(b->scheme), "%s", strncmp(url, "http://", 7) == 0 ? "http" : "https");
	if (host && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
		return sky_fail(err, SKY_E_USAGE, "endpoint '%s': expected http:// or https://", url);
	}
	host = host ? host + 3 : url;
	n = strcspn(host, "/?#");
	if (n == 0 || n >= sizeof(b->host) || memchr(host, '@', n)) {
		return sky_fail(err, SKY_E_USAGE, "endpoint '%s': expected http[s]://host[:port]", url);
	}
	snprintf(b->host, sizeof(b->host), "%.*s", (int)n, host);
	snprintf(b->base, sizeof(b->base), "%.*s", (int)strcspn(host + n, "?#"), host + n);
	for (n = strlen(b->base); n > 0 && b->base[n - 1] == '/'; n--) {
		b->base[n - 1] = '\0';
	}
	return 0;
}

/* Host of AWS for the region; under the lock once requests run. */
void s3_aws_host(struct s3 *b)
{
	const char *dual = getenv("AWS_USE_DUALSTACK_ENDPOINT"), *fips = getenv("AWS_USE_FIPS_ENDPOINT");
	int is_dual = dual && strcmp(dual, "true") == 0, is_fips = fips && strcmp(fips, "true") == 0;

	snprintf(b->scheme, sizeof(b->scheme), "https");
	snprintf(b->host, sizeof(b->host), "%s%ss3%s%s.%s.amazonaws.com%s", b->path_style ? "" : b->bucket,
	         b->path_style ? "" : ".", is_fips ? "-fips" : "", is_dual ? ".dualstack" : "", b->region,
	         strncmp(b->region, "cn-", 3) == 0 ? ".cn" : "");
}

static int settle_host(struct s3 *b, struct sky_err *err)
{
	const char *style = b->conf.addressing;
	char host[600];
	int rc;

	b->path_style = strcmp(style, "path") == 0 || (strcmp(style, "auto") == 0 &&
	                (b->conf.endpoint[0] || strchr(b->bucket, '.') || strspn(b->bucket,
	                "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(b->bucket)));
	if (b->d->generations && !b->conf.endpoint[0]) {
		return parse_endpoint(b, "https://storage.googleapis.com", err);
	}
	if (!b->conf.endpoint[0]) {
		s3_aws_host(b);
		return 0;
	}
	b->custom = 1;
	rc = parse_endpoint(b, b->conf.endpoint, err);
	if (rc == 0 && !b->path_style) {
		snprintf(host, sizeof(host), "%s", b->host);
		if ((size_t)snprintf(b->host, sizeof(b->host), "%s.%.300s", b->bucket, host) >= sizeof(b->host)) {
			rc = sky_fail(err, SKY_E_USAGE, "endpoint '%s': too long", b->conf.endpoint);
		}
	}
	return rc;
}

static int split_bucket(struct sky_store *s, struct s3 *b, const char *rest, struct sky_err *err)
{
	size_t n = strcspn(rest, "/"), n_prefix;
	const char *prefix = rest + n + (rest[n] == '/');

	if (n < 3 || n >= sizeof(b->bucket) || n > 222 ||
	    strspn(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") < n) {
		return sky_fail(err, SKY_E_USAGE, "%s: expected %s://bucket/prefix with a plain bucket name", s->url,
		                b->d->scheme);
	}
	snprintf(b->bucket, sizeof(b->bucket), "%.*s", (int)n, rest);
	if (n > 6 && strcmp(b->bucket + n - 6, "--x-s3") == 0) {
		return sky_fail(err, SKY_E_USAGE, "%s: directory buckets (S3 Express) are not supported", s->url);
	}
	n_prefix = strlen(prefix);
	while (n_prefix > 0 && prefix[n_prefix - 1] == '/') {
		n_prefix--;
	}
	if (asprintf(&b->prefix, "%.*s%s", (int)n_prefix, prefix, n_prefix ? "/" : "") < 0) {
		b->prefix = NULL;
		return sky_fail_mem(err, "store %s", s->url);
	}
	b->prefix[n_prefix] = n_prefix ? '/' : '\0';
	return 0;
}

static int when_required(const char *name)
{
	const char *v = getenv(name);

	return v && strcasecmp(v, "when_required") == 0;
}

int s3_open_with(struct sky_store *s, const char *rest, const struct s3_dialect *d, const struct sky_creds *keys,
                 struct sky_err *err)
{
	struct sky_http_opt opt = { s->set.timeout_s, s->set.timeout_s < 30 ? s->set.timeout_s : 30, s->set.n_parallel,
	                            s->set.bw_limit };
	struct s3 *b = calloc(1, sizeof(*b));
	int rc;

	if (!b) {
		return sky_fail_mem(err, "store %s", s->url);
	}
	b->d = d;
	b->no_sums = when_required("AWS_REQUEST_CHECKSUM_CALCULATION");
	b->no_check = when_required("AWS_RESPONSE_CHECKSUM_VALIDATION");
	pthread_mutex_init(&b->lock, NULL);
	s->be = b;
	rc = split_bucket(s, b, rest, err);
	rc = rc < 0 ? rc : sky_aws_conf_load(&b->conf, &s->set, err);
	if (rc == 0 && d->generations) {        /* Google's own: settings of AWS do not apply */
		snprintf(b->conf.endpoint, sizeof(b->conf.endpoint), "%s",
		         s->set.endpoint_url ? s->set.endpoint_url : "");
		snprintf(b->conf.region, sizeof(b->conf.region), "auto");
		snprintf(b->conf.addressing, sizeof(b->conf.addressing), "path");
	}
	snprintf(b->region, sizeof(b->region), "%s", b->conf.region);
	rc = rc < 0 ? rc : settle_host(b, err);
	if (rc == 0 && !s->set.no_sign_request) {
		rc = keys ? sky_cred_fixed(keys, &b->cred, err) : sky_cred_new(&b->conf, &b->cred, err);
	}
	rc = rc < 0 ? rc : sky_http_new(&opt, &b->http, err);
	if (rc < 0) {
		s3_close(s);
	}
	return rc;
}

void s3_close(struct sky_store *s)
{
	struct s3 *b = s->be;

	sky_http_free(b->http);
	sky_cred_free(b->cred);
	sky_aws_conf_release(&b->conf);
	pthread_mutex_destroy(&b->lock);
	free(b->prefix);
	free(b);
	s->be = NULL;
}
