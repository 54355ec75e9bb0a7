/* Copies two sources to one result each, bit for bit. A thread reads both bytes of a pair before it writes either. So
 * each result may be the other's source, which swaps two buffers in place. */
#ifndef COLLET_CUDA_KERNELS_DEVICE_SWAP_H
#define COLLET_CUDA_KERNELS_DEVICE_SWAP_H

#include "cuda/kernels/device_reduce.h"

/* bytes: 1, 4 or 16; at: offset. */
DEVICE void swap_unit(const struct reduction *reduction, uint64_t at, uint32_t bytes)
{
	union pack packs[2];
	UNROLL
	for (uint32_t k = 0; k < 2; k++) {
		const unsigned char *from = (const unsigned char *)(uintptr_t)reduction->sources[k] + at;
		if (bytes == 16)
			packs[k] = pack_load(from);
		else
			element_load(&packs[k], from, bytes);
	}
	UNROLL
	for (uint32_t k = 0; k < 2; k++) {
		unsigned char *to = (unsigned char *)(uintptr_t)reduction->results[k] + at;
		if (bytes == 16)
			pack_store(to, &packs[k]);
		else
			element_store(to, &packs[k], bytes);
	}
}

/* count is in bytes. Where all buffers have the same alignment, swaps 16 or 4 bytes at a time. */
DEVICE_NOINLINE void swap_span(const struct reduction *reduction)
{
	const uint64_t first = reduction->sources[0];
	const uint64_t differs =
		(reduction->sources[1] ^ first) | (reduction->results[0] ^ first) | (reduction->results[1] ^ first);
	const uint32_t unit = differs % 16 == 0 ? 16 : differs % 4 == 0 ? 4 : 1;
	const uint64_t before = (unit - first % unit) % unit;
	const uint64_t head = before < reduction->count ? before : reduction->count;
	const uint64_t units = (reduction->count - head) / unit, single = reduction->count - units * unit;
	for (uint64_t i = reduction->worker; i < units; i += reduction->workers) {
		if (unit == 16)
			swap_unit(reduction, head + i * 16, 16);
		else if (unit == 4)
			swap_unit(reduction, head + i * 4, 4);
		else
			swap_unit(reduction, head + i, 1);
	}
	for (uint64_t i = reduction->worker; i < single; i += reduction->workers)
		swap_unit(reduction, i < head ? i : units * unit + i, 1);
}

#endif
