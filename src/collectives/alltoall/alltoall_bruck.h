/* Bruck's all-to-all. A rank copies its blocks to scratch, its own first: slot j is for rank r + j. In round k it sends
 * all slots whose number has bit k set to rank r + 2^k, into the same slots. So a block reaches its rank by the bits of
 * its distance, in log2(n) rounds of one message each, packed before and unpacked after. At the end slot j has the
 * block from rank r - j. Scratch is twice the size of all blocks.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) (alpha + n/2 b beta).
 * Use: the smallest blocks of many ranks.
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems" (1997). */
#ifndef COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_BRUCK_H
#define COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_BRUCK_H

#include "collectives/cost.h"

COLLET_PURE static inline const char *alltoall_bruck_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* Returns the number of runs of slots that a round sends. Each is 2^round long, except perhaps the last. */
COLLET_PURE static inline uint64_t bruck_runs(uint32_t size, uint32_t round)
{
	const uint64_t hops = (uint64_t)1 << round;
	return (size + hops - 1) / (2 * hops);
}

/* Returns one of these runs. */
COLLET_PURE static inline struct collet_span bruck_run(uint32_t size, uint32_t round, uint64_t run)
{
	const uint64_t hops = (uint64_t)1 << round, first = (2 * run + 1) * hops;
	return collet_span_at(first, hops < size - first ? hops : size - first);
}

/* Returns the number of slots that a round sends. */
COLLET_PURE static inline uint64_t bruck_places(uint32_t size, uint32_t round)
{
	const uint64_t runs = bruck_runs(size, round);
	return ((runs - 1) << round) + bruck_run(size, round, runs - 1).count;
}

/* All slots, and at most half of them packed for sending and half as received. */
COLLET_PURE static inline uint64_t alltoall_bruck_scratch(const struct collet_shape *shape)
{
	return shape->size / 2 * (uint64_t)2 * shape->count + shape->size * shape->count;
}

/* Two copies to scratch; per round, packing, a send, a receive and unpacking; at the end one copy per block. */
COLLET_PURE static inline uint64_t alltoall_bruck_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	uint64_t steps = 2 + (uint64_t)shape->size;
	for (uint32_t round = 0; round < collet_log2_ceil(shape->size); round++)
		steps += 2 + 2 * bruck_runs(shape->size, round);
	return steps;
}

/* Returns the first step from `index` on that sends or receives, or the step count. */
COLLET_PURE static inline uint64_t alltoall_bruck_next_message(const struct collet_shape *shape, uint64_t index)
{
	uint64_t first = 2; /* of the round */
	for (uint32_t round = 0; round < collet_log2_ceil(shape->size); round++) {
		const uint64_t runs = bruck_runs(shape->size, round), send = first + runs;
		if (index <= send + 1)
			return index > send ? index : send;
		first += 2 + 2 * runs;
	}
	return first + shape->size;
}

/* Returns step `index` of a round. */
COLLET_PURE static inline struct collet_step bruck_round_step(
	const struct collet_shape *shape, uint32_t round, uint64_t index)
{
	const struct collet_peers self = collet_peers_self(shape);
	const uint64_t runs = bruck_runs(shape->size, round), places = bruck_places(shape->size, round);
	const uint64_t out = shape->size, in = out + shape->size / 2; /* where the packed slots start */
	const int64_t hops = (int64_t)1 << round;
	if (index == runs) {
		struct collet_step step = collet_step_move(self, COLLET_SCRATCH, collet_blocks(shape, out, places),
			collet_peers_one(collet_position_at(shape, hops)), COLLET_SCRATCH,
			collet_blocks(shape, in, places));
		step.is_paired = true;
		return step;
	}
	if (index == runs + 1)
		return collet_step_move(collet_peers_one(collet_position_at(shape, -hops)), COLLET_SCRATCH,
			collet_blocks(shape, out, places), self, COLLET_SCRATCH, collet_blocks(shape, in, places));
	const bool is_packing = index < runs;
	const uint64_t i = is_packing ? index : index - runs - 2;
	const struct collet_span run = bruck_run(shape->size, round, i);
	const struct collet_span place = collet_blocks(shape, run.first, run.count);
	const struct collet_span packed = collet_blocks(shape, (is_packing ? out : in) + (i << round), run.count);
	return collet_step_move(
		self, COLLET_SCRATCH, is_packing ? place : packed, self, COLLET_SCRATCH, is_packing ? packed : place);
}

COLLET_PURE static inline struct collet_step alltoall_bruck_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	const uint32_t rank = shape->rank, size = shape->size;
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, collet_blocks(shape, rank, size - rank), self,
			COLLET_SCRATCH, collet_blocks(shape, 0, size - rank));
	if (index == 1)
		return rank == 0 ? collet_step_none()
				 : collet_step_move(self, COLLET_INPUT, collet_blocks(shape, 0, rank), self,
					   COLLET_SCRATCH, collet_blocks(shape, size - rank, rank));
	index -= 2;
	for (uint32_t round = 0; round < collet_log2_ceil(size); round++) {
		const uint64_t steps = 2 + 2 * bruck_runs(size, round);
		if (index < steps)
			return bruck_round_step(shape, round, index);
		index -= steps;
	}
	return collet_step_move(self, COLLET_SCRATCH, collet_blocks(shape, index, 1), self, COLLET_RESULT,
		collet_blocks(shape, collet_position_at(shape, -(int64_t)index), 1));
}

COLLET_PURE static inline double alltoall_bruck_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t round = 0; round < collet_log2_ceil(shape->size); round++)
		cost += collet_cost_pipeline(1,
			collet_cost_blocks(shape, (double)bruck_places(shape->size, round), element_bytes),
			segment_bytes, 1, 0, collet_cost_over(shape, (uint64_t)1 << round, model));
	return cost;
}

#endif
