/* Hierarchical broadcast. Each host has a leader: the root on its host, elsewhere the host's first rank. Leaders pass
 * on what they receive, segment by segment, down a binary tree of hosts, and send it to all ranks of their own host. If
 * hosts' first ranks lead in any case (leader_is_first), another root first sends to its host's first rank.
 *
 * Cost (hosts with at most g ranks): the tree over hosts with the inter-host model, and (g-1) m beta with the
 * intra-host model.
 * Use: several hosts with several ranks each.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
 * performance" (2000). */
#ifndef COLLET_COLLECTIVES_BROADCAST_BROADCAST_HIERARCHICAL_H
#define COLLET_COLLECTIVES_BROADCAST_BROADCAST_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"
#include "collectives/tree.h"

COLLET_PURE static inline struct collet_tree_node broadcast_hierarchical_node(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	return collet_tree_node_at(
		host->index, collet_host_group_count(shape), collet_host_group_of(shape, shape->root).index);
}

/* The inter-host part, where hosts' first ranks lead. The leader of the root's host has the elements in INPUT; the
 * others receive them in RESULT. They send to the host on the left, then to the one on the right. */
COLLET_PURE static inline uint64_t broadcast_hierarchical_inter_host_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return collet_host_group_leader(shape, collet_host_group_of(shape, shape->rank).index) == shape->rank ? 2 : 0;
}

COLLET_PURE static inline struct collet_step broadcast_hierarchical_inter_host_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_tree_node node = broadcast_hierarchical_node(shape, &host);
	const struct collet_peers parent = collet_host_group_leaders(shape, node.parent),
				  self = collet_peers_self(shape);
	const bool is_first = parent.count == 0;
	const struct collet_peers next = collet_host_group_leaders(shape, index == 1 ? node.right : node.left);
	if (is_first || index == 1)
		return collet_step_move(self, is_first ? COLLET_INPUT : COLLET_RESULT, all, next, COLLET_RESULT, all);
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, parent, COLLET_RESULT, all);
	collet_step_add_destination(&step, self, COLLET_RESULT, all);
	collet_step_add_destination(&step, next, COLLET_RESULT, all);
	return step;
}

/* A leader sends to other hosts first. Then it sends to the ranks of its own host, in two ranges: those after the rank
 * that had the elements first, and those before it. */
COLLET_PURE static inline uint64_t broadcast_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return collet_host_group_leader(shape, host.index) == shape->rank ? 4 : 1;
}

COLLET_PURE static inline struct collet_step broadcast_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const struct collet_peers self = collet_peers_self(shape);
	const struct collet_peers leader = collet_peers_one(collet_host_group_leader(shape, host.index));
	const bool is_leader = leader.first == shape->rank, is_root = shape->rank == shape->root;
	if (!is_leader && !is_root)
		return collet_step_move(leader, COLLET_RESULT, all, self, COLLET_RESULT, all);
	const uint32_t source = collet_host_group_has_root(shape, &host) ? shape->root : leader.first;
	const uint32_t end = host.first + host.count, low = host.first + (leader.first != source);
	if (index == 2)
		return collet_step_move(self, COLLET_RESULT, all, collet_peers_range(source + 1, end - 1 - source),
			COLLET_RESULT, all);
	if (index == 3)
		return collet_step_move(
			self, COLLET_RESULT, all, collet_peers_range(low, source - low), COLLET_RESULT, all);

	const struct collet_tree_node node = broadcast_hierarchical_node(shape, &host);
	if (index == 1)
		return collet_step_move(
			self, COLLET_RESULT, all, collet_host_group_leaders(shape, node.right), COLLET_RESULT, all);
	const struct collet_peers above =
		leader.first != source ? collet_peers_one(source) : collet_host_group_leaders(shape, node.parent);
	struct collet_step step = collet_step_none();
	collet_step_add_source(&step, is_root ? self : above, is_root ? COLLET_INPUT : COLLET_RESULT, all);
	collet_step_add_destination(&step, self, COLLET_RESULT, all);
	collet_step_add_destination(
		&step, is_leader ? collet_host_group_leaders(shape, node.left) : leader, COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double broadcast_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes), inside = collet_host_group_max_size(shape) - 1;
	const uint32_t hosts = collet_host_group_count(shape),
		       root_host = collet_host_group_of(shape, shape->root).index;
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const uint32_t levels = collet_tree_levels(hosts, root_host);
	const double in = inside == 0 ? 0 : collet_cost_pipeline(1, bytes, segment_bytes, inside, 0, in_host);
	const double between =
		levels == 0 ? 0 : collet_cost_pipeline(levels, bytes, segment_bytes, hosts > 3 ? 2 : 1, 0, model);
	return in + between;
}

#endif
