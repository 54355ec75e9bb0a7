/* Barrier in two halves. The first rank of each half waits for all ranks of its half, tells the other first rank, and
 * releases its half when it has heard the same from there.
 *
 * As in barrier_dissemination, steps wait for each other through scratch elements whose values nobody reads. On a first
 * rank, element 1 means "my half has arrived", element 2 "all have".
 *
 * Cost (n ranks, c = n/2 rounded up): 3 alpha + 2 (c-2) overhead; 2(n-1) messages, the least possible.
 * Use: where messages are expensive and half of the ranks share something, as with many ranks on two cores.
 * Source: barrier_hierarchical's, with two halves for hosts. */
#ifndef COLLET_COLLECTIVES_BARRIER_BARRIER_HALVES_H
#define COLLET_COLLECTIVES_BARRIER_BARRIER_HALVES_H

#include "collectives/cost.h"
#include "collectives/halves.h"

/* Up and across; across and down. */
COLLET_PURE static inline uint64_t barrier_halves_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 2;
}

COLLET_PURE static inline uint64_t barrier_halves_scratch(const struct collet_shape *shape)
{
	(void)shape;
	return 3;
}

COLLET_PURE static inline struct collet_step barrier_halves_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_half half = collet_half_of(shape);
	const struct collet_span own = collet_span_at(0, 1), ours = collet_span_at(1, 1), all = collet_span_at(2, 1);
	const struct collet_peers self = collet_peers_self(shape), first = collet_peers_one(half.first);
	if (shape->rank != half.first)
		return index == 0 ? collet_step_move(self, COLLET_SCRATCH, own, first, COLLET_SCRATCH, ours)
				  : collet_step_move(first, COLLET_SCRATCH, all, self, COLLET_SCRATCH, all);
	const struct collet_peers other = collet_peers_one(half.other_first);
	struct collet_step step = collet_step_none();
	if (index == 0) {
		collet_step_add_source(&step, collet_peers_range(half.first, half.count), COLLET_SCRATCH, own);
		collet_step_add_destination(&step, self, COLLET_SCRATCH, ours);
		collet_step_add_destination(&step, other, COLLET_SCRATCH, all);
		step.is_reduction = half.count > 1;
		return step;
	}
	collet_step_add_source(&step, self, COLLET_SCRATCH, ours);
	collet_step_add_source(&step, other, COLLET_SCRATCH, ours);
	collet_step_add_destination(&step, self, COLLET_SCRATCH, all);
	collet_step_add_destination(&step, collet_half_others(&half), COLLET_SCRATCH, all);
	step.is_reduction = true;
	return step;
}

COLLET_PURE static inline double barrier_halves_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	(void)element_bytes;
	const double fan = (double)(shape->size - shape->size / 2 - 1);
	const struct collet_cost_model in_half = collet_cost_in_half(shape, fan, model);
	return 2 * collet_cost_latency(&in_half) + 2 * collet_cost_port(fan, 0, segment_bytes, &in_half) +
	       collet_cost_latency(model) + 2 * collet_cost_port(1, 0, segment_bytes, model);
}

#endif
