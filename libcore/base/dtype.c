/* Element types: names, sizes, conversions. */
#include "base/dtype.h"

static const struct {
	const char *name;       /* safetensors */
	const char *torch;      /* NULL: torch has no such type */
	int bits;
} types[SKY_DT_COUNT] = {
	[SKY_BOOL] = { "BOOL", "bool", 8 },
	[SKY_U8] = { "U8", "uint8", 8 },
	[SKY_I8] = { "I8", "int8", 8 },
	[SKY_F8_E5M2] = { "F8_E5M2", "float8_e5m2", 8 },
	[SKY_F8_E4M3] = { "F8_E4M3", "float8_e4m3fn", 8 },
	[SKY_F8_E8M0] = { "F8_E8M0", "float8_e8m0fnu", 8 },
	[SKY_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", "float8_e4m3fnuz", 8 },
	[SKY_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", "float8_e5m2fnuz", 8 },
	[SKY_I16] = { "I16", "int16", 16 },
	[SKY_U16] = { "U16", "uint16", 16 },
	[SKY_F16] = { "F16", "float16", 16 },
	[SKY_BF16] = { "BF16", "bfloat16", 16 },
	[SKY_I32] = { "I32", "int32", 32 },
	[SKY_U32] = { "U32", "uint32", 32 },
	[SKY_F32] = { "F32", "float32", 32 },
	[SKY_F64] = { "F64", "float64", 64 },
	[SKY_I64] = { "I64", "int64", 64 },
	[SKY_U64] = { "U64", "uint64", 64 },
	[SKY_C64] = { "C64", "complex64", 64 },
	[SKY_F4] = { "F4", "float4_e2m1fn_x2", 4 },
	[SKY_F6_E2M3] = { "F6_E2M3", NULL, 6 },
	[SKY_F6_E3M2] = { "F6_E3M2", NULL, 6 },
};

static int known(enum sky_dtype t)
{
	return t > SKY_DT_NONE && t < SKY_DT_COUNT;
}

const char *sky_dtype_name(enum sky_dtype t)
{
	return known(t) ? types[t].name : "?";
}

enum sky_dtype sky_dtype_parse(const char *name)
{
	int t;

	for (t = SKY_DT_NONE + 1; t < SKY_DT_COUNT; t++) {
		if (strcmp(types[t].name, name) == 0) {
			return (enum sky_dtype)t;
		}
	}
	return SKY_DT_NONE;
}

int sky_dtype_bits(enum sky_dtype t)
{
	return known(t) ? types[t].bits : 0;
}

const char *sky_dtype_torch(enum sky_dtype t)
{
	return known(t) ? types[t].torch : NULL;
}

enum sky_dtype sky_dtype_from_torch(const char *name)
{
	int t;

	if (strncmp(name, "torch.", 6) == 0) {
		name += 6;
	}
	for (t = SKY_DT_NONE + 1; t < SKY_DT_COUNT; t++) {
		if (types[t].torch && strcmp(types[t].torch, name) == 0) {
			return (enum sky_dtype)t;
		}
	}
	return SKY_DT_NONE;
}

float sky_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu, u;
	float f;

	if (e == 31) {
		u = sign | 0x7f800000u | m << 13;
	} else if (e > 0) {
		u = sign | (e + 112) << 23 | m << 13;
	} else {
		/* Subnormal or zero: m × 2^-24 is exact in f32. */
		f = (float)m * 0x1p-24f;
		memcpy(&u, &f, 4);
		u |= sign;
	}
	memcpy(&f, &u, 4);
	return f;
}

uint16_t sky_f32_to_f16(float f)
{
	uint32_t u, sign, a, shift, m, half;

	memcpy(&u, &f, 4);
	sign = u >> 16 & 0x8000u;
	a = u & 0x7fffffffu;
	if (a > 0x7f800000u) {
		return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
	}
	if (a >= 0x477ff000u) {
		/* 65520 and above round to infinity. */
		return (uint16_t)(sign | 0x7c00u);
	}
	if (a >= 0x38800000u) {
		a += 0xfffu + (a >> 13 & 1u);
		return (uint16_t)(sign | (a - 0x38000000u) >> 13);
	}
	if (a < 0x33000000u) {
		/* Below 2^-25: zero. */
		return (uint16_t)sign;
	}
	shift = 126 - (a >> 23);
	m = (a & 0x7fffffu) | 0x800000u;
	half = (1u << (shift - 1)) - 1 + (m >> shift & 1u);
	return (uint16_t)(sign | (m + half) >> shift);
}

int sky_to_f32(enum sky_dtype t, const void *src, float *dst, size_t n)
{
	const uint8_t *s = src;
	uint16_t h;
	double d;
	size_t i;

	switch (t) {
	case SKY_F32:
		if (n > 0) {
			memcpy(dst, src, n * 4);
		}
		return 0;
	case SKY_BF16:
		for (i = 0; i < n; i++) {
			memcpy(&h, s + 2 * i, 2);
			dst[i] = sky_bf16_to_f32(h);
		}
		return 0;
	case SKY_F16:
		for (i = 0; i < n; i++) {
			memcpy(&h, s + 2 * i, 2);
			dst[i] = sky_f16_to_f32(h);
		}
		return 0;
	case SKY_F64:
		for (i = 0; i < n; i++) {
			memcpy(&d, s + 8 * i, 8);
			dst[i] = (float)d;
		}
		return 0;
	default:
		return -1;
	}
}

int sky_from_f32(enum sky_dtype t, const float *src, void *dst, size_t n)
{
	uint8_t *p = dst;
	uint16_t h;
	double d;
	size_t i;

	switch (t) {
	case SKY_F32:
		if (n > 0) {
			memcpy(dst, src, n * 4);
		}
		return 0;
	case SKY_BF16:
		for (i = 0; i < n; i++) {
			h = sky_f32_to_bf16(src[i]);
			memcpy(p + 2 * i, &h, 2);
		}
		return 0;
	case SKY_F16:
		for (i = 0; i < n; i++) {
			h = sky_f32_to_f16(src[i]);
			memcpy(p + 2 * i, &h, 2);
		}
		return 0;
	case SKY_F64:
		for (i = 0; i < n; i++) {
			d = (double)src[i];
			memcpy(p + 8 * i, &d, 8);
		}
		return 0;
	default:
		return -1;
	}
}
