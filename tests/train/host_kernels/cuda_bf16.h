#ifndef TESTS_TRAIN_HOST_KERNELS_CUDA_BF16_H
#define TESTS_TRAIN_HOST_KERNELS_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
	uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
	const uint32_t bits = (uint32_t)x.bits << 16;
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return { (uint16_t)(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16) };
}

#endif
