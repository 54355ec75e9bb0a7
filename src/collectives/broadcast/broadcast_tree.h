/* Binomial tree broadcast. Nodes are numbered from the root, which is 0. Node v receives everything from v with its
 * lowest set bit cleared. It passes that on, segment by segment, to v + 1, v + 2, v + 4, ... below that bit.
 *
 * Cost (n = 2^k ranks, m bytes): k alpha + k(k+1)/2 m beta; per further segment, k beta.
 * Use: small messages.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_BROADCAST_BROADCAST_TREE_H
#define COLLET_COLLECTIVES_BROADCAST_BROADCAST_TREE_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t broadcast_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 1;
}

COLLET_PURE static inline struct collet_step broadcast_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_span all = collet_span_all(shape);
	const uint32_t vrank = collet_position_at(shape, -(int64_t)shape->root);
	const uint32_t children = collet_binomial_children(vrank, shape->size);
	struct collet_step step = collet_step_none();
	if (vrank == 0) {
		collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, all);
	} else {
		const uint32_t parent = collet_binomial_parent(vrank);
		const uint32_t position = collet_position_at(shape, (int64_t)parent - vrank);
		collet_step_add_source(
			&step, collet_peers_one(position), parent == 0 ? COLLET_INPUT : COLLET_RESULT, all);
	}
	collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, all);
	collet_step_add_destination(&step, collet_binomial_peers(shape->rank, children), COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double broadcast_tree_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	return collet_cost_tree(shape, collet_cost_chunk(shape, 1, element_bytes), segment_bytes, false, model);
}

#endif
