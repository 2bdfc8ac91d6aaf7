/* AWS keys and settings: files, environment, processes, token services and metadata (played by tests/fake/s3d). */
#include "store/s3_int.h"
#include "tests/fake/server.h"

static struct sky_err err;
static int port;

static void write_file(const char *name, const char *text)
{
	t_write(name, text, strlen(text));
}

/* Keys for the settings in force; "" fields when there are none. */
static int keys_for(const char *profile, struct sky_creds *out)
{
	struct sky_store_set set = { .profile = (char *)(uintptr_t)profile };
	struct sky_aws_conf conf;
	struct sky_cred *c = NULL;
	int rc = sky_aws_conf_load(&conf, &set, &err);

	memset(out, 0, sizeof(*out));
	if (rc == 0) {
		rc = sky_cred_new(&conf, &c, &err);
		rc = rc < 0 ? rc : sky_cred_get(c, NULL, out, &err);
		sky_cred_free(c);
		sky_aws_conf_release(&conf);
	}
	return rc;
}

static void expect(const char *profile, const char *access, const char *token, const char *what)
{
	struct sky_creds k;

	T_RC(keys_for(profile, &k), 0, &err, "%s: are found", what);
	T_STR(k.access, access, "%s: access key", what);
	T_STR(k.token, token, "%s: session token", what);
}

static void ini(void)
{
	static const char text[] =
		"# comment\n[default]\r\nregion = eu-west-1\ns3 =\n  addressing_style = path\n  max = 1 # c\n"
		"output=json\n[profile x y]\n aws_access_key_id=A\nno equals sign\n[services loc]\ns3 = \n"
		"  endpoint_url = http://h:1\n[default]\nregion = us-west-2";
	struct sky_ini v = { 0 };

	T_RC(sky_ini_parse(text, sizeof(text) - 1, "config", &v, &err), 0, &err, "settings are parsed");
	T_STR(sky_ini_get(&v, "default", "region"), "us-west-2", "the last value wins");
	T_STR(sky_ini_get(&v, "default", "s3.addressing_style"), "path", "nested value");
	T_STR(sky_ini_get(&v, "default", "s3.max"), "1", "a comment behind a value is no part of it");
	T_STR(sky_ini_get(&v, "default", "output"), "json", "no spaces around '='");
	T_STR(sky_ini_get(&v, "services loc", "s3.endpoint_url"), "http://h:1", "nested value of a service");
	T_OK(!sky_ini_get(&v, "default", "nothing") && sky_ini_has(&v, "profile x y"), "what is there and what is not");
	sky_ini_release(&v);
	T_RC(sky_ini_parse("[unclosed\n", 10, "config", &v, &err), SKY_E_DATA, &err, "an unclosed section");
	T_HAS(err.msg, "config: line 1", "is named with file and line");
	sky_ini_release(&v);
}

static void answers(void)
{
	static const struct { const char *text; int code; const char *what;
	} bad[] = {
		{ "{}", SKY_E_DATA, "no keys" },
		{ "{\"Code\":\"AssumeRoleUnauthorizedAccess\"}", SKY_E_SYS, "an error code" },
		{ "not json", SKY_E_DATA, "no JSON" },
		{ "{\"AccessKeyId\":\"a\\nb\",\"SecretAccessKey\":\"s\"}", SKY_E_DATA, "a line break in a key" },
		{ "{\"AccessKeyId\":5,\"SecretAccessKey\":\"s\"}", SKY_E_DATA, "a number for a key" },
		{ "{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"s\",\"Expiration\":\"soon\"}", SKY_E_DATA,
		  "a bad time" },
	};
	struct sky_creds k;
	static const char
		good[] = "{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"SessionToken\":\"T\","
			 "\"Expiration\":\"2030-01-01T00:00:00Z\"}";

	T_RC(sky_cred_parse(good, strlen(good), "x", &k, &err), 0, &err, "answer of a process");
	T_OK(strcmp(k.access, "A") == 0 && strcmp(k.secret, "S") == 0 && strcmp(k.token, "T") == 0, "its keys");
	T_NEAR(k.expires, 1893456000, 0, "its end");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int rc = sky_cred_parse(bad[i].text, strlen(bad[i].text), "x", &k, &err);

		T_OK(rc < 0, "answer with %s is refused", bad[i].what);
	}
}

static void profiles(void)
{
	struct sky_creds k;
	struct sky_store_set set = { .profile = NULL };
	struct sky_aws_conf conf;

	write_file("credentials",
	           "[default]\naws_access_key_id = DEF\naws_secret_access_key = s\n[two]\naws_access_key_id = TWO\n"
	           "aws_secret_access_key = s\naws_session_token = tok\n");
	write_file("config",
	           "[default]\nregion = ap-south-1\n[profile three]\nregion = eu-north-1\nservices = local\ns3 =\n"
	           "  addressing_style = virtual\naws_access_key_id = THREE\naws_secret_access_key = s\n[services "
	           "local]\ns3 =\n"
	           "  endpoint_url = http://127.0.0.1:1\n[profile sso]\nsso_start_url = https://x\n[profile "
	           "loop]\nrole_arn = r\n"
	           "source_profile = loop\n");
	setenv("AWS_SHARED_CREDENTIALS_FILE", t_path("credentials"), 1);
	setenv("AWS_CONFIG_FILE", t_path("config"), 1);
	expect(NULL, "DEF", "", "default profile");
	expect("two", "TWO", "tok", "profile of the credentials file");
	expect("three", "THREE", "", "profile of the config file");
	T_RC(keys_for("four", &k), SKY_E_USAGE, &err, "a profile that does not exist");
	T_RC(keys_for("sso", &k), SKY_E_SYS, &err, "single sign-on");
	T_HAS(err.msg, "export-credentials", "says what to do");
	T_RC(keys_for("loop", &k), SKY_E_USAGE, &err, "a role that is its own source");
	setenv("AWS_PROFILE", "two", 1);
	expect(NULL, "TWO", "tok", "profile of the environment");
	setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
	expect(NULL, "ENV", "", "environment before profile");
	expect("two", "TWO", "tok", "--profile before environment");
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_PROFILE");
	set.profile = (char *)(uintptr_t)"three";
	T_RC(sky_aws_conf_load(&conf, &set, &err), 0, &err, "settings of a profile");
	T_STR(conf.region, "eu-north-1", "region");
	T_STR(conf.endpoint, "http://127.0.0.1:1", "endpoint of its services section");
	T_STR(conf.addressing, "virtual", "addressing style");
	sky_aws_conf_release(&conf);
	setenv("AWS_REGION", "env-1", 1);
	setenv("AWS_ENDPOINT_URL_S3", "http://e", 1);
	T_RC(sky_aws_conf_load(&conf, &set, &err), 0, &err, "settings of the environment");
	T_STR(conf.region, "env-1", "region");
	T_STR(conf.endpoint, "http://e", "endpoint");
	sky_aws_conf_release(&conf);
	setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
	T_RC(sky_aws_conf_load(&conf, &set, &err), 0, &err, "settings without configured endpoints");
	T_STR(conf.endpoint, "", "none");
	sky_aws_conf_release(&conf);
	unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
	unsetenv("AWS_REGION");
	unsetenv("AWS_ENDPOINT_URL_S3");
}

static void processes(void)
{
	struct sky_store_set set = { .profile = (char *)(uintptr_t)"p" };
	struct sky_aws_conf conf;
	struct sky_creds k, k2;
	struct sky_cred *c;
	char text[1024];

	snprintf(
		text, sizeof(text),
		"[profile p]\ncredential_process = echo x >>%s; printf '{\"Version\":1,\"AccessKeyId\":\"P'; "
		"wc -l <%s | tr -d ' \\n'; printf '\",\"SecretAccessKey\":\"s\",\"Expiration\":\"'; date -u -d "
	        "+1hour "
		"+%%Y-%%m-%%dT%%H:%%M:%%SZ | tr -d '\\n'; echo '\"}'\n[profile fails]\ncredential_process = exit 3\n",
		t_path("n"), t_path("n"));
	write_file("config", text);
	expect("p", "P1", "", "credential_process");
	T_RC(keys_for("fails", &k), SKY_E_SYS, &err, "a process that fails");
	T_HAS(err.msg, "status 3", "is named with its status");
	T_RC(sky_aws_conf_load(&conf, &set, &err), 0, &err, "settings");
	T_RC(sky_cred_new(&conf, &c, &err), 0, &err, "keys");
	T_RC(sky_cred_get(c, NULL, &k, &err), 0, &err, "fetched");
	T_RC(sky_cred_get(c, NULL, &k2, &err), 0, &err, "asked again");
	T_STR(k2.access, k.access, "come from memory");
	T_RC(sky_cred_get(c, &k, &k2, &err), 0, &err, "refused by the server");
	T_OK(strcmp(k2.access, k.access) != 0, "are fetched anew");
	T_RC(sky_cred_get(c, &k, &k, &err), 0, &err, "the old ones refused once more");
	T_STR(k.access, k2.access, "share that refresh");
	setenv("SKYRL_TEST_NOW", "4000000000", 1);
	T_RC(sky_cred_get(c, NULL, &k, &err), 0, &err, "expired keys");
	T_OK(strcmp(k2.access, k.access) != 0, "are fetched anew");
	unsetenv("SKYRL_TEST_NOW");
	sky_cred_free(c);
	sky_aws_conf_release(&conf);
}

static void neighbours(void)
{
	struct sky_creds k;
	char url[128], text[512];

	unsetenv("AWS_CONFIG_FILE");
	unsetenv("AWS_SHARED_CREDENTIALS_FILE");
	T_RC(keys_for(NULL, &k), SKY_E_SYS, &err, "no keys anywhere");
	T_HAS(err.msg, "--no-sign-request", "says what to do");
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/container", port);
	write_file("pod-token", "pod\n");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", t_path("pod-token"), 1);
	expect(NULL, "AK", "TOK", "container");
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.evil.example/container", 1);
	T_RC(keys_for(NULL, &k), SKY_E_USAGE, &err, "plain http to a strange host");
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
	unsetenv("AWS_EC2_METADATA_DISABLED");
	expect(NULL, "AK", "TOK", "instance metadata");
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	setenv("AWS_ENDPOINT_URL_STS", url, 1);
	write_file("jwt", "header.payload.sig\n");
	setenv("AWS_WEB_IDENTITY_TOKEN_FILE", t_path("jwt"), 1);
	setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x", 1);
	expect(NULL, "AK", "TOK", "web identity");
	unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
	snprintf(text, sizeof(text),
	         "[profile role]\nrole_arn = arn:x\nsource_profile = base\n[profile base]\naws_access_key_id = B\n"
	         "aws_secret_access_key = s\n[profile env]\nrole_arn = arn:x\ncredential_source = Environment\n");
	write_file("config", text);
	setenv("AWS_CONFIG_FILE", t_path("config"), 1);
	expect("role", "AK", "TOK", "role of another profile");
	T_RC(keys_for("env", &k), SKY_E_USAGE, &err, "role of an environment without keys");
}

/* Hosts of AWS by region, bucket name and switches. */
static void hosts(void)
{
	static const struct {
		const char *url, *region, *addressing, *env, *host;
	} cases[] = {
		{ "s3://my-bucket/p", "eu-west-1", NULL, NULL, "my-bucket.s3.eu-west-1.amazonaws.com" },
		{ "s3://my-bucket", NULL, NULL, NULL, "my-bucket.s3.us-east-1.amazonaws.com" },
		{ "s3://my.bucket/p", "eu-west-1", NULL, NULL, "s3.eu-west-1.amazonaws.com" },
		{ "s3://Old_Bucket", "us-east-1", NULL, NULL, "s3.us-east-1.amazonaws.com" },
		{ "s3://my-bucket", "cn-north-1", "path", NULL, "s3.cn-north-1.amazonaws.com.cn" },
		{ "s3://my-bucket", "us-west-2", "path", "AWS_USE_FIPS_ENDPOINT", "s3-fips.us-west-2.amazonaws.com" },
		{ "s3://my-bucket", "us-west-2", "path", "AWS_USE_DUALSTACK_ENDPOINT",
		  "s3.dualstack.us-west-2.amazonaws.com" },
	};
	static const char *const bad[] = { "s3://", "s3://x", "s3://buc@ket/x", "s3://b:80/x",
		                           "s3://express--use1-az4--x-s3/x" };
	struct sky_store *s;

	unsetenv("AWS_CONFIG_FILE");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sky_store_opt opt = { .region = cases[i].region, .addressing = cases[i].addressing };

		if (cases[i].env) {
			setenv(cases[i].env, "true", 1);
		}
		T_RC(sky_store_open(cases[i].url, &opt, &s, &err), 0, &err, "%s opens", cases[i].url);
		T_STR(((struct s3 *)s->be)->host, cases[i].host, "host of %s in %s", cases[i].url,
		      cases[i].region ? cases[i].region : "no region");
		T_STR(((struct s3 *)s->be)->scheme, "https", "by TLS");
		sky_store_close(s);
		if (cases[i].env) {
			unsetenv(cases[i].env);
		}
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		T_RC(sky_store_open(bad[i], NULL, &s, &err), SKY_E_USAGE, &err, "%s is refused", bad[i]);
	}
}

/* A session that ends while the store is open: fetched again, once, and the request goes on. */
static void session_end(void)
{
	struct sky_store_opt opt = { 0 };
	struct sky_store_stats st;
	struct sky_object o = { 0 };
	struct sky_store *s;
	char url[128], text[1024];

	snprintf(text, sizeof(text),
	         "[default]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"AK\",\"SecretAccessKey\""
	         ":\"SK\",\"SessionToken\":\"'; tr -d '\\n' <%s; echo '\"}'\n",
	         t_path("session"));
	write_file("config", text);
	write_file("session", "TOK");
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
	opt.endpoint_url = url;
	T_RC(sky_store_open("s3://bucket", &opt, &s, &err), 0, &err, "a store with a session");
	T_RC(sky_store_put(s, "a", "1", 1, 0, NULL, &err), 0, &err, "put in the session");
	server_get(port, "/-/set?token=NEXT");
	write_file("session", "NEXT");
	T_RC(sky_store_put(s, "a", "2", 1, 0, NULL, &err), 0, &err, "put after the session's end");
	sky_store_stats(s, &st);
	T_I64(st.n_retry, 1, "took one more try");
	server_get(port, "/-/set?token=LAST");
	write_file("session", "LAST");
	T_RC(sky_store_head(s, "a", &o, &err), 0, &err, "head after the session's end");
	sky_object_release(&o);
	sky_store_close(s);
}

int main(void)
{
	server_clean_env();
	port = server_s3d("--keys", "AK:SK:TOK", NULL, NULL);
	ini();
	answers();
	profiles();
	processes();
	neighbours();
	session_end();
	hosts();
	server_stop_all();
	return t_done();
}
