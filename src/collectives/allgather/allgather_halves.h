/* All-gather in two halves. The first rank of each half collects the blocks of its half and exchanges them for the
 * other half's. Then it sends all blocks to each rank of its half, the rank's own block included, so that they are one
 * message.
 *
 * Cost (n ranks, blocks of b bytes, c = n/2 rounded up): 3 alpha + 2 (c-2) overhead + (2c-1 + n(c-1)) b beta. There are
 * 2(n-1) messages in all, the least possible, with more than twice the least bytes.
 * Use: small blocks where messages are expensive and half of the ranks share something, as with many ranks on two
 * cores.
 * Source: the gather and broadcast of Karonis et al. (2000), with two flat groups. */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_HALVES_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_HALVES_H

#include "collectives/cost.h"
#include "collectives/halves.h"

COLLET_PURE static inline const char *allgather_halves_refusal(const struct collet_shape *shape)
{
	const char *why = collet_halves_refusal(shape);
	return why ? why : collet_blocks_refusal(shape);
}

/* A first rank: its own block, its half's blocks, two steps of the exchange, the broadcast. Others: a send and a
 * receive. */
COLLET_PURE static inline uint64_t allgather_halves_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->rank == collet_half_of(shape).first ? 5 : 2;
}

COLLET_PURE static inline struct collet_step allgather_halves_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_half half = collet_half_of(shape);
	const struct collet_peers self = collet_peers_self(shape), first = collet_peers_one(half.first);
	const struct collet_span block = collet_blocks(shape, 0, 1), own = collet_blocks(shape, shape->rank, 1);
	const struct collet_span all = collet_blocks(shape, 0, shape->size);
	if (shape->rank != half.first)
		return index == 0 ? collet_step_move(self, COLLET_INPUT, block, first, COLLET_RESULT, own)
				  : collet_step_move(first, COLLET_RESULT, all, self, COLLET_RESULT, all);
	const struct collet_peers other = collet_peers_one(half.other_first);
	const struct collet_span ours = collet_blocks(shape, half.first, half.count);
	const struct collet_span theirs = collet_blocks(shape, half.other_first, shape->size - half.count);
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, block, self, COLLET_RESULT, own);
	if (index == 1)
		return half.count == 1
			       ? collet_step_none()
			       : collet_step_receive_each(shape, collet_half_others(&half), COLLET_INPUT, block);
	if (index == 2) {
		struct collet_step step = collet_step_move(self, COLLET_RESULT, ours, other, COLLET_RESULT, ours);
		step.is_paired = true;
		return step;
	}
	return index == 3 ? collet_step_move(other, COLLET_RESULT, theirs, self, COLLET_RESULT, theirs)
			  : collet_step_move(self, COLLET_RESULT, all, collet_half_others(&half), COLLET_RESULT, all);
}

COLLET_PURE static inline double allgather_halves_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double half = shape->size - shape->size / 2, rest = half - 1;
	const struct collet_cost_model in_half = collet_cost_in_half(shape, rest, model);
	return collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes, rest, 0, &in_half) +
	       collet_cost_pipeline(1, collet_cost_blocks(shape, half, element_bytes), segment_bytes, 1, 0, model) +
	       collet_cost_pipeline(
		       1, collet_cost_blocks(shape, shape->size, element_bytes), segment_bytes, rest, 0, &in_half);
}

#endif
