/* Hierarchical barrier. Each host's first rank waits for all other ranks of its host. Then it tells the first ranks of
 * hosts 1, 2, 4, ... further on, as barrier_dissemination does with ranks, and releases its host.
 *
 * Steps wait for each other through scratch elements whose values nobody reads, as there. On a first rank, element 1
 * means "my host has arrived", and element 1 + k is what it has heard by round k.
 *
 * Cost (h hosts of g ranks): 2 (alpha + (g-2) overhead) inside and log2(h) alpha between hosts.
 * Use: several hosts with several ranks each, where latency between hosts is expensive.
 * Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988), between hosts. */
#ifndef COLLET_COLLECTIVES_BARRIER_BARRIER_HIERARCHICAL_H
#define COLLET_COLLECTIVES_BARRIER_BARRIER_HIERARCHICAL_H

#include "collectives/cost.h"
#include "collectives/host_groups.h"

COLLET_PURE static inline uint32_t barrier_hierarchical_rounds(const struct collet_shape *shape)
{
	return collet_log2_ceil(collet_host_group_count(shape));
}

/* A first rank: waiting for its host; a send and a receive per round; the release. Others: a send, and the release. */
COLLET_PURE static inline uint64_t barrier_hierarchical_step_count(const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	return shape->rank == host.first ? 2 + 2 * (uint64_t)barrier_hierarchical_rounds(shape) : 2;
}

COLLET_PURE static inline uint64_t barrier_hierarchical_scratch(const struct collet_shape *shape)
{
	return 2 + (uint64_t)barrier_hierarchical_rounds(shape);
}

COLLET_PURE static inline struct collet_peers barrier_hierarchical_first(
	const struct collet_shape *shape, uint32_t host, uint32_t further)
{
	return collet_peers_one(collet_host_group_at(shape, (host + further) % collet_host_group_count(shape)).first);
}

COLLET_PURE static inline struct collet_step barrier_hierarchical_round_step(
	const struct collet_shape *shape, const struct collet_host_group *host, uint32_t round, bool is_sending)
{
	const uint32_t hops = (uint32_t)1 << round, hosts = collet_host_group_count(shape);
	const struct collet_span sent = collet_span_at(1 + round, 1), received = collet_span_at(2 + round, 1);
	const struct collet_peers self = collet_peers_self(shape);
	if (is_sending) {
		struct collet_step step = collet_step_move(self, COLLET_SCRATCH, sent,
			barrier_hierarchical_first(shape, host->index, hops), COLLET_SCRATCH, received);
		step.is_paired = true;
		return step;
	}
	struct collet_step step = collet_step_move(barrier_hierarchical_first(shape, host->index, hosts - hops),
		COLLET_SCRATCH, sent, self, COLLET_SCRATCH, received);
	collet_step_add_source(&step, self, COLLET_SCRATCH, sent);
	step.is_reduction = true;
	return step;
}

COLLET_PURE static inline struct collet_step barrier_hierarchical_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_host_group host = collet_host_group_of(shape, shape->rank);
	const uint32_t rounds = barrier_hierarchical_rounds(shape);
	const struct collet_span arrived = collet_span_at(0, 1), all = collet_span_at(1, 1),
				 last = collet_span_at(1 + rounds, 1);
	const struct collet_peers self = collet_peers_self(shape), first = collet_peers_one(host.first);
	if (shape->rank != host.first)
		return index == 0 ? collet_step_move(self, COLLET_SCRATCH, arrived, first, COLLET_SCRATCH, all)
				  : collet_step_move(first, COLLET_SCRATCH, last, self, COLLET_SCRATCH, all);
	if (index == 0) {
		struct collet_step step = collet_step_move(
			collet_peers_range(host.first, host.count), COLLET_SCRATCH, arrived, self, COLLET_SCRATCH, all);
		step.is_reduction = host.count > 1;
		return step;
	}
	if (index == 1 + 2 * (uint64_t)rounds)
		return collet_step_move(self, COLLET_SCRATCH, last, collet_peers_range(host.first + 1, host.count - 1),
			COLLET_SCRATCH, all);
	return barrier_hierarchical_round_step(shape, &host, (uint32_t)(index - 1) / 2, index % 2 == 1);
}

COLLET_PURE static inline double barrier_hierarchical_cost(const struct collet_shape *shape, size_t element_bytes,
	size_t segment_bytes, const struct collet_cost_model *model)
{
	(void)element_bytes;
	const uint32_t others = collet_host_group_max_size(shape) - 1;
	const double inside =
		others == 0 ? 0 : collet_cost_pipeline(1, 0, segment_bytes, others, 0, collet_cost_local(model));
	return 2 * inside + barrier_hierarchical_rounds(shape) * collet_cost_pipeline(1, 0, segment_bytes, 1, 0, model);
}

#endif
