/* Collectives with a block for each rank. The host's memory has all blocks as the leader's buffer has them; in a v-form
 * other ranks may have them at other places. */
#include "cuda/shared_gpu/gpu_hierarchical_internal.h"

static const char copying_out[] = "copying a result to the GPU";

const char *gpu_hierarchical_blocks_differ(const struct gpu_hierarchical *hierarchical)
{
	const uint64_t *counts = hierarchical->ranks[0].result.counts;
	for (uint32_t local_rank = 1; hierarchical->shape.result.counts && local_rank < hierarchical->size;
		local_rank++)
		for (uint32_t r = 0; r < hierarchical->shape.size; r++)
			if (hierarchical->ranks[local_rank].result.counts[r] != counts[r])
				return "ranks of a host list blocks of different lengths";
	return NULL;
}

/* Where a rank of this host has a rank's block, in bytes. */
static size_t block_offset(const struct gpu_hierarchical *hierarchical, uint32_t local_rank, uint32_t rank)
{
	const uint64_t *displacements = hierarchical->ranks[local_rank].result.displacements;
	const bool has_lists = hierarchical->shape.result.counts != NULL;
	return (has_lists ? displacements[rank] : rank * hierarchical->shape.count) * hierarchical->element_bytes;
}

/* A rank's place on this host; size: it is on another. */
static uint32_t local_rank_of(const struct gpu_hierarchical *hierarchical, uint32_t rank)
{
	uint32_t local_rank = 0;
	while (local_rank < hierarchical->size && hierarchical->members[local_rank] != rank)
		local_rank++;
	return local_rank;
}

/* A run of bytes in the host's memory: of one block, or of several that lie in a row everywhere. */
struct block_range {
	uint32_t first_rank; /* whose block is the first */
	size_t block_offset; /* where that begins */
	size_t first, end; /* of what is wanted */
};

/* The next one of this host's ranks, or of others', that has something of those bytes; from *rank on. */
static bool next_range(const struct gpu_hierarchical *hierarchical, bool own, size_t offset, size_t bytes,
	uint32_t *rank, struct block_range *range)
{
	const uint64_t *counts = hierarchical->shape.result.counts;
	while (*rank < hierarchical->shape.size) {
		const uint32_t first = (*rank)++;
		if ((local_rank_of(hierarchical, first) < hierarchical->size) != own)
			continue;
		range->first_rank = first;
		range->block_offset = range->first = block_offset(hierarchical, 0, first);
		range->end = range->first +
			       (counts ? counts[first] : hierarchical->shape.count) * hierarchical->element_bytes;
		while (!counts && !own && *rank < hierarchical->shape.size &&
			local_rank_of(hierarchical, *rank) == hierarchical->size)
			range->end = block_offset(hierarchical, 0, ++*rank);
		range->first = range->first < offset ? offset : range->first;
		range->end = range->end > offset + bytes ? offset + bytes : range->end;
		if (range->first < range->end)
			return true;
	}
	return false;
}

/* Where a rank of this host has that, or is to. */
static char *result_at(
	const struct gpu_hierarchical *hierarchical, uint32_t local_rank, const struct block_range *range)
{
	return hierarchical->ranks[local_rank].recv + block_offset(hierarchical, local_rank, range->first_rank) +
	       (range->first - range->block_offset);
}

/* From there to its place on all ranks of this host from so many on, where it is not yet. */
static collet_status copy_to_local_ranks(const struct gpu_hierarchical *hierarchical, cu_stream stream,
	const struct block_range *range, const void *source, uint32_t from)
{
	void *others[COLLET_SHARED_GPU_RANKS];
	struct collet_gpu_span span = {
		.sources = &source, .results = others, .source_count = 1, .count = range->end - range->first};
	for (uint32_t local_rank = from; local_rank < hierarchical->size; local_rank++) {
		char *to = result_at(hierarchical, local_rank, range);
		if (to != source)
			others[span.result_count++] = to;
	}
	return gpu_hierarchical_copy(hierarchical, stream, &span, span.result_count != 0);
}

collet_status gpu_hierarchical_copy_in_blocks(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	struct block_range range;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_range(hierarchical, true, offset, bytes, &rank, &range);) {
		const struct collet_span_plan_rank *sender =
			&hierarchical->ranks[local_rank_of(hierarchical, range.first_rank)];
		const char *source = sender->send + (range.first - range.block_offset);
		status = collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue,
			host + (range.first - offset), source, range.end - range.first,
			"copying a rank's block from the GPU");
		if (status == COLLET_OK)
			status = copy_to_local_ranks(hierarchical, queue->stream, &range, source, 0);
	}
	return status;
}

collet_status gpu_hierarchical_copy_out_blocks(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	struct block_range range;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_range(hierarchical, false, offset, bytes, &rank, &range);) {
		char *first = result_at(hierarchical, 0, &range);
		status = collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue, first,
			host + (range.first - offset), range.end - range.first, copying_out);
		if (status == COLLET_OK)
			status = copy_to_local_ranks(hierarchical, queue->stream, &range, first, 1);
	}
	return status;
}

collet_status gpu_hierarchical_copy_out_own(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes)
{
	struct gpu_hierarchical *hierarchical = context;
	struct block_range range;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_range(hierarchical, true, offset, bytes, &rank, &range);) {
		char *to = hierarchical->ranks[local_rank_of(hierarchical, range.first_rank)].recv +
			   (range.first - range.block_offset);
		status = collet_copy_queue_enqueue(&hierarchical->context->gpu->cuda, queue, to,
			host + (range.first - offset), range.end - range.first, copying_out);
	}
	return status;
}
