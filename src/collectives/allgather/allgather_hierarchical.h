/* Hierarchical all-gather. Each host's first rank, its leader, collects its host's blocks. Leaders pass all blocks
 * around a ring of hosts, and send every block that they have to the ranks of their host, each rank's own included. So
 * each host sends and receives every block once, for any number of ranks per host. Hosts may have different numbers of
 * ranks.
 *
 * Cost (n ranks on h hosts with at most g each, blocks of b bytes): (h-1) alpha + (n-g) b beta between hosts and n
 * (g-1) b beta inside, one after the other, since a leader does both.
 * Use: several hosts with several ranks each, and expensive links.
 * Source: the gather and broadcast of Karonis et al. (2000), with a ring between hosts. */
#ifndef COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_HIERARCHICAL_H
#define COLLET_COLLECTIVES_ALLGATHER_ALLGATHER_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"

/* Returns true if the leader passes the block to the right: it does not originate there. */
COLLET_PURE static inline bool allgather_hierarchical_forwards(
	const struct collet_shape *shape, const struct collet_ring_turn *turn)
{
	return turn->round + 1 < collet_host_group_count(shape);
}

/* The inter-host part, run by a leader that has its host's blocks in RESULT. Received blocks are passed on inside the
 * host by other means than steps. */
COLLET_PURE static inline uint64_t allgather_hierarchical_inter_host_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_host_group_of(shape, shape->rank).first == shape->rank ? collet_ring_turn_count(shape) : 0;
}

COLLET_PURE static inline struct collet_step allgather_hierarchical_inter_host_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_ring_turn turn = collet_ring_turn_at(shape, &host, index, 0);
	struct collet_step step = collet_step_none();
	if (!turn.exists || (turn.round == 0 && !allgather_hierarchical_forwards(shape, &turn)))
		return step;
	const struct collet_span block = collet_partition_chunk(&shape->result, shape, turn.position);
	const struct collet_peers self = collet_peers_self(shape);
	collet_step_add_source(
		&step, turn.round == 0 ? self : collet_host_group_left(shape, &host), COLLET_RESULT, block);
	if (turn.round > 0)
		collet_step_add_destination(&step, self, COLLET_RESULT, block);
	if (allgather_hierarchical_forwards(shape, &turn))
		collet_step_add_destination(&step, collet_host_group_right(shape, &host), COLLET_RESULT, block);
	return step;
}

/* A rank that does not lead sends its block just before its turn. */
COLLET_PURE static inline uint64_t allgather_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_ring_turn_count(shape) + (collet_host_group_of(shape, shape->rank).first != shape->rank);
}

/* A leader's step: sends to the ranks of its host, and to the right, whose leader follows them in the order. */
COLLET_PURE static inline struct collet_step allgather_hierarchical_leader_step(
	const struct collet_shape *shape, const struct collet_host_group *host, const struct collet_ring_turn *turn)
{
	const struct collet_span block = collet_partition_chunk(&shape->result, shape, turn->position);
	const uint32_t others = host->count - 1 + allgather_hierarchical_forwards(shape, turn);
	struct collet_step step = collet_step_none();
	if (turn->round == 0)
		collet_step_add_source(
			&step, collet_peers_one(turn->position), COLLET_INPUT, collet_span_at(0, block.count));
	else
		collet_step_add_source(&step, collet_host_group_left(shape, host), COLLET_RESULT, block);
	collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, block);
	collet_step_add_destination(&step, collet_peers_range(shape->rank + 1, others), COLLET_RESULT, block);
	return step;
}

COLLET_PURE static inline struct collet_step allgather_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_peers leader = collet_peers_one(host.first), self = collet_peers_self(shape);
	const uint64_t own = (uint64_t)(shape->rank - host.first) * collet_host_group_count(shape);
	const bool is_leader = host.first == shape->rank;
	if (!is_leader && index == own) {
		const struct collet_span block = collet_partition_chunk(&shape->result, shape, shape->rank);
		return collet_step_move(
			self, COLLET_INPUT, collet_span_at(0, block.count), leader, COLLET_RESULT, block);
	}
	const struct collet_ring_turn turn = collet_ring_turn_at(shape, &host, index - (!is_leader && index > own), 0);
	if (!turn.exists)
		return collet_step_none();
	if (is_leader)
		return allgather_hierarchical_leader_step(shape, &host, &turn);
	const struct collet_span block = collet_partition_chunk(&shape->result, shape, turn.position);
	return collet_step_move(leader, COLLET_RESULT, block, self, COLLET_RESULT, block);
}

COLLET_PURE static inline double allgather_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double block = collet_cost_blocks(shape, 1, element_bytes), local = collet_host_group_max_size(shape);
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const double inside = local == 1 ? 0
					 : 2 * collet_cost_latency(in_host) +
						   (shape->size * (local - 1) + 1) *
							   collet_cost_port(1, block, segment_bytes, in_host);
	const double between = collet_ring_turn_latencies(shape) * collet_cost_latency(model) +
			       (shape->size - local) * collet_cost_port(1, block, segment_bytes, model);
	return inside + between;
}

#endif
