#include "values.h"

#include <math.h>
#include <string.h>

bool value_is_float(collet_dtype dtype)
{
	return dtype >= COLLET_F16 && dtype <= COLLET_F8E5M2;
}

bool value_is_signed(collet_dtype dtype)
{
	return dtype == COLLET_I8 || dtype == COLLET_I16 || dtype == COLLET_I32 || dtype == COLLET_I64;
}

uint64_t value_load(collet_dtype dtype, const void *from)
{
	uint64_t bits = 0;
	memcpy(&bits, from, collet_dtype_bytes(dtype));  /* little-endian, as every machine that this runs on */
	return bits;
}

void value_store(collet_dtype dtype, uint64_t bits, void *into)
{
	memcpy(into, &bits, collet_dtype_bytes(dtype));
}

struct format {
	int exponent_bits, mantissa_bits;
};

static struct format format_of(collet_dtype dtype)
{
	switch (dtype) {
	case COLLET_F16: return (struct format){ 5, 10 };
	case COLLET_BF16: return (struct format){ 8, 7 };
	case COLLET_F8E4M3: return (struct format){ 4, 3 };
	default: return (struct format){ 5, 2 };
	}
}

/* Decodes a positive code of a narrow format, treating all codes as finite. */
static double decode_narrow(struct format format, uint64_t code)
{
	const int bias = (1 << (format.exponent_bits - 1)) - 1;
	const int exponent = (int)(code >> format.mantissa_bits);
	const double mantissa = (double)(code & ((1u << format.mantissa_bits) - 1));
	const double one = ldexp(1, format.mantissa_bits);
	return exponent ? ldexp(one + mantissa, exponent - bias - format.mantissa_bits) :
			  ldexp(mantissa, 1 - bias - format.mantissa_bits);
}

double value_decode(collet_dtype dtype, uint64_t bits)
{
	if (dtype == COLLET_F64) {
		double number;
		memcpy(&number, &bits, sizeof(number));
		return number;
	}
	if (dtype == COLLET_F32) {
		float number;
		memcpy(&number, &bits, sizeof(number));
		return number;
	}
	const struct format format = format_of(dtype);
	const int sign_at = format.exponent_bits + format.mantissa_bits;
	const double magnitude = decode_narrow(format, bits & (((uint64_t)1 << sign_at) - 1));
	return bits >> sign_at & 1 ? -magnitude : magnitude;
}

uint64_t value_encode(collet_dtype dtype, double number)
{
	uint64_t bits = 0;
	if (dtype == COLLET_F64) {
		memcpy(&bits, &number, sizeof(number));
		return bits;
	}
	if (dtype == COLLET_F32) {
		const float narrowed = (float)number;
		memcpy(&bits, &narrowed, sizeof(narrowed));
		return bits;
	}
	const struct format format = format_of(dtype);
	const int sign_at = format.exponent_bits + format.mantissa_bits;
	/* of normal numbers; denormals keep this step */
	const int least = 2 - (1 << (format.exponent_bits - 1));
	int exponent;
	frexp(number, &exponent);
	exponent = exponent - 1 < least || number == 0 ? least : exponent - 1;
	/* Count in steps of the last bit. A carry out of the mantissa correctly increments the exponent. */
	const uint64_t steps = (uint64_t)nearbyint(ldexp(fabs(number), format.mantissa_bits - exponent));
	const uint64_t code = ((uint64_t)(exponent - least) << format.mantissa_bits) + steps;
	return code | (uint64_t)(number < 0) << sign_at;
}
