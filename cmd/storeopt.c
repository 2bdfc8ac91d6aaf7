/* cmd: the options of stores. Names are those of DESIGN.md section 10; defaults are the library's, spelled out here
 * so that
 * --help shows them. */
#include "cmd/storeopt.h"

#include "cmd/cmd.h"

static struct {
	const char *endpoint_url, *region, *profile;
	bool no_sign_request;
	int addressing;
	uint64_t bwlimit, part_size;
	int64_t parallel, tries;
	double timeout_s, retry_time_s;
} o;

static const char *const styles[] = { "auto", "path", "virtual" };

const struct opt_row cmd_store_rows[] = {
	OPT_HEAD("Stores (file, s3://, gs://)"),
	OPT_TEXT(0, "endpoint-url", &o.endpoint_url, "URL", NULL,
	         "server of the store instead of AWS or Google, http[s]://HOST[:PORT]"),
	OPT_TEXT(0, "region", &o.region, "R", NULL, "region of the bucket; else AWS_REGION, profile, us-east-1"),
	OPT_TEXT(0, "profile", &o.profile, "NAME", NULL, "profile in ~/.aws/config and ~/.aws/credentials"),
	OPT_FLAG(0, "no-sign-request", &o.no_sign_request, NULL, "send no credentials, for public stores"),
	OPT_CHOICE(0, "addressing", &o.addressing, "auto|path|virtual", "auto",
	           "bucket in the path or in the host name"),
	OPT_SIZE(0, "bwlimit", &o.bwlimit, "SIZE", NULL, "bytes per second for all transfers together"),
	OPT_COUNT(0, "parallel", &o.parallel, "N", "8", "parts and ranges on their way at once", .min = 1,
	          .max = 256),
	OPT_SIZE(0, "part-size", &o.part_size, "SIZE", "8MiB", "bytes of a part or range; grows with the object"),
	OPT_TIME(0, "timeout", &o.timeout_s, "TIME", "60s", "a transfer that stands still so long is tried again"),
	OPT_TIME(0, "retry-time", &o.retry_time_s, "TIME", "10m", "longest time of all tries of a request"),
	OPT_COUNT(0, "tries", &o.tries, "N", "10", "tries of a request", .min = 1, .max = 1000),
	OPT_END
};

const struct sky_store_opt *cmd_store_opt(void)
{
	static struct sky_store_opt s;

	s.endpoint_url = o.endpoint_url;
	s.region = o.region;
	s.profile = o.profile;
	s.addressing = styles[o.addressing];
	s.no_sign_request = o.no_sign_request;
	s.n_parallel = (int)o.parallel;
	s.part_bytes = o.part_size;
	s.timeout_s = o.timeout_s;
	s.retry_time_s = o.retry_time_s;
	s.n_tries = (int)o.tries;
	s.bw_limit = o.bwlimit;
	sky_store_stop_on(cmd_stopping);
	return &s;
}
