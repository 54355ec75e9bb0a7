/* Direct barrier. Every rank sends an empty message to every other rank and receives one from each.
 *
 * Cost (n ranks): alpha + (n-2) overhead.
 * Use: few ranks.
 * Source: the all-to-all barrier of any textbook, e.g. Mellor-Crummey, Scott (1991) on its dissemination form. */
#ifndef COLLET_COLLECTIVES_BARRIER_BARRIER_DIRECT_H
#define COLLET_COLLECTIVES_BARRIER_BARRIER_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t barrier_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 2;
}

COLLET_PURE static inline struct collet_step barrier_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span nothing = collet_span_at(0, 0);
	struct collet_step step =
		index == 0
			? collet_step_send_each(shape, collet_peers_others(shape), COLLET_INPUT, COLLET_RESULT, nothing)
			: collet_step_receive_each(shape, collet_peers_others(shape), COLLET_INPUT, nothing);
	step.is_paired = index == 0;
	return step;
}

COLLET_PURE static inline double barrier_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	(void)element_bytes;
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0 : collet_cost_pipeline(1, 0, segment_bytes, shape->size - 1, 0, &mean);
}

#endif
