/* Direct ("one-shot") all-reduce. Every rank sends all its elements to every other rank, and reduces those of all ranks
 * in one pass: one latency, one rounding, rank order.
 *
 * Cost (n ranks, m bytes): alpha + (n-2) overhead + (n-1) m (beta + gamma).
 * Use: the smallest messages, where latency outweighs bytes. A world of size 1 needs no other.
 * Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience"
 * (2007); the name from one-shot all-reduce on GPUs. */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DIRECT_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t allreduce_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 : 1;
}

COLLET_PURE static inline struct collet_step allreduce_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const bool is_sending = shape->size > 1 && index == 0;
	struct collet_step step =
		collet_step_move(is_sending ? collet_peers_self(shape) : collet_peers_all(shape), COLLET_INPUT, all,
			is_sending ? collet_peers_others(shape) : collet_peers_self(shape), COLLET_RESULT, all);
	step.is_reduction = !is_sending && shape->size > 1;
	step.is_final = !is_sending;
	step.is_paired = is_sending;
	return step;
}

COLLET_PURE static inline double allreduce_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	if (shape->size == 1)
		return 0;
	return collet_cost_pipeline(1, bytes, segment_bytes, shape->size - 1, model->gamma_s, &mean);
}

#endif
