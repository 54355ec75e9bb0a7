/* The ranks in two halves, each led by its first rank, for worlds in which half of the ranks share something, such as a
 * core. */
#ifndef COLLET_COLLECTIVES_HALVES_H
#define COLLET_COLLECTIVES_HALVES_H

#include "collectives/step_builder.h"

struct collet_half {
	uint32_t first, count, other_first; /* other_first: the first rank of the other half */
};

/* Returns the half that this rank is in, of two ranks or more. The lower half has the odd rank. */
COLLET_PURE static inline struct collet_half collet_half_of(const struct collet_shape *shape)
{
	const uint32_t lower = shape->size - shape->size / 2;
	const bool is_lower = shape->rank < lower;
	struct collet_half half = { is_lower ? 0 : lower, is_lower ? lower : shape->size - lower,
		is_lower ? lower : 0 };
	return half;
}

/* Two halves pay off with three ranks or more. */
COLLET_PURE static inline const char *collet_halves_refusal(const struct collet_shape *shape)
{
	return shape->size >= 3 ? NULL : "needs at least 3 ranks";
}

/* Returns the half's other ranks. */
COLLET_PURE static inline struct collet_peers collet_half_others(const struct collet_half *half)
{
	return collet_peers_range(half->first + 1, half->count - 1);
}

#endif
