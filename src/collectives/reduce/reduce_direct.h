/* Direct reduce. Every rank sends all its elements to the root, which reduces them in one pass and in rank order: one
 * latency, one rounding.
 *
 * Cost (n ranks, m bytes): alpha + (n-2) overhead + (n-1) m (beta + gamma), all of it on the root.
 * Use: small messages among few ranks.
 * Source: the linear algorithm of any textbook; Chan, Heimlich, Purkayastha, van de Geijn (2007). */
#ifndef COLLET_COLLECTIVES_REDUCE_REDUCE_DIRECT_H
#define COLLET_COLLECTIVES_REDUCE_REDUCE_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t reduce_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 1;
}

COLLET_PURE static inline struct collet_step reduce_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_span all = collet_span_all(shape);
	if (shape->rank != shape->root)
		return collet_step_move(
			collet_peers_self(shape), COLLET_INPUT, all, collet_peers_one(shape->root), COLLET_RESULT, all);
	struct collet_step step = collet_step_move(
		collet_peers_all(shape), COLLET_INPUT, all, collet_peers_self(shape), COLLET_RESULT, all);
	step.is_reduction = shape->size > 1;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline double reduce_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0
				: collet_cost_pipeline(1, bytes, segment_bytes, shape->size - 1, model->gamma_s, &mean);
}

#endif
