/* Direct all-gather. Every rank sends its block to every other.
 *
 * Cost (n ranks, blocks of b bytes): alpha + (n-2) overhead + (n-1) b beta. The least bytes, but n-1 messages per rank.
 * Use: wherever messages are cheap.
 * Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience"
 * (2007). */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_DIRECT_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t allgather_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 : 1;
}

COLLET_PURE static inline struct collet_step allgather_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span own = collet_partition_chunk(&shape->result, shape, shape->rank);
	if (index == 1)
		return collet_step_receive_each(
			shape, collet_peers_others(shape), COLLET_INPUT, collet_span_at(0, own.count));
	struct collet_step step = collet_step_move(collet_peers_self(shape), COLLET_INPUT, collet_span_at(0, own.count),
		collet_peers_self(shape), COLLET_RESULT, own);
	collet_step_add_destination(&step, collet_peers_others(shape), COLLET_RESULT, own);
	return step;
}

COLLET_PURE static inline double allgather_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0
				: collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes,
					  shape->size - 1, 0, &mean);
}

#endif
