#include "cuda/shared_gpu/span_plan.h"

#include <stdlib.h>

#include "core/status.h"

collet_status collet_span_plan_init(struct collet_span_plan *plan, uint32_t max_ranks)
{
	const size_t ranks = max_ranks;
	*plan = (struct collet_span_plan){ .max_ranks = max_ranks };
	plan->spans = calloc(ranks * ranks, sizeof(*plan->spans));
	plan->addresses = calloc(2 * ranks * (ranks + 1), sizeof(*plan->addresses));
	plan->scales = calloc(ranks, sizeof(*plan->scales));
	if (plan->spans && plan->addresses && plan->scales)
		return COLLET_OK;
	collet_span_plan_deinit(plan);
	return collet_fail(COLLET_ERR_MEMORY, "no memory to plan launches for %u ranks", max_ranks);
}

void collet_span_plan_deinit(struct collet_span_plan *plan)
{
	free(plan->spans);
	free(plan->addresses);
	free(plan->scales);
	*plan = (struct collet_span_plan){ 0 };
}

/* ---- Building a span: all sources, then all results ---- */

struct span_builder {
	struct collet_span_plan *plan;
	const struct collet_span_plan_call *call;
	const struct collet_span_plan_rank *ranks;
};

static struct collet_gpu_span *begin_span(const struct span_builder *builder, uint64_t count)
{
	struct collet_span_plan *plan = builder->plan;
	struct collet_gpu_span *span = &plan->spans[plan->span_count];
	*span = (struct collet_gpu_span){
		.sources = (const void *const *)&plan->addresses[plan->address_count], .count = count };
	return span;
}

static char *element_address(const struct span_builder *builder, char *base, uint64_t element)
{
	return base + element * builder->call->element_bytes;
}

static void add_source(const struct span_builder *builder, struct collet_gpu_span *span, char *address)
{
	builder->plan->addresses[builder->plan->address_count++] = address;
	span->source_count++;
}

static void add_result(const struct span_builder *builder, struct collet_gpu_span *span, char *address)
{
	if (!span->result_count)
		span->results = &builder->plan->addresses[builder->plan->address_count];
	builder->plan->addresses[builder->plan->address_count++] = address;
	span->result_count++;
}

/* Skips a copy of a block onto itself. */
static void add_copy(const struct span_builder *builder, struct collet_gpu_span *span, char *address)
{
	if (address != span->sources[0])
		add_result(builder, span, address);
}

static void end_span(const struct span_builder *builder, const struct collet_gpu_span *span)
{
	if (span->count && span->result_count)
		builder->plan->span_count++;
}

/* ---- Collectives that reduce ---- */

/* Reduces the elements from `first` on of every rank's input, into the results of the given ranks. */
static void reduce_ranks(const struct span_builder *builder, uint64_t first, uint32_t result_first, uint32_t result_end)
{
	const struct collet_span_plan_call *call = builder->call;
	struct collet_gpu_span *span = begin_span(builder, call->count);
	span->scales = call->is_scaled ? builder->plan->scales : NULL;
	for (uint32_t r = 0; r < call->size; r++)
		add_source(builder, span, element_address(builder, builder->ranks[r].send, first));
	for (uint32_t r = result_first; r < result_end; r++)
		add_result(builder, span, builder->ranks[r].recv);
	end_span(builder, span);
}

/* ---- Collectives that move data ---- */

/* Returns block r of a buffer that has one for each rank. */
static struct collet_span block(
	const struct span_builder *builder, const struct collet_partition *partition, uint32_t r)
{
	const uint64_t count = builder->call->count;
	if (builder->call->is_vector)
		return (struct collet_span){ partition->displacements[r], partition->counts[r] };
	return (struct collet_span){ r * count, count };
}

static uint64_t own_count(const struct span_builder *builder, const struct collet_partition *partition)
{
	return builder->call->is_vector ? partition->count : builder->call->count;
}

static const char lengths_differ[] = "ranks send and expect different lengths";

static const char *broadcast(const struct span_builder *builder)
{
	const struct collet_span_plan_call *call = builder->call;
	struct collet_gpu_span *span = begin_span(builder, call->count);
	add_source(builder, span, builder->ranks[call->root].send);
	for (uint32_t r = 0; r < call->size; r++)
		add_copy(builder, span, builder->ranks[r].recv);
	end_span(builder, span);
	return NULL;
}

/* Copies every rank's own block to its place on ranks first up to end. */
static const char *gather(const struct span_builder *builder, uint32_t first, uint32_t end)
{
	for (uint32_t r = 0; r < builder->call->size; r++) {
		struct collet_gpu_span *span = begin_span(builder, own_count(builder, &builder->ranks[r].input));
		add_source(builder, span, builder->ranks[r].send);
		for (uint32_t to = first; to < end; to++) {
			const struct collet_span target = block(builder, &builder->ranks[to].result, r);
			if (target.count != span->count)
				return lengths_differ;
			add_copy(builder, span, element_address(builder, builder->ranks[to].recv, target.first));
		}
		end_span(builder, span);
	}
	return NULL;
}

static const char *scatter(const struct span_builder *builder)
{
	const struct collet_span_plan_rank *root = &builder->ranks[builder->call->root];
	for (uint32_t r = 0; r < builder->call->size; r++) {
		const struct collet_span from = block(builder, &root->input, r);
		if (from.count != own_count(builder, &builder->ranks[r].result))
			return lengths_differ;
		struct collet_gpu_span *span = begin_span(builder, from.count);
		add_source(builder, span, element_address(builder, root->send, from.first));
		add_copy(builder, span, builder->ranks[r].recv);
		end_span(builder, span);
	}
	return NULL;
}

static bool is_in_place(const struct collet_span_plan_rank *rank)
{
	return rank->send && rank->recv && rank->send < rank->recv + rank->recv_bytes &&
	       rank->recv < rank->send + rank->send_bytes;
}

/* True if each block is read from where the same rank's block is written. */
static bool is_in_place_exactly(const struct span_builder *builder, const struct collet_span_plan_rank *rank)
{
	bool is_same = rank->send == rank->recv;
	for (uint32_t r = 0; builder->call->is_vector && is_same && r < builder->call->size; r++)
		is_same = rank->input.counts[r] == rank->result.counts[r] &&
			rank->input.displacements[r] == rank->result.displacements[r];
	return is_same;
}

/* Adds the block that one rank sends to another. Returns NULL, or why not. */
static const char *add_block_source(
	const struct span_builder *builder, struct collet_gpu_span *span, uint32_t from, uint32_t to)
{
	const struct collet_span source = block(builder, &builder->ranks[from].input, to);
	const struct collet_span target = block(builder, &builder->ranks[to].result, from);
	if (source.count != target.count || source.count != span->count)
		return lengths_differ;
	add_source(builder, span, element_address(builder, builder->ranks[from].send, source.first));
	return NULL;
}

static char *result_address(const struct span_builder *builder, uint32_t from, uint32_t to)
{
	return element_address(
		builder, builder->ranks[to].recv, block(builder, &builder->ranks[to].result, from).first);
}

/* Swaps two ranks' blocks for each other, of which one lies where the other is to go. */
static const char *swap_blocks(const struct span_builder *builder, uint32_t a, uint32_t b)
{
	struct collet_gpu_span *span = begin_span(builder, block(builder, &builder->ranks[a].input, b).count);
	const char *why = add_block_source(builder, span, a, b);
	if (!why)
		why = add_block_source(builder, span, b, a);
	if (why)
		return why;
	span->is_swap = true;
	add_result(builder, span, result_address(builder, a, b));
	add_result(builder, span, result_address(builder, b, a));
	end_span(builder, span);
	return NULL;
}

static const char *alltoall(const struct span_builder *builder)
{
	const uint32_t size = builder->call->size;
	for (uint32_t r = 0; r < size; r++)
		if (is_in_place(&builder->ranks[r]) && !is_in_place_exactly(builder, &builder->ranks[r]))
			return "a rank's buffers overlap, but are not in place";
	for (uint32_t from = 0; from < size; from++) {
		for (uint32_t to = 0; to < size; to++) {
			/* Separate spans have no order: one would overwrite what the other has to read. So one span
			 * swaps both. */
			const bool swaps = from != to &&
				(is_in_place(&builder->ranks[from]) || is_in_place(&builder->ranks[to]));
			const char *why = NULL;
			if (swaps && from < to)
				why = swap_blocks(builder, from, to);
			if (!swaps) {
				struct collet_gpu_span *span =
					begin_span(builder, block(builder, &builder->ranks[from].input, to).count);
				why = add_block_source(builder, span, from, to);
				add_copy(builder, span, result_address(builder, from, to));
				end_span(builder, span);
			}
			if (why)
				return why;
		}
	}
	return NULL;
}

const char *collet_span_plan_make(struct collet_span_plan *plan, const struct collet_span_plan_call *call,
	const struct collet_span_plan_rank *ranks)
{
	const struct span_builder builder = { plan, call, ranks };
	assert(call->size <= plan->max_ranks);
	plan->span_count = plan->address_count = 0;
	for (uint32_t r = 0; r < call->size; r++)
		plan->scales[r] = ranks[r].scale;
	switch (call->collective) {
	case COLLET_ALLREDUCE: reduce_ranks(&builder, 0, 0, call->size); return NULL;
	case COLLET_REDUCE: reduce_ranks(&builder, 0, call->root, call->root + 1); return NULL;
	case COLLET_REDUCE_SCATTER:
		for (uint32_t r = 0; r < call->size; r++)
			reduce_ranks(&builder, r * call->count, r, r + 1);
		return NULL;
	case COLLET_BROADCAST: return broadcast(&builder);
	case COLLET_ALLGATHER: return gather(&builder, 0, call->size);
	case COLLET_GATHER: return gather(&builder, call->root, call->root + 1);
	case COLLET_SCATTER: return scatter(&builder);
	case COLLET_ALLTOALL: return alltoall(&builder);
	default: return "the collective moves no data";
	}
}
