/* Hierarchical broadcast. Each host has a leader: the root where it is, elsewhere the host's first rank. Leaders
 * hand on what comes, piece by piece, down a binary tree of hosts, and send it to all ranks of their own host.
 *
 * Cost, of hosts with at most g ranks: the tree's over hosts with the model between hosts, and (g-1) m beta with the
 * one inside. So: for several hosts with several ranks each.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
 * performance" (2000). */
#ifndef COLLET_COLLECTIVES_BROADCAST_HIERARCHICAL_H
#define COLLET_COLLECTIVES_BROADCAST_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/hosts.h"
#include "collectives/tree.h"

/* To other hosts first; then to the ranks of the own host after the leader, and before it. */
COLLET_PURE static inline uint64_t broadcast_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_host host = collet_host_of(shape, shape->rank);
	return collet_host_leader(shape, host.index) == shape->rank ? 4 : 1;
}

COLLET_PURE static inline struct collet_step broadcast_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_span all = collet_span_all(shape);
	const struct collet_host host = collet_host_of(shape, shape->rank);
	const struct collet_peers self = collet_self(shape);
	const struct collet_peers leader = collet_peer(collet_host_leader(shape, host.index));
	const uint32_t before = leader.first - host.first;
	if (leader.first != shape->rank)
		return collet_move(leader, COLLET_RESULT, all, self, COLLET_RESULT, all);
	if (index == 2)
		return collet_move(self, COLLET_RESULT, all,
			collet_peers_range(leader.first + 1, host.count - 1 - before), COLLET_RESULT, all);
	if (index == 3)
		return collet_move(
			self, COLLET_RESULT, all, collet_peers_range(host.first, before), COLLET_RESULT, all);

	const struct collet_tree_node node =
		collet_tree_at(host.index, collet_host_count(shape), collet_host_of(shape, shape->root).index);
	const bool is_root = shape->rank == shape->root;
	if (index == 1)
		return collet_move(
			self, COLLET_RESULT, all, collet_host_leaders(shape, node.right), COLLET_RESULT, all);
	struct collet_step step = collet_step_none();
	collet_step_from(&step, is_root ? self : collet_host_leaders(shape, node.parent),
		is_root ? COLLET_INPUT : COLLET_RESULT, all);
	collet_step_to(&step, self, COLLET_RESULT, all);
	collet_step_to(&step, collet_host_leaders(shape, node.left), COLLET_RESULT, all);
	return step;
}

COLLET_PURE static inline double broadcast_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t piece_bytes, const struct collet_cost_model *model)
{
	const double bytes = collet_cost_chunk(shape, 1, element_bytes), inside = collet_host_fullest(shape) - 1;
	const uint32_t hosts = collet_host_count(shape), root_host = collet_host_of(shape, shape->root).index;
	const struct collet_cost_model *in_host = collet_cost_local(model);
	const uint32_t levels = collet_tree_levels(hosts, root_host);
	const double in = inside == 0 ? 0 : collet_cost_pipeline(1, bytes, piece_bytes, inside, 0, in_host);
	const double between =
		levels == 0 ? 0 : collet_cost_pipeline(levels, bytes, piece_bytes, hosts > 3 ? 2 : 1, 0, model);
	return in + between;
}

#endif
