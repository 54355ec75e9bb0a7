/* Pairwise all-to-all. In round s = 0 .. n-1 rank r exchanges blocks with rank s - r (modulo n). So each pair meets
 * once, and every rank has a partner in every round (in some rounds itself). In place, a block arrives exactly where
 * the outgoing one is. A rank needs to know no counts but its own.
 *
 * Cost (n ranks, blocks of b bytes): (n-1) (alpha/5 + b beta). The least bytes; an executor looks ahead, so that few
 * rounds wait.
 * Use: large blocks, and v-forms.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005); the
 * pairing: round-robin tournaments. */
#ifndef COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_PAIRWISE_H
#define COLLET_COLLECTIVES_ALLTOALL_ALLTOALL_PAIRWISE_H

#include "collectives/cost.h"

/* A send and a receive per round. */
COLLET_PURE static inline uint64_t alltoall_pairwise_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return 2 * (uint64_t)shape->size;
}

COLLET_PURE static inline struct collet_step alltoall_pairwise_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const uint32_t partner = collet_position_at(shape, (int64_t)(index / 2) - 2 * (int64_t)shape->rank);
	const bool is_sending = index % 2 == 0;
	const struct collet_peers self = collet_peers_self(shape), peer = collet_peers_one(partner);
	const struct collet_span sent = collet_partition_chunk(&shape->input, shape, partner);
	const struct collet_span received = collet_partition_chunk(&shape->result, shape, partner);
	const uint64_t remote_first = collet_span_on_peer(shape, &shape->input, 0).first;
	if (partner == shape->rank)
		return is_sending ? collet_step_move(self, COLLET_INPUT, sent, self, COLLET_RESULT, received)
				  : collet_step_none();
	struct collet_step step =
		is_sending ? collet_step_move(self, COLLET_INPUT, sent, peer, COLLET_RESULT,
				     collet_span_at(remote_first, sent.count))
			   : collet_step_move(peer, COLLET_INPUT, collet_span_at(remote_first, received.count), self,
				     COLLET_RESULT, received);
	step.is_paired = is_sending;
	return step;
}

COLLET_PURE static inline double alltoall_pairwise_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double rounds = shape->size - 1;
	if (shape->size == 1)
		return 0;
	const struct collet_cost_model mean = collet_cost_to_all(shape, model);
	const double waits = rounds / (COLLET_LOOKAHEAD + 1);
	return (waits > 1 ? waits : 1) * collet_cost_latency(&mean) +
	       collet_cost_port(rounds, collet_cost_blocks(shape, 1, element_bytes), segment_bytes, &mean);
}

#endif
