/* Copies for collectives with a block for each rank. The host memory holds all blocks, laid out as in the buffer of the
 * leader. In a v-form, other ranks may have them at other displacements. */
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

/* Returns the offset, in bytes, at which a rank of this host has the block of `rank`. */
static size_t block_offset(const struct gpu_hierarchical *hierarchical, uint32_t local_rank, uint32_t rank)
{
	const uint64_t *displacements = hierarchical->ranks[local_rank].result.displacements;
	const bool has_lists = hierarchical->shape.result.counts != NULL;
	return (has_lists ? displacements[rank] : rank * hierarchical->shape.count) * hierarchical->element_bytes;
}

/* Returns the number of a rank among the members of this host; `size` if it is on another host. */
static uint32_t local_rank_of(const struct gpu_hierarchical *hierarchical, uint32_t rank)
{
	uint32_t local_rank = 0;
	while (local_rank < hierarchical->size && hierarchical->members[local_rank] != rank)
		local_rank++;
	return local_rank;
}

/* A range of bytes in host memory: a part of one block, or of several that are contiguous on every rank. */
struct block_range {
	uint32_t first_rank; /* the rank of the first block */
	size_t block_offset; /* its offset in host memory */
	size_t first, end; /* offsets of the range in host memory */
};

/* Finds the next range of blocks that overlaps these bytes, from *rank on. own: blocks of ranks of this host; else
 * those of other hosts. */
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

/* Returns the address of the range in the result of a rank of this host. */
static char *result_at(
	const struct gpu_hierarchical *hierarchical, uint32_t local_rank, const struct block_range *range)
{
	return hierarchical->ranks[local_rank].recv + block_offset(hierarchical, local_rank, range->first_rank) +
	       (range->first - range->block_offset);
}

/* Copies the range from source to the results of this host's ranks, from number `from` on. Skips the result that is the
 * source. */
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
