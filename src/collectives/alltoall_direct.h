/* Direct all-to-all. Every rank sends every other its block at once. In place, blocks come in where others are still to be
 * fetched from, so a copy is sent: hence the scratch, which makes it one for small blocks.
 *
 * Cost, of n ranks and blocks of b bytes: alpha + (n-2) overhead + (n-1) b beta: the least bytes.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLTOALL_DIRECT_H
#define COLLET_COLLECTIVES_ALLTOALL_DIRECT_H

#include "collectives/cost.h"

COLLET_PURE static inline uint64_t alltoall_direct_scratch(const struct collet_shape *shape)
{
	return shape->in_place ? shape->size * shape->count : 0;
}

/* In place, a copy; all sends; all receives; the own block. */
COLLET_PURE static inline uint64_t alltoall_direct_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 3 + (uint64_t)shape->in_place;
}

COLLET_PURE static inline struct collet_step alltoall_direct_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_self(shape), others = collet_others(shape);
	const struct collet_span own = collet_cut_chunk(&shape->input, shape, shape->rank);
	const struct collet_span all = collet_span_at(0, shape->size * shape->count);
	const uint64_t move = index + !shape->in_place;
	if (move == 0)
		return collet_move(self, COLLET_INPUT, all, self, COLLET_SCRATCH, all);
	if (move == 3)
		return collet_move(self, COLLET_INPUT, own, self, COLLET_RESULT, own);
	if (move == 2)
		return collet_receive_each(shape, others, COLLET_INPUT, own);
	struct collet_step step = collet_send_each(
		shape, others, shape->in_place ? COLLET_SCRATCH : COLLET_INPUT, COLLET_RESULT, own);
	step.paired = true;
	return step;
}

COLLET_PURE static inline double alltoall_direct_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t piece_bytes, const struct collet_cost_model *model)
{
	return shape->size == 1 ? 0 : collet_cost_pipeline(
		1, collet_cost_blocks(shape, 1, element_bytes), piece_bytes, shape->size - 1, 0, model);
}

#endif
