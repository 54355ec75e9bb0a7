/* Operations on single elements, and conversions between small float formats and f32. reduce/reduce.h defines the
 * results to the bit; src/reduce computes the same with the host's vectors. Compiled without contraction, and with
 * denormals. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_NUMBERS_H
#define COLLET_CUDA_KERNELS_DEVICE_NUMBERS_H

#include "cuda/kernels/device_code.h"

DEVICE uint32_t f32_bits(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

DEVICE float f32_of_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

DEVICE uint64_t f64_bits(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

DEVICE double f64_of_bits(uint64_t bits)
{
	double x;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* ---- Formats of 16 and 8 bits ---- */

struct small_float {
	uint32_t mantissa_bits, bias, sign_bit;
	uint32_t special;      /* codes from here on, without the sign, have the f32 exponent of infinity and NaN */
	uint32_t largest;      /* f32 bits: larger magnitudes are clamped to this before rounding */
	uint32_t infinity;     /* code of infinity; 0: infinity is clamped like other values */
	uint32_t nan;          /* the canonical code */
};

/* The largest magnitude of f16 is 65536: rounding below turns it into the code of infinity. */
DEVICE struct small_float f16_format(void)
{
	const struct small_float format = { 10, 15, 15, 0x7c00, 0x47800000, 0, 0x7e00 };
	return format;
}

DEVICE struct small_float f8e4m3_format(void)
{
	const struct small_float format = { 3, 7, 7, 0x7f, 0x43e00000, 0, 0x7f };
	return format;
}

DEVICE struct small_float f8e5m2_format(void)
{
	const struct small_float format = { 2, 15, 7, 0x7c, 0x47600000, 0x7c, 0x7e };
	return format;
}

/* A denormal m is 2^(1-bias) * (1 + m/2^mantissa_bits) minus 2^(1-bias), an exact subtraction. */
DEVICE float small_widen(uint32_t code, const struct small_float format)
{
	const uint32_t shift = 23 - format.mantissa_bits, least_normal = (128 - format.bias) << 23;
	const uint32_t sign = code >> format.sign_bit << 31, magnitude = code & ((1u << format.sign_bit) - 1);
	const uint32_t moved = magnitude << shift;
	uint32_t bits = moved + ((127 - format.bias) << 23);
	if (magnitude < 1u << format.mantissa_bits)
		bits = f32_bits(f32_of_bits(moved + least_normal) - f32_of_bits(least_normal));
	if (magnitude >= format.special)
		bits |= 0x7f800000;
	return f32_of_bits(bits | sign);
}

/* Normal results round by carry: add half a unit minus one, plus the last kept bit, so ties go to even. For denormal
 * results, add a power of two whose last place is the format's smallest denormal. The f32 addition then rounds to
 * it. */
DEVICE uint32_t small_narrow(float x, const struct small_float format)
{
	const uint32_t shift = 23 - format.mantissa_bits, least_normal = (128 - format.bias) << 23;
	const uint32_t rounder = (127 + 24 - format.bias - format.mantissa_bits) << 23;
	const uint32_t sign = f32_bits(x) >> 31 << format.sign_bit, whole = f32_bits(x) & 0x7fffffff;
	const uint32_t magnitude = whole < format.largest ? whole : format.largest;
	uint32_t code;
	if (magnitude < least_normal)
		code = f32_bits(f32_of_bits(magnitude) + f32_of_bits(rounder)) - rounder;
	else
		code = ((magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift) -
			((127 - format.bias) << format.mantissa_bits);
	if (format.infinity && whole == 0x7f800000)
		code = format.infinity;
	return whole > 0x7f800000 ? format.nan : code | sign;
}

/* Uses the device's own instructions, which are exact and keep denormals. Converting f16 in software would be slower
 * than the memory. */
DEVICE float f16_widen(uint32_t code)
{
#ifdef __CUDACC__
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)code));
	return x;
#else
	return small_widen(code, f16_format());
#endif
}

DEVICE uint32_t f16_narrow(float x)
{
#ifdef __CUDACC__
	uint16_t code;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
	return x != x ? f16_format().nan : code;
#else
	return small_narrow(x, f16_format());
#endif
}

DEVICE float bf16_widen(uint32_t code)
{
	return f32_of_bits(code << 16);
}

DEVICE uint32_t bf16_narrow(float x)
{
	const uint32_t bits = f32_bits(x);
	return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* ---- Operations ---- */

/* MIN: the smaller operand keeps its bits, and the larger contributes none. If neither is smaller, both are or-ed: two
 * zeros give -0 if either is -0, and anything or-ed to a NaN stays a NaN. */
#define FLOAT_OPERATIONS(name, type, bits, sign)                                                                       \
	DEVICE type min_##name(type a, type b)                                                                         \
	{                                                                                                              \
		return name##_of_bits((b < a ? 0 : name##_bits(a)) | (a < b ? 0 : name##_bits(b)));                    \
	}                                                                                                              \
	DEVICE type combine_##name(uint32_t op, type a, type b)                                                        \
	{                                                                                                              \
		switch (op) {                                                                                          \
		case COLLET_PRODUCT: return a * b;                                                                     \
		case COLLET_MIN: return min_##name(a, b);                                                              \
		case COLLET_MAX:                                                                                       \
			a = name##_of_bits(name##_bits(a) ^ (sign));                                                   \
			b = name##_of_bits(name##_bits(b) ^ (sign));                                                   \
			return name##_of_bits(name##_bits(min_##name(a, b)) ^ (sign));                                 \
		default: return a + b;                                                                                 \
		}                                                                                                      \
	}

FLOAT_OPERATIONS(f32, float, uint32_t, 0x80000000u)
FLOAT_OPERATIONS(f64, double, uint64_t, 0x8000000000000000u)

/* Two's complement wraps: sums and products use unsigned types (for i8, a wider one). */
#define INTEGER_OPERATIONS(name, type, wrapping)                                                                       \
	DEVICE type combine_##name(uint32_t op, type a, type b)                                                        \
	{                                                                                                              \
		switch (op) {                                                                                          \
		case COLLET_PRODUCT: return (type)((wrapping)a * (wrapping)b);                                         \
		case COLLET_MIN: return a < b ? a : b;                                                                 \
		case COLLET_MAX: return a > b ? a : b;                                                                 \
		case COLLET_AND: return (type)(a & b);                                                                 \
		case COLLET_OR: return (type)(a | b);                                                                  \
		case COLLET_XOR: return (type)(a ^ b);                                                                 \
		default: return (type)((wrapping)a + (wrapping)b);                                                     \
		}                                                                                                      \
	}

INTEGER_OPERATIONS(i8, int8_t, uint32_t)
INTEGER_OPERATIONS(u8, uint8_t, uint32_t)
INTEGER_OPERATIONS(i16, int16_t, uint32_t)
INTEGER_OPERATIONS(u16, uint16_t, uint32_t)
INTEGER_OPERATIONS(i32, int32_t, uint32_t)
INTEGER_OPERATIONS(u32, uint32_t, uint32_t)
INTEGER_OPERATIONS(i64, int64_t, uint64_t)
INTEGER_OPERATIONS(u64, uint64_t, uint64_t)

/* Operands are 0 or 1. */
DEVICE uint8_t combine_truth(uint32_t op, uint8_t a, uint8_t b)
{
	switch (op) {
	case COLLET_PRODUCT:
	case COLLET_MIN:
	case COLLET_AND: return a & b;
	case COLLET_XOR: return a ^ b;
	default: return a | b;
	}
}

#endif
