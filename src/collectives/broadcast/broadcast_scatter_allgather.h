/* Broadcast by scatter and all-gather. The elements are cut into one chunk for each rank but the root. The root sends
 * each rank its chunk. Then the chunks go around a ring of these ranks.
 *
 * Cost (n ranks, m bytes): (n-1) alpha + 2 m beta in one pass; in many segments the two phases overlap, near m beta.
 * Use: large messages, as chain; but it needs no more segments than there are ranks.
 * Source: van de Geijn, "On global combine operations" (1994); Barnett et al. (1994). */
#ifndef COLLET_COLLECTIVES_BROADCAST_BROADCAST_SCATTER_ALLGATHER_H
#define COLLET_COLLECTIVES_BROADCAST_BROADCAST_SCATTER_ALLGATHER_H

#include "collectives/cost.h"

/* Numbers start at the root's right neighbour: 0 .. size - 2. The root has none. */
COLLET_PURE static inline struct collet_peers scatter_allgather_peer(const struct collet_shape *shape, uint32_t vrank)
{
	return collet_peers_one((shape->root + 1 + vrank) % shape->size);
}

COLLET_PURE static inline uint64_t broadcast_scatter_allgather_step_count(
	const struct collet_shape *shape, uint32_t part)
{
	(void)part;
	return shape->size > 1 ? shape->size - 1 : 1;
}

COLLET_PURE static inline struct collet_step broadcast_scatter_allgather_step(
	const struct collet_shape *shape, uint32_t part, uint64_t index)
{
	(void)part;
	const struct collet_peers self = collet_peers_self(shape);
	const uint32_t ring = shape->size - 1, i = (uint32_t)index;
	const bool is_root = shape->rank == shape->root;
	if (ring == 0)
		return collet_step_move(
			self, COLLET_INPUT, collet_span_all(shape), self, COLLET_RESULT, collet_span_all(shape));

	const uint32_t vrank = is_root ? i : collet_position_at(shape, -1 - (int64_t)shape->root);
	const struct collet_peers left = scatter_allgather_peer(shape, (vrank + ring - 1) % ring);
	const struct collet_peers right = scatter_allgather_peer(shape, (vrank + 1) % ring);
	const struct collet_span chunk = collet_span_even(shape->count, ring, is_root ? i : (vrank + ring - i) % ring);
	struct collet_step step = collet_step_none();
	if (is_root || i == 0)
		collet_step_add_source(&step, collet_peers_one(shape->root), COLLET_INPUT, chunk);
	else
		collet_step_add_source(&step, left, COLLET_RESULT, chunk);
	collet_step_add_destination(&step, self, COLLET_RESULT, chunk);
	if (is_root)
		collet_step_add_destination(&step, scatter_allgather_peer(shape, i), COLLET_RESULT, chunk);
	else if (i + 1 < ring)
		collet_step_add_destination(&step, right, COLLET_RESULT, chunk);
	return step;
}

COLLET_PURE static inline double broadcast_scatter_allgather_cost(const struct collet_shape *shape,
	size_t element_bytes, size_t segment_bytes, const struct collet_cost_model *model)
{
	const double ring = shape->size - 1;
	if (shape->size == 1)
		return 0;
	const double chunk = collet_cost_chunk(shape, shape->size - 1, element_bytes);
	const double port = collet_cost_port(1, chunk, segment_bytes, model);
	/* The root sends the first pass of all chunks before the second of any (step.h). */
	const double passes = collet_cost_segments(chunk, segment_bytes) / (COLLET_LOOKAHEAD - 1);
	return collet_cost_latencies(shape, ring, false, model) + ring * port +
	       (ring - 1) * port / (passes > 1 ? passes : 1);
}

#endif
