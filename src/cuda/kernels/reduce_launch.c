/* Laying spans out for the fold kernels. */
#include <assert.h>
#include <string.h>

#include "core/types.h"
#include "cuda/kernels/kernel_set.h"

_Static_assert(sizeof(struct collet_fold_arguments) <= 4096, "what every driver passes by value");
_Static_assert(3 * COLLET_FOLD_MOST <= COLLET_FOLD_WORDS, "any one span fits");

/* A launch in the making. */
struct laying {
	enum collet_gpu_kernel kernel;
	uint32_t words;
	uint64_t most;         /* 16-byte pieces of the longest span */
	struct collet_fold_arguments arguments;
};

enum kind { FOLDS, COPIES, EXCHANGES, KINDS };

static void begin(struct laying *laying, const struct collet_fold *fold, enum kind kind)
{
	static const enum collet_gpu_kernel kernels[KINDS] = {
		[COPIES] = COLLET_GPU_copy, [EXCHANGES] = COLLET_GPU_exchange };
	const uint32_t divisor = fold->op == COLLET_AVERAGE && fold->average_of > 1 ? fold->average_of : 1;
	laying->kernel =
		kind == FOLDS ? (enum collet_gpu_kernel)(COLLET_GPU_fold_i8 + fold->dtype) : kernels[kind];
	laying->words = 0;
	laying->most = 0;
	laying->arguments.op = fold->op;
	laying->arguments.divisor = kind == FOLDS ? divisor : 1;
	laying->arguments.item_count = 0;
}

static enum kind kind_of(const struct collet_fold *fold, const struct collet_fold_span *span)
{
	if (span->exchanges)
		return EXCHANGES;
	return span->source_count == 1 && !span->scales && !(fold->op == COLLET_AVERAGE && fold->average_of > 1) ?
		COPIES : FOLDS;
}

static uint32_t words_of(const struct collet_fold_span *span)
{
	return span->source_count + span->result_count + (span->scales ? span->source_count : 0);
}

static bool has_room(const struct laying *laying, const struct collet_fold_span *span)
{
	return laying->arguments.item_count < COLLET_FOLD_SPANS &&
		laying->words + words_of(span) <= COLLET_FOLD_WORDS;
}

static void add(struct laying *laying, const struct collet_fold_span *span, size_t element_bytes)
{
	const bool moves = laying->kernel == COLLET_GPU_copy || laying->kernel == COLLET_GPU_exchange;
	const uint64_t pieces = (span->count * element_bytes + 15) / 16;
	uint64_t *word = laying->arguments.words + laying->words;
	laying->arguments.items[laying->arguments.item_count++] = (struct collet_fold_item){
		.count = moves ? span->count * element_bytes : span->count,
		.at = (uint16_t)laying->words,
		.sources = (uint8_t)span->source_count,
		.results = (uint8_t)span->result_count,
		.scaled = span->scales != NULL,
	};
	for (uint32_t k = 0; k < span->source_count; k++)
		*word++ = (uintptr_t)span->sources[k];
	for (uint32_t k = 0; k < span->result_count; k++)
		*word++ = (uintptr_t)span->results[k];
	if (span->scales)
		memcpy(word, span->scales, span->source_count * sizeof(*span->scales));
	laying->words += words_of(span);
	laying->most = pieces > laying->most ? pieces : laying->most;
}

/* As many blocks as run at once, shared among the spans, but none without a piece for each of its threads. */
static collet_status launch(const struct collet_kernel_set *set, const struct laying *laying, cu_stream stream)
{
	const uint32_t rows = laying->arguments.item_count;
	if (!rows)
		return COLLET_OK;
	const uint64_t useful = (laying->most + COLLET_BLOCK_THREADS - 1) / COLLET_BLOCK_THREADS;
	const uint64_t resident = (set->resident[laying->kernel] + rows - 1) / rows;
	const uint32_t columns = (uint32_t)(useful < resident ? useful : resident);
	return collet_kernel_launch(set, laying->kernel, columns, rows, &laying->arguments, stream);
}

/* The spans of this kind. */
static collet_status launch_kind(const struct collet_kernel_set *set, const struct collet_fold *fold,
	const struct collet_fold_span *spans, uint32_t span_count, enum kind kind, cu_stream stream)
{
	const size_t element_bytes = collet_dtype_bytes(fold->dtype);
	struct laying laying;
	collet_status status = COLLET_OK;
	begin(&laying, fold, kind);
	for (uint32_t s = 0; s < span_count && status == COLLET_OK; s++) {
		const struct collet_fold_span *span = &spans[s];
		assert(span->source_count >= 1 && span->source_count <= COLLET_FOLD_MOST);
		assert(span->result_count >= 1 && span->result_count <= COLLET_FOLD_MOST);
		assert(!span->exchanges || (span->source_count == 2 && span->result_count == 2));
		if (!span->count || kind_of(fold, span) != kind)
			continue;
		if (!has_room(&laying, span)) {
			status = launch(set, &laying, stream);
			begin(&laying, fold, kind);
		}
		add(&laying, span, element_bytes);
	}
	return status == COLLET_OK ? launch(set, &laying, stream) : status;
}

collet_status collet_fold_launch(const struct collet_kernel_set *set, const struct collet_fold *fold,
	const struct collet_fold_span *spans, uint32_t span_count, cu_stream stream)
{
	assert(collet_op_supports(fold->op, fold->dtype) && fold->op != COLLET_USER);
	collet_status status = COLLET_OK;
	for (int kind = 0; kind < KINDS && status == COLLET_OK; kind++)
		status = launch_kind(set, fold, spans, span_count, (enum kind)kind, stream);
	return status;
}
