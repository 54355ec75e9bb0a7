/* Hierarchical reduce-scatter. A block's sum starts at the host after its owner's and goes around a ring of hosts to
 * the owner's host. On each host the first rank, its leader, adds the elements of all ranks of the host to what it
 * receives from the left, in one pass. The last leader sends the block to its owner. So each host sends and receives
 * every foreign block once, for any number of ranks per host. Hosts may have different numbers of ranks.
 *
 * Order of operands: hosts from the one after the owner's around to the owner's, and ranks in order within each.
 *
 * Cost (n ranks on h hosts with at most g each, blocks of b bytes): (h-1) alpha + (n-g) b (beta + gamma) between hosts
 * and n (g-1) b (beta + gamma) inside, one after the other, since a leader does both.
 * Use: several hosts with several ranks each, and expensive links.
 * Source: Cho et al., "BlueConnect" (2019), with one leader per host. */
#ifndef COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HIERARCHICAL_H
#define COLLET_COLLECTIVES_REDUCE_SCATTER_REDUCE_SCATTER_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"

/* A leader's step: reduces its host's elements, given by own, and those from the left. Sends the sum to the right, or,
 * when finished, to the block's owner. */
COLLET_PURE static inline struct collet_step reduce_scatter_hierarchical_leader_step(const struct collet_shape *shape,
	const struct collet_host_group *host, const struct collet_ring_turn *turn, struct collet_peers own,
	struct collet_peers result_owner, struct collet_span place)
{
	const struct collet_span block = collet_partition_chunk(&shape->input, shape, turn->position);
	const bool is_last = turn->round + 1 == collet_host_group_count(shape);
	struct collet_step step = collet_step_none();
	if (turn->round > 0)
		collet_step_add_source(&step, collet_host_group_left(shape, host), COLLET_INPUT, block);
	collet_step_add_source(&step, own, COLLET_INPUT, block);
	collet_step_add_destination(&step, is_last ? result_owner : collet_host_group_right(shape, host), COLLET_RESULT,
		is_last ? place : block);
	step.is_reduction = turn->round > 0 || own.count > 1;
	step.is_final = is_last;
	return step;
}

/* The inter-host part, run by a leader that has its host's sums in INPUT. It gets its host's blocks in RESULT, at the
 * places that they have in INPUT. */
COLLET_PURE static inline uint64_t reduce_scatter_hierarchical_inter_host_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_host_group_of(shape, shape->rank).first == shape->rank ? collet_ring_turn_count(shape) : 0;
}

COLLET_PURE static inline struct collet_step reduce_scatter_hierarchical_inter_host_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_ring_turn turn = collet_ring_turn_at(shape, &host, index, 1);
	const struct collet_peers self = collet_peers_self(shape);
	if (!turn.exists)
		return collet_step_none();
	return reduce_scatter_hierarchical_leader_step(
		shape, &host, &turn, self, self, collet_partition_chunk(&shape->input, shape, turn.position));
}

/* A rank that does not lead receives its block just after its turn. */
COLLET_PURE static inline uint64_t reduce_scatter_hierarchical_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_ring_turn_count(shape) + (collet_host_group_of(shape, shape->rank).first != shape->rank);
}

COLLET_PURE static inline struct collet_step reduce_scatter_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_peers leader = collet_peers_one(host.first), self = collet_peers_self(shape);
	const struct collet_span all = collet_span_all(shape);
	const uint64_t own = (uint64_t)(shape->rank - host.first + 1) * collet_host_group_count(shape);
	const bool is_leader = host.first == shape->rank;
	if (!is_leader && index == own)
		return collet_step_move(leader, COLLET_INPUT, collet_partition_chunk(&shape->input, shape, shape->rank),
			self, COLLET_RESULT, all);
	const struct collet_ring_turn turn = collet_ring_turn_at(shape, &host, index - (!is_leader && index > own), 1);
	if (!turn.exists)
		return collet_step_none();
	if (is_leader)
		return reduce_scatter_hierarchical_leader_step(shape, &host, &turn,
			collet_peers_range(host.first, host.count), collet_peers_one(turn.position), all);
	const struct collet_span block = collet_partition_chunk(&shape->input, shape, turn.position);
	return collet_step_move(self, COLLET_INPUT, block, leader, COLLET_RESULT, block);
}

COLLET_PURE static inline double reduce_scatter_hierarchical_cost(const struct collet_shape *shape,
	size_t element_bytes, size_t segment_bytes, const struct collet_cost_model *model)
{
	const double block = collet_cost_blocks(shape, 1, element_bytes), local = collet_host_group_max_size(shape);
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const double work = block * model->gamma_s;
	const double inside = local == 1 ? 0
					 : 2 * collet_cost_latency(in_host) +
						   collet_cost_port(1, block, segment_bytes, in_host) +
						   shape->size * (local - 1) *
							   (collet_cost_port(1, block, segment_bytes, in_host) + work);
	const double between = collet_ring_turn_latencies(shape) * collet_cost_latency(model) +
			       (shape->size - local) * (collet_cost_port(1, block, segment_bytes, model) + work);
	return inside + between;
}

#endif
