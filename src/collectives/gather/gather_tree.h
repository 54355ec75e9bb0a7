/* Binomial tree gather. Node v, numbered from the root, collects its block and those of its children v + 1, v + 2, v +
 * 4, ... one after the other. It sends all of them to v with its lowest set bit cleared. Inner nodes need scratch for
 * their subtree's blocks.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b beta.
 * Use: small blocks of many ranks.
 * Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience"
 * (2007). */
#ifndef COLLET_COLLECTIVES_GATHER_GATHER_TREE_H
#define COLLET_COLLECTIVES_GATHER_GATHER_TREE_H

#include "collectives/cost.h"
#include "collectives/subtree.h"

COLLET_PURE static inline const char *gather_tree_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* The own block; two ranges from each child; two ranges to the parent. */
COLLET_PURE static inline uint64_t gather_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_subtree own = collet_subtree_own(shape);
	return 1 + 2 * (uint64_t)own.children + (own.vrank > 0 ? 2 : 0);
}

COLLET_PURE static inline uint64_t gather_tree_scratch(const struct collet_shape *shape)
{
	return collet_subtree_scratch(shape);
}

COLLET_PURE static inline struct collet_step gather_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_subtree own = collet_subtree_own(shape);
	const bool is_wrapped = index % 2 == 0;
	if (index == 0) {
		const struct collet_span kept = collet_blocks(shape, own.vrank == 0 ? shape->rank : 0, 1);
		if (own.vrank > 0 && own.children == 0)
			return collet_step_none();
		return collet_step_move(collet_peers_self(shape), COLLET_INPUT, collet_span_all(shape),
			collet_peers_self(shape), own.vrank == 0 ? COLLET_RESULT : COLLET_SCRATCH, kept);
	}
	const uint32_t i = (uint32_t)((index - 1) / 2);
	const struct collet_subtree moved =
		i < own.children ? collet_subtree_at(shape, own.vrank + ((uint32_t)1 << i)) : own;
	if (is_wrapped && moved.unwrapped_blocks == moved.blocks)
		return collet_step_none();
	const struct collet_subtree to = i < own.children ? own : collet_subtree_parent(shape, &own);
	return collet_subtree_move(collet_subtree_range(shape, &moved, &moved, is_wrapped, COLLET_RESULT, COLLET_INPUT),
		collet_subtree_range(shape, &to, &moved, is_wrapped, COLLET_RESULT, COLLET_INPUT));
}

COLLET_PURE static inline double gather_tree_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t reach = 1; reach < shape->size; reach *= 2) {
		const uint32_t blocks = reach < shape->size - reach ? reach : shape->size - reach;
		cost += collet_cost_pipeline(
			1, collet_cost_blocks(shape, blocks, element_bytes), segment_bytes, 1, 0,
			collet_cost_down(shape, reach, model));
	}
	return cost - collet_cost_shallow(shape, model);
}

#endif
