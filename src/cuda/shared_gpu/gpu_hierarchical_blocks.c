/* Collectives with a block for each rank. The host's memory has all blocks as the leader's buffer has them; in a v-form
 * other ranks may have them at other places. */
#include "cuda/shared_gpu/gpu_hierarchical_internal.h"

static const char taking[] = "copying a result to the GPU";

const char *hosted_blocks_differ(const struct hosted *hosted)
{
	const uint64_t *counts = hosted->ranks[0].result.counts;
	for (uint32_t at = 1; hosted->shape.result.counts && at < hosted->size; at++)
		for (uint32_t r = 0; r < hosted->shape.size; r++)
			if (hosted->ranks[at].result.counts[r] != counts[r])
				return "ranks of a host list blocks of different lengths";
	return NULL;
}

/* Where a rank of this host has a rank's block, in bytes. */
static size_t place_of(const struct hosted *hosted, uint32_t at, uint32_t rank)
{
	const uint64_t *displacements = hosted->ranks[at].result.displacements;
	const bool listed = hosted->shape.result.counts != NULL;
	return (listed ? displacements[rank] : rank * hosted->shape.count) * hosted->element_bytes;
}

/* A rank's place on this host; size: it is on another. */
static uint32_t place_on_host(const struct hosted *hosted, uint32_t rank)
{
	uint32_t place = 0;
	while (place < hosted->size && hosted->members[place] != rank)
		place++;
	return place;
}

/* A run of bytes in the host's memory: of one block, or of several that lie in a row everywhere. */
struct stretch {
	uint32_t rank;     /* whose block is the first */
	size_t block;      /* where that begins */
	size_t first, end; /* of what is wanted */
};

/* The next one of this host's ranks, or of others', that has something of those bytes; from *rank on. */
static bool next_stretch(
	const struct hosted *hosted, bool own, size_t offset, size_t bytes, uint32_t *rank, struct stretch *stretch)
{
	const uint64_t *counts = hosted->shape.result.counts;
	while (*rank < hosted->shape.size) {
		const uint32_t first = (*rank)++;
		if ((place_on_host(hosted, first) < hosted->size) != own)
			continue;
		stretch->rank = first;
		stretch->block = stretch->first = place_of(hosted, 0, first);
		stretch->end = stretch->first +
			       (counts ? counts[first] : hosted->shape.count) * hosted->element_bytes;
		while (!counts && !own && *rank < hosted->shape.size && place_on_host(hosted, *rank) == hosted->size)
			stretch->end = place_of(hosted, 0, ++*rank);
		stretch->first = stretch->first < offset ? offset : stretch->first;
		stretch->end = stretch->end > offset + bytes ? offset + bytes : stretch->end;
		if (stretch->first < stretch->end)
			return true;
	}
	return false;
}

/* Where a rank of this host has that, or is to. */
static char *result_at(const struct hosted *hosted, uint32_t at, const struct stretch *stretch)
{
	return hosted->ranks[at].recv + place_of(hosted, at, stretch->rank) + (stretch->first - stretch->block);
}

/* From there to its place on all ranks of this host from so many on, where it is not yet. */
static collet_status hand_out(const struct hosted *hosted, cu_stream stream, const struct stretch *stretch,
	const void *source, uint32_t from)
{
	void *others[COLLET_DIRECT_RANKS];
	struct collet_fold_span span = {
		.sources = &source, .results = others, .source_count = 1, .count = stretch->end - stretch->first};
	for (uint32_t at = from; at < hosted->size; at++) {
		char *to = result_at(hosted, at, stretch);
		if (to != source)
			others[span.result_count++] = to;
	}
	return hosted_copy(hosted, stream, &span, span.result_count != 0);
}

collet_status hosted_bring_blocks(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	struct stretch stretch;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_stretch(hosted, true, offset, bytes, &rank, &stretch);) {
		const struct collet_span_plan_rank *giver = &hosted->ranks[place_on_host(hosted, stretch.rank)];
		const char *source = giver->send + (stretch.first - stretch.block);
		status = collet_pipe_add(&hosted->context->cuda, pipe, host + (stretch.first - offset), source,
			stretch.end - stretch.first, "copying a rank's block from the GPU");
		if (status == COLLET_OK)
			status = hand_out(hosted, pipe->stream, &stretch, source, 0);
	}
	return status;
}

collet_status hosted_take_blocks(void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	struct stretch stretch;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_stretch(hosted, false, offset, bytes, &rank, &stretch);) {
		char *first = result_at(hosted, 0, &stretch);
		status = collet_pipe_add(&hosted->context->cuda, pipe, first, host + (stretch.first - offset),
			stretch.end - stretch.first, taking);
		if (status == COLLET_OK)
			status = hand_out(hosted, pipe->stream, &stretch, first, 1);
	}
	return status;
}

collet_status hosted_take_own_blocks(
	void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes)
{
	struct hosted *hosted = owner;
	struct stretch stretch;
	collet_status status = COLLET_OK;
	for (uint32_t rank = 0;
		status == COLLET_OK && next_stretch(hosted, true, offset, bytes, &rank, &stretch);) {
		char *to = hosted->ranks[place_on_host(hosted, stretch.rank)].recv + (stretch.first - stretch.block);
		status = collet_pipe_add(&hosted->context->cuda, pipe, to, host + (stretch.first - offset),
			stretch.end - stretch.first, taking);
	}
	return status;
}
