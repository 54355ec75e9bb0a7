#include "engine/gdr.h"

#include "engine/pipeline.h"
#include "engine/remote_iterator.h"

/* ---- Where bytes are ---- */

struct collet_reach *collet_reach_of(const struct collet_request *request)
{
	return request->flow ? request->flow->reach : NULL;
}

static bool is_on_gpu(const struct collet_reach *reach, const char *data)
{
	for (int i = 0; i < 2; i++)
		if (data >= reach->on_gpu[i].first && data < reach->on_gpu[i].first + reach->on_gpu[i].bytes)
			return true;
	return false;
}

uint32_t collet_reach_flags(const struct collet_request *request, const void *data, uint64_t bytes)
{
	const struct collet_reach *reach = collet_reach_of(request);
	return reach && bytes && is_on_gpu(reach, data) ? COLLET_TRANSFER_GPU : 0;
}

/* One value, or one for each peer. */
static uint32_t values_of(const struct collet_step *step)
{
	uint32_t peers = 0;
	for (uint32_t e = 0; step->is_per_peer && e < step->source_count; e++)
		peers += step->source[e].peers.count;
	for (uint32_t e = 0; step->is_per_peer && e < step->destination_count; e++)
		peers += step->destination[e].peers.count;
	return peers ? peers - 1 : 1;  /* of its ends one is this rank */
}

size_t collet_reach_cell_bytes(const struct collet_request *request)
{
	const struct collet_program *program = request->program;
	uint32_t most = 1;
	for (uint32_t part = 0; part < request->parts; part++) {
		const uint64_t steps = program->step_count(&request->shape, part);
		for (uint64_t s = 0; s < steps; s++) {
			const struct collet_step step = program->step(&request->shape, part, s);
			const uint32_t values = values_of(&step);
			most = values > most ? values : most;
		}
	}
	return (request->piece * request->element_bytes * most + 63) & ~(size_t)63;
}

char *collet_reach_cell(const struct collet_item *item, uint32_t part)
{
	const struct collet_request *request = item->request;
	const struct collet_reach *reach = collet_reach_of(request);
	const size_t first = part * request->piece * request->element_bytes;
	assert(first < reach->cell_bytes);
	return reach->cells + (item->channel * LANE_WINDOW + item->slot) * reach->cell_bytes + first;
}

/* ---- Routes ---- */

static struct collet_endpoint *conduit_of(struct collet_route *route)
{
	/* Acquire, pairing with the control thread's release store of an open conduit. */
	return route ? atomic_load_explicit(&route->conduit, memory_order_acquire) : NULL;
}

bool collet_reach_is_open(const struct collet_lane *lane, const struct collet_request *request,
	const struct collet_step *step)
{
	struct collet_reach *reach = collet_reach_of(request);
	struct collet_route *awaited = NULL;
	for (struct remotes at = remotes_of(request, step, REMOTE_ENDS); remotes_next(&at);) {
		struct collet_route *route =
			collet_route_get(lane->group, lane->channel, item_group_rank(request, at.position));
		if (!route)
			return false;
		if (conduit_of(route))
			continue;
		collet_fabric_want(route);
		awaited = route;
	}
	if (awaited)
		reach->awaited = awaited;
	return !awaited;
}

bool collet_reach_look(struct collet_reach *reach, struct collet_group *group)
{
	if (!reach->awaited || !conduit_of(reach->awaited))
		return false;
	reach->awaited = NULL;
	group->lanes_dirty = true;
	return true;
}

static bool takes(struct collet_route *route, const struct collet_reach *reach, const char *data, uint64_t bytes)
{
	struct collet_endpoint *conduit = conduit_of(route);
	if (!bytes || !is_on_gpu(reach, data))
		return true;
	return conduit && conduit->transport->accepts_gpu && conduit->transport->accepts_gpu(conduit, data, bytes);
}

/* Does the item go as it lies? value: where that is, if the step is no per_peer one. */
static bool goes_as_it_lies(const struct collet_lane *lane, const struct collet_item *item, const char *value)
{
	const struct collet_request *request = item->request;
	const struct collet_reach *reach = collet_reach_of(request);
	for (struct remotes at = remotes_of(request, item->step, REMOTE_ENDS); remotes_next_part(&at, item);) {
		const char *data = item->step->is_per_peer ? at.place : value;
		if (!takes(item_route(lane, item, at.position), reach, data, at.count * request->element_bytes))
			return false;
	}
	return true;
}

void collet_reach_place(const struct collet_lane *lane, struct collet_item *item, uint32_t index, char *value)
{
	const struct collet_step *step = item->step;
	const bool comes = !item_is_local(item->request, &step->source[0]);
	const bool waits = comes && item->writes.bytes && collet_item_conflicts(lane, index, false);
	item->published = waits || !goes_as_it_lies(lane, item, value);
	item->staged = item->published && comes && step->is_per_peer;
	item->value = item->published && !step->is_per_peer ? collet_reach_cell(item, 0) : value;
}

/* ---- Copies ---- */

/* Between the cell and this rank's parts of a buffer. */
static collet_status copy_each(const struct collet_item *item, collet_reach_visit *visit, void *context)
{
	const struct collet_request *request = item->request;
	collet_status status = COLLET_OK;
	uint32_t piece = 0;
	for (struct remotes at = remotes_of(request, item->step, REMOTE_ENDS); remotes_next_part(&at, item);) {
		char *cell = collet_reach_cell(item, piece++);
		if (status == COLLET_OK && at.count)
			status = visit(context, at.sends ? cell : at.place, at.sends ? at.place : cell,
				at.count * request->element_bytes);
	}
	return status;
}

collet_status collet_reach_copies(const struct collet_item *item, collet_reach_visit *visit, void *context)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	if (step->is_per_peer)
		return item->published ? copy_each(item, visit, context) : COLLET_OK;
	if (!item->count)
		return COLLET_OK;
	const size_t bytes = item->count * request->element_bytes;
	const bool is_here = item_is_local(request, &step->source[0]);
	const char *from = is_here ? item_source_place(item) : item->value;
	char *place = item_is_local(request, &step->destination[0]) ? item_final_place(item) : NULL;
	collet_status status = COLLET_OK;
	if (is_here && item->value != from && item->value != place)
		status = visit(context, item->value, from, bytes);
	if (status == COLLET_OK && place && place != from)
		status = visit(context, place, from, bytes);
	return status;
}

static collet_status note(void *context, void *to, const void *from, size_t bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
	*(bool *)context = true;
	return COLLET_OK;
}

void collet_reach_execute(struct collet_lane *lane, struct collet_item *item)
{
	const struct collet_request *request = item->request;
	const bool is_here = item_is_local(request, &item->step->source[0]);
	bool copies = false;
	/* What is where it is sent from leaves before it is copied to its place. */
	if (item->sends_pending && !item->step->is_per_peer && (!is_here || item->value == item_source_place(item)))
		collet_item_let_sends_go(lane, item);
	(void)collet_reach_copies(item, note, &copies);
	if (!copies) {
		collet_item_finish(lane, item);
		return;
	}
	item->copying = true;
	collet_reach_of(request)->copy(collet_reach_of(request), item);
}

void collet_reach_copied(struct collet_item *item)
{
	struct collet_group *group = item->request->group;
	item->copying = false;
	collet_item_finish(group->lanes[item->channel], item);
	group->lanes_dirty = true;
}
