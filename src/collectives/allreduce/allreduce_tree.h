/* Binomial tree all-reduce. Node v of a tree with root 0 reduces its own elements and those of its children v + 1, v +
 * 2, v + 4, ... in one pass. It sends the sum to its parent, which is v with its lowest set bit cleared. Then the
 * result comes down the same tree. A child's subtree is the range of positions after its elder siblings' subtrees, so
 * sums are in rank order.
 *
 * Cost (n = 2^k ranks, m bytes): 2k alpha + k(k+3)/2 m beta + k(k+1)/2 m gamma.
 * Use: small messages among many ranks.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_TREE_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_TREE_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t allreduce_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 : 1;
}

COLLET_PURE static inline struct collet_peers allreduce_tree_parent(const struct collet_shape *shape)
{
	return shape->rank > 0 ? collet_peers_one(collet_binomial_parent(shape->rank)) : collet_peers_range(0, 0);
}

COLLET_PURE static inline struct collet_step allreduce_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_peers self = collet_peers_self(shape), parent = allreduce_tree_parent(shape);
	const struct collet_peers children =
		collet_binomial_peers(shape->rank, collet_binomial_children(shape->rank, shape->size));
	struct collet_step step = collet_step_none();
	if (index == 0) {
		collet_step_add_source(&step, self, COLLET_INPUT, all);
		collet_step_add_source(&step, children, COLLET_INPUT, all);
		collet_step_add_destination(&step, parent.count ? parent : self, COLLET_RESULT, all);
		step.is_reduction = children.count > 0;
		step.is_final = parent.count == 0;
		return step;
	}
	if (parent.count == 0)
		return collet_step_move(self, COLLET_RESULT, all, children, COLLET_RESULT, all);
	collet_step_add_source(&step, parent, COLLET_RESULT, all);
	collet_step_add_destination(&step, self, COLLET_RESULT, all);
	collet_step_add_destination(&step, children, COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double allreduce_tree_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	return collet_cost_tree(shape, bytes, segment_bytes, true, model) +
	       collet_cost_tree(shape, bytes, segment_bytes, false, model);
}

#endif
