/* Binary tree reduce. The ranks before the root and those after it form a balanced binary tree each, whose nodes have
 * lower ranks on their left and higher ones on their right. A node reduces {left} {own} {right} and passes the sum up,
 * segment by segment: in rank order, for any root.
 *
 * Cost (n ranks, m bytes): log2(n) (alpha + overhead) + 2 m (beta + gamma).
 * Use: small to medium messages, in segments, and operations that do not commute.
 * Source: Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), section
 * 2. */
#ifndef COLLET_COLLECTIVES_REDUCE_REDUCE_TREE_H
#define COLLET_COLLECTIVES_REDUCE_REDUCE_TREE_H

#include "collectives/cost.h"
#include "collectives/tree.h"

COLLET_PURE static inline uint64_t reduce_tree_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 1;
}

COLLET_PURE static inline struct collet_step reduce_tree_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_tree_node node = collet_tree_node_at(shape->rank, shape->size, shape->root);
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, node.left, COLLET_INPUT, all);
	collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, all);
	collet_step_add_source(&step, node.right, COLLET_INPUT, all);
	collet_step_add_destination(
		&step, node.parent.count ? node.parent : collet_peers_self(shape), COLLET_RESULT, all);
	step.is_reduction = step.source_count > 1;
	step.is_final = node.parent.count == 0;
	return step;
}

COLLET_PURE static inline double reduce_tree_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	const uint32_t levels = collet_tree_levels(shape->size, shape->root);
	return levels == 0 ? 0
			   : collet_cost_path(shape, levels, true, bytes, segment_bytes, shape->size > 3 ? 2 : 1,
				     model->gamma_s, model);
}

#endif
