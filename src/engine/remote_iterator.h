/* The walk over a step's remote peers: who is at its ends besides this rank, and which part of the item is theirs.
 *
 *	for (struct remotes at = remotes_of(request, step, REMOTE_SOURCES); remotes_next(&at);)
 *		... at.position ...
 *
 * Peers come in the order in which the step names them, on every rank: it is the order of messages too. */
#ifndef COLLET_ENGINE_REMOTE_ITERATOR_H
#define COLLET_ENGINE_REMOTE_ITERATOR_H

#include "engine/work_item.h"

enum remote_ends {
	REMOTE_SOURCES,
	REMOTE_DESTINATIONS,
	REMOTE_ENDS                  /* sources, then destinations */
};

struct remotes {
	/* Who is at hand. */
	uint32_t position;           /* in the shape's order; item_route(), item_group_rank() */
	bool sends;                  /* this rank sends to it: it is at a destination */
	/* By remotes_next_part() only. */
	uint64_t count;              /* elements that go this way */
	char *place;                 /* per_peer steps: where these are in this rank's buffer; else NULL */
	/* The walk's own: the end at hand, how many are left with it, the next of its peers. */
	const struct collet_request *request;
	const struct collet_step *step;
	const struct collet_buffer_range *end;
	uint32_t ends_left, peer;
	bool destinations_follow;
};

static inline struct remotes remotes_of(
	const struct collet_request *request, const struct collet_step *step, enum remote_ends ends)
{
	const bool sends = ends == REMOTE_DESTINATIONS;
	return (struct remotes){ .sends = sends, .request = request, .step = step,
		.end = sends ? step->destination : step->source,
		.ends_left = sends ? step->destination_count : step->source_count,
		.destinations_follow = ends == REMOTE_ENDS };
}

static inline bool remotes_next(struct remotes *at)
{
	const struct collet_shape *shape = &at->request->shape;
	for (;;) {
		for (; at->ends_left; at->ends_left--, at->end++, at->peer = 0) {
			while (at->peer < at->end->peers.count) {
				at->position = collet_peers_at(&at->end->peers, at->peer++, shape->size);
				if (at->position != shape->rank)
					return true;
			}
		}
		if (!at->destinations_follow)
			return false;
		*at = remotes_of(at->request, at->step, REMOTE_DESTINATIONS);
	}
}

/* The next that the item has something for, or from. */
static inline bool remotes_next_part(struct remotes *at, const struct collet_item *item)
{
	while (remotes_next(at)) {
		const struct collet_step *step = at->step;
		const enum collet_buffer buffer = at->sends ? step->source[0].buffer : step->destination[0].buffer;
		struct collet_span span;
		at->count = item->count;
		at->place = NULL;
		if (!step->is_per_peer)
			return true;
		if (!item_per_peer_piece(at->request, item, buffer, at->position, &span))
			continue;
		at->count = span.count;
		at->place = item_address(at->request, buffer, span.first);
		return true;
	}
	return false;
}

#endif
