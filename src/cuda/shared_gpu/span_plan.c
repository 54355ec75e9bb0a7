#include "cuda/shared_gpu/span_plan.h"

#include <stdlib.h>

#include "core/status.h"

collet_status collet_span_plan_init(struct collet_span_plan *plan, uint32_t most)
{
	const size_t ranks = most;
	*plan = (struct collet_span_plan){ .most = most };
	plan->spans = calloc(ranks * ranks, sizeof(*plan->spans));
	plan->addresses = calloc(2 * ranks * (ranks + 1), sizeof(*plan->addresses));
	plan->scales = calloc(ranks, sizeof(*plan->scales));
	if (plan->spans && plan->addresses && plan->scales)
		return COLLET_OK;
	collet_span_plan_deinit(plan);
	return collet_fail(COLLET_ERR_MEMORY, "no memory for what %u ranks' GPU does at once", most);
}

void collet_span_plan_deinit(struct collet_span_plan *plan)
{
	free(plan->spans);
	free(plan->addresses);
	free(plan->scales);
	*plan = (struct collet_span_plan){ 0 };
}

/* ---- A span, operand by operand: all sources, then all results ---- */

struct maker {
	struct collet_span_plan *plan;
	const struct collet_span_plan_call *call;
	const struct collet_span_plan_rank *ranks;
};

static struct collet_fold_span *begin(const struct maker *maker, uint64_t count)
{
	struct collet_span_plan *plan = maker->plan;
	struct collet_fold_span *span = &plan->spans[plan->span_count];
	*span = (struct collet_fold_span){
		.sources = (const void *const *)&plan->addresses[plan->address_count], .count = count };
	return span;
}

static char *at(const struct maker *maker, char *base, uint64_t element)
{
	return base + element * maker->call->element_bytes;
}

static void add_source(const struct maker *maker, struct collet_fold_span *span, char *address)
{
	maker->plan->addresses[maker->plan->address_count++] = address;
	span->source_count++;
}

static void add_result(const struct maker *maker, struct collet_fold_span *span, char *address)
{
	if (!span->result_count)
		span->results = &maker->plan->addresses[maker->plan->address_count];
	maker->plan->addresses[maker->plan->address_count++] = address;
	span->result_count++;
}

/* A copy onto itself is none. */
static void add_copy(const struct maker *maker, struct collet_fold_span *span, char *address)
{
	if (address != span->sources[0])
		add_result(maker, span, address);
}

static void finish(const struct maker *maker, const struct collet_fold_span *span)
{
	if (span->count && span->result_count)
		maker->plan->span_count++;
}

/* ---- Collectives that combine ---- */

/* Of every rank's input the elements from first on, to the same place of one rank's result, or of everybody's. */
static void fold(const struct maker *maker, uint64_t first, uint32_t result_first, uint32_t result_end)
{
	const struct collet_span_plan_call *call = maker->call;
	struct collet_fold_span *span = begin(maker, call->count);
	span->scales = call->scales ? maker->plan->scales : NULL;
	for (uint32_t r = 0; r < call->size; r++)
		add_source(maker, span, at(maker, maker->ranks[r].send, first));
	for (uint32_t r = result_first; r < result_end; r++)
		add_result(maker, span, maker->ranks[r].recv);
	finish(maker, span);
}

/* ---- Collectives that move ---- */

/* Block r of a buffer that has one for each rank. */
static struct collet_span block(const struct maker *maker, const struct collet_partition *cut, uint32_t r)
{
	const uint64_t count = maker->call->count;
	if (maker->call->listed)
		return (struct collet_span){ cut->displacements[r], cut->counts[r] };
	return (struct collet_span){ r * count, count };
}

static uint64_t own(const struct maker *maker, const struct collet_partition *cut)
{
	return maker->call->listed ? cut->count : maker->call->count;
}

static const char differ[] = "ranks give and expect different lengths";

static const char *broadcast(const struct maker *maker)
{
	const struct collet_span_plan_call *call = maker->call;
	struct collet_fold_span *span = begin(maker, call->count);
	add_source(maker, span, maker->ranks[call->root].send);
	for (uint32_t r = 0; r < call->size; r++)
		add_copy(maker, span, maker->ranks[r].recv);
	finish(maker, span);
	return NULL;
}

/* Every rank's own block to its place on ranks first up to end. */
static const char *gather(const struct maker *maker, uint32_t first, uint32_t end)
{
	for (uint32_t r = 0; r < maker->call->size; r++) {
		struct collet_fold_span *span = begin(maker, own(maker, &maker->ranks[r].input));
		add_source(maker, span, maker->ranks[r].send);
		for (uint32_t to = first; to < end; to++) {
			const struct collet_span place = block(maker, &maker->ranks[to].result, r);
			if (place.count != span->count)
				return differ;
			add_copy(maker, span, at(maker, maker->ranks[to].recv, place.first));
		}
		finish(maker, span);
	}
	return NULL;
}

static const char *scatter(const struct maker *maker)
{
	const struct collet_span_plan_rank *root = &maker->ranks[maker->call->root];
	for (uint32_t r = 0; r < maker->call->size; r++) {
		const struct collet_span from = block(maker, &root->input, r);
		if (from.count != own(maker, &maker->ranks[r].result))
			return differ;
		struct collet_fold_span *span = begin(maker, from.count);
		add_source(maker, span, at(maker, root->send, from.first));
		add_copy(maker, span, maker->ranks[r].recv);
		finish(maker, span);
	}
	return NULL;
}

static bool is_in_place(const struct collet_span_plan_rank *rank)
{
	return rank->send && rank->recv && rank->send < rank->recv + rank->recv_bytes &&
	       rank->recv < rank->send + rank->send_bytes;
}

/* Is what each block is read from where the same rank's is written? */
static bool is_in_place_exactly(const struct maker *maker, const struct collet_span_plan_rank *rank)
{
	bool same = rank->send == rank->recv;
	for (uint32_t r = 0; maker->call->listed && same && r < maker->call->size; r++)
		same = rank->input.counts[r] == rank->result.counts[r] &&
			rank->input.displacements[r] == rank->result.displacements[r];
	return same;
}

/* What one rank gives another. NULL; or why not. */
static const char *give(const struct maker *maker, struct collet_fold_span *span, uint32_t from, uint32_t to)
{
	const struct collet_span source = block(maker, &maker->ranks[from].input, to);
	const struct collet_span place = block(maker, &maker->ranks[to].result, from);
	if (source.count != place.count || source.count != span->count)
		return differ;
	add_source(maker, span, at(maker, maker->ranks[from].send, source.first));
	return NULL;
}

static char *taken_to(const struct maker *maker, uint32_t from, uint32_t to)
{
	return at(maker, maker->ranks[to].recv, block(maker, &maker->ranks[to].result, from).first);
}

/* Two ranks' blocks for each other, of which one lies where the other is to go. */
static const char *exchange(const struct maker *maker, uint32_t a, uint32_t b)
{
	struct collet_fold_span *span = begin(maker, block(maker, &maker->ranks[a].input, b).count);
	const char *why = give(maker, span, a, b);
	if (!why)
		why = give(maker, span, b, a);
	if (why)
		return why;
	span->exchanges = true;
	add_result(maker, span, taken_to(maker, a, b));
	add_result(maker, span, taken_to(maker, b, a));
	finish(maker, span);
	return NULL;
}

static const char *alltoall(const struct maker *maker)
{
	const uint32_t size = maker->call->size;
	for (uint32_t r = 0; r < size; r++)
		if (is_in_place(&maker->ranks[r]) && !is_in_place_exactly(maker, &maker->ranks[r]))
			return "what a rank reads overlaps what it writes, and is not the same";
	for (uint32_t from = 0; from < size; from++) {
		for (uint32_t to = 0; to < size; to++) {
			/* One span would overwrite, in no order, what another has to read: both at once. */
			const bool exchanges = from != to &&
				(is_in_place(&maker->ranks[from]) || is_in_place(&maker->ranks[to]));
			const char *why = NULL;
			if (exchanges && from < to)
				why = exchange(maker, from, to);
			if (!exchanges) {
				struct collet_fold_span *span =
					begin(maker, block(maker, &maker->ranks[from].input, to).count);
				why = give(maker, span, from, to);
				add_copy(maker, span, taken_to(maker, from, to));
				finish(maker, span);
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
	const struct maker maker = { plan, call, ranks };
	assert(call->size <= plan->most);
	plan->span_count = plan->address_count = 0;
	for (uint32_t r = 0; r < call->size; r++)
		plan->scales[r] = ranks[r].scale;
	switch (call->collective) {
	case COLLET_ALLREDUCE: fold(&maker, 0, 0, call->size); return NULL;
	case COLLET_REDUCE: fold(&maker, 0, call->root, call->root + 1); return NULL;
	case COLLET_REDUCE_SCATTER:
		for (uint32_t r = 0; r < call->size; r++)
			fold(&maker, r * call->count, r, r + 1);
		return NULL;
	case COLLET_BROADCAST: return broadcast(&maker);
	case COLLET_ALLGATHER: return gather(&maker, 0, call->size);
	case COLLET_GATHER: return gather(&maker, call->root, call->root + 1);
	case COLLET_SCATTER: return scatter(&maker);
	case COLLET_ALLTOALL: return alltoall(&maker);
	default: return "it moves nothing";
	}
}
