/* The kernels themselves: arguments unpacked, and the work shared out. */
#ifndef COLLET_CUDA_KERNELS_ENTRY_POINTS_H
#define COLLET_CUDA_KERNELS_ENTRY_POINTS_H

#include "cuda/kernels/device_swap.h"
#include "cuda/kernels/plan_kernel.h"

/* The span of this row of blocks, its columns' threads sharing it. */
DEVICE struct fold fold_of(const struct collet_fold_arguments *arguments, uint32_t element_bytes)
{
	const struct collet_fold_item *item = &arguments->items[block_row()];
	const uint64_t *words = arguments->words + item->at, bytes = item->count * element_bytes;
	struct fold fold;
	fold.source_count = item->sources;
	fold.result_count = item->results;
	fold.sources = reach_all(words, item->sources, bytes, 0);
	fold.results = reach_all(words + item->sources, item->results, bytes, 1);
	fold.scales = item->scaled ? words + item->sources + item->results : NULL;
	fold.count = item->count;
	fold.worker = (uint64_t)block_index() * thread_count() + thread_index();
	fold.workers = (uint64_t)block_count() * thread_count();
	fold.op = arguments->op;
	fold.divisor = arguments->divisor;
	fold.inverse_f32 = fold.divisor > 1 ? 1.0f / (float)fold.divisor : 1.0f;
	fold.inverse_f64 = fold.divisor > 1 ? 1.0 / fold.divisor : 1.0;
	return fold;
}

#define FOLD_KERNEL(name, element_bytes)                                                                               \
	DEVICE void fold_launched_##name(const struct collet_fold_arguments *arguments)                                \
	{                                                                                                              \
		const struct fold fold = fold_of(arguments, element_bytes);                                            \
		fold_##name(&fold);                                                                                    \
	}                                                                                                              \
	KERNEL(fold_##name, struct collet_fold_arguments, fold_launched_##name)

FOLD_KERNEL(i8, 1)
FOLD_KERNEL(u8, 1)
FOLD_KERNEL(i32, 4)
FOLD_KERNEL(u32, 4)
FOLD_KERNEL(i64, 8)
FOLD_KERNEL(u64, 8)
FOLD_KERNEL(f16, 2)
FOLD_KERNEL(bf16, 2)
FOLD_KERNEL(f32, 4)
FOLD_KERNEL(f64, 8)
FOLD_KERNEL(f8e4m3, 1)
FOLD_KERNEL(f8e5m2, 1)

DEVICE void copy_launched(const struct collet_fold_arguments *arguments)
{
	const struct fold fold = fold_of(arguments, 1);
	copy(&fold);
}
KERNEL(copy, struct collet_fold_arguments, copy_launched)

DEVICE void exchange_launched(const struct collet_fold_arguments *arguments)
{
	const struct fold fold = fold_of(arguments, 1);
	exchange(&fold);
}
KERNEL(exchange, struct collet_fold_arguments, exchange_launched)

KERNEL(program, struct collet_program_arguments, run_lane)

#endif
