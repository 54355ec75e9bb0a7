/* Tasks execute step programs over peer queues.
 *
 * A task issues its items in program order, as many as the window holds. Issuing an item queues all its transfers,
 * which fixes the order of messages, and posts its receives. The item is executed (operands reduced, sends posted) when
 * its bytes have arrived and no earlier item still reads or writes what it writes, or writes what it reads. It retires
 * when its sends have completed.
 *
 * Received data that is kept goes straight to its destination if that is free when the item is issued, else to the
 * task's staging, to be copied later. So every receive can be posted, and two ranks that swap spans in place do not
 * wait for each other. A received operand goes, if possible, where the result will be. */
#include "engine/byte_range.h"
#include "engine/comm_state.h"
#include "engine/gdr.h"
#include "engine/pipeline.h"
#include "engine/remote_iterator.h"
#include "engine/task.h"
#include "engine/transfer_ring.h"

/* ---- Issuing ---- */

static void fill_message(const struct collet_request *request, struct collet_transfer *transfer, uint64_t count)
{
	transfer->message.signature = request->signature;
	transfer->message.sequence = request->sequence;
	transfer->message.bytes = count * request->element_bytes;
}

/* Returns the address of an item's segment in staging: in its slot, or with GPUDirect in its cell. */
static char *slot_segment_address(const struct collet_task *task, const struct collet_work_item *item, uint32_t segment)
{
	return collet_gdr_of(item->request) ? collet_gdr_cell(item, segment) : work_item_slot(task, item, segment);
}

/* True if all queues that the step needs have room for another transfer. */
static bool peer_queues_have_room(
	struct collet_task *task, const struct collet_request *request, const struct collet_step *step)
{
	for (struct remote_iterator at = remote_iterator_of(request, step, REMOTE_BOTH); remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue =
			collet_peer_queue_get(task->state, task->channel, request_comm_rank(request, at.position));
		if (!peer_queue || collet_transfer_ring_is_full(at.sends ? &peer_queue->send : &peer_queue->receive))
			return false;
	}
	return true;
}

/* True if an operand may be received where the reduced value goes. Then one buffer less passes through the caches, and
 * the lines of the destination need not be fetched to be overwritten. */
static bool reduces_in_place(const struct collet_task *task, const struct collet_work_item *item, uint32_t index)
{
	const struct collet_request *request = item->request;
	if (!item->step->is_reduction || item->published || request->pipeline || !item->writes.bytes)
		return false;
	for (uint32_t i = 0; i < item->read_count; i++)
		if (collet_ranges_overlap(item->reads[i], item->writes))
			return false;
	return !collet_work_item_conflicts(task, index, false);
}

static void queue_receives(struct collet_task *task, struct collet_work_item *item, uint32_t index)
{
	struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	bool place_is_free = reduces_in_place(task, item, index);
	uint32_t segment = 0;
	for (struct remote_iterator at = remote_iterator_of(request, step, REMOTE_SOURCES);
		remote_iterator_next_message(&at, item);) {
		char *place = NULL;
		if (step->is_per_peer) {
			place = item->in_staging ? NULL : at.place;
		} else if (step->is_reduction ? place_is_free : !item->in_staging) {
			place = item->value;
			place_is_free = false;
		}
		if (!place)
			place = slot_segment_address(task, item, segment++);
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		struct collet_queued_transfer *queued = collet_transfer_ring_add(&peer_queue->receive, item);
		collet_peer_queue_activate(peer_queue);
		fill_message(request, &queued->transfer, at.count);
		queued->transfer.data = place;
		/* Data that is kept is never received as a view: it would be held until our own send completes, and may
		 * be the peer's own buffer, whose send then waits for us. */
		queued->transfer.flags = step->is_reduction ? COLLET_TRANSFER_VIEW :
			collet_gdr_flags(request, place, queued->transfer.message.bytes) |
			(work_item_is_nontemporal(item) && !item->in_staging ? COLLET_TRANSFER_NONTEMPORAL : 0);
		queued->is_ready = true;
		item->receives_pending++;
		collet_peer_queue_post_ready(peer_queue);
	}
}

static void queue_sends(struct collet_task *task, struct collet_work_item *item)
{
	struct collet_request *request = item->request;
	const bool packs_messages = work_item_packs_messages(item);
	const uint32_t in_cache_flag = collet_work_item_is_in_cache(item) ? COLLET_TRANSFER_IN_CACHE : 0;
	uint32_t segment = 0;
	for (struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next_message(&at, item);) {
		char *from = item->step->is_per_peer ? at.place : item->value;
		if (packs_messages)
			from = slot_segment_address(task, item, segment++);
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		struct collet_queued_transfer *queued = collet_transfer_ring_add(&peer_queue->send, item);
		collet_peer_queue_activate(peer_queue);
		fill_message(request, &queued->transfer, at.count);
		queued->transfer.data = from;
		queued->transfer.flags = request_send_flags(request) |
			collet_gdr_flags(request, from, queued->transfer.message.bytes) | in_cache_flag;
		item->sends_pending++;
	}
}

/* Fills in the task's next item, unless it is filled in already. False if the first request has no more items; then the
 * next request becomes the first, unless this one has more slices. */
static bool load_next_item(struct collet_task *task, struct collet_request *request, struct collet_work_item *item)
{
	if (task->has_pending_item)
		return true;
	if (!request->offloaded && collet_cursor_next(task, item)) {
		task->has_pending_item = true;
		return true;
	}
	task->awaits_slice = collet_wide_sums_has_more(request);
	if (!task->awaits_slice) {
		task->first_request = request->next_in_task[task->channel];
		if (task->first_request)
			collet_cursor_begin(task);
	}
	request->issuing_tasks--;
	collet_request_end_if_done(request);
	return false;
}

/* Makes the loaded item the last of the window. Returns its index in the task. */
static uint32_t issue(struct collet_task *task, struct collet_request *request, struct collet_work_item *item)
{
	task->has_pending_item = false;
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->executed = item->in_staging = item->is_copying = false;
	item->channel = task->channel;
	item->staging_slot = (uint32_t)__builtin_ctz(task->free_slots);
	task->free_slots &= task->free_slots - 1;
	collet_work_item_fill_ranges(request, item);
	request->items_in_flight++;
	return task->next++;
}

/* True if received data that is kept must go to staging first, since its destination is not free yet. */
static bool must_stage(const struct collet_task *task, const struct collet_work_item *item, uint32_t index)
{
	const struct collet_request *request = item->request;
	const bool is_received = !range_is_local(request, &item->step->source[0]);
	if (item->step->is_reduction || !is_received || !item->writes.bytes || item->published)
		return false;
	return collet_work_item_conflicts(task, index, false) ||
		(request->pipeline && !collet_pipeline_allows(request->pipeline, item, false));
}

static void place_item(struct collet_task *task, struct collet_work_item *item, uint32_t index)
{
	if (collet_gdr_of(item->request)) {
		collet_gdr_place(task, item, index,
			item->step->is_per_peer ? NULL : collet_work_item_value_address(task, item));
		return;
	}
	collet_work_item_place_value(task, item);
	item->in_staging = must_stage(task, item, index);
}

/* Marks the caller's memory that the sends read. It must not be written until they complete. */
static void mark_borrowed(struct collet_work_item *item)
{
	if (!item->sends_pending || item->published)
		return;
	if (item->step->is_per_peer)
		item->borrowed = item->reads[0];
	else
		item->borrowed = (struct collet_byte_range){ item->value, item->count * item->request->element_bytes };
}

/* Issues the next item. False if there is no room, or nothing left to issue. */
static bool issue_next(struct collet_task *task)
{
	if (task->state->fast_path_request && task->channel == 0)
		return false;  /* its messages go first, and it uses the task's staging */
	struct collet_request *request = task->first_request;
	if (!request || request->deferred || task->awaits_slice ||
		task->next - task->oldest >= (request->has_published ? PUBLISH_WINDOW : TASK_WINDOW))
		return false;
	if (request->wide.is_used && !request->wide.memory && !request->offloaded && !collet_wide_sums_begin(request))
		return false;
	struct collet_work_item *item = &task->items[task->next % TASK_WINDOW];
	if (!load_next_item(task, request, item))
		return true;
	if (!peer_queues_have_room(task, request, item->step) ||
		(collet_gdr_of(request) && !collet_gdr_is_connected(task, request, item->step)))
		return false;
	const uint32_t index = issue(task, request, item);
	place_item(task, item, index);
	queue_receives(task, item, index);
	queue_sends(task, item);
	mark_borrowed(item);
	return true;
}

/* ---- Executing ---- */

static bool execute_ready(struct collet_task *task)
{
	bool progressed = false;
	for (uint32_t i = task->oldest; i != task->next; i++) {
		struct collet_work_item *item = &task->items[i % TASK_WINDOW];
		if (item->executed || item->receives_pending || item->is_copying)
			continue;
		/* It may hold views of peers' memory meanwhile, but only as long as a copy takes, which waits for no
		 * peer. */
		if (item->request->pipeline && !collet_pipeline_allows(item->request->pipeline, item, true))
			continue;
		if (i != task->oldest && collet_work_item_conflicts(task, i, true)) {
			if (item->step->is_reduction)
				collet_work_item_copy_views(task, item);
			continue;
		}
		collet_work_item_execute(task, item);
		progressed = true;
	}
	return progressed;
}

static bool retire_finished(struct collet_task *task)
{
	bool progressed = false;
	while (task->oldest != task->next) {
		struct collet_work_item *item = &task->items[task->oldest % TASK_WINDOW];
		if (!item->executed || item->sends_pending)
			break;
		task->free_slots |= (uint32_t)1 << item->staging_slot;
		task->oldest++;
		item->request->items_in_flight--;
		item->request->finished_items++;
		collet_request_end_if_done(item->request);
		progressed = true;
	}
	return progressed;
}

void collet_work_item_transfer_done(struct collet_queued_transfer *queued, bool sent)
{
	struct collet_work_item *item = queued->item;
	if (sent)
		item->sends_pending--;
	else
		item->receives_pending--;
	item->request->state->tasks_need_progress |= item->request->state->fast_path_request != item->request;
}

void collet_task_progress(struct collet_task *task)
{
	bool progressed = true;
	while (progressed && !atomic_load_explicit(&task->state->end_status, memory_order_relaxed)) {
		progressed = false;
		while (issue_next(task))
			progressed = true;
		progressed |= execute_ready(task);
		progressed |= retire_finished(task);
	}
}

/* ---- Requests ---- */

collet_status collet_request_start(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_task *task;
	for (uint32_t i = 0; i < request->task_count; i++) {
		const collet_status status = collet_task_get(state, i, &task);
		if (status != COLLET_OK)
			return status;
	}
	if (request->wide.is_used)
		collet_wide_sums_queue(request);
	request->fast_path.base[COLLET_STAGING] = state->tasks[0]->staging;
	request->issuing_tasks = request->task_count;
	request->has_published = false;
	for (uint32_t i = 0; i < request->task_count; i++) {
		task = state->tasks[i];
		request->next_in_task[i] = NULL;
		if (task->first_request)
			task->last_request->next_in_task[i] = request;
		else
			task->first_request = request;
		task->last_request = request;
		if (task->first_request == request)
			collet_cursor_begin(task);
	}
	for (uint32_t i = 0; i < request->task_count; i++)
		collet_task_progress(state->tasks[i]);
	return COLLET_OK;
}
