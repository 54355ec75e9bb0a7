/* All-reduce in two halves. The first rank of each half reduces the elements of its half in one pass. The two first
 * ranks exchange these sums, and send the total to their halves.
 *
 * Cost (n ranks, m bytes, c = n/2 rounded up): 3 alpha + 2(c-2) overhead + (2c-1) m beta + c m gamma. Not the fewest
 * bytes on a link, but 2(n-1) messages in all, as few as a tree's, and all but two of them inside the halves.
 * Use: where messages are expensive and half of the ranks share something, as with many ranks on two cores. A core then
 * switches once to each of its ranks, and each rank's values go up and down once.
 * Source: the two-level reduce and broadcast of Karonis et al. (2000), with two flat groups. */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HALVES_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HALVES_H

#include "collectives/cost.h"
#include "collectives/halves.h"

/* Up and across; across and down. */
COLLET_PURE static inline uint64_t allreduce_halves_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 2;
}

COLLET_PURE static inline struct collet_step allreduce_halves_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_half half = collet_half_of(shape);
	const struct collet_span all = collet_span_all(shape);
	const struct collet_peers self = collet_peers_self(shape), first = collet_peers_one(half.first);
	if (shape->rank != half.first)
		return index == 0 ? collet_step_move(self, COLLET_INPUT, all, first, COLLET_RESULT, all)
				  : collet_step_move(first, COLLET_RESULT, all, self, COLLET_RESULT, all);
	const struct collet_peers other = collet_peers_one(half.other_first);
	struct collet_step step = collet_step_none();
	if (index == 0) {
		collet_step_add_source(&step, collet_peers_range(half.first, half.count), COLLET_INPUT, all);
		collet_step_add_destination(&step, self, COLLET_RESULT, all);
		collet_step_add_destination(&step, other, COLLET_RESULT, all);
		step.is_reduction = half.count > 1;
		return step;
	}
	const bool is_lower = half.first == 0;
	collet_step_add_source(&step, is_lower ? self : other, COLLET_RESULT, all);
	collet_step_add_source(&step, is_lower ? other : self, COLLET_RESULT, all);
	collet_step_add_destination(&step, self, COLLET_RESULT, all);
	collet_step_add_destination(&step, collet_peers_range(half.first + 1, half.count - 1), COLLET_RESULT, all);
	step.is_reduction = true;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline double allreduce_halves_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes),
		     fan = (double)(shape->size - shape->size / 2 - 1);
	const double segments = collet_cost_segments(bytes, segment_bytes);
	const struct collet_cost_model in_half = collet_cost_in_half(shape, fan, model);
	const double message = collet_cost_port(1, bytes, segment_bytes, &in_half) / segments;
	const double across = collet_cost_port(1, bytes, segment_bytes, model) / segments;
	const double work = model->gamma_s * bytes / segments;
	/* A first rank is limited by its receive port or by its send port. */
	const double in = fan * (message + work) + across + work, out = fan * message + across;
	return collet_cost_latency(model) + 2 * collet_cost_latency(&in_half) + in + out +
	       (segments - 1) * (in > out ? in : out);
}

#endif
