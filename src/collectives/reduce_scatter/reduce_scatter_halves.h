/* Reduce-scatter in two halves. The first rank of each half reduces the elements of all ranks of its half. It exchanges
 * its sums of the other half's blocks for that half's sums of its own, and distributes the totals.
 *
 * Cost (n ranks, blocks of b bytes, c = n/2 rounded up): 3 alpha + 2 (c-2) overhead + (n(c-1) + 2c-1) b beta + (n(c-1)
 * + c) b gamma. There are 2(n-1) messages in all, the least possible, with more than twice the least bytes.
 * Use: small blocks where messages are expensive and half of the ranks share something, as with many ranks on two
 * cores.
 * Source: the reduce and scatter of Karonis et al. (2000), with two flat groups. */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HALVES_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HALVES_H

#include "collectives/cost.h"
#include "collectives/halves.h"

COLLET_PURE static inline const char *reduce_scatter_halves_refusal(const struct collet_shape *shape)
{
	const char *why = collet_halves_refusal(shape);
	return why ? why : collet_blocks_refusal(shape);
}

/* The half's sums of all blocks, and the totals of its own blocks. */
COLLET_PURE static inline uint64_t reduce_scatter_halves_scratch(const struct collet_shape *shape)
{
	return shape->size * shape->count;
}

/* A first rank: its half's sums, two steps of the exchange, its own block, the others' blocks. Others: a send and a
 * receive. */
COLLET_PURE static inline uint64_t reduce_scatter_halves_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->rank == collet_half_of(shape).first ? 5 : 2;
}

COLLET_PURE static inline struct collet_step reduce_scatter_halves_exchange(
	const struct collet_shape *shape, const struct collet_half *half, bool is_sending)
{
	const struct collet_peers self = collet_peers_self(shape), other = collet_peers_one(half->other_first);
	const struct collet_span ours = collet_blocks(shape, half->first, half->count);
	const struct collet_span theirs = collet_blocks(shape, half->other_first, shape->size - half->count);
	if (is_sending) {
		struct collet_step step = collet_step_move(self, COLLET_SCRATCH, theirs, other, COLLET_SCRATCH, theirs);
		step.is_paired = true;
		return step;
	}
	const bool is_lower = half->first == 0;
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, is_lower ? self : other, COLLET_SCRATCH, ours);
	collet_step_add_source(&step, is_lower ? other : self, COLLET_SCRATCH, ours);
	collet_step_add_destination(&step, self, COLLET_SCRATCH, ours);
	step.is_reduction = true;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline struct collet_step reduce_scatter_halves_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_half half = collet_half_of(shape);
	const struct collet_peers self = collet_peers_self(shape), first = collet_peers_one(half.first);
	const struct collet_span block = collet_blocks(shape, 0, 1), own = collet_blocks(shape, shape->rank, 1);
	const struct collet_span all = collet_blocks(shape, 0, shape->size);
	if (shape->rank != half.first)
		return index == 0 ? collet_step_move(self, COLLET_INPUT, all, first, COLLET_SCRATCH, all)
				  : collet_step_move(first, COLLET_SCRATCH, own, self, COLLET_RESULT, block);
	if (index == 0) {
		struct collet_step step = collet_step_none();
		collet_step_add_source(&step, collet_peers_range(half.first, half.count), COLLET_INPUT, all);
		collet_step_add_destination(&step, self, COLLET_SCRATCH, all);
		step.is_reduction = half.count > 1;
		return step;
	}
	if (index < 3)
		return reduce_scatter_halves_exchange(shape, &half, index == 1);
	if (index == 3)
		return collet_step_move(self, COLLET_SCRATCH, own, self, COLLET_RESULT, block);
	return half.count == 1
		       ? collet_step_none()
		       : collet_step_send_each(shape, collet_half_others(&half), COLLET_SCRATCH, COLLET_RESULT, block);
}

COLLET_PURE static inline double reduce_scatter_halves_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double half = shape->size - shape->size / 2, rest = half - 1;
	const struct collet_cost_model in_half = collet_cost_in_half(shape, rest, model);
	return collet_cost_pipeline(1, collet_cost_blocks(shape, shape->size, element_bytes), segment_bytes, rest,
		       model->gamma_s, &in_half) +
	       collet_cost_pipeline(
		       1, collet_cost_blocks(shape, half, element_bytes), segment_bytes, 1, model->gamma_s, model) +
	       collet_cost_pipeline(1, collet_cost_blocks(shape, 1, element_bytes), segment_bytes, rest, 0, &in_half);
}

#endif
