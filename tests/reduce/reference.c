#include "reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct reference_format *reference_format(collet_dtype dtype)
{
	static const struct reference_format f16 = { 5, 10, true, false, 0x7e00 }, bf16 = { 8, 7, true, false, 0x7fc0 },
		f8e4m3 = { 4, 3, false, true, 0x7f }, f8e5m2 = { 5, 2, true, true, 0x7e };
	switch (dtype) {
	case COLLET_F16:
		return &f16;
	case COLLET_BF16:
		return &bf16;
	case COLLET_F8E4M3:
		return &f8e4m3;
	case COLLET_F8E5M2:
		return &f8e5m2;
	default:
		return NULL;
	}
}

double reference_decode(collet_dtype dtype, uint32_t code)
{
	const struct reference_format *f = reference_format(dtype);
	const int bias = (1 << (f->exponent_bits - 1)) - 1;
	const uint32_t mantissa = code & ((1u << f->mantissa_bits) - 1);
	const uint32_t ones = (1u << f->exponent_bits) - 1, exponent = code >> f->mantissa_bits & ones;
	const double sign = code >> (f->exponent_bits + f->mantissa_bits) & 1 ? -1.0 : 1.0;
	if (f->has_infinity && exponent == ones)
		return mantissa ? (double)NAN : sign * (double)INFINITY;
	if (!f->has_infinity && exponent == ones && mantissa == (1u << f->mantissa_bits) - 1)
		return (double)NAN;
	if (exponent == 0)
		return sign * ldexp(mantissa, 1 - bias - f->mantissa_bits);
	return sign * ldexp(mantissa + (1u << f->mantissa_bits), (int)exponent - bias - f->mantissa_bits);
}

/* Bisects: positive codes ascend with their values, so this finds the greatest code whose value is not above. */
uint32_t reference_encode(collet_dtype dtype, double value)
{
	const struct reference_format *f = reference_format(dtype);
	if (isnan(value))
		return f->nan;
	const int bits = f->exponent_bits + f->mantissa_bits;
	const uint32_t sign = signbit(value) ? 1u << bits : 0;
	const uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
	const uint32_t greatest = f->has_infinity ? infinity - 1 : (1u << bits) - 2;
	const double magnitude = fabs(value);
	uint32_t low = 0, high = greatest + 1;
	if (isinf(magnitude))
		return sign | (f->has_infinity ? infinity : greatest);
	while (high - low > 1) {
		const uint32_t middle = (low + high) / 2;
		if (reference_decode(dtype, middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	const double below = reference_decode(dtype, low);
	if (low == greatest) {
		/* With one more exponent, the next value would be as far above as the previous one is below. */
		const double half = (below - reference_decode(dtype, low - 1)) / 2;
		return sign | (f->saturates || magnitude - below < half ? greatest : infinity);
	}
	const double down = magnitude - below, up = reference_decode(dtype, low + 1) - magnitude;
	return sign | (down < up || (down == up && low % 2 == 0) ? low : low + 1);
}

/* ---- Floats: f32 must not be computed in f64, so there are two versions. volatile forces a rounding per line. ---- */

static double canonical_f64(double x)
{
	const uint64_t nan = 0x7ff8000000000000u;
	if (isnan(x))
		memcpy(&x, &nan, sizeof(x));
	return x;
}

static float canonical_f32(float x)
{
	const uint32_t nan = 0x7fc00000u;
	if (isnan(x))
		memcpy(&x, &nan, sizeof(x));
	return x;
}

#define COMBINE_FLOATS(type) \
	static type combine_##type(collet_op op, type a, type b) \
	{ \
		volatile type result; \
		switch (op) { \
		case COLLET_PRODUCT: \
			result = a * b; \
			return result; \
		case COLLET_MIN: case COLLET_MAX: \
			if (isnan(a) || isnan(b)) \
				return (type)NAN; \
			if (a == b) \
				return (op == COLLET_MIN) == (signbit(a) != 0) ? a : b; \
			return (op == COLLET_MIN) == (a < b) ? a : b; \
		default: \
			result = a + b; \
			return result; \
		} \
	}
COMBINE_FLOATS(float)
COMBINE_FLOATS(double)

static float f32_of(collet_dtype dtype, const void *element)
{
	uint16_t code = 0;
	float value;
	if (dtype == COLLET_F32) {
		memcpy(&value, element, sizeof(value));
		return value;
	}
	memcpy(&code, element, collet_dtype_bytes(dtype));
	return (float)reference_decode(dtype, code);
}

/* The greatest power of two that is at most 1/n: it keeps sums of bf16 within f32. */
static float shrunk(uint32_t n)
{
	float power = 1;
	while (power * (float)n > 1)
		power /= 2;
	return power;
}

static void reduce_f32(const struct reference_case *c, void *result)
{
	const bool is_divided = c->op == COLLET_AVERAGE && c->finish;
	const float factor = is_divided && c->dtype == COLLET_BF16 ? shrunk(c->world_size) : 1;
	volatile float sum = 0;
	for (uint32_t k = 0; k < c->operand_count; k++) {
		volatile float value = f32_of(c->dtype, c->operands[k]);
		value = value * (c->op == COLLET_PREMUL_SUM && c->scaled[k] ? (float)c->scale : factor);
		sum = k == 0 ? value : combine_float(c->op, sum, value);
	}
	if (is_divided)
		sum = sum * (1.0f / (float)c->world_size / factor);
	const float kept = canonical_f32(sum);
	const uint16_t code = c->dtype == COLLET_F32 ? 0 : (uint16_t)reference_encode(c->dtype, (double)kept);
	memcpy(result, c->dtype == COLLET_F32 ? (const void *)&kept : &code, collet_dtype_bytes(c->dtype));
}

static void reduce_f64(const struct reference_case *c, void *result)
{
	volatile double sum = 0;
	for (uint32_t k = 0; k < c->operand_count; k++) {
		double element;
		memcpy(&element, c->operands[k], sizeof(element));
		volatile double value = element;
		if (c->op == COLLET_PREMUL_SUM && c->scaled[k])
			value = value * c->scale;
		sum = k == 0 ? value : combine_double(c->op, sum, value);
	}
	if (c->op == COLLET_AVERAGE && c->finish)
		sum = sum * (1.0 / (double)c->world_size);
	const double kept = canonical_f64(sum);
	memcpy(result, &kept, sizeof(kept));
}

/* ---- Integers: computed in 64 bits and truncated to the type after each operation. ---- */

static bool is_signed(collet_dtype dtype)
{
	return dtype == COLLET_I8 || dtype == COLLET_I16 || dtype == COLLET_I32 || dtype == COLLET_I64;
}

/* Truncates value to the type, then extends it with sign or zeros. */
static uint64_t cut(collet_dtype dtype, uint64_t value)
{
	const unsigned unused = 64 - 8 * (unsigned)collet_dtype_bytes(dtype);
	return is_signed(dtype) ? (uint64_t)((int64_t)(value << unused) >> unused) : value << unused >> unused;
}

static uint64_t combine_integers(collet_op op, collet_dtype dtype, uint64_t a, uint64_t b)
{
	const bool is_less = is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
	switch (op) {
	case COLLET_PRODUCT:
		return cut(dtype, a * b);
	case COLLET_MIN:
		return is_less ? a : b;
	case COLLET_MAX:
		return is_less ? b : a;
	case COLLET_AND:
		return a & b;
	case COLLET_OR:
		return a | b;
	case COLLET_XOR:
		return a ^ b;
	default:
		return cut(dtype, a + b);
	}
}

static void reduce_integers(const struct reference_case *c, void *result)
{
	const size_t bytes = collet_dtype_bytes(c->dtype);
	uint64_t sum = 0;
	for (uint32_t k = 0; k < c->operand_count; k++) {
		uint64_t value = 0;
		memcpy(&value, c->operands[k], bytes); /* little-endian, like all test machines */
		value = cut(c->dtype, value);
		sum = k == 0 ? value : combine_integers(c->op, c->dtype, sum, value);
	}
	if (c->op == COLLET_AVERAGE && c->finish)
		sum = is_signed(c->dtype) ? (uint64_t)((int64_t)sum / (int64_t)c->world_size) : sum / c->world_size;
	memcpy(result, &sum, bytes);
}

/* ---- bool: every byte but 0 is true ---- */

static void reduce_truth(const struct reference_case *c, void *result)
{
	uint32_t trues = 0;
	for (uint32_t k = 0; k < c->operand_count; k++)
		trues += *(const uint8_t *)c->operands[k] != 0;
	switch (c->op) {
	case COLLET_AND: case COLLET_MIN: case COLLET_PRODUCT:
		*(uint8_t *)result = trues == c->operand_count;
		break;
	case COLLET_XOR:
		*(uint8_t *)result = trues % 2;
		break;
	default:
		*(uint8_t *)result = trues > 0;
	}
}

void reference_reduce(const struct reference_case *c, void *result)
{
	const bool is_scaled = c->op == COLLET_PREMUL_SUM && c->scaled[0];
	const bool is_divided = c->op == COLLET_AVERAGE && c->finish && c->world_size > 1;
	if (c->dtype == COLLET_BOOL)
		reduce_truth(c, result);
	else if (c->operand_count == 1 && !is_scaled && !is_divided)
		memcpy(result, c->operands[0], collet_dtype_bytes(c->dtype));
	else if (c->dtype == COLLET_F64)
		reduce_f64(c, result);
	else if (c->dtype == COLLET_F32 || reference_format(c->dtype))
		reduce_f32(c, result);
	else
		reduce_integers(c, result);
}
