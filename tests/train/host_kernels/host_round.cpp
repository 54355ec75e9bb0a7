/* Values as the trainer's kernels keep them, for tests in C. */
#include "host_round.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"

void host_round(enum kernels_type type, uint16_t *codes, const float *values, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		codes[i] = type == KERNELS_F16 ? __float2half_rn(values[i]).bits : __float2bfloat16_rn(values[i]).bits;
}

void host_widen(enum kernels_type type, float *values, const uint16_t *codes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		values[i] = type == KERNELS_F16 ? __half2float({ codes[i] }) : __bfloat162float({ codes[i] });
}
