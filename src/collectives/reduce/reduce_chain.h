/* Pipelined chain reduce. From the root's right neighbour around to the root, each rank adds its own elements to what
 * it receives from the left and passes the sum on, segment by segment.
 *
 * Cost (n ranks, m bytes in p segments): (n-1 + p-1) (alpha + m/p (beta + gamma)); near m beta, the least that a root
 * can receive, for many segments.
 * Use: large messages.
 * Source: Worringen, "Pipelining and overlapping for MPI collective operations" (2003). */
#ifndef COLLET_COLLECTIVES_REDUCE_REDUCE_CHAIN_H
#define COLLET_COLLECTIVES_REDUCE_REDUCE_CHAIN_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t reduce_chain_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 1;
}

COLLET_PURE static inline struct collet_step reduce_chain_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_span all = collet_span_all(shape);
	const uint32_t left = collet_position_at(shape, -1);
	const bool is_first = left == shape->root, is_last = shape->rank == shape->root;
	struct collet_step step = collet_step_none();
	if (!is_first)
		collet_step_add_source(&step, collet_peers_one(left), COLLET_INPUT, all);
	collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, all);
	collet_step_add_destination(&step,
		is_last ? collet_peers_self(shape) : collet_peers_one(collet_position_at(shape, 1)), COLLET_RESULT,
		all);
	step.is_reduction = !is_first;
	step.is_final = is_last;
	return step;
}

COLLET_PURE static inline double reduce_chain_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	return shape->size == 1 ? 0
				: collet_cost_path(shape, shape->size - 1, false, bytes, segment_bytes, 1,
					  model->gamma_s, model);
}

#endif
