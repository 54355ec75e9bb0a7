/* Copies one source to every result, bit for bit. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_COPY_H
#define COLLET_CUDA_KERNELS_DEVICE_COPY_H

#include "cuda/kernels/device_reduce.h"

DEVICE void copy_words(const struct reduction *reduction, uint64_t head)
{
	const uint64_t words = (reduction->count - head) / 4;
	for (uint64_t i = reduction->worker; i < words; i += reduction->workers) {
		union pack word;
		element_load(&word, (const unsigned char *)(uintptr_t)reduction->sources[0] + head + i * 4, 4);
		for (uint32_t k = 0; k < reduction->result_count; k++)
			element_store(
				(unsigned char *)(uintptr_t)reduction->results[k] + head + i * 4, &word, 4);
	}
}

DEVICE void copy_packs(const struct reduction *reduction, uint64_t head)
{
	const uint64_t packs = (reduction->count - head) / 16;
	for (uint64_t i = reduction->worker; i < packs; i += reduction->workers) {
		const union pack pack =
			pack_load((const unsigned char *)(uintptr_t)reduction->sources[0] + head + i * 16);
		for (uint32_t k = 0; k < reduction->result_count; k++)
			pack_store((unsigned char *)(uintptr_t)reduction->results[k] + head + i * 16, &pack);
	}
}

DEVICE void copy_bytes(const struct reduction *reduction, uint64_t first, uint64_t end)
{
	for (uint64_t i = first + reduction->worker; i < end; i += reduction->workers) {
		const unsigned char byte = ((const unsigned char *)(uintptr_t)reduction->sources[0])[i];
		for (uint32_t k = 0; k < reduction->result_count; k++)
			((unsigned char *)(uintptr_t)reduction->results[k])[i] = byte;
	}
}

/* count is in bytes. Where source and results have the same alignment, copies 16 or 4 bytes at a time. */
DEVICE_NOINLINE void copy(const struct reduction *reduction)
{
	uint64_t differs = 0;
	for (uint32_t k = 0; k < reduction->result_count; k++)
		differs |= reduction->results[k] ^ reduction->sources[0];
	/* A power of two: a GPU divides by other numbers slowly. */
	const uint64_t unit = differs % 16 == 0 ? 16 : differs % 4 == 0 ? 4 : 1;
	const uint64_t before = -reduction->sources[0] & (unit - 1);
	const uint64_t head = before < reduction->count ? before : reduction->count;
	uint64_t done = reduction->count;
	if (unit == 1) {
		copy_bytes(reduction, 0, reduction->count);
		return;
	}
	if (unit == 16)
		copy_packs(reduction, head);
	else
		copy_words(reduction, head);
	done = head + ((reduction->count - head) & ~(unit - 1));
	copy_bytes(reduction, 0, head);
	copy_bytes(reduction, done, reduction->count);
}

#endif
