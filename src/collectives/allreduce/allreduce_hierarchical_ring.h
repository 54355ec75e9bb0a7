/* Hierarchical ring all-reduce. The elements are cut into one share per leader, and each share into one chunk per host.
 * The leaders of a host are its first ranks: as many on each host as the host with the fewest ranks has, at most eight.
 * The leaders of one share form a ring over hosts, as in allreduce_ring. But a leader adds the elements of all ranks of
 * its host in one pass, and sends finished chunks to all of them. Shares are independent parts.
 *
 * Each host sends and receives 2(h-1)/h m bytes over the network. A ring over all n ranks sends 2(n-1)/n m through each
 * host's link. There are 2(h-1) latencies over the network instead of 2(n-1).
 *
 * Cost (h hosts with g leaders of g ranks, c = m / (g h)): 2(h-1) (alpha + c beta) between hosts; inside, 2 h (g-1) c
 * beta and (h g - 1) c gamma. Leaders share their host's link (total_work.h).
 * Use: large messages of several hosts with several ranks each.
 * Source: Cho, Finkler, Serrano, Kung, Hunter, "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
 * network hierarchy" (2019), with direct exchanges inside. */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HIERARCHICAL_RING_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HIERARCHICAL_RING_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"

enum { HIERARCHICAL_RING_LEADERS = 8 };

COLLET_PURE static inline uint32_t allreduce_hierarchical_ring_part_count(const struct collet_shape *shape)
{
	const uint32_t least = collet_host_group_min_size(shape), most = HIERARCHICAL_RING_LEADERS;
	return least < most ? least : most;
}

/* Returns the chunk of the part's share that a host handles in round s: reducing in 0 .. h-1, keeping in h .. 2h-2. */
COLLET_PURE static inline struct collet_span hierarchical_ring_chunk(
	const struct collet_shape *shape, uint32_t part, uint32_t host, uint32_t round)
{
	const uint32_t hosts = collet_host_group_count(shape), back = round < hosts ? 1 + round : 1 + round - hosts;
	return collet_span_even(shape->count, allreduce_hierarchical_ring_part_count(shape) * hosts,
		part * hosts + (host + hosts - back) % hosts);
}

/* Returns the leader of this part on the host that many further on. */
COLLET_PURE static inline struct collet_peers hierarchical_ring_leader(
	const struct collet_shape *shape, uint32_t part, uint32_t host, uint32_t further)
{
	return collet_peers_one(
		collet_host_group_at(shape, (host + further) % collet_host_group_count(shape)).first + part);
}

/* A leader: one step per round, then one per chunk to broadcast it. Others of its host: a send per reducing round, then
 * a receive per chunk. */
COLLET_PURE static inline uint64_t allreduce_hierarchical_ring_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const uint64_t hosts = collet_host_group_count(shape);
	return shape->rank == host.first + part ? 3 * hosts - 1 : 2 * hosts;
}

/* Adds this host's elements to what comes from the left, and sends the sum to the right. */
COLLET_PURE static inline struct collet_step hierarchical_ring_round_step(
	const struct collet_shape *shape, uint32_t part, const struct collet_host_group *host, uint32_t round)
{
	const uint32_t hosts = collet_host_group_count(shape);
	const struct collet_span chunk = hierarchical_ring_chunk(shape, part, host->index, round);
	const bool is_reducing = round < hosts;
	struct collet_step step = collet_step_none();
	if (round > 0)
		collet_step_add_source(&step, hierarchical_ring_leader(shape, part, host->index, hosts - 1),
			round == 1 ? COLLET_INPUT : COLLET_RESULT, chunk);
	if (is_reducing)
		collet_step_add_source(&step, collet_peers_range(host->first, host->count), COLLET_INPUT, chunk);
	if (round > 0 || hosts == 1)
		collet_step_add_destination(&step, collet_peers_self(shape), COLLET_RESULT, chunk);
	if (round + 2 < 2 * hosts)
		collet_step_add_destination(
			&step, hierarchical_ring_leader(shape, part, host->index, 1), COLLET_RESULT, chunk);
	step.is_reduction = is_reducing && (round > 0 || host->count > 1);
	step.is_final = round == hosts - 1;
	return step;
}

/* Sends to the ranks of the host after the leader, and to those before it. */
COLLET_PURE static inline struct collet_step hierarchical_ring_broadcast_step(
	const struct collet_shape *shape, uint32_t part, const struct collet_host_group *host, uint32_t round)
{
	const struct collet_span chunk = hierarchical_ring_chunk(shape, part, host->index, round);
	struct collet_step step = collet_step_none();
	if (host->count == 1)
		return step;
	collet_step_add_source(&step, collet_peers_self(shape), COLLET_RESULT, chunk);
	collet_step_add_destination(
		&step, collet_peers_range(shape->rank + 1, host->count - 1 - part), COLLET_RESULT, chunk);
	collet_step_add_destination(&step, collet_peers_range(host->first, part), COLLET_RESULT, chunk);
	return step;
}

COLLET_PURE static inline struct collet_step allreduce_hierarchical_ring_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const uint32_t hosts = collet_host_group_count(shape), i = (uint32_t)index;
	const struct collet_peers leader = collet_peers_one(host.first + part), self = collet_peers_self(shape);
	if (leader.first == shape->rank) {
		/* Broadcast after all rounds: between rounds it would separate two rounds by more items than the
		 * look-ahead, and all leaders could wait for their right neighbours. */
		return i < 2 * hosts - 1 ? hierarchical_ring_round_step(shape, part, &host, i)
					 : hierarchical_ring_broadcast_step(shape, part, &host, i - hosts);
	}
	const bool is_sending = i < hosts;
	const struct collet_span chunk = hierarchical_ring_chunk(shape, part, host.index, is_sending ? i : i - 1);
	return is_sending ? collet_step_move(self, COLLET_INPUT, chunk, leader, COLLET_RESULT, chunk)
			  : collet_step_move(leader, COLLET_RESULT, chunk, self, COLLET_RESULT, chunk);
}

COLLET_PURE static inline double allreduce_hierarchical_ring_cost(const struct collet_shape *shape,
	size_t element_bytes, size_t segment_bytes, const struct collet_cost_model *model)
{
	const uint32_t leaders = allreduce_hierarchical_ring_part_count(shape);
	const double hosts = collet_host_group_count(shape), local = collet_host_group_max_size(shape) - 1;
	const double chunk = collet_cost_chunk(shape, leaders * collet_host_group_count(shape), element_bytes);
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const double between = 2 * (hosts - 1) *
			       (collet_cost_latency(model) + collet_cost_port(1, chunk, segment_bytes, model));
	/* A leader receives the elements of all ranks and broadcasts the finished ones. */
	const double inside =
		local == 0 ? 0
			   : 2 * collet_cost_latency(in_host) +
				     2 * hosts * collet_cost_port(local, chunk, segment_bytes, in_host);
	return between + inside + (hosts * (local + 1) - 1) * chunk * model->gamma_s;
}

#endif
