/* Pipelined chain broadcast. From the root around to its left neighbour, each rank passes on what it receives, segment
 * by segment.
 *
 * Cost (n ranks, m bytes in p segments): (n-1 + p-1) (alpha + m/p beta); near m beta, the least possible, for many
 * segments.
 * Use: large messages.
 * Source: Worringen, "Pipelining and overlapping for MPI collective operations" (2003). */
#ifndef COLLET_COLLECTIVES_BROADCAST_BROADCAST_CHAIN_H
#define COLLET_COLLECTIVES_BROADCAST_BROADCAST_CHAIN_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t broadcast_chain_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 1;
}

COLLET_PURE static inline struct collet_step broadcast_chain_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_span all = collet_span_all(shape);
	const uint32_t left = collet_position_at(shape, -1), right = collet_position_at(shape, 1);
	const bool is_root = shape->rank == shape->root;
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, is_root ? collet_peers_self(shape) : collet_peers_one(left),
		is_root || left == shape->root ? COLLET_INPUT : COLLET_RESULT, all);
	collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, all);
	if (right != shape->root)
		collet_step_add_destination(&step, collet_peers_one(right), COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double broadcast_chain_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	return shape->size == 1
		       ? 0
		       : collet_cost_path(shape, shape->size - 1, false, bytes, segment_bytes, 1, 0, model);
}

#endif
