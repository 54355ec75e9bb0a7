/* Reduce by reduce-scatter and gather. The elements are cut into one chunk per rank. Each rank sends every other rank
 * its part of that rank's chunk. It reduces all parts of its own chunk in one pass and in rank order, and sends the
 * result to the root.
 *
 * Cost (n ranks, m bytes): 2 alpha + 2(n-2) overhead + 2(n-1)/n m beta + (n-1)/n m gamma.
 * Use: large messages where reducing, or one rank's share of it, is expensive: all ranks do the same work.
 * Source: Rabenseifner, "Optimization of collective reduction operations" (2004), with direct exchanges. */
#ifndef COLLET_COLLECTIVES_REDUCE_REDUCE_SCATTER_GATHER_H
#define COLLET_COLLECTIVES_REDUCE_REDUCE_SCATTER_GATHER_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t reduce_scatter_gather_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size == 1 ? 1 : shape->rank == shape->root ? 3 : 2;
}

COLLET_PURE static inline struct collet_step reduce_scatter_gather_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span own = collet_partition_chunk(&shape->input, shape, shape->rank);
	if (shape->size > 1 && index == 0)
		return collet_step_send_each(
			shape, collet_peers_others(shape), COLLET_INPUT, COLLET_RESULT, collet_span_same_offset());
	if (index == 2)
		return collet_step_receive_each(
			shape, collet_peers_others(shape), COLLET_INPUT, collet_span_same_offset());
	struct collet_step step = collet_step_move(
		collet_peers_all(shape), COLLET_INPUT, own, collet_peers_one(shape->root), COLLET_RESULT, own);
	step.is_reduction = shape->size > 1;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline double reduce_scatter_gather_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double chunk = collet_cost_chunk(shape, shape->size, element_bytes), others = shape->size - 1;
	if (shape->size == 1)
		return 0;
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return 2 * collet_cost_latency(&mean) + 2 * collet_cost_port(others, chunk, segment_bytes, &mean) +
	       others * chunk * model->gamma_s;
}

#endif
