/* Lanes: the executor of step programs over routes.
 *
 * Items enter a lane in program order, as many as the window holds. On entry an item queues all its transfers on its
 * routes, which fixes the order of messages; its receives are posted at once. It is executed (operands combined, sends
 * let go) when its bytes have come and nothing earlier still reads or writes what it writes, or writes what it reads.
 * It leaves when its sends have settled. A kept receive lands in place if that place is free when the item enters, else
 * in the lane's staging, to be copied when it is: so every receive can be posted, and two ranks that swap spans in
 * place do not wait for each other. One that is to be combined lands, if it can, where the sum will be. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/flow.h"
#include "engine/item.h"
#include "transport/memory.h"

/* ---- Staging: a slot for each item under way. Its pieces: what comes from up to fan_in peers, the value if it has no
 * place of its own, and this rank's own operand scaled ---- */

enum {
	EXTRA_PIECES = 2,
	PUBLISH_MIN = (64 << 10) + 1,        /* bytes of a piece; smaller ones go through the transport's own ring */
	PUBLISH_MOVE_MIN = (128 << 10) + 1,  /* the same if they are for one peer, which has a core of its own and does
						not combine them: the ring brings them run by run */
	SHORT_CALL_BYTES = 512 << 10,        /* two ranks' calls of up to so many bytes that combine: */
	PUBLISH_SHORT_MIN = (256 << 10) + 1  /* theirs go through the ring whole, and need no answer */
};

/* The largest piece, in bytes, of which a slot holds what it must. */
static uint64_t largest_piece_bytes(uint32_t fan_in)
{
	return COLLET_STAGING_BYTES / LANE_WINDOW / (fan_in + EXTRA_PIECES) & ~(uint64_t)63;
}

/* ---- Entering ---- */

static void fill_message(const struct collet_request *request, struct collet_transfer *transfer, uint64_t count)
{
	transfer->message.signature = request->signature;
	transfer->message.sequence = request->sequence;
	transfer->message.bytes = count * request->element_bytes;
}

/* Where the combined piece goes: in place, or into the item's staging if it only travels on. What is sent as it is, is
 * sent from where it is, even if it has a place here too: so it can leave before it is copied there, and from lines
 * that the peers may still have from last time. But from its place if they have mapped that one. */
static char *value_place(const struct collet_lane *lane, const struct collet_item *item)
{
	const struct collet_arena *arena = lane->group->engine->arena;
	const bool stays = item_is_local(item->request, &item->step->destination[0]);
	uint64_t offset;
	if (item_is_plain_copy(item) &&
		!(stays && arena && collet_arena_contains(arena, item_final_place(item), 1, &offset)))
		return item_source_place(item);
	return stays ? item_final_place(item) : item_slot(lane, item, item->request->fan_in);
}

static bool reads_arena(const struct collet_conduit *conduit, uint64_t bytes)
{
	return conduit->reads_arena;
}

static bool reads_memory(const struct collet_conduit *conduit, uint64_t bytes)
{
	return conduit->reads_memory_min && bytes >= conduit->reads_memory_min;
}

/* Do all the peers that the item sends to read so? */
static bool all_peers(struct collet_lane *lane, const struct collet_item *item,
	bool (*reads)(const struct collet_conduit *conduit, uint64_t bytes))
{
	const struct collet_request *request = item->request;
	const uint64_t bytes = item->count * request->element_bytes;
	bool some = false;
	for (uint32_t e = 0; e < item->step->destination_count; e++) {
		for (uint32_t i = 0, position;
			item_next_remote(request, &item->step->destination[e].peers, &i, &position);) {
			const struct collet_route *route =
				collet_route_peek(lane->group, lane->channel, item_group_rank(request, position));
			/* Acquire, pairing with the control thread's release store of an open conduit. */
			const struct collet_conduit *conduit = route ?
				atomic_load_explicit(&route->conduit, memory_order_acquire) : NULL;
			if (!conduit || !reads(conduit, bytes))
				return false;
			some = true;
		}
	}
	return some;
}

static uint32_t count_receivers(const struct collet_item *item)
{
	const struct collet_step *step = item->step;
	uint32_t peers = 0;
	for (uint32_t e = 0; e < step->destination_count; e++)
		for (uint32_t i = 0, position;
			item_next_remote(item->request, &step->destination[e].peers, &i, &position);)
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

/* Is the item better read where it is, by the kernel? Only what one peer gets, and does not combine: that copies it for
 * each, and what is combined had better come past the reader's own caches once. */
static bool is_read_in_memory(struct collet_lane *lane, const struct collet_item *item)
{
	return request_only_moves(item->request) && (item->step->per_peer || count_receivers(item) == 1) &&
		all_peers(lane, item, reads_memory);
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
	if (step->per_peer) {
		if (!item_is_local(request, &step->source[0]) ||
			step->destination[0].peers.count > request->fan_in + EXTRA_PIECES)
			return false;
		value = item_address(request, step->source[0].buffer, 0);
	}
	return !collet_arena_contains(arena, value, 1, &offset) && all_peers(lane, item, reads_arena);
}

static void place_value(struct collet_lane *lane, struct collet_item *item)
{
	item->value = item->step->per_peer ? NULL : value_place(lane, item);
	item->published = publishes(lane, item, item->value);
	item->request->publishing |= item->published;
	if (item->published && !item->step->per_peer)
		item->value = item_slot(lane, item, item->request->fan_in);
}

/* Are all queues that the item needs open to one more? */
static bool routes_have_room(
	struct collet_lane *lane, const struct collet_request *request, const struct collet_step *step)
{
	for (uint32_t pass = 0; pass < 2; pass++) {
		const uint32_t ends = pass ? step->destination_count : step->source_count;
		for (uint32_t e = 0; e < ends; e++) {
			const struct collet_end *end = pass ? &step->destination[e] : &step->source[e];
			for (uint32_t i = 0, position; item_next_remote(request, &end->peers, &i, &position);) {
				struct collet_route *route = collet_route_get(
					lane->group, lane->channel, item_group_rank(request, position));
				if (!route || collet_queue_full(pass ? &route->send : &route->receive))
					return false;
			}
		}
	}
	return true;
}

/* May an operand that comes from a peer be received where the combined value goes? One buffer less passes through the
 * caches then, and what is overwritten there has not to be fetched for it. */
static bool combines_in_place(const struct collet_lane *lane, const struct collet_item *item, uint32_t index)
{
	const struct collet_request *request = item->request;
	if (!item->step->reduce || item->published || request->flow || !item->writes.bytes)
		return false;
	for (uint32_t i = 0; i < item->read_count; i++)
		if (collet_ranges_overlap(item->reads[i], item->writes))
			return false;
	return !collet_item_conflicts(lane, index, false);
}

static void queue_receives(struct collet_lane *lane, struct collet_item *item, uint32_t index)
{
	struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	bool place_is_free = combines_in_place(lane, item, index);
	uint32_t staged = 0;
	for (uint32_t e = 0; e < step->source_count; e++) {
		for (uint32_t i = 0, position; item_next_remote(request, &step->source[e].peers, &i, &position);) {
			struct collet_span span = { 0, item->count };
			char *place = NULL;
			if (step->per_peer) {
				if (!item_per_peer_piece(request, item, step->destination[0].buffer, position, &span))
					continue;
				if (!item->staged)
					place = item_address(request, step->destination[0].buffer, span.first);
			} else if (step->reduce ? place_is_free : !item->staged) {
				place = item->value;
				place_is_free = false;
			}
			if (!place)
				place = item_slot(lane, item, staged++);
			struct collet_route *route = item_route(lane, item, position);
			struct collet_queued *queued = collet_queue_add(&route->receive, item);
			collet_route_activate(route);
			fill_message(request, &queued->transfer, span.count);
			queued->transfer.data = place;
			/* Never a view of what is staged: it is held until our own send has gone, and may be the peer's
			 * very buffer, whose send then waits for us. */
			if (step->reduce)
				queued->transfer.flags = COLLET_TRANSFER_VIEW;
			queued->ready = true;
			item->receives_pending++;
			collet_route_pump(route);
		}
	}
}

static void queue_sends(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	const bool makes = item_makes_each(item);
	const uint32_t flags = request_send_flags(request);
	uint32_t made = 0;
	for (uint32_t e = 0; e < step->destination_count; e++) {
		for (uint32_t i = 0, position; item_next_remote(request, &step->destination[e].peers, &i, &position);) {
			struct collet_span span = { 0, item->count };
			char *from = item->value;
			if (step->per_peer) {
				if (!item_per_peer_piece(request, item, step->source[0].buffer, position, &span))
					continue;
				from = makes ? item_slot(lane, item, made++) :
                                               item_address(request, step->source[0].buffer, span.first);
			}
			struct collet_route *route = item_route(lane, item, position);
			struct collet_queued *queued = collet_queue_add(&route->send, item);
			collet_route_activate(route);
			fill_message(request, &queued->transfer, span.count);
			queued->transfer.data = from;
			queued->transfer.flags = flags;
			item->sends_pending++;
		}
	}
}

/* Takes the next item in; false if there is no room, or nothing left to take in. */
static bool enter_one(struct collet_lane *lane)
{
	if (lane->group->inlined && lane->channel == 0)
		return false;  /* its messages go first, and it uses the lane's staging */
	struct collet_request *request = lane->first;
	if (!request || request->held ||
		lane->next - lane->oldest >= (request->publishing ? PUBLISH_WINDOW : LANE_WINDOW))
		return false;
	struct collet_item *item = &lane->items[lane->next % LANE_WINDOW];
	if (!lane->pending_item) {
		if (request->elsewhere || !collet_cursor_next(lane, item)) {
			lane->first = request->next_in_lane[lane->channel];
			if (lane->first)
				collet_cursor_begin(lane);
			request->lanes_entering--;
			collet_request_finish_if_done(request);
			return true;
		}
		lane->pending_item = true;
	}
	if (!routes_have_room(lane, request, item->step))
		return false;
	lane->pending_item = false;
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->executed = item->staged = false;
	item->slot = (uint32_t)__builtin_ctz(lane->free_slots);
	lane->free_slots &= lane->free_slots - 1;
	collet_item_fill_ranges(request, item);
	request->items++;
	const uint32_t index = lane->next++;
	place_value(lane, item);
	item->staged = !item->step->reduce && !item_is_local(request, &item->step->source[0]) && item->writes.bytes &&
		!item->published && (collet_item_conflicts(lane, index, false) ||
			(request->flow && !collet_flow_lets(request->flow, item, false)));
	queue_receives(lane, item, index);
	queue_sends(lane, item);
	if (item->sends_pending && !item->published) {
		if (item->step->per_peer)
			item->lent = item->reads[0];
		else
			item->lent = (struct collet_range){ item->value, item->count * request->element_bytes };
	}
	return true;
}

/* ---- Executing ---- */

static bool execute_some(struct collet_lane *lane)
{
	bool some = false;
	for (uint32_t i = lane->oldest; i != lane->next; i++) {
		struct collet_item *item = &lane->items[i % LANE_WINDOW];
		if (item->executed || item->receives_pending)
			continue;
		/* What it holds of peers meanwhile it holds for a copy's time, which waits for nobody. */
		if (item->request->flow && !collet_flow_lets(item->request->flow, item, true))
			continue;
		if (i != lane->oldest && collet_item_conflicts(lane, i, true)) {
			if (item->step->reduce)
				collet_item_unload(lane, item);
			continue;
		}
		collet_item_execute(lane, item);
		some = true;
	}
	return some;
}

static bool leave_some(struct collet_lane *lane)
{
	bool some = false;
	while (lane->oldest != lane->next) {
		struct collet_item *item = &lane->items[lane->oldest % LANE_WINDOW];
		if (!item->executed || item->sends_pending)
			break;
		lane->free_slots |= (uint32_t)1 << item->slot;
		lane->oldest++;
		item->request->items--;
		item->request->finished_items++;
		collet_request_finish_if_done(item->request);
		some = true;
	}
	return some;
}

void collet_item_settled(struct collet_queued *queued, bool sent)
{
	struct collet_item *item = queued->item;
	if (sent)
		item->sends_pending--;
	else
		item->receives_pending--;
	item->request->group->lanes_dirty |= item->request->group->inlined != item->request;
}

void collet_lane_progress(struct collet_lane *lane)
{
	bool some = true;
	while (some && !atomic_load_explicit(&lane->group->ended, memory_order_relaxed)) {
		some = false;
		while (enter_one(lane))
			some = true;
		some |= execute_some(lane);
		some |= leave_some(lane);
	}
}

/* Address space only: pages come as they are used. In the arena, so that what is staged can be read by local peers. */
static void *get_staging(struct collet_engine *engine, bool *is_mapped)
{
	void *staging;
	*is_mapped = engine->arena && collet_arena_alloc(engine->arena, &staging, COLLET_STAGING_BYTES) == COLLET_OK;
	if (!*is_mapped)
		staging = mmap(NULL, COLLET_STAGING_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (staging == MAP_FAILED)
		return NULL;
	const struct collet_memory memory = { .first = staging, .bytes = COLLET_STAGING_BYTES, .gpu = -1, .dmabuf = -1,
		.kind = *is_mapped ? COLLET_MEMORY_ARENA : COLLET_MEMORY_HOST };
	if (collet_transports_learn(engine->transports, &engine->log, &memory) != COLLET_OK)
		collet_log(&engine->log, COLLET_LOG_INFO, "staging is used unregistered: %s", collet_last_error());
	return staging;
}

static void put_staging(struct collet_engine *engine, void *staging, bool is_mapped)
{
	if (!staging)
		return;
	collet_transports_forget(engine->transports, staging);
	if (is_mapped)
		(void)collet_arena_free(engine->arena, staging);
	else
		munmap(staging, COLLET_STAGING_BYTES);
}

static collet_status get_lane(struct collet_group *group, uint32_t channel, struct collet_lane **lane)
{
	*lane = group->lanes[channel];
	if (*lane)
		return COLLET_OK;
	struct collet_lane *made = calloc(1, sizeof(*made));
	struct collet_operand *operands = calloc((size_t)group->size + COLLET_STEP_SOURCES, sizeof(*operands));
	bool is_mapped;
	void *staging = get_staging(group->engine, &is_mapped);
	if (!made || !operands || !staging) {
		put_staging(group->engine, staging, is_mapped);
		free(operands);
		free(made);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for channel %u of a communicator of %u ranks", channel,
			group->size);
	}
	made->group = group;
	made->channel = channel;
	made->free_slots = ((uint32_t)1 << LANE_WINDOW) - 1;
	made->operands = operands;
	made->staging = staging;
	made->staging_is_mapped = is_mapped;
	group->lanes[channel] = *lane = made;
	return COLLET_OK;
}

void collet_lane_free(struct collet_lane *lane)
{
	if (!lane)
		return;
	put_staging(lane->group->engine, lane->staging, lane->staging_is_mapped);
	free(lane->operands);
	free(lane);
}

/* ---- Requests ---- */

uint64_t collet_piece_elements(uint32_t piece_bytes, uint32_t fan_in, size_t element_bytes)
{
	const uint64_t most = largest_piece_bytes(fan_in);
	uint64_t bytes = piece_bytes && piece_bytes < most ? piece_bytes : most;
	return bytes < element_bytes ? 1 : bytes / element_bytes;
}

collet_status collet_request_start(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_lane *lane;
	for (uint32_t i = 0; i < request->lanes; i++) {
		const collet_status status = get_lane(group, i, &lane);
		if (status != COLLET_OK)
			return status;
	}
	request->lanes_entering = request->lanes;
	request->publishing = false;
	for (uint32_t i = 0; i < request->lanes; i++) {
		lane = group->lanes[i];
		request->next_in_lane[i] = NULL;
		if (lane->first)
			lane->last->next_in_lane[i] = request;
		else
			lane->first = request;
		lane->last = request;
		if (lane->first == request)
			collet_cursor_begin(lane);
	}
	for (uint32_t i = 0; i < request->lanes; i++)
		collet_lane_progress(group->lanes[i]);
	return COLLET_OK;
}
