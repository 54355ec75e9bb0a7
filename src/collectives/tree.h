/* Binary trees over positions in which everything below a node on its left has lower numbers, and on its right higher
 * ones. So {left} {node} {right} reduces in rank order, for any shape and root of the tree. */
#ifndef COLLET_COLLECTIVES_TREE_H
#define COLLET_COLLECTIVES_TREE_H

#include "collectives/step_builder.h"

/* One position's neighbours; count is 0 for those that do not exist. */
struct collet_tree_node {
	struct collet_peers parent, left, right;
};

COLLET_PURE static inline uint32_t collet_tree_middle(uint32_t low, uint32_t high)
{
	return low + (high - low) / 2;
}

/* Returns the root of the tree over low .. high - 1, or an empty set. */
COLLET_PURE static inline struct collet_peers collet_tree_root(uint32_t low, uint32_t high)
{
	return collet_peers_range(collet_tree_middle(low, high), low < high);
}

/* Returns a node of the balanced tree over 0 .. size - 1 with the given root. Each side of the root is halved
 * recursively. */
COLLET_PURE static inline struct collet_tree_node collet_tree_node_at(uint32_t node, uint32_t size, uint32_t root)
{
	struct collet_tree_node found = {collet_peers_range(0, 0), collet_peers_range(0, 0), collet_peers_range(0, 0)};
	uint32_t low = 0, high = size, middle = root;
	while (middle != node) {
		found.parent = collet_peers_one(middle);
		if (node < middle)
			high = middle;
		else
			low = middle + 1;
		middle = collet_tree_middle(low, high);
	}
	found.left = collet_tree_root(low, middle);
	found.right = collet_tree_root(middle + 1, high);
	return found;
}

COLLET_PURE static inline uint32_t collet_tree_levels(uint32_t size, uint32_t root)
{
	const uint32_t larger = root > size - 1 - root ? root : size - 1 - root;
	return collet_log2_ceil((uint64_t)larger + 1);
}

#endif
