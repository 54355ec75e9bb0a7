/* Direct all-to-all. Every rank sends every other rank its block, all at the same time.
 *
 * Cost (n ranks, blocks of b bytes): alpha + (n-2) overhead + (n-1) b beta. The least bytes, but n-1 simultaneous
 * messages.
 * Use: small and medium blocks.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_DIRECT_H
#define COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_DIRECT_H

#include "collectives/cost.h"

/* All sends; all receives; the own block. */
COLLET_PURE static inline uint64_t alltoall_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 3;
}

COLLET_PURE static inline struct collet_step alltoall_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape), others = collet_peers_others(shape);
	const struct collet_span own = collet_partition_chunk(&shape->input, shape, shape->rank);
	if (index == 2)
		return collet_step_move(self, COLLET_INPUT, own, self, COLLET_RESULT, own);
	struct collet_step step = index == 0 ? collet_step_send_each(shape, others, COLLET_INPUT, COLLET_RESULT, own)
					     : collet_step_receive_each(shape, others, COLLET_INPUT, own);
	step.is_paired = index == 0;
	return step;
}

COLLET_PURE static inline double alltoall_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	return shape->size == 1 ? 0
				: collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes,
					  shape->size - 1, 0, &mean);
}

#endif
