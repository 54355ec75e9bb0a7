/* Recursive doubling all-gather, for any world size (bisection.h): recursive halving run backwards. From the smallest
 * halves to the whole world, each rank exchanges all blocks of its half for those of its partner's half. The odd rank
 * of a lower half only receives.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b beta; somewhat more if n is no power of two.
 * Use: small and medium messages.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005). */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_DOUBLING_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_DOUBLING_H

#include "collectives/bisection.h"
#include "collectives/cost.h"

COLLET_PURE static inline const char *allgather_doubling_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* The own block; then, per level, a send and a receive. */
COLLET_PURE static inline uint64_t allgather_doubling_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 1 + 2 * (uint64_t)collet_log2_ceil(shape->size);
}

COLLET_PURE static inline struct collet_step allgather_doubling_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, collet_blocks(shape, 0, 1), self, COLLET_RESULT,
			collet_blocks(shape, shape->rank, 1));
	const uint32_t level = collet_log2_ceil(shape->size) - 1 - (uint32_t)((index - 1) / 2);
	const struct collet_bisection split = collet_bisect(shape->rank, shape->size, level);
	const struct collet_span own = collet_blocks(shape, split.own_first, split.own_count);
	const struct collet_span other = collet_blocks(shape, split.other_first, split.other_count);
	if (split.other_count == 0)
		return collet_step_none();
	if (index % 2 == 0)
		return collet_step_move(split.partner, COLLET_RESULT, other, self, COLLET_RESULT, other);
	if (split.is_odd)
		return collet_step_none();
	struct collet_step step =
		collet_step_move(self, COLLET_RESULT, own, collet_bisection_partners(&split), COLLET_RESULT, own);
	step.is_paired = true;
	return step;
}

COLLET_PURE static inline double allgather_doubling_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t size = shape->size; size > 1; size = (size + 1) / 2)
		cost += collet_cost_pipeline(
			1, collet_cost_blocks(shape, (size + 1) / 2, element_bytes), segment_bytes, 1, 0,
			collet_cost_bisected(shape, size, model));
	return cost;
}

#endif
