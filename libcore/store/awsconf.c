/* store: settings of the AWS tools: ~/.aws/config, ~/.aws/credentials, environment. */
#include "store/cred_int.h"

#define MAX_INI_ROWS 100000
#define MAX_INI_BYTES (4u << 20)

static int add_row(struct sky_ini *ini, const char *section, char *key, const char *value, size_t n_value,
                   struct sky_err *err)
{
	struct sky_ini_row *r;

	if (ini->n == ini->cap) {
		size_t cap = ini->cap ? 2 * ini->cap : 32;

		if (cap > MAX_INI_ROWS || !(r = realloc(ini->v, cap * sizeof(*r)))) {
			free(key);
			return sky_fail_mem(err, "settings");
		}
		ini->v = r;
		ini->cap = cap;
	}
	r = &ini->v[ini->n];
	r->section = strdup(section);
	r->key = key;
	r->value = strndup(value, n_value);
	if (!r->section || !r->key || !r->value) {
		free(r->section);
		free(r->key);
		free(r->value);
		return sky_fail_mem(err, "settings");
	}
	ini->n++;
	return 0;
}

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static size_t trimmed_end(const char *p, size_t n)
{
	while (n > 0 && is_blank(p[n - 1])) {
		n--;
	}
	return n;
}

/* One "key = value" line; parent: key of the block that this indented line belongs to, or "". */
static int key_value(struct sky_ini *ini, const char *section, char *parent, size_t cap, const char *p, size_t n,
                     struct sky_err *err)
{
	const char *eq = memchr(p, '=', n);
	size_t lead = 0, n_key, n_value;
	const char *value;
	char *key = NULL;

	while (lead < n && is_blank(p[lead])) {
		lead++;
	}
	if (!eq) {
		return 0;               /* the tools pass over such lines, so do we */
	}
	n_key = trimmed_end(p + lead, (size_t)(eq - p) - lead);
	value = eq + 1;
	n_value = n - (size_t)(value - p);
	while (n_value > 0 && is_blank(*value)) {
		value++;
		n_value--;
	}
	for (size_t i = 1; i < n_value; i++) {          /* " #": a comment */
		if ((value[i] == '#' || value[i] == ';') && is_blank(value[i - 1])) {
			n_value = i;
		}
	}
	n_value = trimmed_end(value, n_value);
	if (lead == 0) {
		snprintf(parent, cap, "%.*s", (int)(n_value == 0 && n_key < cap ? n_key : 0), p);
	}
	if (asprintf(&key, "%s%s%.*s", lead > 0 ? parent : "", lead > 0 && parent[0] ? "." : "", (int)n_key,
	             p + lead) < 0) {
		return sky_fail_mem(err, "settings");
	}
	return add_row(ini, section, key, value, n_value, err);
}

/* One line without its end. */
static int ini_line(struct sky_ini *ini, char *section, char *parent, size_t cap, const char *p, size_t n,
                    struct sky_err *err)
{
	const char *close;

	if (n == 0 || p[0] == '#' || p[0] == ';') {
		return 0;
	}
	if (memchr(p, '\0', n)) {
		return sky_fail(err, SKY_E_DATA, "holds a NUL byte");
	}
	if (p[0] != '[') {
		return key_value(ini, section, parent, cap, p, n, err);
	}
	close = memchr(p, ']', n);
	if (!close || (size_t)(close - p) > cap - 1) {
		return sky_fail(err, SKY_E_DATA, "bad section");
	}
	snprintf(section, cap, "%.*s", (int)(close - p - 1), p + 1);
	parent[0] = '\0';
	return 0;
}

int sky_ini_parse(const char *p, size_t n, const char *name, struct sky_ini *ini, struct sky_err *err)
{
	char section[256] = "", parent[256] = "";

	for (int n_line = 1; n > 0; n_line++) {
		const char *end = memchr(p, '\n', n);
		size_t n_here = end ? (size_t)(end - p) : n;
		int rc = ini_line(ini, section, parent, sizeof(section), p, trimmed_end(p, n_here), err);

		if (rc < 0) {
			return sky_while(err, rc, "%s: line %d", name, n_line);
		}
		n_here += end != NULL;
		p += n_here;
		n -= n_here;
	}
	return 0;
}

const char *sky_ini_get(const struct sky_ini *ini, const char *section, const char *key)
{
	for (size_t i = ini->n; i-- > 0; ) {
		if (strcmp(ini->v[i].key, key) == 0 && strcmp(ini->v[i].section, section) == 0) {
			return ini->v[i].value;
		}
	}
	return NULL;
}

int sky_ini_has(const struct sky_ini *ini, const char *section)
{
	for (size_t i = 0; i < ini->n; i++) {
		if (strcmp(ini->v[i].section, section) == 0) {
			return 1;
		}
	}
	return 0;
}

void sky_ini_release(struct sky_ini *ini)
{
	for (size_t i = 0; i < ini->n; i++) {
		free(ini->v[i].section);
		free(ini->v[i].key);
		free(ini->v[i].value);
	}
	free(ini->v);
	memset(ini, 0, sizeof(*ini));
}

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static int load_file(const char *env_name, const char *tail, struct sky_ini *ini, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(MAX_INI_BYTES);
	char path[SKY_MAX_PATH];
	const char *home = env("HOME");
	int rc;

	if (env(env_name)) {
		snprintf(path, sizeof(path), "%s", env(env_name));
	} else if (home) {
		snprintf(path, sizeof(path), "%s/.aws/%s", home, tail);
	} else {
		return 0;
	}
	rc = sky_file_read(path, &b, err);
	if (rc == SKY_E_MISSING) {
		rc = 0;
	} else if (rc == 0) {
		rc = sky_ini_parse(b.ptr ? b.ptr : "", b.n, path, ini, err);
	}
	sky_buf_release(&b);
	return rc;
}

/* A profile's value: credentials file [name], then config file [profile name] ([default] as it is). */
const char *sky_aws_conf_get(const struct sky_aws_conf *a, const char *profile, const char *key)
{
	char section[160];
	const char *v = sky_ini_get(&a->credentials, profile, key);

	if (v) {
		return v;
	}
	snprintf(section, sizeof(section), "profile %s", profile);
	v = sky_ini_get(&a->config, section, key);
	return v || strcmp(profile, "default") != 0 ? v : sky_ini_get(&a->config, "default", key);
}

static const char *configured_endpoint(const struct sky_aws_conf *a, const struct sky_store_set *set)
{
	const char *ignore = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
	const char *services = sky_aws_conf_get(a, a->profile, "services"), *v;
	char section[160];

	if (set->endpoint_url) {
		return set->endpoint_url;
	}
	if (ignore && strcmp(ignore, "true") == 0) {
		return "";
	}
	if ((v = env("AWS_ENDPOINT_URL_S3")) || (v = env("AWS_ENDPOINT_URL"))) {
		return v;
	}
	snprintf(section, sizeof(section), "services %s", services ? services : "");
	v = services ? sky_ini_get(&a->config, section, "s3.endpoint_url") : NULL;
	if (!v) {
		v = sky_aws_conf_get(a, a->profile, "s3.endpoint_url");
	}
	if (!v) {
		v = sky_aws_conf_get(a, a->profile, "endpoint_url");
	}
	return v ? v : env("S3_ENDPOINT_URL") ? env("S3_ENDPOINT_URL") : "";
}

static int profile_exists(const struct sky_aws_conf *a)
{
	char section[160];

	snprintf(section, sizeof(section), "profile %s", a->profile);
	return sky_ini_has(&a->config, section) || sky_ini_has(&a->credentials, a->profile);
}

int sky_aws_conf_load(struct sky_aws_conf *a, const struct sky_store_set *set, struct sky_err *err)
{
	const char *v;
	int rc;

	memset(a, 0, sizeof(*a));
	if ((rc = load_file("AWS_CONFIG_FILE", "config", &a->config, err)) < 0 ||
	    (rc = load_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", &a->credentials, err)) < 0) {
		sky_aws_conf_release(a);
		return rc;
	}
	v = set->profile ? set->profile : env("AWS_PROFILE") ? env("AWS_PROFILE") : env("AWS_DEFAULT_PROFILE");
	a->profile_chosen = set->profile != NULL;
	snprintf(a->profile, sizeof(a->profile), "%s", v ? v : "default");
	if (v && strcmp(v, "default") != 0 && !profile_exists(a)) {
		rc = sky_fail(err, SKY_E_USAGE, "no profile '%s' in ~/.aws/config or ~/.aws/credentials", a->profile);
		sky_aws_conf_release(a);
		return rc;
	}
	v = set->region ? set->region : env("AWS_REGION") ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
	v = v ? v : sky_aws_conf_get(a, a->profile, "region");
	a->region_known = v != NULL;
	snprintf(a->region, sizeof(a->region), "%s", v ? v : "us-east-1");
	snprintf(a->endpoint, sizeof(a->endpoint), "%s", configured_endpoint(a, set));
	v = set->addressing ? set->addressing : sky_aws_conf_get(a, a->profile, "s3.addressing_style");
	snprintf(a->addressing, sizeof(a->addressing), "%s", v ? v : "auto");
	return 0;
}

void sky_aws_conf_release(struct sky_aws_conf *a)
{
	sky_ini_release(&a->config);
	sky_ini_release(&a->credentials);
}
