/* The blocks that pass through a node of a binomial tree that gathers or scatters. Nodes are numbered from the root, so
 * a subtree's blocks have consecutive numbers. In the root's buffer they lie in rank order, where such a range may wrap
 * around after the last block. So every range travels as two messages on each hop: the blocks before the wrap and those
 * after it. */
#ifndef COLLET_COLLECTIVES_SUBTREE_H
#define COLLET_COLLECTIVES_SUBTREE_H

#include "collectives/step_builder.h"

struct collet_subtree {
	uint32_t vrank;  /* of its top node, counted from the root */
	uint32_t position;
	uint32_t children;
	uint32_t blocks;   /* all of them */
	uint32_t unwrapped_blocks; /* those before the wrap */
};

COLLET_PURE static inline struct collet_subtree collet_subtree_at(const struct collet_shape *shape, uint32_t vrank)
{
	struct collet_subtree tree = {vrank, 0, 0, 0, 0};
	const uint32_t rest = shape->size - vrank, reach = vrank & (0 - vrank);
	tree.position = (uint32_t)(((uint64_t)vrank + shape->root) % shape->size);
	tree.children = collet_binomial_children(vrank, shape->size);
	tree.blocks = vrank == 0 || rest < reach ? rest : reach;
	tree.unwrapped_blocks = tree.blocks < shape->size - tree.position ? tree.blocks : shape->size - tree.position;
	return tree;
}

COLLET_PURE static inline struct collet_subtree collet_subtree_own(const struct collet_shape *shape)
{
	return collet_subtree_at(shape, collet_position_at(shape, -(int64_t)shape->root));
}

COLLET_PURE static inline struct collet_subtree collet_subtree_parent(
	const struct collet_shape *shape, const struct collet_subtree *tree)
{
	return collet_subtree_at(shape, collet_binomial_parent(tree->vrank));
}

/* Returns where the top node of `holder` keeps the blocks of `tree`, which is part of `holder`: those before or after
 * the wrap. The root keeps them in its own buffer, other nodes in scratch. A leaf needs none for its own block. */
COLLET_PURE static inline struct collet_buffer_range collet_subtree_range(const struct collet_shape *shape,
	const struct collet_subtree *holder, const struct collet_subtree *tree, bool is_wrapped,
	enum collet_buffer on_root, enum collet_buffer on_leaf)
{
	const uint32_t skipped = is_wrapped ? tree->unwrapped_blocks : 0;
	const uint32_t count = is_wrapped ? tree->blocks - tree->unwrapped_blocks : tree->unwrapped_blocks;
	const struct collet_peers peer = collet_peers_one(holder->position);
	if (holder->vrank == 0)
		return collet_buffer_range_at(
			peer, on_root, collet_blocks(shape, is_wrapped ? 0 : tree->position, count));
	return collet_buffer_range_at(peer, holder->children ? COLLET_SCRATCH : on_leaf,
		collet_blocks(shape, tree->vrank - holder->vrank + skipped, count));
}

/* Returns the scratch for all blocks that pass through this rank. */
COLLET_PURE static inline uint64_t collet_subtree_scratch(const struct collet_shape *shape)
{
	const struct collet_subtree own = collet_subtree_own(shape);
	return own.vrank == 0 || own.children == 0 ? 0 : own.blocks * shape->count;
}

COLLET_PURE static inline struct collet_step collet_subtree_move(
	struct collet_buffer_range from, struct collet_buffer_range to)
{
	return collet_step_move(from.peers, from.buffer, from.span, to.peers, to.buffer, to.span);
}

#endif
