/* Copying: one source to every result, bit for bit. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_COPY_H
#define COLLET_CUDA_KERNELS_DEVICE_COPY_H

#include "cuda/kernels/device_reduce.h"

DEVICE void copy_words(const struct fold *fold, uint64_t head)
{
	const uint64_t words = (fold->count - head) / 4;
	for (uint64_t i = fold->worker; i < words; i += fold->workers) {
		union pack word;
		element_load(&word, (const unsigned char *)(uintptr_t)fold->sources[0] + head + i * 4, 4);
		for (uint32_t k = 0; k < fold->result_count; k++)
			element_store((unsigned char *)(uintptr_t)fold->results[k] + head + i * 4, &word, 4);
	}
}

DEVICE void copy_packs(const struct fold *fold, uint64_t head)
{
	const uint64_t packs = (fold->count - head) / 16;
	for (uint64_t i = fold->worker; i < packs; i += fold->workers) {
		const union pack pack =
			pack_load((const unsigned char *)(uintptr_t)fold->sources[0] + head + i * 16);
		for (uint32_t k = 0; k < fold->result_count; k++)
			pack_store((unsigned char *)(uintptr_t)fold->results[k] + head + i * 16, &pack);
	}
}

DEVICE void copy_bytes(const struct fold *fold, uint64_t first, uint64_t end)
{
	for (uint64_t i = first + fold->worker; i < end; i += fold->workers) {
		const unsigned char byte = ((const unsigned char *)(uintptr_t)fold->sources[0])[i];
		for (uint32_t k = 0; k < fold->result_count; k++)
			((unsigned char *)(uintptr_t)fold->results[k])[i] = byte;
	}
}

/* count is of bytes. Source and results that lie alike go by 16 bytes, or at least by 4, where they are aligned. */
CALLED void copy(const struct fold *fold)
{
	uint64_t differs = 0;
	for (uint32_t k = 0; k < fold->result_count; k++)
		differs |= fold->results[k] ^ fold->sources[0];
	const uint64_t unit = differs % 16 == 0 ? 16 : differs % 4 == 0 ? 4 : 1;
	const uint64_t before = (unit - fold->sources[0] % unit) % unit;
	const uint64_t head = before < fold->count ? before : fold->count;
	uint64_t done = fold->count;
	if (unit == 1) {
		copy_bytes(fold, 0, fold->count);
		return;
	}
	if (unit == 16)
		copy_packs(fold, head);
	else
		copy_words(fold, head);
	done = head + (fold->count - head) / unit * unit;
	copy_bytes(fold, 0, head);
	copy_bytes(fold, done, fold->count);
}

#endif
