/* Recursive doubling all-reduce, for any world size. Members exchange their whole sums with the member whose number
 * differs in bit 0, then 1, 2, ... Both add the same two sums, that of the lower ranks first. So sums are in rank order
 * and equal everywhere. allreduce_halving_doubling.h says which ranks are members, and what the others do if n is no
 * power of two.
 *
 * Cost (n = 2^k ranks, m bytes): k alpha + k m (beta + gamma); other n: two more latencies, 2m beta and m gamma.
 * Use: small messages where each message is expensive, as with more ranks than cores. It needs n log n messages where
 * direct needs n^2, and half the latencies of a tree.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DOUBLING_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_DOUBLING_H

#include "collectives/allreduce/allreduce_halving_doubling.h"

/* The extra rank's elements; a send and a receive per round; the extra rank's result. */
COLLET_PURE static inline uint64_t allreduce_doubling_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct halving_doubling h = halving_doubling_of(shape);
	return shape->size == 1 ? 1 : h.is_extra ? 2 : 2 * (uint64_t)h.rounds + (h.member < h.extra_count ? 2 : 0);
}

COLLET_PURE static inline struct collet_step allreduce_doubling_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct halving_doubling h = halving_doubling_of(shape);
	const struct collet_span all = collet_span_all(shape);
	if (shape->size == 1) {
		struct collet_step step = collet_step_move(
			collet_peers_self(shape), COLLET_INPUT, all, collet_peers_self(shape), COLLET_RESULT, all);
		step.is_final = true;
		return step;
	}
	const bool has_extra = h.member < h.extra_count;
	if (has_extra && index == 0)
		return halving_doubling_extra_step(shape, &h, false);
	if (h.is_extra || (has_extra && index == 2 * (uint64_t)h.rounds + 1))
		return halving_doubling_extra_step(shape, &h, true);
	const uint32_t move = (uint32_t)(index - (has_extra ? 1 : 0));
	struct collet_step step = halving_doubling_exchange_step(shape, &h, move / 2, all, move % 2 == 0);
	step.is_paired = move % 2 == 0;
	return step;
}

COLLET_PURE static inline double allreduce_doubling_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	const uint32_t rounds = collet_log2_floor(shape->size);
	const bool has_extra = shape->size > (uint32_t)1 << rounds;
	double cost = 0;
	for (uint32_t i = 0; i < rounds; i++)
		cost += collet_cost_pipeline(1, bytes, segment_bytes, 1, model->gamma_s,
			collet_cost_across(shape, (uint64_t)1 << i, model));
	const struct collet_cost_model *near = collet_cost_alignment(shape) > 1 ? collet_cost_local(model) : model;
	return cost + has_extra * (collet_cost_pipeline(1, bytes, segment_bytes, 1, model->gamma_s, near) +
					  collet_cost_pipeline(1, bytes, segment_bytes, 1, 0, near));
}

#endif
