/* Halves by arithmetic: rounded to nearest, ties to even, as the device's. */
#ifndef TESTS_TRAIN_HOST_KERNELS_CUDA_FP16_H
#define TESTS_TRAIN_HOST_KERNELS_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
	uint16_t bits;
};

static inline float __half2float(__half x)
{
	const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
	const float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY) :
		exponent == 0 ? std::ldexp((float)mantissa, -24) :
				std::ldexp((float)(1024 + mantissa), exponent - 25);
	return x.bits >> 15 ? -magnitude : magnitude;
}

static inline __half __float2half_rn(float x)
{
	const float magnitude = std::fabs(x);
	const unsigned sign = std::signbit(x) ? 0x8000 : 0;
	if (x != x)
		return { 0x7fff };
	if (magnitude >= 65520)
		return { (uint16_t)(sign | 0x7c00) };
	const int exponent = magnitude < std::ldexp(1.0F, -14) ? -14 : std::ilogb(magnitude);
	/* A carry out of the mantissa goes where it should. */
	const unsigned units = (unsigned)std::nearbyint(std::ldexp(magnitude, 10 - exponent));
	return { (uint16_t)(sign | (units < 1024 ? units : ((unsigned)(exponent + 15) << 10) + units - 1024)) };
}

#endif
