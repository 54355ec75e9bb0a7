/* Linear all-reduce. Every rank sends all its elements to rank 0, which reduces them in one pass and in rank order, and
 * sends the result to every other rank.
 *
 * Cost (n ranks, m bytes): 2 alpha + 2(n-2) overhead + 2(n-1) m beta + (n-1) m gamma, all of it on rank 0.
 * Use: to learn from; docs/guide.md adds it to the library.
 * Source: the linear algorithm of any textbook. */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_LINEAR_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_LINEAR_H

#include "collectives/cost.h"

/* Rank 0 has one step. The others send, then receive. */
COLLET_PURE static inline uint64_t allreduce_linear_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->rank == 0 ? 1 : 2;
}

COLLET_PURE static inline struct collet_step allreduce_linear_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_peers self = collet_peers_self(shape), center = collet_peers_one(0);
	if (shape->rank != 0 && index == 0)
		return collet_step_move(self, COLLET_INPUT, all, center, COLLET_RESULT, all);
	if (shape->rank != 0)
		return collet_step_move(center, COLLET_RESULT, all, self, COLLET_RESULT, all);
	struct collet_step step =
		collet_step_move(collet_peers_all(shape), COLLET_INPUT, all, self, COLLET_RESULT, all);
	collet_step_add_destination(&step, collet_peers_others(shape), COLLET_RESULT, all);
	step.is_reduction = shape->size > 1;
	step.is_final = true;
	return step;
}

/* Rank 0 sends a segment while it receives the next, so only the last segment's sends come on top. */
COLLET_PURE static inline double allreduce_linear_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes), others = shape->size - 1.0;
	const double last = bytes / collet_cost_segments(bytes, segment_bytes);
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	if (shape->size == 1)
		return 0;
	return collet_cost_pipeline(1, bytes, segment_bytes, others, model->gamma_s, &mean) +
	       collet_cost_pipeline(1, last, segment_bytes, others, 0, &mean);
}

#endif
