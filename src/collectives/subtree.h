/* The blocks that pass through a node of a binomial tree that gathers or scatters. Numbers are counted from the
 * root, so a subtree's blocks are one run of numbers; the root has them where they belong, where such a run may go
 * round after the last block. So every run travels as what comes before that and what comes after, on each of its
 * hops. */
#ifndef COLLET_COLLECTIVES_SUBTREE_H
#define COLLET_COLLECTIVES_SUBTREE_H

#include "collectives/bisection.h"

struct collet_subtree {
	uint32_t vrank;  /* of its topmost node, counted from the root */
	uint32_t position;
	uint32_t children;
	uint32_t blocks;   /* all of them */
	uint32_t unwrapped_blocks; /* those before going round */
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

/* Where the blocks of `tree` (those before or those after going round) are on the rank on top of `holder`, of which
 * `tree` is a part: on the root in its own buffer, on others in scratch, and a leaf needs none for its own block. */
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

/* Scratch for all blocks that pass through. */
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
