/* All-reduce between two ranks. Each rank sends the other one that rank's half, reduces its own half (lower rank
 * first), keeps it and sends it back: two_shot at world size 2, without lists of peers.
 *
 * Cost (m bytes): 2 alpha + m beta + m/2 gamma.
 * Use: world size 2, except for messages so small that direct wins with its one latency.
 * Source: Rabenseifner, "Optimization of collective reduction operations" (2004), at n = 2. */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_EXCHANGE_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_EXCHANGE_H

#include "collectives/cost.h"

COLLET_PURE static inline const char *allreduce_exchange_refusal(const struct collet_shape *shape)
{
	return shape->size == 2 ? NULL : "needs exactly 2 ranks";
}

COLLET_PURE static inline uint64_t allreduce_exchange_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)shape;
	(void)part;
	return 3;
}

COLLET_PURE static inline struct collet_step allreduce_exchange_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape), peer = collet_peers_one(1 - shape->rank);
	const struct collet_span mine = collet_partition_chunk(&shape->result, shape, shape->rank);
	const struct collet_span theirs = collet_partition_chunk(&shape->result, shape, 1 - shape->rank);
	if (index == 0)
		return collet_step_move(self, COLLET_INPUT, theirs, peer, COLLET_RESULT, theirs);
	if (index == 2)
		return collet_step_move(peer, COLLET_RESULT, theirs, self, COLLET_RESULT, theirs);
	struct collet_step step =
		collet_step_move(collet_peers_all(shape), COLLET_INPUT, mine, self, COLLET_RESULT, mine);
	collet_step_add_destination(&step, peer, COLLET_RESULT, mine);
	step.is_reduction = true;
	step.is_final = true;
	return step;
}

COLLET_PURE static inline double allreduce_exchange_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double half = collet_cost_chunk(shape, 2, element_bytes);
	return 2 * collet_cost_latency(model) + 2 * collet_cost_port(1, half, segment_bytes, model) +
	       half * model->gamma_s;
}

#endif
