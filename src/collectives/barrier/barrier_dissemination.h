/* Dissemination barrier. In round k of log2(n), rounded up, rank r tells r + 2^k that it and all ranks it has heard of
 * have arrived, and hears the same from r - 2^k.
 *
 * A message has this meaning only if it is sent after all earlier ones have arrived. But steps wait for each other only
 * through the elements that they read and write. So the rounds pass on one scratch element, whose value nobody reads:
 * round k sends element k, and reduces it with the received one into element k + 1.
 *
 * Cost (n ranks): log2(n) alpha.
 * Use: many ranks.
 * Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988). */
#ifndef COLLET_COLLECTIVES_BARRIER_BARRIER_DISSEMINATION_H
#define COLLET_COLLECTIVES_BARRIER_BARRIER_DISSEMINATION_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t barrier_dissemination_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 2 * (uint64_t)collet_log2_ceil(shape->size);
}

COLLET_PURE static inline uint64_t barrier_dissemination_scratch(const struct collet_shape *shape)
{
	return 1 + (uint64_t)collet_log2_ceil(shape->size);
}

COLLET_PURE static inline struct collet_step barrier_dissemination_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const uint64_t round = index / 2;
	const int64_t hops = (int64_t)1 << round;
	const struct collet_span sent = collet_span_at(round, 1), received = collet_span_at(round + 1, 1);
	const struct collet_peers self = collet_peers_self(shape);
	if (index % 2 == 0) {
		struct collet_step step = collet_step_move(self, COLLET_SCRATCH, sent,
			collet_peers_one(collet_position_at(shape, hops)), COLLET_SCRATCH, received);
		step.is_paired = true;
		return step;
	}
	struct collet_step step = collet_step_move(collet_peers_one(collet_position_at(shape, -hops)), COLLET_SCRATCH,
		sent, self, COLLET_SCRATCH, received);
	collet_step_add_source(&step, self, COLLET_SCRATCH, sent);
	step.is_reduction = true;
	return step;
}

COLLET_PURE static inline double barrier_dissemination_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	(void)element_bytes;
	return collet_cost_path(shape, collet_log2_ceil(shape->size), true, 0, segment_bytes, 1, 0, model);
}

#endif
