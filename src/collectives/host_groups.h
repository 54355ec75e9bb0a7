/* The ranks of each host, which have consecutive positions, and each host's leader. */
#ifndef COLLET_COLLECTIVES_HOST_GROUPS_H
#define COLLET_COLLECTIVES_HOST_GROUPS_H

#include "collectives/step_builder.h"

struct collet_host_group {
	uint32_t index;
	uint32_t first; /* position */
	uint32_t count; /* number of ranks */
};

COLLET_PURE static inline uint32_t collet_host_group_count(const struct collet_shape *shape)
{
	return shape->host_first ? shape->host_count : 1;
}

COLLET_PURE static inline struct collet_host_group collet_host_group_at(
	const struct collet_shape *shape, uint32_t index)
{
	struct collet_host_group host = {0, 0, shape->size};
	if (shape->host_first) {
		host.index = index;
		host.first = shape->host_first[index];
		host.count = shape->host_first[index + 1] - host.first;
	}
	return host;
}

COLLET_PURE static inline struct collet_host_group collet_host_group_of(
	const struct collet_shape *shape, uint32_t position)
{
	uint32_t low = 0, high = collet_host_group_count(shape);
	while (high - low > 1) {
		const uint32_t middle = low + (high - low) / 2;
		if (shape->host_first[middle] <= position)
			low = middle;
		else
			high = middle;
	}
	return collet_host_group_at(shape, low);
}

COLLET_PURE static inline bool collet_host_group_has_root(
	const struct collet_shape *shape, const struct collet_host_group *host)
{
	return shape->root >= host->first && shape->root - host->first < host->count;
}

/* Returns the rank that communicates with other hosts: the root if it is on this host and may lead, else the first
 * rank. */
COLLET_PURE static inline uint32_t collet_host_group_leader(const struct collet_shape *shape, uint32_t index)
{
	const struct collet_host_group host = collet_host_group_at(shape, index);
	return collet_host_group_has_root(shape, &host) && !shape->leader_is_first ? shape->root : host.first;
}

/* Returns the leader of a neighbour in a tree over hosts; empty if there is no neighbour. */
COLLET_PURE static inline struct collet_peers collet_host_group_leaders(
	const struct collet_shape *shape, struct collet_peers host)
{
	return host.count == 0 ? host : collet_peers_one(collet_host_group_leader(shape, host.first));
}

/* One turn of a ring over hosts, in which blocks go from leader to leader; each host's first rank leads. Every leader
 * has the same turns: one block of each host in a row, beginning with the host a given number before its own, then the
 * next block of each. So what one leader sends, another receives at most one turn later, which is within the look-ahead
 * for any number of segments per block. Hosts with fewer ranks skip some turns. */
struct collet_ring_turn {
	bool exists;
	uint32_t position; /* owner of the block */
	uint32_t round;    /* 0 .. number of hosts - 1 */
};

COLLET_PURE static inline struct collet_ring_turn collet_ring_turn_at(
	const struct collet_shape *shape, const struct collet_host_group *own, uint64_t index, uint32_t before)
{
	const uint32_t hosts = collet_host_group_count(shape), column = (uint32_t)(index / hosts);
	const uint32_t round = (uint32_t)(index % hosts), back = (round + before) % hosts;
	const struct collet_host_group host = collet_host_group_at(shape, (own->index + hosts - back) % hosts);
	const struct collet_ring_turn turn = {column < host.count, host.first + column, round};
	return turn;
}

/* Return the leaders of the hosts before and after this one. */
COLLET_PURE static inline struct collet_peers collet_host_group_left(
	const struct collet_shape *shape, const struct collet_host_group *own)
{
	const uint32_t hosts = collet_host_group_count(shape);
	return collet_peers_one(collet_host_group_at(shape, (own->index + hosts - 1) % hosts).first);
}

COLLET_PURE static inline struct collet_peers collet_host_group_right(
	const struct collet_shape *shape, const struct collet_host_group *own)
{
	return collet_peers_one((own->first + own->count) % shape->size);
}

/* Returns the number of ranks on the host with the most. */
COLLET_PURE static inline uint32_t collet_host_group_max_size(const struct collet_shape *shape)
{
	uint32_t most = shape->host_first ? shape->host_most : 0;
	if (most > 0)
		return most;
	for (uint32_t i = 0; i < collet_host_group_count(shape); i++) {
		const uint32_t count = collet_host_group_at(shape, i).count;
		most = count > most ? count : most;
	}
	return most;
}

COLLET_PURE static inline uint64_t collet_ring_turn_count(const struct collet_shape *shape)
{
	return (uint64_t)collet_host_group_count(shape) * collet_host_group_max_size(shape);
}

/* Returns how many latencies in a row all blocks take together: a rank has as many turns in progress as it looks ahead,
 * so the blocks advance several at a time. */
COLLET_PURE static inline double collet_ring_turn_latencies(const struct collet_shape *shape)
{
	const uint32_t hosts = collet_host_group_count(shape), at_a_time = 1 + COLLET_LOOKAHEAD / hosts;
	return (hosts - 1.0) * ((collet_host_group_max_size(shape) + at_a_time - 1) / at_a_time);
}

/* Returns the number of ranks on the host with the fewest. */
COLLET_PURE static inline uint32_t collet_host_group_min_size(const struct collet_shape *shape)
{
	uint32_t least = shape->size;
	if (shape->host_first && shape->host_least > 0)
		return shape->host_least;
	for (uint32_t i = 0; i < collet_host_group_count(shape); i++) {
		const uint32_t count = collet_host_group_at(shape, i).count;
		least = count < least ? count : least;
	}
	return least;
}

#endif
