/* Iterates over the remote peers of a step: its sources and destinations without this rank, and the message of an item
 * for each.
 *
 *	for (struct remote_iterator at = remote_iterator_of(request, step, REMOTE_SOURCES); remote_iterator_next(&at);)
 *		... at.position ...
 *
 * Peers come in the order in which the step names them. It is the same on every rank, and the order of messages. */
#ifndef COLLET_ENGINE_REMOTE_ITERATOR_H
#define COLLET_ENGINE_REMOTE_ITERATOR_H

#include "collectives/step.h"
#include "engine/request.h"
#include "engine/work_item.h"

enum remote_side {
	REMOTE_SOURCES,
	REMOTE_DESTINATIONS,
	REMOTE_BOTH                  /* sources, then destinations */
};

struct remote_iterator {
	/* The current peer. */
	uint32_t position;           /* in the shape's order; work_item_peer_queue(), request_comm_rank() */
	bool sends;                  /* it is a destination: this rank sends to it */
	/* Set by remote_iterator_next_message() only. */
	uint64_t count;              /* elements sent to it or received from it */
	char *place;                 /* per-peer step: their address in this rank's buffer; else NULL */
	/* Internal: the current range, the number of ranges left with it, and the index of its next peer. */
	const struct collet_request *request;
	const struct collet_step *step;
	const struct collet_buffer_range *range;
	uint32_t ranges_left, peer;
	bool destinations_follow;
};

static inline struct remote_iterator remote_iterator_of(
	const struct collet_request *request, const struct collet_step *step, enum remote_side side)
{
	const bool sends = side == REMOTE_DESTINATIONS;
	return (struct remote_iterator){ .sends = sends, .request = request, .step = step,
		.range = sends ? step->destination : step->source,
		.ranges_left = sends ? step->destination_count : step->source_count,
		.destinations_follow = side == REMOTE_BOTH };
}

static inline bool remote_iterator_next(struct remote_iterator *at)
{
	const struct collet_shape *shape = &at->request->shape;
	for (;;) {
		for (; at->ranges_left; at->ranges_left--, at->range++, at->peer = 0) {
			while (at->peer < at->range->peers.count) {
				at->position = collet_peers_at(&at->range->peers, at->peer++, shape->size);
				if (at->position != shape->rank)
					return true;
			}
		}
		if (!at->destinations_follow)
			return false;
		*at = remote_iterator_of(at->request, at->step, REMOTE_DESTINATIONS);
	}
}

/* Goes to the next peer that sends or receives a message of the item. */
static inline bool remote_iterator_next_message(struct remote_iterator *at, const struct collet_work_item *item)
{
	while (remote_iterator_next(at)) {
		const struct collet_step *step = at->step;
		const enum collet_buffer buffer = at->sends ? step->source[0].buffer : step->destination[0].buffer;
		struct collet_span span;
		at->count = item->count;
		at->place = NULL;
		if (!step->is_per_peer)
			return true;
		if (!work_item_peer_segment(at->request, item, buffer, at->position, &span))
			continue;
		at->count = span.count;
		at->place = request_address(at->request, buffer, span.first);
		return true;
	}
	return false;
}

#endif
