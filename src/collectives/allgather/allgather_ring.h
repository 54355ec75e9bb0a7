/* Ring all-gather. Each rank sends its block to the right and passes on what it receives from the left, until it has
 * all blocks: rank r receives blocks r - 1, r - 2, ..., r + 1.
 *
 * Cost (n ranks, blocks of b bytes): (n-1) (alpha + b beta). The least bytes, between neighbours only.
 * Use: large messages.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_RING_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_RING_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t allgather_ring_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size;
}

COLLET_PURE static inline struct collet_step allgather_ring_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const uint32_t number = collet_position_at(shape, -(int64_t)index);
	const struct collet_span block = collet_partition_chunk(&shape->result, shape, number);
	const struct collet_span alone = collet_span_at(0, block.count); /* in its owner's INPUT */
	struct collet_step step = collet_step_none();
	if (index == 0)
		collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, alone);
	else
		collet_step_add_source(&step, collet_peers_one(collet_position_at(shape, -1)),
			index == 1 ? COLLET_INPUT : COLLET_RESULT, index == 1 ? alone : block);
	collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, block);
	if (index + 1 < shape->size)
		collet_step_add_destination(
			&step, collet_peers_one(collet_position_at(shape, 1)), COLLET_RESULT, block);
	return step;
}

COLLET_PURE static inline double allgather_ring_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double block = collet_cost_blocks(shape, 1, element_bytes), rounds = shape->size - 1;
	return collet_cost_latencies(shape, rounds, false, model) +
	       collet_cost_port(rounds, block, segment_bytes, model);
}

#endif
