/* What an item does when its turn has come: combines its operands or keeps what came, lets its sends go and gives the
 * views back. When that is, task.c says. */
#include <string.h>

#include "engine/gdr.h"
#include "engine/pipeline.h"
#include "engine/remote_iterator.h"

/* What is made in one go if it is to be copied too. */
enum { BLOCK_BYTES = 32 << 10 };

/* This rank's own operand, scaled and rounded to the dtype: the same value that its peers get, so that all ranks
 * combine the same. */
static const void *scaled_copy(struct collet_lane *lane, const struct collet_item *item, const void *data)
{
	const struct collet_request *request = item->request;
	const struct collet_operand operand = { data, true };
	char *copy = item_slot(lane, item, request->fan_in + 1);
	if (item->count)
		collet_reduction_run(
			&request->reduction, copy, &operand, 1, item->count, false, &lane->group->roundings);
	return copy;
}

/* The parts that queue_sends() has promised, in its order. */
static void make_each(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = item->request;
	const bool scale = request->prescales && item->step->source[0].buffer == COLLET_INPUT;
	uint32_t made = 0;
	for (struct remotes at = remotes_of(request, item->step, REMOTE_DESTINATIONS); remotes_next_part(&at, item);) {
		const struct collet_operand operand = { at.place, scale };
		char *into = item_slot(lane, item, made++);
		if (at.count)
			collet_reduction_run(&request->reduction, into, &operand, 1, at.count, false,
				&lane->group->roundings);
	}
}

void collet_item_unload(struct collet_lane *lane, struct collet_item *item)
{
	for (struct remotes at = remotes_of(item->request, item->step, REMOTE_SOURCES); remotes_next(&at);) {
		struct collet_route *route = item_route(lane, item, at.position);
		collet_route_unload(route, collet_queue_find(&route->receive, item));
	}
}

/* Where the item's bytes from a peer are. */
static const void *received_from(const struct collet_lane *lane, const struct collet_item *item, uint32_t position)
{
	struct collet_route *route = item_route(lane, item, position);
	return collet_queue_find(&route->receive, item)->transfer.view;
}

/* The item's value from its operands. A published one is made in its own place, if it has one, and copied to staging,
 * for the peers, while it is in a cache. In this order, and in blocks that the C library's memcpy() moves as a string:
 * lines of staging are in the peers' caches too, and string moves need not fetch them to overwrite them, as kernels'
 * stores must. */
static void make(struct collet_lane *lane, const struct collet_item *item, struct collet_operand *operands,
	uint32_t count, bool finish)
{
	const struct collet_request *request = item->request;
	const size_t element_bytes = request->element_bytes;
	char *value = item->value, *copy = NULL;
	if (item->published && item_is_local(request, &item->step->destination[0])) {
		copy = value;
		value = item_final_place(item);
	}
	const uint64_t block = copy ? BLOCK_BYTES / element_bytes : item->count;
	for (uint64_t left = item->count, some; left > 0; left -= some) {
		some = left < block ? left : block;
		const size_t bytes = some * element_bytes;
		collet_reduction_run(
			&request->reduction, value, operands, count, some, finish, &lane->group->roundings);
		for (uint32_t i = 0; i < count; i++)
			operands[i].data = (const char *)operands[i].data + bytes;
		if (copy) {
			memcpy(copy, value, bytes);
			copy += bytes;
		}
		value += bytes;
	}
}

static void combine(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	uint32_t operands = 0;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_buffer_range *end = &step->source[e];
		for (uint32_t i = 0; i < end->peers.count; i++) {
			const uint32_t position = collet_peers_at(&end->peers, i, request->shape.size);
			struct collet_operand *operand = &lane->operands[operands++];
			operand->is_scaled = false;
			if (position == request->shape.rank) {
				operand->data = item_address(request, end->buffer, end->span.first + item->offset);
				if (request->prescales && end->buffer == COLLET_INPUT)
					operand->data = scaled_copy(lane, item, operand->data);
			} else {
				operand->data = received_from(lane, item, position);
			}
		}
	}
	make(lane, item, lane->operands, operands, step->is_final && request->averages);
}

/* A kept value that must still be moved or changed here: an own operand, or bytes that came while their place was
 * taken. */
static void keep(struct collet_lane *lane, struct collet_item *item)
{
	struct collet_request *request = item->request;
	const struct collet_buffer_range *source = &item->step->source[0];
	if (item_is_local(request, source)) {
		const char *from = item_source_place(item);
		const bool scale = request->prescales && source->buffer == COLLET_INPUT;
		const bool finish = item->step->is_final && request->averages;
		struct collet_operand operand = { from, scale };
		if (scale || finish || item->published)
			make(lane, item, &operand, 1, finish);
		else if (item_is_local(request, &item->step->destination[0]) && from != item_final_place(item) &&
			item->count)
			memmove(item_final_place(item), from, item->count * request->element_bytes);
		return;
	}
	uint32_t staged = 0;
	struct remotes at = remotes_of(request, item->step, REMOTE_SOURCES);
	while (item->staged && remotes_next_part(&at, item)) {
		char *place = item->step->is_per_peer ? at.place : item->value;
		const char *staging = item_slot(lane, item, staged++);
		if (at.count)
			memcpy(place, staging, at.count * request->element_bytes);
	}
	if (item->published && item_is_local(request, &item->step->destination[0]) && item->count)
		memcpy(item_final_place(item), item->value, item->count * request->element_bytes);
}

static void release_receives(struct collet_lane *lane, const struct collet_item *item)
{
	for (struct remotes at = remotes_of(item->request, item->step, REMOTE_SOURCES); remotes_next(&at);) {
		struct collet_route *route = item_route(lane, item, at.position);
		struct collet_queued *queued = collet_queue_find(&route->receive, item);
		if (queued)  /* per_peer: a chunk may have had no such piece */
			collet_route_release(route, queued);
	}
}

void collet_item_let_sends_go(struct collet_lane *lane, const struct collet_item *item)
{
	for (struct remotes at = remotes_of(item->request, item->step, REMOTE_DESTINATIONS); remotes_next(&at);) {
		struct collet_route *route = item_route(lane, item, at.position);
		struct collet_queued *queued = collet_queue_find_waiting(&route->send, item);
		if (!queued)
			continue;
		queued->ready = true;
		collet_route_pump(route);
	}
}

void collet_item_finish(struct collet_lane *lane, struct collet_item *item)
{
	item->executed = true;
	if (item->request->flow)
		collet_flow_wrote(item->request->flow, item);
	release_receives(lane, item);
	if (item->sends_pending)
		collet_item_let_sends_go(lane, item);
}

void collet_item_execute(struct collet_lane *lane, struct collet_item *item)
{
	if (collet_reach_of(item->request)) {
		collet_reach_execute(lane, item);
		return;
	}
	/* What peers get as it lies here leaves before it is copied to its place. */
	if (item->sends_pending && !item->step->is_per_peer && item_is_plain_copy(item) &&
		item->value == item_source_place(item))
		collet_item_let_sends_go(lane, item);
	if (item->step->is_reduction)
		combine(lane, item);
	else if (item_makes_each(item))
		make_each(lane, item);
	else if (!(item->step->is_per_peer && item_is_local(item->request, &item->step->source[0])))
		keep(lane, item);
	collet_item_finish(lane, item);
}
