/* Direct reduce-scatter. Every rank sends every other rank its part of that rank's block. It reduces all parts of its
 * own block in one pass and in rank order: one latency, one rounding.
 *
 * Cost (n ranks, blocks of b bytes): alpha + (n-2) overhead + (n-1) b (beta + gamma). The least bytes, but n-1 messages
 * per rank.
 * Use: wherever messages are cheap, and for operations that do not commute. Blocks may have any counts.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_DIRECT_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t reduce_scatter_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 : 1;
}

COLLET_PURE static inline struct collet_step reduce_scatter_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span own = collet_partition_chunk(&shape->input, shape, shape->rank);
	const struct collet_span result = { 0, own.count };
	if (shape->size > 1 && index == 0)
		return collet_step_send_each(shape, collet_peers_others(shape), COLLET_INPUT, COLLET_RESULT, result);
	struct collet_step step = collet_step_move(
		collet_peers_all(shape), COLLET_INPUT, own, collet_peers_self(shape), COLLET_RESULT, result);
	step.is_reduction = shape->size > 1;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline double reduce_scatter_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0
				: collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes,
					  shape->size - 1, model->gamma_s, &mean);
}

#endif
