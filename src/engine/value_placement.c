/* Where an item's value lies: in its place in the caller's memory, where it is sent from as it is, or in the lane's
 * staging, of which peers may take it themselves. */
#include "engine/remote_iterator.h"
#include "transport/arena.h"

enum {
	PUBLISH_MIN = (64 << 10) + 1,        /* bytes of a piece; smaller ones go through the transport's own ring */
	PUBLISH_MOVE_MIN = (128 << 10) + 1,  /* the same if they are for one peer, which has a core of its own and does
						not combine them: the ring brings them run by run */
	SHORT_CALL_BYTES = 512 << 10,        /* two ranks' calls of up to so many bytes that combine: */
	PUBLISH_SHORT_MIN = (256 << 10) + 1  /* theirs go through the ring whole, and need no answer */
};

char *collet_item_value_place(const struct collet_lane *lane, const struct collet_item *item)
{
	const struct collet_arena *arena = lane->group->engine->arena;
	const bool stays = item_is_local(item->request, &item->step->destination[0]);
	uint64_t offset;
	if (item_is_plain_copy(item) &&
		!(stays && arena && collet_arena_contains(arena, item_final_place(item), 1, &offset)))
		return item_source_place(item);
	return stays ? item_final_place(item) : item_slot(lane, item, item->request->fan_in);
}

static bool reads_arena(const struct collet_endpoint *conduit, const struct collet_request *request, uint64_t bytes)
{
	return conduit->peer_reads_arena;
}

static bool reads_memory(const struct collet_endpoint *conduit, const struct collet_request *request, uint64_t bytes)
{
	if (!conduit->peer_read_min_bytes || bytes < conduit->peer_read_min_bytes)
		return false;
	return !conduit->peer_read_classes ||
	       conduit->peer_read_classes[collet_call_number(collet_request_call_flags(request))];
}

/* Do all the peers that the item sends to read so? */
static bool all_peers(struct collet_lane *lane, const struct collet_item *item,
	bool (*reads)(const struct collet_endpoint *conduit, const struct collet_request *request, uint64_t bytes))
{
	const struct collet_request *request = item->request;
	const uint64_t bytes = item->count * request->element_bytes;
	bool some = false;
	for (struct remotes at = remotes_of(request, item->step, REMOTE_DESTINATIONS); remotes_next(&at);) {
		const struct collet_route *route =
			collet_route_peek(lane->group, lane->channel, item_group_rank(request, at.position));
		/* Acquire, pairing with the control thread's release store of an open conduit. */
		const struct collet_endpoint *conduit = route ?
			atomic_load_explicit(&route->conduit, memory_order_acquire) : NULL;
		if (!conduit || !reads(conduit, request, bytes))
			return false;
		some = true;
	}
	return some;
}

static uint32_t count_receivers(const struct collet_item *item)
{
	uint32_t peers = 0;
	for (struct remotes at = remotes_of(item->request, item->step, REMOTE_DESTINATIONS); remotes_next(&at);)
		peers++;
	return peers;
}

static uint64_t publish_min(const struct collet_lane *lane, const struct collet_item *item)
{
	if (lane->group->engine->crowded)
		return PUBLISH_MIN;
	if (!request_only_moves(item->request))
		return lane->group->size == 2 && item->request->counted_bytes <= SHORT_CALL_BYTES ? PUBLISH_SHORT_MIN :
                                                                                                    PUBLISH_MIN;
	return count_receivers(item) == 1 ? PUBLISH_MOVE_MIN : PUBLISH_MIN;
}

/* Is the item better read where it is, by the kernel? Only what one peer gets: that copies it for each. */
static bool is_read_in_memory(struct collet_lane *lane, const struct collet_item *item)
{
	return (item->step->is_per_peer || count_receivers(item) == 1) && all_peers(lane, item, reads_memory);
}

bool collet_item_is_fresh(const struct collet_item *item)
{
	return item->step->is_reduction && item->request->program->collective == COLLET_ALLREDUCE &&
		count_receivers(item) == 1;
}

/* Does the item send a copy, made in staging, of what it could send from where it is? Peers have staging mapped: what
 * is copied there by this core, in pieces that stay in its cache, they take or combine at the caches' speed, many of
 * them from one copy; from the caller's own memory the kernel would have to copy it for each. What lies in the arena
 * is sent from there. */
static bool publishes(struct collet_lane *lane, const struct collet_item *item, const char *value)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	const struct collet_arena *arena = lane->group->engine->arena;
	uint64_t offset;
	if (!lane->staging_is_mapped || !step->destination_count ||
		item->count * request->element_bytes < publish_min(lane, item) || is_read_in_memory(lane, item))
		return false;
	if (step->is_per_peer) {
		if (!item_is_local(request, &step->source[0]) ||
			step->destination[0].peers.count >
				collet_slot_pieces(request->program->collective, request->fan_in))
			return false;
		value = item_address(request, step->source[0].buffer, 0);
	}
	return !collet_arena_contains(arena, value, 1, &offset) && all_peers(lane, item, reads_arena);
}

void collet_item_place_value(struct collet_lane *lane, struct collet_item *item)
{
	item->value = item->step->is_per_peer ? NULL : collet_item_value_place(lane, item);
	item->published = publishes(lane, item, item->value);
	item->request->publishing |= item->published;
	if (item->published && !item->step->is_per_peer)
		item->value = item_slot(lane, item, item->request->fan_in);
}
