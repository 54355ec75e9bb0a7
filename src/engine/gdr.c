#include "engine/gdr.h"

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/peer_queue.h"
#include "engine/pipeline.h"
#include "engine/remote_iterator.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/work_item.h"

/* ---- Addresses ---- */

struct collet_gdr *collet_gdr_of(const struct collet_request *request)
{
	return request->pipeline ? request->pipeline->gdr : NULL;
}

static bool is_on_gpu(const struct collet_gdr *gdr, const char *data)
{
	for (int i = 0; i < 2; i++)
		if (data >= gdr->gpu_ranges[i].first && data < gdr->gpu_ranges[i].first + gdr->gpu_ranges[i].bytes)
			return true;
	return false;
}

uint32_t collet_gdr_flags(const struct collet_request *request, const void *data, uint64_t bytes)
{
	const struct collet_gdr *gdr = collet_gdr_of(request);
	return gdr && bytes && is_on_gpu(gdr, data) ? COLLET_TRANSFER_GPU : 0;
}

/* Returns the number of values in an item's cell: one, or one for each peer. */
static uint32_t value_count(const struct collet_step *step)
{
	uint32_t peers = 0;
	for (uint32_t e = 0; step->is_per_peer && e < step->source_count; e++)
		peers += step->source[e].peers.count;
	for (uint32_t e = 0; step->is_per_peer && e < step->destination_count; e++)
		peers += step->destination[e].peers.count;
	return peers ? peers - 1 : 1;  /* one of the peers is this rank */
}

size_t collet_gdr_cell_bytes(const struct collet_request *request)
{
	const struct collet_program *program = request->program;
	uint32_t most = 1;
	for (uint32_t part = 0; part < request->parts; part++) {
		const uint64_t steps = program->step_count(&request->shape, part);
		for (uint64_t s = 0; s < steps; s++) {
			const struct collet_step step = program->step(&request->shape, part, s);
			const uint32_t values = value_count(&step);
			most = values > most ? values : most;
		}
	}
	return (request->segment_elements * request->element_bytes * most + 63) & ~(size_t)63;
}

char *collet_gdr_cell(const struct collet_work_item *item, uint32_t part)
{
	const struct collet_request *request = item->request;
	const struct collet_gdr *gdr = collet_gdr_of(request);
	const size_t first = part * request->segment_elements * request->element_bytes;
	assert(first < gdr->cell_bytes);
	return gdr->cells + (item->channel * TASK_WINDOW + item->staging_slot) * gdr->cell_bytes + first;
}

/* ---- Endpoints ---- */

static struct collet_endpoint *endpoint_of(struct collet_peer_queue *peer_queue)
{
	return peer_queue ? collet_peer_queue_endpoint(peer_queue) : NULL;
}

bool collet_gdr_is_connected(const struct collet_task *task, const struct collet_request *request,
	const struct collet_step *step)
{
	struct collet_gdr *gdr = collet_gdr_of(request);
	struct collet_peer_queue *awaited = NULL;
	for (struct remote_iterator at = remote_iterator_of(request, step, REMOTE_BOTH); remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue =
			collet_peer_queue_get(task->state, task->channel, request_comm_rank(request, at.position));
		if (!peer_queue)
			return false;
		if (endpoint_of(peer_queue))
			continue;
		collet_connections_request(peer_queue);
		awaited = peer_queue;
	}
	if (awaited)
		gdr->awaited_queue = awaited;
	return !awaited;
}

bool collet_gdr_poll(struct collet_gdr *gdr, struct collet_comm_state *state)
{
	if (!gdr->awaited_queue || !endpoint_of(gdr->awaited_queue))
		return false;
	gdr->awaited_queue = NULL;
	state->tasks_need_progress = true;
	return true;
}

static bool endpoint_takes(
	struct collet_peer_queue *peer_queue, const struct collet_gdr *gdr, const char *data, uint64_t bytes)
{
	struct collet_endpoint *endpoint = endpoint_of(peer_queue);
	if (!bytes || !is_on_gpu(gdr, data))
		return true;
	return endpoint && endpoint->transport->accepts_gpu && endpoint->transport->accepts_gpu(endpoint, data, bytes);
}

/* True if the item's transfers can use the buffers directly. value is its address, unless the step is per-peer. */
static bool moves_directly(const struct collet_task *task, const struct collet_work_item *item, const char *value)
{
	const struct collet_request *request = item->request;
	const struct collet_gdr *gdr = collet_gdr_of(request);
	for (struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_BOTH);
		remote_iterator_next_message(&at, item);) {
		const char *data = item->step->is_per_peer ? at.place : value;
		if (!endpoint_takes(work_item_peer_queue(task, item, at.position), gdr, data,
			    at.count * request->element_bytes))
			return false;
	}
	return true;
}

void collet_gdr_place(const struct collet_task *task, struct collet_work_item *item, uint32_t index, char *value)
{
	const struct collet_step *step = item->step;
	const bool is_received = !range_is_local(item->request, &step->source[0]);
	const bool must_wait = is_received && item->writes.bytes && collet_work_item_conflicts(task, index, false);
	item->published = must_wait || !moves_directly(task, item, value);
	item->in_staging = item->published && is_received && step->is_per_peer;
	item->value = item->published && !step->is_per_peer ? collet_gdr_cell(item, 0) : value;
}

/* ---- Copies ---- */

/* Visits the copies between the cell and this rank's parts of a buffer. */
static collet_status visit_part_copies(
	const struct collet_work_item *item, collet_gdr_copy_visitor *visit, void *context)
{
	const struct collet_request *request = item->request;
	collet_status status = COLLET_OK;
	uint32_t part = 0;
	for (struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_BOTH);
		remote_iterator_next_message(&at, item);) {
		char *cell = collet_gdr_cell(item, part++);
		if (status == COLLET_OK && at.count)
			status = visit(context, at.sends ? cell : at.place, at.sends ? at.place : cell,
				at.count * request->element_bytes);
	}
	return status;
}

collet_status collet_gdr_visit_copies(
	const struct collet_work_item *item, collet_gdr_copy_visitor *visit, void *context)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	if (step->is_per_peer)
		return item->published ? visit_part_copies(item, visit, context) : COLLET_OK;
	if (!item->count)
		return COLLET_OK;
	const size_t bytes = item->count * request->element_bytes;
	const bool is_here = range_is_local(request, &step->source[0]);
	const char *from = is_here ? work_item_source(item) : item->value;
	char *place = range_is_local(request, &step->destination[0]) ? work_item_destination(item) : NULL;
	collet_status status = COLLET_OK;
	if (is_here && item->value != from && item->value != place)
		status = visit(context, item->value, from, bytes);
	if (status == COLLET_OK && place && place != from)
		status = visit(context, place, from, bytes);
	return status;
}

static collet_status note_copy(void *context, void *to, const void *from, size_t bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
	*(bool *)context = true;
	return COLLET_OK;
}

void collet_gdr_execute(struct collet_task *task, struct collet_work_item *item)
{
	const struct collet_request *request = item->request;
	const bool is_here = range_is_local(request, &item->step->source[0]);
	bool copies = false;
	/* Data that is already where it is sent from leaves before it is copied to its destination. */
	if (item->sends_pending && !item->step->is_per_peer && (!is_here || item->value == work_item_source(item)))
		collet_work_item_post_sends(task, item);
	(void)collet_gdr_visit_copies(item, note_copy, &copies);
	if (!copies) {
		collet_work_item_finish(task, item);
		return;
	}
	item->is_copying = true;
	collet_gdr_of(request)->start_copies(collet_gdr_of(request), item);
}

void collet_gdr_copied(struct collet_work_item *item)
{
	struct collet_comm_state *state = item->request->state;
	item->is_copying = false;
	collet_work_item_finish(state->tasks[item->channel], item);
	state->tasks_need_progress = true;
}
