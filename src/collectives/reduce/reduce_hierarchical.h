/* Hierarchical reduce. Each host has a leader: the root on its host, elsewhere the host's first rank. A leader reduces,
 * in one pass, the elements of its host's ranks and what the leaders of two other hosts send, one before and one after
 * it in rank order. It passes the sum on towards the root: a binary tree of hosts, in rank order. If hosts' first ranks
 * lead in any case (leader_is_first), another root sends its elements to its host's first rank and receives the result
 * from it.
 *
 * Cost (hosts with at most g ranks): the tree over hosts with the inter-host model, and (g-1) m (beta + gamma) with the
 * intra-host model.
 * Use: several hosts with several ranks each.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
 * performance" (2000). */
#ifndef COLLET_COLLECTIVES_REDUCE_REDUCE_HIERARCHICAL_H
#define COLLET_COLLECTIVES_REDUCE_REDUCE_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"
#include "collectives/tree.h"

COLLET_PURE static inline struct collet_tree_node reduce_hierarchical_node(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	return collet_tree_node_at(
		host->index, collet_host_group_count(shape), collet_host_group_of(shape, shape->root).index);
}

/* A leader's step: reduces its host's elements, given by own, between those from hosts before and after it. */
COLLET_PURE static inline struct collet_step reduce_hierarchical_leader_step(const struct collet_shape *shape,
	const struct collet_host_group *host, struct collet_peers own, struct collet_peers result_owner)
{
	const struct collet_span all = collet_span_all(shape);
	const struct collet_tree_node node = reduce_hierarchical_node(shape, host);
	const bool is_last = node.parent.count == 0;
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, collet_host_group_leaders(shape, node.left), COLLET_INPUT, all);
	collet_step_add_source(&step, own, COLLET_INPUT, all);
	collet_step_add_source(&step, collet_host_group_leaders(shape, node.right), COLLET_INPUT, all);
	collet_step_add_destination(
		&step, is_last ? result_owner : collet_host_group_leaders(shape, node.parent), COLLET_RESULT, all);
	step.is_reduction = step.source_count > 1 || own.count > 1;
	step.is_final = is_last;
	return step;
}

/* The inter-host part, where hosts' first ranks lead. A leader has its host's sum in INPUT. The leader of the root's
 * host gets the total in RESULT. */
COLLET_PURE static inline uint64_t reduce_hierarchical_inter_host_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_host_group_leader(shape, collet_host_group_of(shape, shape->rank).index) == shape->rank;
}

COLLET_PURE static inline struct collet_step reduce_hierarchical_inter_host_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	(void)index;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return reduce_hierarchical_leader_step(shape, &host, collet_peers_self(shape), collet_peers_self(shape));
}

COLLET_PURE static inline uint64_t reduce_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const uint32_t leader = collet_host_group_leader(shape, collet_host_group_of(shape, shape->rank).index);
	return shape->rank == shape->root && shape->rank != leader ? 2 : 1;
}

COLLET_PURE static inline struct collet_step reduce_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_peers leader = collet_peers_one(collet_host_group_leader(shape, host.index));
	if (leader.first == shape->rank)
		return reduce_hierarchical_leader_step(
			shape, &host, collet_peers_range(host.first, host.count), collet_peers_one(shape->root));
	if (index == 1)
		return collet_step_move(leader, COLLET_INPUT, all, collet_peers_self(shape), COLLET_RESULT, all);
	struct collet_step step =
		collet_step_move(collet_peers_self(shape), COLLET_INPUT, all, leader, COLLET_RESULT, all);
	/* The exchange is paired because the leader can go on only when its result has left. */
	step.is_paired = shape->rank == shape->root;
	return step;
}

COLLET_PURE static inline double reduce_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes), inside = collet_host_group_max_size(shape) - 1;
	const uint32_t hosts = collet_host_group_count(shape),
		       root_host = collet_host_group_of(shape, shape->root).index;
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const uint32_t levels = collet_tree_levels(hosts, root_host);
	const double in =
		inside == 0 ? 0 : collet_cost_pipeline(1, bytes, segment_bytes, inside, model->gamma_s, in_host);
	const double between = levels == 0 ? 0
					   : collet_cost_pipeline(levels, bytes, segment_bytes, hosts > 3 ? 2 : 1,
						     model->gamma_s, model);
	return in + between;
}

#endif
