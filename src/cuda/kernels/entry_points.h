/* The kernels: each unpacks its arguments and shares the work among its threads. */
#ifndef COLLET_CUDA_KERNELS_ENTRY_POINTS_H
#define COLLET_CUDA_KERNELS_ENTRY_POINTS_H

#include "cuda/kernels/device_swap.h"
#include "cuda/kernels/device_wide_sums.h"
#include "cuda/kernels/plan_kernel.h"

/* Describes the span of this row of blocks; the threads of all its columns share it. Elements of sources and results
 * have these sizes. */
DEVICE struct reduction reduction_between(
	const struct collet_span_arguments *arguments, uint32_t source_bytes, uint32_t result_bytes)
{
	const struct collet_span_item *item = &arguments->items[block_row()];
	const uint64_t *words = arguments->words + item->first_word;
	struct reduction reduction;
	reduction.source_count = item->source_count;
	reduction.result_count = item->result_count;
	reduction.sources = device_pointers(words, item->source_count, item->count * source_bytes, 0);
	reduction.results =
		device_pointers(words + item->source_count, item->result_count, item->count * result_bytes, 1);
	reduction.scales = item->is_scaled ? words + item->source_count + item->result_count : NULL;
	reduction.count = item->count;
	reduction.worker = (uint64_t)block_index() * thread_count() + thread_index();
	reduction.workers = (uint64_t)block_count() * thread_count();
	reduction.op = arguments->op;
	reduction_set_divisor(&reduction, arguments->divisor);
	return reduction;
}

DEVICE struct reduction reduction_of_span(const struct collet_span_arguments *arguments, uint32_t element_bytes)
{
	return reduction_between(arguments, element_bytes, element_bytes);
}

/* Elements of 4 bytes and more are only loaded and added: many threads hide the memory's latency. Narrower ones are
 * converted, which takes registers. */
#define REDUCE_KERNEL(name, element_bytes)                                                                             \
	DEVICE void reduce_spans_##name(const struct collet_span_arguments *arguments)                                 \
	{                                                                                                              \
		const struct reduction reduction = reduction_of_span(arguments, element_bytes);                        \
		reduce_##name(&reduction);                                                                             \
	}                                                                                                              \
	KERNEL(reduce_##name, struct collet_span_arguments, reduce_spans_##name, (element_bytes) >= 4 ? 4 : 1)

REDUCE_KERNEL(i8, 1)
REDUCE_KERNEL(u8, 1)
REDUCE_KERNEL(i32, 4)
REDUCE_KERNEL(u32, 4)
REDUCE_KERNEL(i64, 8)
REDUCE_KERNEL(u64, 8)
REDUCE_KERNEL(f16, 2)
REDUCE_KERNEL(bf16, 2)
REDUCE_KERNEL(f32, 4)
REDUCE_KERNEL(f64, 8)
REDUCE_KERNEL(f8e4m3, 1)
REDUCE_KERNEL(f8e5m2, 1)
REDUCE_KERNEL(i16, 2)
REDUCE_KERNEL(u16, 2)
REDUCE_KERNEL(truth, 1)

DEVICE void copy_spans(const struct collet_span_arguments *arguments)
{
	const struct reduction reduction = reduction_of_span(arguments, 1);
	copy(&reduction);
}
KERNEL(copy, struct collet_span_arguments, copy_spans, 1)

DEVICE void swap_spans(const struct collet_span_arguments *arguments)
{
	const struct reduction reduction = reduction_of_span(arguments, 1);
	swap_span(&reduction);
}
KERNEL(swap, struct collet_span_arguments, swap_spans, 1)

DEVICE void add_wide(const struct collet_span_arguments *arguments)
{
	const bool is_16_bit = arguments->dtype == COLLET_F16 || arguments->dtype == COLLET_BF16;
	const struct reduction reduction = reduction_between(arguments, is_16_bit ? 2 : 1, 4);
	wide_sums_of(&reduction, arguments->dtype);
}
KERNEL(wide_sums, struct collet_span_arguments, add_wide, 1)

KERNEL(round, struct collet_round_arguments, round_sums, 1)

KERNEL(plan, struct collet_plan_arguments, run_channel, 1)

#endif
