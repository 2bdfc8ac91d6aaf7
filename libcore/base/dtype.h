/* Element types of tensors, by safetensors names, and host conversions. */
#ifndef SKY_BASE_DTYPE_H
#define SKY_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are internal; on disk only the names occur. */
enum sky_dtype {
	SKY_DT_NONE = 0,
	SKY_BOOL, SKY_U8, SKY_I8, SKY_F8_E5M2, SKY_F8_E4M3, SKY_F8_E8M0, SKY_F8_E4M3FNUZ, SKY_F8_E5M2FNUZ,
	SKY_I16, SKY_U16, SKY_F16, SKY_BF16, SKY_I32, SKY_U32, SKY_F32, SKY_F64, SKY_I64, SKY_U64, SKY_C64,
	SKY_F4, SKY_F6_E2M3, SKY_F6_E3M2,
	SKY_DT_COUNT
};

const char *sky_dtype_name(enum sky_dtype t);           /* "BF16"; "?" for an unknown value */
enum sky_dtype sky_dtype_parse(const char *name);       /* SKY_DT_NONE when unknown */
int sky_dtype_bits(enum sky_dtype t);                   /* 4, 6, 8, 16, 32, 64 */
const char *sky_dtype_torch(enum sky_dtype t);          /* "bfloat16", "float8_e4m3fn", …; NULL when torch has none */
enum sky_dtype sky_dtype_from_torch(const char *name);

static inline float sky_bf16_to_f32(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* Round to nearest even; a NaN stays a (quiet) NaN with its sign. */
static inline uint16_t sky_f32_to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffffu) > 0x7f800000u) {
		return (uint16_t)((u >> 16) | 0x40u);
	}
	return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float sky_f16_to_f32(uint16_t h);
uint16_t sky_f32_to_f16(float f);
/* n elements of type t (BF16, F16, F32, F64) at src, any alignment, to f32 and back. 0, or -1 for another type. */
int sky_to_f32(enum sky_dtype t, const void *src, float *dst, size_t n);
int sky_from_f32(enum sky_dtype t, const float *src, void *dst, size_t n);

#ifdef __cplusplus
}
#endif
#endif
