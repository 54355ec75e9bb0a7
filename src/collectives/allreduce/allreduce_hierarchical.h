/* Hierarchical all-reduce. On each host, a binomial tree reduces all ranks' elements on the first rank, the leader. The
 * leaders all-reduce among themselves by recursive halving and doubling. The result goes down the hosts' trees. So each
 * host sends and receives as one rank would. Hosts may have different numbers of ranks. Sums are in rank order.
 *
 * Cost: the tree on the host with the most ranks, up and down, with the intra-host model; and halving_doubling between
 * as many ranks as there are hosts.
 * Use: several hosts with several ranks each.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
 * performance" (2000). */
#ifndef COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HIERARCHICAL_H
#define COLLET_COLLECTIVES_ALLREDUCE_ALLREDUCE_HIERARCHICAL_H

#include "collectives/allreduce/allreduce_halving_doubling.h"
#include "collectives/host_groups.h"

COLLET_PURE static inline bool hierarchical_is_leader(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	return shape->rank == host->first;
}

/* Returns the shape of the leaders' all-reduce, which works on RESULT alone. */
COLLET_PURE static inline struct collet_shape hierarchical_leaders_shape(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	struct collet_shape leaders = *shape;
	leaders.rank = host->index;
	leaders.size = collet_host_group_count(shape);
	leaders.order = 0;
	leaders.host_first = 0;
	leaders.host_count = 1;
	return leaders;
}

COLLET_PURE static inline struct collet_buffer_range hierarchical_map_range(
	const struct collet_shape *shape, struct collet_buffer_range range)
{
	assert(range.peers.count == 1);
	range.peers = collet_peers_one(collet_host_group_at(shape, range.peers.first).first);
	range.buffer = COLLET_RESULT;
	return range;
}

COLLET_PURE static inline uint64_t hierarchical_leaders_step_count(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	const struct collet_shape leaders = hierarchical_leaders_shape(shape, host);
	if (leaders.size == 1 || !hierarchical_is_leader(shape, host))
		return 0;
	return allreduce_halving_doubling_step_count(&leaders, 0);
}

COLLET_PURE static inline struct collet_step hierarchical_leaders_step(
	const struct collet_shape *shape, const struct collet_host_group *host, uint64_t index)
{
	const struct collet_shape leaders = hierarchical_leaders_shape(shape, host);
	struct collet_step step = allreduce_halving_doubling_step(&leaders, 0, index);
	for (uint32_t i = 0; i < step.source_count; i++)
		step.source[i] = hierarchical_map_range(shape, step.source[i]);
	for (uint32_t i = 0; i < step.destination_count; i++)
		step.destination[i] = hierarchical_map_range(shape, step.destination[i]);
	return step;
}

/* The inter-host part, run by a leader that has its host's sum in RESULT. The result is passed on inside the host by
 * other means than steps. */
COLLET_PURE static inline uint64_t allreduce_hierarchical_inter_host_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return hierarchical_leaders_step_count(shape, &host);
}

COLLET_PURE static inline struct collet_step allreduce_hierarchical_inter_host_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return hierarchical_leaders_step(shape, &host, index);
}

COLLET_PURE static inline uint64_t allreduce_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return 2 + hierarchical_leaders_step_count(shape, &host);
}

COLLET_PURE static inline struct collet_step allreduce_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const uint64_t between = hierarchical_leaders_step_count(shape, &host);
	if (index > 0 && index <= between)
		return hierarchical_leaders_step(shape, &host, index - 1);

	const bool is_leader = hierarchical_is_leader(shape, &host);
	const uint32_t node = shape->rank - host.first;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_peers up = is_leader ? self : collet_peers_one(host.first + collet_binomial_parent(node));
	const struct collet_peers children =
		collet_binomial_peers(shape->rank, collet_binomial_children(node, host.count));
	struct collet_step step = collet_step_none();
	if (index == 0) {
		collet_step_add_source(&step, self, COLLET_INPUT, all);
		collet_step_add_source(&step, children, COLLET_INPUT, all);
		collet_step_add_destination(&step, up, COLLET_RESULT, all);
		step.is_reduction = children.count > 0;
		step.is_final = is_leader && collet_host_group_count(shape) == 1;
		return step;
	}
	if (is_leader)
		return collet_step_move(self, COLLET_RESULT, all, children, COLLET_RESULT, all);
	collet_step_add_source(&step, up, COLLET_RESULT, all);
	collet_step_add_destination(&step, self, COLLET_RESULT, all);
	collet_step_add_destination(&step, children, COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double allreduce_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes);
	const uint32_t local = collet_host_group_max_size(shape);
	const struct collet_cost_model *in_host = collet_cost_local(model);
	return collet_cost_binomial(local, bytes, segment_bytes, true, in_host) +
	       halving_doubling_cost(collet_host_group_count(shape), bytes, segment_bytes, 1, model) +
	       collet_cost_binomial(local, bytes, segment_bytes, false, in_host);
}

#endif
