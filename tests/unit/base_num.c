/* num, buf, arena, dtype, time: text of numbers, growth, conversions, calendar. */
#include "base/base.h"
#include "../testlib.h"

static struct sky_err err;

static void test_parse(void)
{
	static const struct { const char *s; int64_t v; } counts[] = {
		{ "1000", 1000 }, { "1k", 1000 }, { "2.5M", 2500000 }, { "1G", 1000000000 }, { "1B", 1000000000 },
		{ "1T", 1000000000000 },
		{ "0", 0 }, { "0.5k", 500 }, { "9223372036854775807", INT64_MAX },
		{ "9007199254740993", 9007199254740993 },
	};
	static const char *const bad_counts[] = { "", "k", "1.5", "-1", "1kk", "1 k", "nan", "inf", "0x10",
		"9223372036854775808", "1e30", "10000000T" };
	static const struct { const char *s; uint64_t v; } sizes[] = {
		{ "64M", 64ull << 20 }, { "64MiB", 64ull << 20 }, { "64MB", 64000000 }, { "4096", 4096 },
		{ "1.5G", 3ull << 29 },
		{ "12B", 12 }, { "2k", 2048 }, { "18446744073709551615", UINT64_MAX }, { "16E", 0 },
	};
	static const struct { const char *s; double v; } times[] = {
		{ "90", 90 }, { "90s", 90 }, { "250ms", 0.25 }, { "15m", 900 }, { "2h", 7200 }, { "1d", 86400 },
		{ "1.5h", 5400 },
	};
	int64_t i64 = 0;
	uint64_t u64 = 0;
	double d = 0;
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		T_OK(sky_parse_count(counts[i].s, &i64, &err) == 0 && i64 == counts[i].v, "count %s", counts[i].s);
	}
	for (i = 0; i < sizeof(bad_counts) / sizeof(bad_counts[0]); i++) {
		T_RC(sky_parse_count(bad_counts[i], &i64, &err), SKY_E_USAGE, &err, "no count: \"%s\"", bad_counts[i]);
	}
	for (i = 0; i + 1 < sizeof(sizes) / sizeof(sizes[0]); i++) {
		T_OK(sky_parse_size(sizes[i].s, &u64, &err) == 0 && u64 == sizes[i].v, "size %s", sizes[i].s);
	}
	T_RC(sky_parse_size(sizes[i].s, &u64, &err), SKY_E_USAGE, &err, "size %s does not fit", sizes[i].s);
	T_RC(sky_parse_size("1Mb", &u64, &err), SKY_E_USAGE, &err, "bits are no size");
	for (i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		T_OK(sky_parse_duration(times[i].s, &d, &err) == 0 && fabs(d - times[i].v) < 1e-9, "duration %s",
		     times[i].s);
	}
	T_RC(sky_parse_duration("-1s", &d, &err), SKY_E_USAGE, &err, "no negative duration");
	T_OK(sky_parse_i64("-9223372036854775808", &i64, &err) == 0 && i64 == INT64_MIN, "smallest integer");
	T_RC(sky_parse_i64("9223372036854775808", &i64, &err), SKY_E_USAGE, &err, "integer too large");
	T_RC(sky_parse_i64(" 1", &i64, &err), SKY_E_USAGE, &err, "blanks are no part of a number");
	T_RC(sky_parse_u64("-1", &u64, &err), SKY_E_USAGE, &err, "no negative unsigned number");
	T_OK(sky_parse_f64("1e-5", &d, &err) == 0 && d == 1e-5, "double");
	T_RC(sky_parse_f64("1e999", &d, &err), SKY_E_USAGE, &err, "double out of range");
	T_RC(sky_parse_f64("1.0x", &d, &err), SKY_E_USAGE, &err, "trailing text");
}

static void test_print(void)
{
	char out[64];

	T_STR(sky_fmt_count(out, sizeof(out), 1250000), "1.25M", "count");
	T_STR(sky_fmt_count(out, sizeof(out), 999), "999", "small count");
	T_STR(sky_fmt_count(out, sizeof(out), 999999), "1.00M", "count that rounds up to the next unit");
	T_STR(sky_fmt_size(out, sizeof(out), 3ull << 29), "1.5 GiB", "size");
	T_STR(sky_fmt_size(out, sizeof(out), 1023), "1023 B", "small size");
	T_STR(sky_fmt_duration(out, sizeof(out), 3720), "1h02m", "duration");
	T_STR(sky_fmt_duration(out, sizeof(out), 0.25), "250ms", "short duration");
	T_STR(sky_fmt_f64(out, sizeof(out), 0.1), "0.1", "shortest double");
	T_STR(sky_fmt_f64(out, sizeof(out), 0.1 + 0.2), "0.30000000000000004", "double that needs 17 digits");
	T_STR(sky_fmt_f32(out, sizeof(out), 0.1f), "0.1", "shortest float");
	T_STR(sky_fmt_f32(out, sizeof(out), 16777216.0f), "16777216", "float that needs 8 digits");
	T_STR(sky_fmt_f64(out, sizeof(out), -INFINITY), "null", "infinity");
}

static void test_buf(void)
{
	struct sky_buf b = SKY_BUF_INIT(10);
	char *p;

	T_RC(sky_buf_adds(&b, "12345", &err), 0, &err, "adding");
	T_RC(sky_buf_addf(&b, &err, "%s", "67890"), 0, &err, "up to the limit");
	T_RC(sky_buf_addc(&b, 'x', &err), SKY_E_LIMIT, &err, "beyond the limit");
	T_STR(b.ptr, "1234567890", "content is kept");
	p = sky_buf_take(&b);
	T_STR(p, "1234567890", "memory handed over");
	T_OK(b.ptr == NULL && b.n == 0, "the buffer is empty then");
	free(p);
	sky_buf_release(&b);
}

static void test_arena(void)
{
	struct sky_arena a;
	void *first, *p;
	int i, n_bad = 0;

	sky_arena_init(&a, 4096, 100000);
	first = sky_arena_alloc(&a, 10);
	for (i = 0; i < 100; i++) {
		p = sky_arena_zalloc(&a, (size_t)i * 10);
		n_bad += !p || (uintptr_t)p % 64 != 0;
	}
	T_I64(n_bad, 0, "aligned allocations across blocks");
	T_OK(sky_arena_alloc(&a, 100000) == NULL, "limit of the arena");
	sky_arena_reset(&a);
	T_OK(first && sky_arena_alloc(&a, 50000) != NULL, "reset gives room, large requests get their own block");
	T_STR(sky_arena_strndup(&a, "abcdef", 3), "abc", "string copy");
	sky_arena_release(&a);
	T_OK(sky_malloc_array(SIZE_MAX / 2, 3) == NULL && sky_realloc_array(NULL, SIZE_MAX, 2) == NULL,
	     "products that overflow");
	p = sky_aligned_alloc(3 << 20);
	T_OK(p && (uintptr_t)p % 64 == 0, "aligned memory");
	free(p);
}

static void test_dtype(void)
{
	static const struct { float f; uint16_t h; } f16[] = {
		{ 0, 0 }, { -0.0f, 0x8000 }, { 1, 0x3c00 }, { 65504, 0x7bff }, { 65519.99f, 0x7bff },
		{ 65520, 0x7c00 }, { 1e-8f, 0 },
		{ 0x1p-24f, 1 }, { 0x1p-25f, 0 }, { 0x1.0002p-25f, 1 }, { 6.1e-5f, 0x3ff }, { 0.1f, 0x2e66 },
		{ INFINITY, 0x7c00 },
		{ 3 * 0x1p-25f, 2 }, { 1.00048828125f, 0x3c00 },
	};
	int t, n_bad = 0;
	uint32_t h;
	float f[3] = { 1.5f, NAN, -2.0f }, g[3];
	uint16_t b[3];
	size_t i;

	for (i = 0; i < sizeof(f16) / sizeof(f16[0]); i++) {
		T_I64(sky_f32_to_f16(f16[i].f), f16[i].h, "f16 of %.9g", (double)f16[i].f);
	}
	for (h = 0; h < 65536; h++) {
		float v = sky_f16_to_f32((uint16_t)h), w = sky_bf16_to_f32((uint16_t)h);

		n_bad += !isnan(v) && sky_f32_to_f16(v) != h;
		n_bad += isnan(v) && !isnan(sky_f16_to_f32(sky_f32_to_f16(v)));
		n_bad += !isnan(w) && sky_f32_to_bf16(w) != h;
	}
	T_I64(n_bad, 0, "every f16 and bf16 goes to f32 and back");
	T_I64(sky_f32_to_bf16(0x1.01p0f), 0x3f80, "bf16 ties go to even");
	T_I64(sky_f32_to_bf16(0x1.03p0f), 0x3f82, "bf16 ties go to even, upwards");
	for (t = SKY_DT_NONE + 1, n_bad = 0; t < SKY_DT_COUNT; t++) {
		n_bad += sky_dtype_parse(sky_dtype_name((enum sky_dtype)t)) != (enum sky_dtype)t;
		n_bad += sky_dtype_torch((enum sky_dtype)t) &&
			sky_dtype_from_torch(sky_dtype_torch((enum sky_dtype)t)) != (enum sky_dtype)t;
	}
	T_I64(n_bad, 0, "names of all types read back");
	T_OK(sky_dtype_parse("bf16") == SKY_DT_NONE && sky_dtype_from_torch("torch.bfloat16") == SKY_BF16,
	     "names of types");
	T_OK(sky_from_f32(SKY_BF16, f, b, 3) == 0 && sky_to_f32(SKY_BF16, b, g, 3) == 0 && g[0] == 1.5f &&
	     isnan(g[1]) && g[2] == -2.0f,
	     "arrays through bf16");
	T_OK(sky_to_f32(SKY_I32, b, g, 1) == -1, "integers are not converted");
}

static void test_time(void)
{
	static const int64_t at[] = { 0, 951782399, 951782400, 4102444800, -1, -62135596800, 1709164800 };
	char out[40];
	int f[6], n_bad = 0;
	size_t i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		sky_utc_fields(at[i], f);
		n_bad += sky_utc_seconds(f) != at[i];
	}
	T_I64(n_bad, 0, "seconds to fields and back");
	T_STR(sky_utc(out, sizeof(out), 951782400.9), "2000-02-29T00:00:00Z", "leap day of a century");
	T_STR(sky_utc(out, sizeof(out), -1), "1969-12-31T23:59:59Z", "before 1970");
	setenv("SKYRL_TEST_NOW", "1700000000.5", 1);
	T_OK(sky_wall() == 1700000000.5, "the wall clock of a test");
	unsetenv("SKYRL_TEST_NOW");
	T_OK(sky_now() <= sky_now(), "the monotonic clock");
}

int main(void)
{
	test_parse();
	test_print();
	test_buf();
	test_arena();
	test_dtype();
	test_time();
	return t_done();
}
