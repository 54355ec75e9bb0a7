/* Lanes: the executor of step programs over routes.
 *
 * Items enter a lane in program order, as many as the window holds. On entry an item queues all its transfers on its
 * routes, which fixes the order of messages; its receives are posted at once. It is executed (operands combined, sends
 * let go) when its bytes have come and nothing earlier still reads or writes what it writes, or writes what it reads.
 * It leaves when its sends have settled. A kept receive lands in place if that place is free when the item enters, else
 * in the lane's staging, to be copied when it is: so every receive can be posted, and two ranks that swap spans in
 * place do not wait for each other. One that is to be combined lands, if it can, where the sum will be. */
#include "engine/gdr.h"
#include "engine/pipeline.h"
#include "engine/remote_iterator.h"

/* ---- Entering ---- */

static void fill_message(const struct collet_request *request, struct collet_transfer *transfer, uint64_t count)
{
	transfer->message.signature = request->signature;
	transfer->message.sequence = request->sequence;
	transfer->message.bytes = count * request->element_bytes;
}

/* Where a part of the item is that does not lie where it belongs. */
static char *part_slot(const struct collet_lane *lane, const struct collet_item *item, uint32_t part)
{
	return collet_reach_of(item->request) ? collet_reach_cell(item, part) : item_slot(lane, item, part);
}

/* Are all queues that the item needs open to one more? */
static bool routes_have_room(
	struct collet_lane *lane, const struct collet_request *request, const struct collet_step *step)
{
	for (struct remotes at = remotes_of(request, step, REMOTE_ENDS); remotes_next(&at);) {
		struct collet_route *route =
			collet_route_get(lane->group, lane->channel, item_group_rank(request, at.position));
		if (!route || collet_queue_full(at.sends ? &route->send : &route->receive))
			return false;
	}
	return true;
}

/* May an operand that comes from a peer be received where the combined value goes? One buffer less passes through the
 * caches then, and what is overwritten there has not to be fetched for it. */
static bool combines_in_place(const struct collet_lane *lane, const struct collet_item *item, uint32_t index)
{
	const struct collet_request *request = item->request;
	if (!item->step->is_reduction || item->published || request->flow || !item->writes.bytes)
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
	for (struct remotes at = remotes_of(request, step, REMOTE_SOURCES); remotes_next_part(&at, item);) {
		char *place = NULL;
		if (step->is_per_peer) {
			place = item->staged ? NULL : at.place;
		} else if (step->is_reduction ? place_is_free : !item->staged) {
			place = item->value;
			place_is_free = false;
		}
		if (!place)
			place = part_slot(lane, item, staged++);
		struct collet_route *route = item_route(lane, item, at.position);
		struct collet_queued *queued = collet_queue_add(&route->receive, item);
		collet_route_activate(route);
		fill_message(request, &queued->transfer, at.count);
		queued->transfer.data = place;
		/* Never a view of what is staged: it is held until our own send has gone, and may be the peer's very
		 * buffer, whose send then waits for us. */
		queued->transfer.flags = step->is_reduction ? COLLET_TRANSFER_VIEW :
			collet_reach_flags(request, place, queued->transfer.message.bytes);
		queued->ready = true;
		item->receives_pending++;
		collet_route_pump(route);
	}
}

static void queue_sends(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = item->request;
	const bool makes = item_makes_each(item);
	const uint32_t fresh = collet_item_is_fresh(item) ? COLLET_TRANSFER_IN_CACHE : 0;
	uint32_t made = 0;
	for (struct remotes at = remotes_of(request, item->step, REMOTE_DESTINATIONS); remotes_next_part(&at, item);) {
		char *from = item->step->is_per_peer ? at.place : item->value;
		if (makes)
			from = part_slot(lane, item, made++);
		struct collet_route *route = item_route(lane, item, at.position);
		struct collet_queued *queued = collet_queue_add(&route->send, item);
		collet_route_activate(route);
		fill_message(request, &queued->transfer, at.count);
		queued->transfer.data = from;
		queued->transfer.flags = request_send_flags(request) |
			collet_reach_flags(request, from, queued->transfer.message.bytes) | fresh;
		item->sends_pending++;
	}
}

/* The lane's next item is filled in, if it is not already. false: its request has no more, and the next one's turn has
 * come. */
static bool load_next(struct collet_lane *lane, struct collet_request *request, struct collet_item *item)
{
	if (lane->pending_item)
		return true;
	if (!request->elsewhere && collet_cursor_next(lane, item)) {
		lane->pending_item = true;
		return true;
	}
	lane->first = request->next_in_lane[lane->channel];
	if (lane->first)
		collet_cursor_begin(lane);
	request->lanes_entering--;
	collet_request_finish_if_done(request);
	return false;
}

/* The loaded item is the window's last from here on; which in the lane's count. */
static uint32_t admit(struct collet_lane *lane, struct collet_request *request, struct collet_item *item)
{
	lane->pending_item = false;
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->executed = item->staged = item->copying = false;
	item->channel = lane->channel;
	item->slot = (uint32_t)__builtin_ctz(lane->free_slots);
	lane->free_slots &= lane->free_slots - 1;
	collet_item_fill_ranges(request, item);
	request->items++;
	return lane->next++;
}

/* Must what it keeps land in staging first, since its place is not free yet? */
static bool lands_in_staging(const struct collet_lane *lane, const struct collet_item *item, uint32_t index)
{
	const struct collet_request *request = item->request;
	const bool comes = !item_is_local(request, &item->step->source[0]);
	if (item->step->is_reduction || !comes || !item->writes.bytes || item->published)
		return false;
	return collet_item_conflicts(lane, index, false) ||
		(request->flow && !collet_flow_lets(request->flow, item, false));
}

static void place(struct collet_lane *lane, struct collet_item *item, uint32_t index)
{
	if (collet_reach_of(item->request)) {
		collet_reach_place(lane, item, index,
			item->step->is_per_peer ? NULL : collet_item_value_place(lane, item));
		return;
	}
	collet_item_place_value(lane, item);
	item->staged = lands_in_staging(lane, item, index);
}

/* What its sends read of the caller's memory must not be written until they have gone. */
static void lend(struct collet_item *item)
{
	if (!item->sends_pending || item->published)
		return;
	if (item->step->is_per_peer)
		item->lent = item->reads[0];
	else
		item->lent = (struct collet_range){ item->value, item->count * item->request->element_bytes };
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
	if (!load_next(lane, request, item))
		return true;
	if (!routes_have_room(lane, request, item->step) ||
		(collet_reach_of(request) && !collet_reach_is_open(lane, request, item->step)))
		return false;
	const uint32_t index = admit(lane, request, item);
	place(lane, item, index);
	queue_receives(lane, item, index);
	queue_sends(lane, item);
	lend(item);
	return true;
}

/* ---- Executing ---- */

static bool execute_some(struct collet_lane *lane)
{
	bool some = false;
	for (uint32_t i = lane->oldest; i != lane->next; i++) {
		struct collet_item *item = &lane->items[i % LANE_WINDOW];
		if (item->executed || item->receives_pending || item->copying)
			continue;
		/* What it holds of peers meanwhile it holds for a copy's time, which waits for nobody. */
		if (item->request->flow && !collet_flow_lets(item->request->flow, item, true))
			continue;
		if (i != lane->oldest && collet_item_conflicts(lane, i, true)) {
			if (item->step->is_reduction)
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

/* ---- Requests ---- */

collet_status collet_request_start(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_lane *lane;
	for (uint32_t i = 0; i < request->lanes; i++) {
		const collet_status status = collet_lane_get(group, i, &lane);
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
