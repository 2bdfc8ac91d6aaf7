/* Manifests of delta versions: what is read, what is refused, and the bytes that SkyRL itself writes. */
#include "delta/delta_int.h"
#include "../testlib.h"

#define SUM "c995193ab1cea2393b6cff641c84c9aa"

/* One BF16 tensor of shape [2], the smallest example of the format. */
static const char good[] =
	"{\"version\": 1, \"base_version\": 0, \"tensors\": [{\"name\": \"w\", \"dtype\": \"bfloat16\", \"shape\": [2], "
	"\"uncompressed_num_bytes\": 4, \"compressed_num_bytes\": 13, \"payload_file\": \"p.safetensors\", "
	"\"payload_key\": \"w\", \"checksum\": \"" SUM "\", \"checksum_algorithm\": \"xxh3-128\"}], "
	"\"total_uncompressed_num_bytes\": 4, \"total_compressed_num_bytes\": 13, "
	"\"payload_files\": [\"p.safetensors\"]}";

/* good with the first `from` replaced by `to`. */
static void mutate(struct sky_buf *b, const char *from, const char *to)
{
	const char *at = strstr(good, from);

	sky_buf_clear(b);
	if (!at || sky_buf_add(b, good, (size_t)(at - good), NULL) < 0 || sky_buf_adds(b, to, NULL) < 0 ||
	    sky_buf_adds(b, at + strlen(from), NULL) < 0) {
		t_bail("cannot replace %s", from);
	}
}

static void test_hostile(void)
{
	static const struct {
		const char *from, *to, *what;
	} v[] = {
		{"\"payload_file\": \"p", "\"payload_file\": \"../p", "a payload_file above its folder"},
		{"\"payload_file\": \"p", "\"payload_file\": \"/p", "an absolute payload_file"},
		{"\"payload_file\": \"p", "\"payload_file\": \"a/p", "a payload_file in a subfolder"},
		{"\"payload_file\": \"p.safetensors\"", "\"payload_file\": \"\"", "an empty payload_file"},
		{"[\"p.safetensors\"]", "[\"../p\"]", "payload_files above their folder"},
		{"[\"p.safetensors\"]", "[7]", "payload_files that are no text"},
		{"bytes\": 4,", "bytes\": 1099511627776,", "2^40 bytes for two elements"},
		{"bytes\": 4,", "bytes\": 2,", "fewer bytes than the shape needs"},
		{"bytes\": 4,", "bytes\": -4,", "a negative byte count"},
		{"\"shape\": [2]", "\"shape\": [-2]", "a negative dimension"},
		{"\"shape\": [2]", "\"shape\": [4294967296, 4294967296, 2]", "a shape whose product overflows"},
		{"\"base_version\": 0", "\"base_version\": 1", "a version on itself"},
		{"\"version\": 1", "\"version\": 2", "a version that skips one"},
		{"\"version\": 1, ", "", "no version"},
		{"xxh3-128", "md5", "an unknown algorithm"},
		{SUM, SUM "00", "a checksum too long"},
		{SUM, "c995", "a checksum too short"},
		{"\"xxh3-128\"", "7", "an algorithm that is no text"},
		{"[\"p.safetensors\"]", "{}", "payload_files that are no array"},
		{"\"tensors\": [", "\"tensors\": 7, \"x\": [", "tensors that are no array"},
		{"\"xxh3-128\"", "\"sha256\"", "an xxh3 sum that claims to be sha256"},
		{"bfloat16", "bfloat17", "an unknown dtype"},
	};
	struct sky_buf b = SKY_BUF_INIT(1 << 16);

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct sky_manifest m;
		struct sky_err err;

		mutate(&b, v[i].from, v[i].to);
		T_RC(sky_manifest_parse(b.ptr, b.n, "m.json", &m, &err), SKY_E_DATA, &err, "refused: %s", v[i].what);
		T_HAS(err.msg, "m.json", "the message names the file: %s", v[i].what);
	}
	sky_buf_release(&b);
}

static void test_round_trip(void)
{
	static const char empty[] = "{\"version\": 3, \"base_version\": 2, \"tensors\": [], "
		"\"total_uncompressed_num_bytes\": 0, \"total_compressed_num_bytes\": 0, \"payload_files\": []}";
	struct sky_manifest m = {.version = 3, .base_version = 2};
	struct sky_buf b = SKY_BUF_INIT(1 << 16);
	struct sky_err err;

	T_RC(sky_manifest_print(&m, &b, &err), 0, &err, "an empty version prints");
	T_I64(b.n, 137, "as 137 bytes");
	T_OK(b.n == sizeof(empty) - 1 && !memcmp(b.ptr, empty, b.n), "which are SkyRL's");
	sky_buf_clear(&b);
	if (T_RC(sky_manifest_parse(good, sizeof(good) - 1, "m.json", &m, &err), 0, &err, "one tensor parses")) {
		T_I64(m.n_tensor, 1, "one tensor");
		T_STR(m.tensor[0].checksum, SUM, "its checksum");
		T_RC(sky_manifest_print(&m, &b, &err), 0, &err, "it prints");
		T_OK(b.n == sizeof(good) - 1 && !memcmp(b.ptr, good, b.n), "as the bytes it was read from");
		sky_manifest_release(&m);
	}
	sky_buf_release(&b);
}

/* n tensors named t0, t1, …; with twice the last one has the name of the first. */
static void many(struct sky_buf *b, int n, int twice)
{
	int rc = sky_buf_adds(b, "{\"version\": 1, \"base_version\": 0, \"tensors\": [", NULL);

	for (int i = 0; i < n && rc == 0; i++) {
		rc = sky_buf_addf(b, NULL, "%s{\"name\": \"t%d\", \"dtype\": \"bfloat16\", \"shape\": [2], "
		                  "\"uncompressed_num_bytes\": 4, \"compressed_num_bytes\": 13, \"payload_file\": \"p\", "
		                  "\"payload_key\": \"t%d\", \"checksum\": \"" SUM "\"}", i ? ", " : "",
		                  twice && i == n - 1 ? 0 : i, i);
	}
	if (rc < 0 || sky_buf_adds(b, "], \"payload_files\": [\"p\"]}", NULL) < 0) {
		t_bail("no memory for %d tensors", n);
	}
}

static void test_many(void)
{
	struct sky_buf b = SKY_BUF_INIT(64 << 20);
	struct sky_manifest m;
	struct sky_err err;

	many(&b, 70000, 0);
	if (T_RC(sky_manifest_parse(b.ptr, b.n, "m.json", &m, &err), 0, &err, "70,000 tensors parse")) {
		T_I64(m.n_tensor, 70000, "all of them");
		T_STR(m.tensor[69999].name, "t69999", "the last one");
		sky_manifest_release(&m);
	}
	sky_buf_clear(&b);
	many(&b, 3, 1);
	T_RC(sky_manifest_parse(b.ptr, b.n, "m.json", &m, &err), SKY_E_DATA, &err, "refused: a tensor twice");
	T_HAS(err.msg, "t0", "the message names it");
	sky_buf_release(&b);
}

static void test_frame(void)
{
	static const uint8_t old[] = {0x80, 0x3f, 0x00, 0x40}, fresh[] = {0x81, 0x3f, 0x00, 0x40};
	/* raw block as libzstd 1.5.4 and 1.5.7 write it; also what we must be able to read */
	static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x04, 0x21, 0, 0, 1, 0, 0, 0};
	struct sky_buf b = SKY_BUF_INIT(1 << 16), scratch = SKY_BUF_INIT(1 << 16);
	uint64_t changed = 0;
	uint8_t got[4];
	struct sky_err err;
	char sum[65];

	T_RC(frame_encode(old, fresh, 4, &b, &changed, &err), 0, &err, "the worked example encodes");
	T_I64(changed, 1, "one byte differs");
	T_OK(b.n == sizeof(frame) && !memcmp(b.ptr, frame, b.n), "as the 13 bytes of the reference");
	memcpy(got, old, 4);
	T_RC(frame_apply(frame, sizeof(frame), got, 4, &scratch, "w", &err), 0, &err, "it applies");
	T_MEM(got, fresh, 4, "and gives the new bytes");
	frame_hash(0, fresh, 4, sum);
	T_STR(sum, SUM, "with the checksum of the reference");
	T_RC(frame_apply(frame, sizeof(frame), got, 3, &scratch, "w", &err), SKY_E_DATA, &err, "another length is refused");
	sky_buf_release(&b);
	sky_buf_release(&scratch);
}

int main(void)
{
	test_hostile();
	test_round_trip();
	test_many();
	test_frame();
	return t_done();
}
