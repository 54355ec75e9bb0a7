/* Recursive halving reduce-scatter, for any world size (bisection.h). At each level a rank sends its partner in the
 * other half its sums of that half's blocks. It adds what the partner sends to those of its own half, until only its
 * own block is left. The odd rank of a lower half only sends. Sums are made in scratch, at most half of the blocks.
 *
 * Cost (n ranks, blocks of b bytes): log2(n) alpha + (n-1) b (beta + gamma); somewhat more if n is no power of two.
 * Use: small and medium messages.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005); halves of
 * different sizes: Traff, "An improved algorithm for (non-commutative) reduce-scatter with an application" (2005). */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HALVING_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HALVING_H

#include "collectives/bisection.h"
#include "collectives/cost.h"

COLLET_PURE static inline const char *reduce_scatter_halving_refusal(const struct collet_shape *shape)
{
	return collet_blocks_refusal(shape);
}

/* A send and a receive per level. */
COLLET_PURE static inline uint64_t reduce_scatter_halving_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? 2 * (uint64_t)collet_log2_ceil(shape->size) : 1;
}

/* The larger half of the blocks; none if the first level is the last. */
COLLET_PURE static inline uint64_t reduce_scatter_halving_scratch(const struct collet_shape *shape)
{
	return shape->size > 2 ? (shape->size + (uint64_t)1) / 2 * shape->count : 0;
}

/* Returns the buffer of a rank's sums before a level: scratch, once it has received something. */
COLLET_PURE static inline enum collet_buffer halving_buffer(uint32_t position, uint32_t size, uint32_t level)
{
	for (uint32_t i = 0; i < level; i++)
		if (!collet_bisect(position, size, i).is_odd)
			return COLLET_SCRATCH;
	return COLLET_INPUT;
}

/* Returns `count` blocks from `first` on, in a rank's INPUT or in its scratch, which starts with its half's first
 * block. */
COLLET_PURE static inline struct collet_span halving_span(
	const struct collet_shape *shape, uint32_t position, enum collet_buffer buffer, uint32_t first, uint32_t count)
{
	const uint32_t base = buffer == COLLET_INPUT ? 0 : collet_bisect(position, shape->size, 0).own_first;
	return collet_blocks(shape, first - base, count);
}

COLLET_PURE static inline struct collet_step reduce_scatter_halving_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_span all = collet_span_all(shape);
	const uint32_t level = (uint32_t)(index / 2);
	const struct collet_bisection split = collet_bisect(shape->rank, shape->size, level);
	const enum collet_buffer mine = halving_buffer(shape->rank, shape->size, level);
	struct collet_step step = collet_step_none();
	if (shape->size == 1) {
		step = collet_step_move(self, COLLET_INPUT, all, self, COLLET_RESULT, all);
		step.is_final = true;
		return step;
	}
	if (split.other_count == 0)
		return step;
	const enum collet_buffer theirs = halving_buffer(split.partner.first, shape->size, level);
	if (index % 2 == 0) {
		const struct collet_span from =
			halving_span(shape, shape->rank, mine, split.other_first, split.other_count);
		const struct collet_span to =
			halving_span(shape, split.partner.first, COLLET_SCRATCH, split.other_first, split.other_count);
		step = collet_step_move(self, mine, from, split.partner, COLLET_SCRATCH, to);
		step.is_paired = true;
		return step;
	}
	if (split.is_odd)
		return step;
	const bool is_last = split.own_count == 1;
	const struct collet_span own = halving_span(shape, shape->rank, mine, split.own_first, split.own_count);
	const struct collet_span kept =
		halving_span(shape, shape->rank, COLLET_SCRATCH, split.own_first, split.own_count);
	const struct collet_span partner =
		halving_span(shape, split.partner.first, theirs, split.own_first, split.own_count);
	if (shape->rank < split.middle)
		collet_step_add_source(&step, self, mine, own);
	collet_step_add_source(&step, collet_bisection_partners(&split), theirs, partner);
	if (shape->rank >= split.middle)
		collet_step_add_source(&step, self, mine, own);
	collet_step_add_destination(&step, self, is_last ? COLLET_RESULT : COLLET_SCRATCH, is_last ? all : kept);
	step.is_reduction = true;
	step.is_final = is_last;
	return step;
}

COLLET_PURE static inline double reduce_scatter_halving_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	double cost = 0;
	for (uint32_t size = shape->size; size > 1; size = (size + 1) / 2) {
		const double fan = size % 2 == 0 ? 1 : 2;
		cost += collet_cost_pipeline(1, collet_cost_blocks(shape, (size + 1) / 2, element_bytes), segment_bytes,
			size == 3 ? fan : 1, model->gamma_s, collet_cost_bisected(shape, size, model));
	}
	return cost;
}

#endif
