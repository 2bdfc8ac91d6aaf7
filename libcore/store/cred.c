/* store: AWS keys. A table of sources is asked in order; the first that is configured is kept and asked again before
 * its keys expire. Order: environment, web identity, profile (keys, process, role), container, instance metadata. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include "store/cred_int.h"
#include "store/sigv4_int.h"
#include "store/xml_int.h"

#define IMDS_TIMEOUT_S  1.0
#define NEAR_TIMEOUT_S  5.0             /* container endpoints */
#define FAR_TIMEOUT_S   30.0            /* token services */
#define PROCESS_S       60.0            /* credential_process */
#define ROLE_DEPTH      5               /* source_profile of source_profile … */

struct sky_cred {
	const struct sky_aws_conf *conf;
	pthread_mutex_t lock;
	struct sky_creds now;
	int have;
	int i_source;           /* the one that answered; -1 before */
};

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static int set_text(char *out, size_t cap, const char *v, const char *name, const char *what, struct sky_err *err)
{
	if (strlen(v) >= cap) {
		return sky_fail(err, SKY_E_DATA, "%s: %s is too long", name, what);
	}
	for (const char *p = v; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f) {
			return sky_fail(err, SKY_E_DATA, "%s: %s holds white space or control characters", name, what);
		}
	}
	memcpy(out, v, strlen(v) + 1);
	return 0;
}

static int set_creds(struct sky_creds *out, const char *name, const char *access, const char *secret, const char *token,
                     double expires, struct sky_err *err)
{
	struct sky_creds c = { .expires = expires };
	int rc;

	if ((rc = set_text(c.access, sizeof(c.access), access, name, "access key", err)) < 0 ||
	    (rc = set_text(c.secret, sizeof(c.secret), secret, name, "secret key", err)) < 0 ||
	    (rc = set_text(c.token, sizeof(c.token), token ? token : "", name, "session token", err)) < 0) {
		return rc;
	}
	*out = c;
	return 0;
}

int sky_cred_parse(const char *p, size_t n, const char *name, struct sky_creds *out, struct sky_err *err)
{
	const char *access, *secret, *token, *t2, *expires, *code;
	struct sky_json *doc = NULL;
	const struct sky_jnode *v;
	double t = 0;
	int rc = sky_json_parse(p, n, name, 0, &doc, err);

	if (rc < 0) {
		return rc;
	}
	v = sky_json_root(doc);
	if ((rc = sky_j_get_str(v, "AccessKeyId", NULL, &access, err)) < 0 ||
	    (rc = sky_j_get_str(v, "SecretAccessKey", NULL, &secret, err)) < 0 ||
	    (rc = sky_j_get_str(v, "Token", NULL, &token, err)) < 0 ||
	    (rc = sky_j_get_str(v, "SessionToken", token, &t2, err)) < 0 ||
	    (rc = sky_j_get_str(v, "Code", "Success", &code, err)) < 0 ||
	    (rc = sky_j_get_str(v, "Expiration", NULL, &expires, err)) < 0) {
		sky_while(err, rc, "%s", name);
	} else if (strcmp(code, "Success") != 0) {
		rc = sky_fail(err, SKY_E_SYS, "%s: answers code '%.100s'", name, code);
	} else if (!access || !secret) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no AccessKeyId and SecretAccessKey in the answer", name);
	} else if (expires && sky_iso_time(expires, &t) < 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: bad Expiration '%.60s'", name, expires);
	} else {
		rc = set_creds(out, name, access, secret, t2, t, err);
	}
	sky_json_free(doc);
	return rc;
}

/* ---- sources; each gives SKY_EOF when it is not configured ---- */

static int from_env(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	const char *access = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY");

	if (c->conf->profile_chosen || !access || !secret) {
		return SKY_EOF;
	}
	return set_creds(out, "environment", access, secret, env("AWS_SESSION_TOKEN"), 0, err);
}

struct sts {
	char *v[4];             /* access, secret, token, expiration */
	char code[64], message[256];
};

static int sts_field(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	static const char *const names[] = { "AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration" };
	struct sts *a = ctx;
	const char *leaf = strrchr(path, '/');

	leaf = leaf ? leaf + 1 : path;
	if (strstr(path, "/Credentials/")) {
		for (int i = 0; i < 4; i++) {
			if (strcmp(leaf, names[i]) == 0) {
				free(a->v[i]);
				a->v[i] = strdup(text);
				if (!a->v[i]) {
					return sky_fail_mem(err, "token service");
				}
			}
		}
	} else if (strcmp(leaf, "Code") == 0) {
		snprintf(a->code, sizeof(a->code), "%s", text);
	} else if (strcmp(leaf, "Message") == 0) {
		snprintf(a->message, sizeof(a->message), "%s", text);
	}
	return 0;
}

/* POST to the token service; keys NULL: unsigned (web identity). */
static int ask_sts(struct sky_cred *c, const char *body, const struct sky_creds *keys, struct sky_creds *out,
                   struct sky_err *err)
{
	const char *custom = env("AWS_ENDPOINT_URL_STS") ? env("AWS_ENDPOINT_URL_STS") : env("AWS_ENDPOINT_URL");
	char url[1200], hash[65], host[1200], date[17];
	struct sky_ask q = { .what = "AWS token service (STS)", .method = "POST", .url = url, .body = body,
	                     .timeout_s = FAR_TIMEOUT_S, .n_tries = 4 };
	struct sky_buf answer = SKY_BUF_INIT(1u << 20), auth = SKY_BUF_INIT(1u << 16);
	struct sts a = { { NULL }, "", "" };
	int64_t now = (int64_t)sky_wall();
	uint8_t digest[32];
	double t = 0;
	int rc, status = 0;

	if (custom) {
		snprintf(url, sizeof(url), "%s/", custom);
	} else {
		snprintf(url, sizeof(url), "https://sts.%s.amazonaws.com/", c->conf->region);
	}
	snprintf(host, sizeof(host), "%s", strstr(url, "://") ? strstr(url, "://") + 3 : url);
	host[strcspn(host, "/")] = '\0';
	rc = sky_heads_add(&q.heads, err, "content-type", "application/x-www-form-urlencoded");
	if (rc == 0 && keys) {
		struct sky_sig g = { .style = &sky_sig_aws, .method = "POST", .path = "/", .query = "", .heads = &q.heads,
		                     .hash = hash, .access = keys->access, .secret = keys->secret,
		                     .region = c->conf->region, .service = "sts", .when = now };

		sky_sha256(body, strlen(body), digest);
		sky_hex(digest, 32, hash);
		sky_sig_date(now, date);
		if ((rc = sky_heads_add(&q.heads, err, "host", "%s", host)) == 0 &&
		    (rc = sky_heads_add(&q.heads, err, "x-amz-date", "%s", date)) == 0 &&
		    (rc = keys->token[0] ? sky_heads_add(&q.heads, err, "x-amz-security-token", "%s", keys->token) :
		                           0) == 0 &&
		    (rc = sky_sig_sign(&g, &auth, NULL, err)) == 0) {
			rc = sky_heads_add(&q.heads, err, "authorization", "%s", auth.ptr);
		}
	}
	if (rc == 0) {
		rc = sky_ask_run(&q, &status, &answer, err);
	} else {
		sky_heads_release(&q.heads);
	}
	if (rc == 0) {
		rc = sky_xml_walk(answer.ptr ? answer.ptr : "", answer.n, sts_field, &a, err);
	}
	if (rc == 0 && (status != 200 || !a.v[0] || !a.v[1])) {
		rc = sky_fail(err, SKY_E_SYS, "%s: status %d %s: %s", q.what, status, a.code, a.message);
	}
	if (rc == 0 && a.v[3] && sky_iso_time(a.v[3], &t) < 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: bad Expiration", q.what);
	}
	if (rc == 0) {
		rc = set_creds(out, q.what, a.v[0], a.v[1], a.v[2], t, err);
	}
	for (int i = 0; i < 4; i++) {
		free(a.v[i]);
	}
	sky_buf_release(&answer);
	sky_buf_release(&auth);
	return rc;
}

static int form_pair(struct sky_buf *b, const char *name, const char *value, struct sky_err *err)
{
	int rc = sky_buf_addf(b, err, "%s%s=", b->n ? "&" : "", name);

	return rc < 0 ? rc : sky_uri_encode(b, value, strlen(value), 0, err);
}

static int read_token_file(const char *path, struct sky_buf *out, struct sky_err *err)
{
	int rc = sky_file_read(path, out, err);

	if (rc < 0) {
		return sky_while(err, rc, "identity token");
	}
	while (out->n > 0 && strchr(" \t\r\n", out->ptr[out->n - 1])) {
		out->ptr[--out->n] = '\0';
	}
	return out->n == 0 ? sky_fail(err, SKY_E_DATA, "%s: empty token", path) : 0;
}

static int web_identity(struct sky_cred *c, const char *file, const char *role, const char *session,
                        struct sky_creds *out, struct sky_err *err)
{
	struct sky_buf token = SKY_BUF_INIT(1u << 16), body = SKY_BUF_INIT(1u << 18);
	int rc = read_token_file(file, &token, err);        /* each time: its owner renews it */

	rc = rc < 0 ? rc : form_pair(&body, "Action", "AssumeRoleWithWebIdentity", err);
	rc = rc < 0 ? rc : form_pair(&body, "Version", "2011-06-15", err);
	rc = rc < 0 ? rc : form_pair(&body, "RoleArn", role, err);
	rc = rc < 0 ? rc : form_pair(&body, "RoleSessionName", session ? session : "skyrl-tools", err);
	rc = rc < 0 ? rc : form_pair(&body, "WebIdentityToken", token.ptr, err);
	rc = rc < 0 ? rc : ask_sts(c, body.ptr, NULL, out, err);
	sky_buf_release(&token);
	sky_buf_release(&body);
	return rc;
}

static int from_web_identity(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	const char *file = env("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = env("AWS_ROLE_ARN");

	if (c->conf->profile_chosen || !file || !role) {
		return SKY_EOF;
	}
	return web_identity(c, file, role, env("AWS_ROLE_SESSION_NAME"), out, err);
}

/* Everything that the command prints until its end, within a limit of time and size. */
static int run_process(const char *cmd, struct sky_buf *out, struct sky_err *err)
{
	struct sky_proc p = { 0 };
	double end = sky_now() + PROCESS_S;
	char chunk[4096], text[64];
	int status = 0, rc = sky_proc_shell(&p, cmd, SKY_PROC_STDOUT, err);

	if (rc < 0) {
		return rc;
	}
	for (;;) {
		struct pollfd pf = { .fd = p.out, .events = POLLIN };
		double left = end - sky_now();
		ssize_t n;

		if (left <= 0) {
			rc = sky_fail(err, SKY_E_AGAIN, "credential_process: no answer within %.0f s", PROCESS_S);
			break;
		}
		if (poll(&pf, 1, (int)(1000 * left) + 1) <= 0) {
			continue;
		}
		n = read(p.out, chunk, sizeof(chunk));
		if (n == 0) {
			break;
		}
		if (n < 0 && errno != EINTR) {
			rc = sky_fail_sys(err, "credential_process");
			break;
		}
		if (n > 0 && (rc = sky_buf_add(out, chunk, (size_t)n, err)) < 0) {
			break;
		}
	}
	if (rc == 0) {
		rc = sky_proc_wait(&p, PROCESS_S, &status, err);
	}
	if (rc == 0 && status != 0) {
		rc = sky_fail(err, SKY_E_SYS, "credential_process %s",
		              sky_proc_status_text(status, text, sizeof(text)));
	}
	sky_proc_kill(&p, 0.5);
	return rc;
}

static int from_container(struct sky_cred *c, struct sky_creds *out, struct sky_err *err);
static int from_imds(struct sky_cred *c, struct sky_creds *out, struct sky_err *err);

static int profile_creds(struct sky_cred *c, const char *profile, int depth, struct sky_creds *out,
                         struct sky_err *err);

/* role_arn with the keys of another profile or of the machine. */
static int assume_role(struct sky_cred *c, const char *profile, const char *role, int depth, struct sky_creds *out,
                       struct sky_err *err)
{
	const char *source = sky_aws_conf_get(c->conf, profile, "source_profile");
	const char *machine = sky_aws_conf_get(c->conf, profile, "credential_source");
	const char *session = sky_aws_conf_get(c->conf, profile, "role_session_name");
	const char *external = sky_aws_conf_get(c->conf, profile, "external_id");
	struct sky_buf body = SKY_BUF_INIT(1u << 16);
	struct sky_creds keys;
	int rc;

	if (source) {
		rc = depth >= ROLE_DEPTH ? sky_fail(err, SKY_E_USAGE,
		                                    "profile '%s': source_profile goes round in a circle", profile) :
		                           profile_creds(c, source, depth + 1, &keys, err);
	} else if (machine && strcmp(machine, "Environment") == 0) {
		rc = from_env(c, &keys, err);
	} else if (machine && strcmp(machine, "EcsContainer") == 0) {
		rc = from_container(c, &keys, err);
	} else if (machine && strcmp(machine, "Ec2InstanceMetadata") == 0) {
		rc = from_imds(c, &keys, err);
	} else {
		return sky_fail(err, SKY_E_USAGE, "profile '%s': role_arn needs source_profile or credential_source",
		                profile);
	}
	if (rc == SKY_EOF) {
		rc = sky_fail(err, SKY_E_USAGE, "profile '%s': its source has no keys for role_arn", profile);
	}
	rc = rc < 0 ? rc : form_pair(&body, "Action", "AssumeRole", err);
	rc = rc < 0 ? rc : form_pair(&body, "Version", "2011-06-15", err);
	rc = rc < 0 ? rc : form_pair(&body, "RoleArn", role, err);
	rc = rc < 0 ? rc : form_pair(&body, "RoleSessionName", session ? session : "skyrl-tools", err);
	if (rc == 0 && external) {
		rc = form_pair(&body, "ExternalId", external, err);
	}
	rc = rc < 0 ? rc : ask_sts(c, body.ptr, &keys, out, err);
	sky_buf_release(&body);
	return rc;
}

static int profile_creds(struct sky_cred *c, const char *profile, int depth, struct sky_creds *out, struct sky_err *err)
{
	const struct sky_aws_conf *a = c->conf;
	const char *role = sky_aws_conf_get(a, profile, "role_arn");
	const char *file = sky_aws_conf_get(a, profile, "web_identity_token_file");
	const char *process = sky_aws_conf_get(a, profile, "credential_process");
	const char *access = sky_aws_conf_get(a, profile, "aws_access_key_id");
	const char *secret = sky_aws_conf_get(a, profile, "aws_secret_access_key");
	struct sky_buf b = SKY_BUF_INIT(1u << 16);
	char name[200];
	int rc = SKY_EOF;

	snprintf(name, sizeof(name), "profile '%s'", profile);
	if (role && file) {
		return web_identity(c, file, role, sky_aws_conf_get(a, profile, "role_session_name"), out, err);
	}
	/* A profile may be its own source: then its keys are meant, not its role. */
	if (role && depth <= ROLE_DEPTH && !(depth > 0 && access)) {
		return assume_role(c, profile, role, depth, out, err);
	}
	if (access && secret) {
		return set_creds(out, name, access, secret, sky_aws_conf_get(a, profile, "aws_session_token"), 0, err);
	}
	if (process) {
		rc = run_process(process, &b, err);
		if (rc == 0) {
			rc = sky_cred_parse(b.ptr ? b.ptr : "", b.n, "credential_process", out, err);
		}
		sky_while(err, rc, "%s", name);
	} else if (sky_aws_conf_get(a, profile, "sso_start_url") || sky_aws_conf_get(a, profile, "sso_session")) {
		rc = sky_fail(err, SKY_E_SYS,
		              "%s wants a single sign-on; run `aws configure export-credentials --profile %s "
		              "--format env` and use its output",
		              name, profile);
	}
	sky_buf_release(&b);
	return rc;
}

static int from_profile(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	return profile_creds(c, c->conf->profile, 0, out, err);
}

/* Plain http only to this host and the link-local addresses of the container agents. */
static int near_url(const char *url)
{
	static const char *const ok[] = { "localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]" };
	const char *host = url + 7;
	size_t n;

	if (strncmp(url, "https://", 8) == 0) {
		return 1;
	}
	if (strncmp(url, "http://", 7) != 0) {
		return 0;
	}
	n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
	if (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n) {
		return 1;
	}
	for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++) {
		if (strlen(ok[i]) == n && strncmp(host, ok[i], n) == 0) {
			return 1;
		}
	}
	return 0;
}

static int from_container(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	const char *rel = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
		   *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
		   *token = env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	struct sky_ask q = {
		.what = "container credentials", .method = "GET", .timeout_s = NEAR_TIMEOUT_S, .n_tries = 3
	};
	struct sky_buf answer = SKY_BUF_INIT(1u << 20), auth = SKY_BUF_INIT(1u << 16);
	char url[2048];
	int rc = 0, status = 0;

	(void)c;
	if (!rel && !full) {
		return SKY_EOF;
	}
	snprintf(url, sizeof(url), "%s%s", rel ? "http://169.254.170.2" : "", rel ? rel : full);
	if (!near_url(url)) {
		return sky_fail(err, SKY_E_USAGE, "AWS_CONTAINER_CREDENTIALS_FULL_URI: plain http only to this host");
	}
	q.url = url;
	if (file) {
		rc = read_token_file(file, &auth, err);
		token = auth.ptr;
	}
	if (rc == 0 && token) {
		rc = sky_heads_add(&q.heads, err, "authorization", "%s", token);
	}
	if (rc == 0) {
		rc = sky_ask_run(&q, &status, &answer, err);
	}
	if (rc == 0 && status != 200) {
		rc = sky_fail(err, SKY_E_SYS, "%s: status %d", q.what, status);
	}
	if (rc == 0) {
		rc = sky_cred_parse(answer.ptr ? answer.ptr : "", answer.n, q.what, out, err);
	}
	sky_buf_release(&answer);
	sky_buf_release(&auth);
	return rc;
}

/* A number above 0 from the environment, at most 300. */
static double env_number(const char *name, double def)
{
	struct sky_err quiet;
	double v;

	return env(name) && sky_parse_f64(env(name), &v, &quiet) == 0 && v >= 1 && v <= 300 ? v : def;
}

/* One request to the instance metadata, version 2. */
static int imds(const char *method, const char *path, const char *token, struct sky_buf *answer, struct sky_err *err)
{
	const char *base = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	char url[1024];
	struct sky_ask q = { .what = "instance metadata (IMDSv2)",
		             .method = method,
		             .url = url,
		             .timeout_s = env_number("AWS_METADATA_SERVICE_TIMEOUT", IMDS_TIMEOUT_S),
		             .n_tries = (int)env_number("AWS_METADATA_SERVICE_NUM_ATTEMPTS", 2) };
	int rc, status = 0;

	base = base ? base : mode && strcmp(mode, "IPv6") == 0 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
	snprintf(url, sizeof(url), "%.500s%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/", path);
	rc = token ? sky_heads_add(&q.heads, err, "X-aws-ec2-metadata-token", "%s", token) :
	     sky_heads_add(&q.heads, err, "X-aws-ec2-metadata-token-ttl-seconds", "21600");
	if (rc == 0) {
		rc = sky_ask_run(&q, &status, answer, err);
	}
	return rc < 0 || status == 200 ? rc : sky_fail(err, SKY_E_SYS, "%s: %s: status %d", q.what, path, status);
}

static int from_imds(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	const char *off = env("AWS_EC2_METADATA_DISABLED");
	struct sky_buf token = SKY_BUF_INIT(1u << 16), role = SKY_BUF_INIT(1u << 16), keys = SKY_BUF_INIT(1u << 20);
	char path[600];
	int rc;

	(void)c;
	if (off && strcmp(off, "true") == 0) {
		return SKY_EOF;
	}
	rc = imds("PUT", "latest/api/token", NULL, &token, err);
	if (rc == 0) {
		rc = imds("GET", "latest/meta-data/iam/security-credentials/", token.ptr ? token.ptr : "", &role, err);
	}
	if (rc == 0) {
		size_t n = role.ptr ? strcspn(role.ptr, "\r\n/ ") : 0;

		rc = n == 0 || n > 200 ? sky_fail(err, SKY_E_SYS, "instance metadata: this machine has no role") : 0;
		snprintf(path, sizeof(path), "latest/meta-data/iam/security-credentials/%.*s", (int)n,
		         n ? role.ptr : "");
	}
	if (rc == 0) {
		rc = imds("GET", path, token.ptr ? token.ptr : "", &keys, err);
	}
	if (rc == 0) {
		rc = sky_cred_parse(keys.ptr ? keys.ptr : "", keys.n, "instance metadata", out, err);
	}
	sky_buf_release(&token);
	sky_buf_release(&role);
	sky_buf_release(&keys);
	return rc;
}

static const struct {
	const char *name;
	int (*fetch)(struct sky_cred *c, struct sky_creds *out, struct sky_err *err);
} sources[] = {
	{ "environment", from_env },
	{ "web identity", from_web_identity },
	{ "profile", from_profile },
	{ "container", from_container },
	{ "instance metadata", from_imds },
};

/* ---- the keeper ---- */

int sky_cred_new(const struct sky_aws_conf *conf, struct sky_cred **c_p, struct sky_err *err)
{
	struct sky_cred *c = calloc(1, sizeof(*c));

	if (!c) {
		return sky_fail_mem(err, "credentials");
	}
	c->conf = conf;
	c->i_source = -1;
	pthread_mutex_init(&c->lock, NULL);
	*c_p = c;
	return 0;
}

int sky_cred_fixed(const struct sky_creds *keys, struct sky_cred **c_p, struct sky_err *err)
{
	int rc = sky_cred_new(NULL, c_p, err);

	if (rc == 0) {
		(*c_p)->now = *keys;
		(*c_p)->have = 1;
	}
	return rc;
}

void sky_cred_free(struct sky_cred *c)
{
	if (c) {
		pthread_mutex_destroy(&c->lock);
		memset(c->now.secret, 0, sizeof(c->now.secret));
		free(c);
	}
}

/* Under the lock. */
static int fetch(struct sky_cred *c, struct sky_creds *out, struct sky_err *err)
{
	int n = (int)(sizeof(sources) / sizeof(sources[0]));
	int first = c->i_source >= 0 ? c->i_source : 0, last = c->i_source >= 0 ? c->i_source + 1 : n;
	struct sky_err why = { 0 };
	int rc;

	if (!c->conf) {
		return sky_fail(err, SKY_E_SYS, "the store refused the given keys");
	}
	for (int i = first; i < last; i++) {
		rc = sources[i].fetch(c, out, &why);
		if (rc == 0) {
			sky_log("store", 1, "credentials from %s", sources[i].name);
			c->i_source = i;
			return 0;
		}
		if (rc < 0 && i < n - 1) {              /* configured, but broken: say so, do not fall through */
			*err = why;
			return sky_while(err, rc, "credentials");
		}
	}
	return sky_fail(err, SKY_E_SYS,
	                "no credentials: not in the environment (AWS_ACCESS_KEY_ID …), profile '%s', web "
	                "identity, container or instance metadata%s%.300s; --no-sign-request reads public stores",
	                c->conf->profile, why.msg[0] ? ": " : "", why.msg);
}

int sky_cred_get(struct sky_cred *c, const struct sky_creds *stale, struct sky_creds *out, struct sky_err *err)
{
	struct sky_creds fresh;
	struct sky_err local = { 0 };
	double now;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	now = sky_wall();
	if (!c->have || (c->now.expires > 0 && now > c->now.expires - SKY_CRED_MARGIN_S) ||
	    (stale && strcmp(stale->access, c->now.access) == 0 && strcmp(stale->token, c->now.token) == 0)) {
		rc = fetch(c, &fresh, &local);
		if (rc == 0) {
			c->now = fresh;
			c->have = 1;
		} else if (c->have && !stale && now < c->now.expires) {
			sky_log("store", 1, "refresh failed, old keys hold for %.0f s: %s", c->now.expires - now,
			        local.msg);
			rc = 0;
		}
	}
	if (rc == 0) {
		*out = c->now;
	} else if (err) {
		*err = local;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}
