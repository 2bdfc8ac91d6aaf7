/* Request signatures against the four vectors that AWS publishes for S3 ("Examples: Signature Calculations"). */
#include "store/s3_int.h"
#include "tests/testlib.h"

#define ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct vector {
	const char *name, *method, *path, *pairs[3][2], *extra[2][2], *body, *canonical, *signature;
};

static const struct vector vectors[] = {
	{ "GET of a range",
	  "GET",
	  "/test.txt",
	  { { NULL } },
	  { { "Range", "bytes=0-9" } },
	  "",
	  "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972",
	  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" },
	{ "PUT of an odd name",
	  "PUT",
	  "/test$file.text",
	  { { NULL } },
	  { { "Date", "Fri, 24 May 2013 00:00:00 GMT" }, { "x-amz-storage-class", "REDUCED_REDUNDANCY" } },
	  "Welcome to Amazon S3.",
	  "9e0e90d9c76de8fa5b200d8c849cd5b8dc7a3be3951ddb7f6a76b4158342019d",
	  "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd" },
	{ "GET of a parameter without a value",
	  "GET",
	  "/",
	  { { "lifecycle", "" } },
	  { { NULL } },
	  "",
	  "9766c798316ff2757b517bc739a67f6213b4ab36dd5da2f94eaebf79c77395ca",
	  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
	{ "GET of a listing",
	  "GET",
	  "/",
	  { { "prefix", "J" }, { "max-keys", "2" } },
	  { { NULL } },
	  "",
	  "df57d21db20da04d7fa30298dd4488ba3a2b47ca3a489c74750e0f1e7df1b9b7",
	  "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
};

static void one_vector(const struct vector *v)
{
	struct sky_buf path = SKY_BUF_INIT(4096), query = SKY_BUF_INIT(4096), canon = SKY_BUF_INIT(4096),
		       names = SKY_BUF_INIT(4096), auth = SKY_BUF_INIT(4096);
	struct sky_heads h = { .n = 0 };
	char hash[65], hex[65], date[17], sig[65] = "";
	struct sky_sig g = { .style = &sky_sig_aws, .method = v->method, .heads = &h, .hash = hash, .access = ACCESS,
	                     .secret = SECRET, .region = "us-east-1", .service = "s3", .when = 1369353600 };
	uint8_t d[32];
	int rc = 0, n = 0;

	sky_sha256(v->body, strlen(v->body), d);
	sky_hex(d, 32, hash);
	sky_sig_date(g.when, date);
	while (n < 3 && v->pairs[n][0]) {
		n++;
	}
	rc |= sky_uri_encode(&path, v->path, strlen(v->path), 1, NULL);
	rc |= sky_query_build(&query, v->pairs, n, NULL);
	rc |= sky_heads_add(&h, NULL, "Host", "examplebucket.s3.amazonaws.com");
	for (int i = 0; i < 2 && v->extra[i][0]; i++) {
		rc |= sky_heads_add(&h, NULL, v->extra[i][0], "  %s ", v->extra[i][1]);
	}
	rc |= sky_heads_add(&h, NULL, "x-amz-date", "%s", date);
	rc |= sky_heads_add(&h, NULL, "x-amz-content-sha256", "%s", hash);
	g.path = path.ptr;
	g.query = query.ptr ? query.ptr : "";
	rc |= sky_sig_canonical(&g, &canon, &names, NULL);
	rc |= sky_sig_sign(&g, &auth, sig, NULL);
	T_I64(rc, 0, "%s: is signed", v->name);
	sky_sha256(canon.ptr, canon.n, d);
	sky_hex(d, 32, hex);
	T_STR(hex, v->canonical, "%s: canonical request", v->name);
	T_STR(sig, v->signature, "%s: signature", v->name);
	T_HAS(auth.ptr, "AWS4-HMAC-SHA256 Credential=" ACCESS "/20130524/us-east-1/s3/aws4_request, SignedHeaders=",
	      "%s: field", v->name);
	sky_heads_release(&h);
	sky_buf_release(&path);
	sky_buf_release(&query);
	sky_buf_release(&canon);
	sky_buf_release(&names);
	sky_buf_release(&auth);
}

static void pieces(void)
{
	const char *const pairs[][2] = { { "b", "2" }, { "a-b", "x y/z" }, { "a", "+" },
		                         { "a", "!" }, { "gone", NULL },   { "c", "" } };
	struct sky_sig g = {
		.style = &sky_sig_aws, .secret = SECRET, .region = "us-east-1", .service = "s3", .when = 1369353600
	};
	struct sky_buf b = SKY_BUF_INIT(4096);
	uint8_t key[32], raw[32];
	char hex[65], text[64];
	size_t n;
	double t = 0;

	sky_sig_key(&g, key);
	sky_hex(key, 32, hex);
	T_STR(hex, "dbb893acc010964918f1fd433add87c70e8b0db6be30c1fbeafefa5ec6ba8378", "derived signing key");
	T_I64(sky_query_build(&b, pairs, 6, NULL), 0, "query is built");
	T_STR(b.ptr, "a=%21&a=%2B&a-b=x%20y%2Fz&b=2&c=", "query is encoded, sorted by name and then value");
	sky_buf_clear(&b);
	T_I64(sky_uri_encode(&b, "a/\xc3\xbc ~", 6, 0, NULL), 0, "name is encoded");
	T_STR(b.ptr, "a%2F%C3%BC%20~", "bytes of UTF-8, upper-case hex, '~' kept");
	sky_buf_clear(&b);
	T_I64(sky_uri_decode(&b, "a%2Fb+c%c3%BC", 13, NULL), 0, "name is decoded");
	T_STR(b.ptr, "a/b c\xc3\xbc", "both cases of hex, plus is a space");
	T_I64(sky_uri_decode(&b, "%4", 2, NULL), SKY_E_DATA, "half an escape is refused");
	sky_buf_release(&b);
	T_I64(sky_base64((const uint8_t *)"\xe3\x06\x92\x83", 4, text, sizeof(text)), 0, "base64");
	T_STR(text, "4waSgw==", "of the check value of CRC32C");
	T_OK(sky_unbase64("4waSgw==", raw, 32, &n) == 0 && n == 4 && memcmp(raw, "\xe3\x06\x92\x83", 4) == 0,
	     "and back");
	T_I64(sky_unbase64("4waS*w==", raw, 32, &n), -1, "a bad digit is refused");
	T_I64(sky_unbase64("4waSgw==", raw, 3, &n), -1, "too long is refused");
	T_I64(sky_iso_time("2013-05-24T00:00:00.000Z", &t), 0, "ISO time");
	T_NEAR(t, 1369353600, 0, "its seconds");
	T_I64(sky_iso_time("2013-05-24T02:00:00+02:00", &t), 0, "ISO time with an offset");
	T_NEAR(t, 1369353600, 0, "its seconds");
	T_I64(sky_iso_time("2013-13-24T02:00:00Z", &t), -1, "month 13 is refused");
	T_I64(sky_http_date("Fri, 24 May 2013 00:00:00 GMT", &t), 0, "HTTP date");
	T_NEAR(t, 1369353600, 0, "its seconds");
	T_I64(sky_http_date("yesterday", &t), -1, "no date is refused");
}

static void combine(void)
{
	char p[5000];
	int ok = 1;

	for (size_t i = 0; i < sizeof(p); i++) {
		p[i] = (char)(i * 31 + i / 7);
	}
	for (size_t cut = 0; cut <= sizeof(p); cut += 613) {
		uint32_t a = sky_crc32c(0, p, cut), b = sky_crc32c(0, p + cut, sizeof(p) - cut);

		ok &= sky_crc32c_combine(a, b, sizeof(p) - cut) == sky_crc32c(0, p, sizeof(p));
	}
	T_OK(ok, "CRCs of two parts make the CRC of the whole, wherever it is cut");
}

int main(void)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		one_vector(&vectors[i]);
	}
	pieces();
	combine();
	return t_done();
}
