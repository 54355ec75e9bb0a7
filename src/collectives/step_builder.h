/* Builds steps range by range, and offers the moves that many programs share. */
#ifndef COLLET_COLLECTIVES_STEP_BUILDER_H
#define COLLET_COLLECTIVES_STEP_BUILDER_H

#include <stddef.h>

#include "collectives/step.h"

/* Adds one operand per peer, in the order of the calls and then of the peers. Does nothing if there are no peers. */
COLLET_PURE static inline void collet_step_add_source(
	struct collet_step *step, struct collet_peers peers, enum collet_buffer buffer, struct collet_span span)
{
	if (peers.count == 0)
		return;
	assert(step->source_count < COLLET_STEP_SOURCES);
	step->source[step->source_count++] = collet_buffer_range_at(peers, buffer, span);
}

/* Adds one destination per peer. The rank itself must come first, if at all. Does nothing if there are no peers. */
COLLET_PURE static inline void collet_step_add_destination(
	struct collet_step *step, struct collet_peers peers, enum collet_buffer buffer, struct collet_span span)
{
	if (peers.count == 0)
		return;
	assert(step->destination_count < COLLET_STEP_DESTINATIONS);
	step->destination[step->destination_count++] = collet_buffer_range_at(peers, buffer, span);
}

COLLET_PURE static inline struct collet_span collet_span_at(uint64_t first, uint64_t count)
{
	struct collet_span span = {first, count};
	return span;
}

/* Returns chunk i of `count` elements that are partitioned evenly into `chunks`. */
COLLET_PURE static inline struct collet_span collet_span_even(uint64_t count, uint32_t chunks, uint32_t i)
{
	const uint64_t base = count / chunks, longer = count % chunks;
	return collet_span_at(i * base + (i < longer ? i : longer), base + (i < longer));
}

/* Returns the whole of a buffer with `count` elements. */
COLLET_PURE static inline struct collet_span collet_span_all(const struct collet_shape *shape)
{
	return collet_span_at(0, shape->count);
}

/* Returns the remote span of an is_per_peer step that is at the same place on the peer. */
COLLET_PURE static inline struct collet_span collet_span_same_offset(void)
{
	return collet_span_at(COLLET_SAME_OFFSET, 0);
}

/* Returns this rank's block in another rank's buffer, as far as this rank can know it. */
COLLET_PURE static inline struct collet_span collet_span_on_peer(
	const struct collet_shape *shape, const struct collet_partition *partition, uint64_t count)
{
	return partition->kind == COLLET_PARTITION_BLOCKS ? collet_partition_chunk(partition, shape, shape->rank)
							  : collet_span_at(0, count);
}

/* Returns `count` blocks of shape->count elements each, from block `first` on. */
COLLET_PURE static inline struct collet_span collet_blocks(
	const struct collet_shape *shape, uint64_t first, uint64_t count)
{
	return collet_span_at(first * shape->count, count * shape->count);
}

/* Returns NULL if consecutive positions have consecutive blocks, else why a program that needs them cannot run. */
COLLET_PURE static inline const char *collet_blocks_refusal(const struct collet_shape *shape)
{
	if (shape->input.kind == COLLET_PARTITION_VECTOR || shape->result.kind == COLLET_PARTITION_VECTOR)
		return "does not do v-forms";
	return shape->order ? "needs the ranks of each host to have consecutive numbers" : NULL;
}

COLLET_PURE static inline struct collet_peers collet_peers_range(uint32_t first, uint32_t count)
{
	struct collet_peers peers = {first, 1, count, false};
	return peers;
}

COLLET_PURE static inline struct collet_peers collet_peers_self(const struct collet_shape *shape)
{
	return collet_peers_one(shape->rank);
}

COLLET_PURE static inline struct collet_peers collet_peers_all(const struct collet_shape *shape)
{
	return collet_peers_range(0, shape->size);
}

/* Returns all ranks but this one, its right neighbour first, so that not all ranks write to the same one at once. */
COLLET_PURE static inline struct collet_peers collet_peers_others(const struct collet_shape *shape)
{
	return collet_peers_range(collet_position_at(shape, 1), shape->size - 1);
}

/* Returns a step that moves one value: a send, a receive or a copy. */
COLLET_PURE static inline struct collet_step collet_step_move(struct collet_peers source,
	enum collet_buffer source_buffer, struct collet_span source_span, struct collet_peers destination,
	enum collet_buffer destination_buffer, struct collet_span destination_span)
{
	struct collet_step step = collet_step_none();
	if (source.count == 0 || destination.count == 0)
		return step;
	collet_step_add_source(&step, source, source_buffer, source_span);
	collet_step_add_destination(&step, destination, destination_buffer, destination_span);
	return step;
}

/* Returns a step that sends chunk p of this rank's buffer to each other rank p, into `span` of p's own buffer. */
COLLET_PURE static inline struct collet_step collet_step_send_each(const struct collet_shape *shape,
	struct collet_peers peers, enum collet_buffer from, enum collet_buffer to, struct collet_span span)
{
	struct collet_step step = collet_step_move(collet_peers_self(shape), from, span, peers, to, span);
	step.is_per_peer = true;
	return step;
}

/* Returns a step that receives from each other rank p, which has the data at `span`, into chunk p of RESULT. */
COLLET_PURE static inline struct collet_step collet_step_receive_each(
	const struct collet_shape *shape, struct collet_peers peers, enum collet_buffer from, struct collet_span span)
{
	struct collet_step step = collet_step_move(peers, from, span, collet_peers_self(shape), COLLET_RESULT, span);
	step.is_per_peer = true;
	return step;
}

/* Returns the logarithm of n to base 2, rounded up. */
COLLET_PURE static inline uint32_t collet_log2_ceil(uint64_t n)
{
	uint32_t rounds = 0;
	while (((uint64_t)1 << rounds) < n)
		rounds++;
	return rounds;
}

COLLET_PURE static inline uint32_t collet_log2_floor(uint64_t n)
{
	assert(n > 0);
	uint32_t rounds = 0;
	while (n >> (rounds + 1))
		rounds++;
	return rounds;
}

/* Returns the number of children of node v in a binomial tree over 0 .. size-1 with root 0. The children are v + 1, v +
 * 2, v + 4, ...; the subtree of child v + 2^i is v + 2^i .. v + 2^(i+1) - 1. */
COLLET_PURE static inline uint32_t collet_binomial_children(uint32_t v, uint32_t size)
{
	uint32_t children = 0;
	while (((uint64_t)1 << children) < size - v && (v >> children & 1) == 0)
		children++;
	return children;
}

COLLET_PURE static inline uint32_t collet_binomial_parent(uint32_t v)
{
	assert(v > 0);
	return v & (v - 1);
}

/* Returns the children of the node at this position; positions wrap around after size - 1. */
COLLET_PURE static inline struct collet_peers collet_binomial_peers(uint32_t position, uint32_t children)
{
	struct collet_peers peers = {position + 1, 1, children, true};
	return peers;
}

#endif
