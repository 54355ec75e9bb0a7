/* Binomial tree scatter: gather_tree run backwards. Node v, numbered from the root, receives the blocks of its whole
 * subtree from v with its lowest set bit cleared. It sends its children ..., v + 4, v + 2, v + 1 theirs. Inner nodes
 * need scratch for their subtree's blocks.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b beta.
 * Use: small blocks of many ranks.
 * Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience"
 * (2007). */
#ifndef COLLET_COLLECTIVES_SCATTER_SCATTER_TREE_H
#define COLLET_COLLECTIVES_SCATTER_SCATTER_TREE_H

#include "collectives/cost.h"
#include "collectives/subtree.h"

COLLET_PURE static inline const char *scatter_tree_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* Two ranges from the parent; two ranges to each child; the own block. */
COLLET_PURE static inline uint64_t scatter_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_subtree own = collet_subtree_own(shape);
	return 1 + 2 * (uint64_t)own.children + (own.vrank > 0 ? 2 : 0);
}

COLLET_PURE static inline uint64_t scatter_tree_scratch(const struct collet_shape *shape)
{
	return collet_subtree_scratch(shape);
}

COLLET_PURE static inline struct collet_step scatter_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_subtree own = collet_subtree_own(shape);
	const bool is_wrapped = index % 2 == 1;
	if (index + 1 == scatter_tree_step_count(shape, part)) {
		const struct collet_span kept = collet_blocks(shape, own.vrank == 0 ? shape->rank : 0, 1);
		if (own.vrank > 0 && own.children == 0)
			return collet_step_none();
		return collet_step_move(collet_peers_self(shape), own.vrank == 0 ? COLLET_INPUT : COLLET_SCRATCH, kept,
			collet_peers_self(shape), COLLET_RESULT, collet_span_all(shape));
	}
	/* 0: from the parent; then the children, the largest first. */
	const uint32_t i = (uint32_t)(index / 2) + (own.vrank == 0);
	const struct collet_subtree moved =
		i > 0 ? collet_subtree_at(shape, own.vrank + ((uint32_t)1 << (own.children - i))) : own;
	if (is_wrapped && moved.unwrapped_blocks == moved.blocks)
		return collet_step_none();
	const struct collet_subtree from = i > 0 ? own : collet_subtree_parent(shape, &own);
	return collet_subtree_move(collet_subtree_range(shape, &from, &moved, is_wrapped, COLLET_INPUT, COLLET_RESULT),
		collet_subtree_range(shape, &moved, &moved, is_wrapped, COLLET_INPUT, COLLET_RESULT));
}

COLLET_PURE static inline double scatter_tree_cost(const struct collet_shape *shape, size_t element_bytes,
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
