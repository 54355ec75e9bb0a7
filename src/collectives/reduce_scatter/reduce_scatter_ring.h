/* Ring reduce-scatter. A block's sum starts at its owner's right neighbour and goes around to the right. Each rank adds
 * its own elements, until the sum reaches the owner. Rank r starts with block r - 1, and adds to what it receives from
 * the left: blocks r - 2, r - 3, ..., r.
 *
 * Cost (n ranks, blocks of b bytes): (n-1) (alpha + b (beta + gamma)). The least bytes, between neighbours only, and
 * n-1 roundings.
 * Use: large messages. Blocks may have any counts.
 * Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_RING_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_RING_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t reduce_scatter_ring_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size;
}

COLLET_PURE static inline struct collet_step reduce_scatter_ring_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const uint32_t number = collet_position_at(shape, -1 - (int64_t)index);
	const struct collet_span block = collet_partition_chunk(&shape->input, shape, number);
	const struct collet_span result = { 0, block.count };
	const bool is_last = index == shape->size - 1;
	struct collet_step step = collet_step_none();
	if (index > 0)
		collet_step_add_source(&step, collet_peers_one(collet_position_at(shape, -1)), COLLET_INPUT, block);
	collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, block);
	collet_step_add_destination(&step,
		is_last ? collet_peers_self(shape) : collet_peers_one(collet_position_at(shape, 1)), COLLET_RESULT,
		result);
	step.is_reduction = index > 0;
	step.is_final = is_last;
	return step;
}

COLLET_PURE static inline double reduce_scatter_ring_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double block = collet_cost_blocks(shape, 1, element_bytes), rounds = shape->size - 1;
	return collet_cost_latencies(shape, rounds, false, model) +
	       rounds * (collet_cost_port(1, block, segment_bytes, model) + block * model->gamma_s);
}

#endif
