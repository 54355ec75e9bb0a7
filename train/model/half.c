#include "model/half.h"

#include <stdint.h>
#include <string.h>

/* Branch-free, so that the loop below is vectorised. */
static float round_one(float value)
{
	uint32_t bits, sign;
	memcpy(&bits, &value, sizeof(bits));
	sign = bits & UINT32_C(0x80000000);
	bits &= UINT32_C(0x7fffffff);
	/* Normal numbers of f16 keep 10 of 23 bits; a carry into the exponent is right, too. */
	uint32_t normal = (bits + UINT32_C(0xfff) + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
	/* Smaller ones are multiples of 2^-24, which is what an f32 near 0.75 can tell apart. */
	float magnitude;
	memcpy(&magnitude, &bits, sizeof(magnitude));
	const float shifted = magnitude + 0.75F, small_value = shifted - 0.75F;
	uint32_t small;
	memcpy(&small, &small_value, sizeof(small));
	uint32_t rounded = bits < UINT32_C(0x38800000) ? small : normal;              /* 2^-14 */
	rounded = normal >= UINT32_C(0x47800000) ? UINT32_C(0x7f800000) : rounded;    /* 65536 */
	rounded = bits > UINT32_C(0x7f800000) ? bits : rounded;                       /* NaN */
	rounded |= sign;
	memcpy(&value, &rounded, sizeof(value));
	return value;
}

void half_round(float *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] = round_one(values[i]);
}
