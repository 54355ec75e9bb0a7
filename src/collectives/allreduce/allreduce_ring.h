/* Ring all-reduce. The elements are cut into one chunk per rank. In the reduce-scatter phase, chunk c starts at rank c
 * + 1 and moves around to the right. Each rank adds its own elements; at rank c the chunk is finished. In the
 * all-gather phase the finished chunk moves around once more and every rank keeps it. Rank r starts with chunk r - 1.
 * Then it passes on what it receives from the left: chunks r - 2, r - 3, ..., r to be reduced, and then r - 1, r - 2,
 * ..., r + 1 finished.
 *
 * Cost (n ranks, m bytes): 2(n-1) alpha + 2(n-1)/n m beta + (n-1)/n m gamma. The least bytes possible, between
 * neighbours only, and n roundings.
 * Use: large messages. Between two ranks it would wait half of the time; exchange serves there.
 * Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_RING_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_RING_H

#include "collectives/cost.h"

COLLET_PURE static inline const char *allreduce_ring_refusal(const struct collet_shape *shape)
{
	return shape->size >= 3 ? NULL : "needs at least 3 ranks";
}

/* The start; size - 1 reducing steps; size - 1 keeping steps. */
COLLET_PURE static inline uint64_t allreduce_ring_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 2 * (uint64_t)shape->size - 1;
}

COLLET_PURE static inline struct collet_step allreduce_ring_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const bool is_reducing = index < shape->size;
	/* How far the chunk has moved. */
	const int64_t distance = 1 + (int64_t)index - (is_reducing ? 0 : shape->size);
	const struct collet_span chunk =
		collet_partition_chunk(&shape->result, shape, collet_position_at(shape, -distance));
	const struct collet_peers left = collet_peers_one(collet_position_at(shape, -1));
	const struct collet_peers right = collet_peers_one(collet_position_at(shape, 1));
	if (index == 0)
		return collet_step_move(collet_peers_self(shape), COLLET_INPUT, chunk, right, COLLET_RESULT, chunk);

	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, left, index == 1 ? COLLET_INPUT : COLLET_RESULT, chunk);
	if (is_reducing)
		collet_step_add_source(&step, collet_peers_self(shape), COLLET_INPUT, chunk);
	collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, chunk);
	if (index + 1 < allreduce_ring_step_count(shape, part))
		collet_step_add_destination(&step, right, COLLET_RESULT, chunk);
	step.is_reduction = is_reducing;
	step.is_final = index == shape->size - 1;
	return step;
}

COLLET_PURE static inline double allreduce_ring_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double chunk = collet_cost_chunk(shape, shape->size, element_bytes), rounds = shape->size - 1;
	return 2 * collet_cost_latencies(shape, rounds, false, model) +
	       rounds * (2 * collet_cost_port(1, chunk, segment_bytes, model) + chunk * model->gamma_s);
}

#endif
