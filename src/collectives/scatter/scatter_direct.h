/* Direct scatter. The root sends every rank its block.
 *
 * Cost (n ranks, blocks of b bytes): alpha + (n-2) overhead + (n-1) b beta. The least bytes.
 * Use: all but the smallest blocks, and where only the root knows all counts.
 * Source: the linear algorithm of any textbook; Chan, Heimlich, Purkayastha, van de Geijn (2007). */
#ifndef COLLET_COLLECTIVES_SCATTER_SCATTER_DIRECT_H
#define COLLET_COLLECTIVES_SCATTER_SCATTER_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t scatter_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->rank == shape->root && shape->size > 1 ? 2 : 1;
}

COLLET_PURE static inline struct collet_step scatter_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_span all = collet_span_at(0, shape->result.count);
	if (shape->rank != shape->root)
		return collet_step_move(collet_peers_one(shape->root), COLLET_INPUT,
			collet_span_on_peer(shape, &shape->input, all.count), self, COLLET_RESULT, all);
	if (index + 1 < scatter_direct_step_count(shape, part))
		return collet_step_send_each(shape, collet_peers_others(shape), COLLET_INPUT, COLLET_RESULT, all);
	return collet_step_move(self, COLLET_INPUT, collet_partition_chunk(&shape->input, shape, shape->rank), self,
		COLLET_RESULT, all);
}

COLLET_PURE static inline double scatter_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0
				: collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes,
					  shape->size - 1, 0, &mean);
}

#endif
