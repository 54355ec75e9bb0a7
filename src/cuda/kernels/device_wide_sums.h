/* Adds floats of 16 or 8 bits and stores the sums as f32, shrunk by a power of two, for an average; divides and rounds
 * such sums (engine/wide_sums.h). Sources are added as a binomial tree of ranks adds them, so that sums have the bits
 * of host memory: of two neighbouring subtrees of equal size, the lower one is the left operand. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_WIDE_SUMS_H
#define COLLET_CUDA_KERNELS_DEVICE_WIDE_SUMS_H

#include "cuda/kernels/device_reduce.h"

enum { WIDE_SUM_LEVELS = 7 }; /* of COLLET_SPAN_MAX_OPERANDS sources */

DEVICE float widened_element(uint32_t dtype, uint64_t source, uint64_t at)
{
	const uint32_t bytes = dtype == COLLET_F16 || dtype == COLLET_BF16 ? 2 : 1;
	union pack element;
	element_load(&element, (const unsigned char *)(uintptr_t)source + at * bytes, bytes);
	switch (dtype) {
	case COLLET_F16: return unpack_f16(&element, 0);
	case COLLET_BF16: return unpack_bf16(&element, 0);
	case COLLET_F8E4M3: return unpack_f8e4m3(&element, 0);
	default: return unpack_f8e5m2(&element, 0);
	}
}

/* The sums of complete subtrees, the largest first, wait for their right neighbours. */
DEVICE float wide_sum(const struct reduction *reduction, uint32_t dtype, uint64_t at)
{
	float waiting[WIDE_SUM_LEVELS], sum;
	uint32_t count = 0;
	for (uint32_t k = 0; k < reduction->source_count; k++) {
		sum = widened_element(dtype, reduction->sources[k], at) * reduction->shrunk_f32;
		for (uint32_t number = k; number % 2; number /= 2)
			sum = waiting[--count] + sum;
		waiting[count++] = sum;
	}
	for (sum = waiting[--count]; count; count--)
		sum = waiting[count - 1] + sum;
	return sum;
}

/* An element at a time: the sums are written to memory of the host, which is slower. */
DEVICE void wide_sums_of(const struct reduction *reduction, uint32_t dtype)
{
	union pack result;
	for (uint64_t i = reduction->worker; i < reduction->count; i += reduction->workers) {
		repack_f32(&result, 0, wide_sum(reduction, dtype, i));
		element_store((unsigned char *)(uintptr_t)reduction->results[0] + i * 4, &result, 4);
	}
}

DEVICE void store_narrow(uint32_t dtype, unsigned char *to, uint64_t at, float x)
{
	union pack element;
	switch (dtype) {
	case COLLET_F16: repack_f16(&element, 0, x); break;
	case COLLET_BF16: repack_bf16(&element, 0, x); break;
	case COLLET_F8E4M3: repack_f8e4m3(&element, 0, x); break;
	default: repack_f8e5m2(&element, 0, x); break;
	}
	const uint32_t bytes = dtype == COLLET_F16 || dtype == COLLET_BF16 ? 2 : 1;
	element_store(to + at * bytes, &element, bytes);
}

DEVICE void round_sums(const struct collet_round_arguments *arguments)
{
	const uint32_t bytes = arguments->dtype == COLLET_F16 || arguments->dtype == COLLET_BF16 ? 2 : 1;
	struct reduction reduction;
	union pack sum;
	reduction_set_divisor(&reduction, arguments->divisor);
	const unsigned char *from = arguments->count ? device_pointer(arguments->from, arguments->count * 4) : NULL;
	unsigned char *to = arguments->count ? device_pointer(arguments->to, arguments->count * bytes) : NULL;
	const uint64_t workers = (uint64_t)block_count() * thread_count();
	for (uint64_t i = (uint64_t)block_index() * thread_count() + thread_index(); i < arguments->count;
		i += workers) {
		element_load(&sum, from + i * 4, 4);
		store_narrow(arguments->dtype, to, i, divide_shrunk(&reduction, sum.f32[0]));
	}
	if (arguments->done && block_index() == 0 && thread_index() == 0)
		flag_release(device_pointer(arguments->done, sizeof(uint64_t)), arguments->ticket);
}

#endif
