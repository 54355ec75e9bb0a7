/* Double binary tree all-reduce. One half of the elements is reduced up a binary tree and broadcast down it again; the
 * other half uses another tree. The leaves of each tree are inner nodes of the other, so every rank sends and receives
 * at full speed, in segments, with logarithmic latency.
 *
 * The first tree: its root is 0, which has one child. Below it, a number with lowest set bit b has its children at
 * distance b/2 to the left and right, so odd numbers are leaves. The second tree is the same on mirrored numbers if the
 * world size is even, else on numbers shifted by one (one rank is then an inner node of both).
 *
 * Cost (n ranks, m bytes): 4 log2(n) alpha + 2 m beta + m gamma.
 * Use: large messages among many ranks, where a ring's latency is too long.
 * Source: Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DOUBLE_TREE_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DOUBLE_TREE_H

#include "collectives/cost.h"

struct double_tree_node {
	struct collet_peers parent;
	struct collet_peers lower, upper; /* children, in rank order if the tree is */
};

/* Maps a number in a tree to a position, or back (is_inverse). */
COLLET_PURE static inline uint32_t double_tree_map(
	const struct collet_shape *shape, uint32_t part, uint32_t v, bool is_inverse)
{
	if (part == 0)
		return v;
	if (shape->size % 2 == 0)
		return shape->size - 1 - v;
	return (v + (is_inverse ? shape->size - 1 : 1)) % shape->size;
}

COLLET_PURE static inline struct collet_peers double_tree_peer(
	const struct collet_shape *shape, uint32_t part, uint32_t v)
{
	return collet_peers_one(double_tree_map(shape, part, v, false));
}

COLLET_PURE static inline struct double_tree_node double_tree_at(const struct collet_shape *shape, uint32_t part)
{
	struct double_tree_node node = {collet_peers_range(0, 0), collet_peers_range(0, 0), collet_peers_range(0, 0)};
	const uint32_t v = double_tree_map(shape, part, shape->rank, true), size = shape->size;
	uint32_t right = v == 0 ? (uint32_t)1 << collet_log2_floor(size) : (v & (0 - v)) / 2;
	const bool is_mirrored = part == 1 && size % 2 == 0;
	if (v > 0) {
		const uint32_t bit = v & (0 - v), up = (v - bit) | 2 * bit;
		node.parent = double_tree_peer(shape, part, up < size ? up : v - bit);
		if (bit > 1)
			*(is_mirrored ? &node.upper : &node.lower) = double_tree_peer(shape, part, v - bit / 2);
	}
	while (right > 0 && v + right >= size) /* that node does not exist: its left descendants move up */
		right /= 2;
	if (right > 0)
		*(is_mirrored ? &node.lower : &node.upper) = double_tree_peer(shape, part, v + right);
	return node;
}

COLLET_PURE static inline uint32_t allreduce_double_tree_part_count(const struct collet_shape *shape)
{
	(void)shape;
	return 2;
}

COLLET_PURE static inline const char *allreduce_double_tree_refusal(const struct collet_shape *shape)
{
	return shape->size >= 3 ? NULL : "needs at least 3 ranks";
}

/* One step up; two steps down, one per child. */
COLLET_PURE static inline uint64_t allreduce_double_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 3;
}

COLLET_PURE static inline struct collet_step allreduce_double_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	const struct collet_span half = collet_span_even(shape->count, 2, part);
	const struct double_tree_node node = double_tree_at(shape, part);
	const struct collet_peers self = collet_peers_self(shape);
	const bool is_root = node.parent.count == 0;
	struct collet_step step = collet_step_none();
	if (index == 0) {
		collet_step_add_source(&step, node.lower, COLLET_INPUT, half);
		collet_step_add_source(&step, self, COLLET_INPUT, half);
		collet_step_add_source(&step, node.upper, COLLET_INPUT, half);
		collet_step_add_destination(&step, is_root ? self : node.parent, COLLET_RESULT, half);
		step.is_reduction = node.lower.count + node.upper.count > 0;
		step.is_final = is_root;
		return step;
	}
	if (index == 2 || is_root) {
		step = collet_step_move(
			self, COLLET_RESULT, half, index == 2 ? node.upper : node.lower, COLLET_RESULT, half);
	} else {
		collet_step_add_source(&step, node.parent, COLLET_RESULT, half);
		collet_step_add_destination(&step, self, COLLET_RESULT, half);
		collet_step_add_destination(&step, node.lower, COLLET_RESULT, half);
	}
	step.is_paired = index == 1;
	return step;
}

COLLET_PURE static inline double allreduce_double_tree_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double half = collet_cost_chunk(shape, 2, element_bytes), depth = collet_log2_ceil(shape->size);
	return collet_cost_path(shape, depth, true, half, segment_bytes, 2, model->gamma_s, model) +
	       collet_cost_path(shape, depth, true, half, segment_bytes, 2, 0, model);
}

#endif
