/* Lays out spans as arguments of the reduce, copy and swap kernels. */
#include <assert.h>
#include <string.h>

#include "core/types.h"
#include "cuda/kernels/kernel_set.h"

_Static_assert(sizeof(struct collet_span_arguments) <= 4096, "what every driver passes by value");
_Static_assert(3 * COLLET_SPAN_MAX_OPERANDS <= COLLET_LAUNCH_WORDS, "any one span fits");

enum { BLOCKS_PER_RESIDENT = 8 };

/* The arguments of a launch being filled. */
struct span_batch {
	enum collet_gpu_kernel kernel;
	uint32_t words;
	uint64_t longest;      /* 16-byte packs of the longest span */
	struct collet_span_arguments arguments;
};

enum kind { SPANS_REDUCED, SPANS_COPIED, SPANS_SWAPPED, SPAN_KINDS };

static void begin(struct span_batch *batch, const struct collet_gpu_reduction *reduction, enum kind kind)
{
	static const enum collet_gpu_kernel kernels[SPAN_KINDS] = {
		[SPANS_COPIED] = COLLET_GPU_copy, [SPANS_SWAPPED] = COLLET_GPU_swap };
	const uint32_t divisor =
		reduction->op == COLLET_AVERAGE && reduction->average_of > 1 ? reduction->average_of : 1;
	batch->kernel = kind == SPANS_REDUCED ? (enum collet_gpu_kernel)(COLLET_GPU_reduce_i8 + reduction->dtype)
					      : kernels[kind];
	batch->words = 0;
	batch->longest = 0;
	batch->arguments.op = reduction->op;
	batch->arguments.divisor = kind == SPANS_REDUCED ? divisor : 1;
	batch->arguments.item_count = 0;
}

static enum kind kind_of(const struct collet_gpu_reduction *reduction, const struct collet_gpu_span *span)
{
	if (span->is_swap)
		return SPANS_SWAPPED;
	return span->source_count == 1 && !span->scales && reduction->dtype != COLLET_BOOL &&
			       !(reduction->op == COLLET_AVERAGE && reduction->average_of > 1)
		       ? SPANS_COPIED
		       : SPANS_REDUCED;
}

static uint32_t words_of(const struct collet_gpu_span *span)
{
	return span->source_count + span->result_count + (span->scales ? span->source_count : 0);
}

static bool has_room(const struct span_batch *batch, const struct collet_gpu_span *span)
{
	return batch->arguments.item_count < COLLET_LAUNCH_SPANS &&
		batch->words + words_of(span) <= COLLET_LAUNCH_WORDS;
}

static void add(struct span_batch *batch, const struct collet_gpu_span *span, size_t element_bytes)
{
	const bool is_copy = batch->kernel == COLLET_GPU_copy || batch->kernel == COLLET_GPU_swap;
	const uint64_t packs = (span->count * element_bytes + 15) / 16;
	uint64_t *word = batch->arguments.words + batch->words;
	batch->arguments.items[batch->arguments.item_count++] = (struct collet_span_item){
		.count = is_copy ? span->count * element_bytes : span->count,
		.first_word = (uint16_t)batch->words,
		.source_count = (uint8_t)span->source_count,
		.result_count = (uint8_t)span->result_count,
		.is_scaled = span->scales != NULL,
	};
	for (uint32_t k = 0; k < span->source_count; k++)
		*word++ = (uintptr_t)span->sources[k];
	for (uint32_t k = 0; k < span->result_count; k++)
		*word++ = (uintptr_t)span->results[k];
	if (span->scales)
		memcpy(word, span->scales, span->source_count * sizeof(*span->scales));
	batch->words += words_of(span);
	batch->longest = packs > batch->longest ? packs : batch->longest;
}

/* Launches blocks, shared among the spans: some for each that runs at a time, as blocks end at different times. No
 * block gets less than one pack per thread. */
static collet_status launch(const struct collet_kernel_set *set, const struct span_batch *batch, cu_stream stream)
{
	const uint32_t rows = batch->arguments.item_count;
	if (!rows)
		return COLLET_OK;
	const uint64_t useful = (batch->longest + COLLET_BLOCK_THREADS - 1) / COLLET_BLOCK_THREADS;
	const uint64_t wanted = ((uint64_t)BLOCKS_PER_RESIDENT * set->resident_blocks[batch->kernel] + rows - 1) / rows;
	const uint32_t columns = (uint32_t)(useful < wanted ? useful : wanted);
	return collet_kernel_launch(set, batch->kernel, columns, rows, &batch->arguments, stream);
}

/* Launches the spans of this kind. */
static collet_status launch_kind(const struct collet_kernel_set *set, const struct collet_gpu_reduction *reduction,
	const struct collet_gpu_span *spans, uint32_t span_count, enum kind kind, cu_stream stream)
{
	const size_t element_bytes = collet_dtype_bytes(reduction->dtype);
	struct span_batch batch;
	collet_status status = COLLET_OK;
	begin(&batch, reduction, kind);
	for (uint32_t s = 0; s < span_count && status == COLLET_OK; s++) {
		const struct collet_gpu_span *span = &spans[s];
		assert(span->source_count >= 1 && span->source_count <= COLLET_SPAN_MAX_OPERANDS);
		assert(span->result_count >= 1 && span->result_count <= COLLET_SPAN_MAX_OPERANDS);
		assert(!span->is_swap || (span->source_count == 2 && span->result_count == 2));
		if (!span->count || kind_of(reduction, span) != kind)
			continue;
		if (!has_room(&batch, span)) {
			status = launch(set, &batch, stream);
			begin(&batch, reduction, kind);
		}
		add(&batch, span, element_bytes);
	}
	return status == COLLET_OK ? launch(set, &batch, stream) : status;
}

collet_status collet_gpu_spans_launch(const struct collet_kernel_set *set, const struct collet_gpu_reduction *reduction,
	const struct collet_gpu_span *spans, uint32_t span_count, cu_stream stream)
{
	assert(collet_op_supports(reduction->op, reduction->dtype) && reduction->op != COLLET_USER);
	collet_status status = COLLET_OK;
	for (int kind = 0; kind < SPAN_KINDS && status == COLLET_OK; kind++)
		status = launch_kind(set, reduction, spans, span_count, (enum kind)kind, stream);
	return status;
}

collet_status collet_gpu_wide_sums_launch(const struct collet_kernel_set *set, collet_dtype dtype, uint32_t average_of,
	const struct collet_gpu_span *span, cu_stream stream)
{
	assert(collet_dtype_is_narrow_float(dtype) && !span->scales && span->result_count == 1);
	struct span_batch batch = { .kernel = COLLET_GPU_wide_sums };
	batch.arguments.op = COLLET_SUM;
	batch.arguments.divisor = average_of;
	batch.arguments.dtype = dtype;
	if (!span->count)
		return COLLET_OK;
	add(&batch, span, sizeof(float));
	return launch(set, &batch, stream);
}
