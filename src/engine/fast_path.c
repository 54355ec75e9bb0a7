/* Executes small calls. It is another executor of the same steps, for latency.
 *
 * A call takes this path if nothing else is under way in its task and each of its few steps is one small segment. Then
 * there is nothing to overlap, so steps run in order without a window and without conflict checks, and each step waits
 * for its receives. Of two paired steps, the one that only sends runs first: ranks that exchange do not wait for each
 * other.
 *
 * fast_path_plan.c has planned the steps. If a peer queue is empty, a transfer bypasses it; most transfers complete at
 * once, and a receive is retried for a while. Other transfers go through the queues, so that the engine handles order,
 * deadlines, lost peers and sleep. A send is posted when it is queued, and a receive when something has arrived. */
#include <assert.h>
#include <string.h>

#include "engine/comm_state.h"
#include "engine/fast_path.h"
#include "engine/peer_queue.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/transfer_ring.h"
#include "engine/work_item.h"
#include "reduce/reduce.h"

/* Operands up to this size are copied out of the transport's memory: releasing a view would cost more. */
enum { COPY_VIEW_BYTES = 128 };

/* Most calls of a communicator that have sent and wait for their receives. */
enum { FAST_PATH_CALLS = TASK_WINDOW - 1 };

static char *address(const struct collet_request *request, struct collet_buffer_offset place)
{
	/* A buffer is NULL only if none of its bytes is needed, so the result does not matter then. */
	return (char *)((uintptr_t)request->fast_path.base[place.buffer] + place.offset);
}

static struct collet_queued_transfer *queue_transfer(struct collet_request *request, struct collet_transfer_ring *ring,
	const struct collet_planned_transfer *planned, char *data)
{
	struct collet_queued_transfer *queued = collet_transfer_ring_add(ring, request->fast_path.item);
	queued->transfer.message = (struct collet_message){ request->signature, request->sequence, planned->bytes };
	queued->transfer.data = data;
	queued->is_ready = true;
	return queued;
}

/* True if a pending send may still read what the step writes. */
static bool overwrites_pending_send(const struct collet_request *request, const struct collet_work_item *item,
	const struct collet_fast_path_step *step)
{
	return item->sends_pending &&
	       (step->overwrites_sent || (step->overwrites_if_in_place && request->fast_path.in_place));
}

/* Returns the transfer of a receive, queued or not. */
static struct collet_transfer *transfer_of(struct collet_planned_transfer *planned)
{
	return planned->queued ? &planned->queued->transfer : &planned->transfer;
}

/* Queues a receive that does not complete at once or is not polled any more. */
static void queue_receive(
	struct collet_request *request, struct collet_work_item *item, struct collet_planned_transfer *planned)
{
	planned->queued = queue_transfer(request, &planned->peer_queue->receive, planned, planned->transfer.data);
	planned->queued->transfer.flags = planned->transfer.flags;
	request->fast_path.must_release = true;
	request->fast_path.unqueued_receives--;
	item->receives_pending++;
}

/* Sets up the receives of a step. A pending send may still read the step's destination, and may wait for a receiver
 * that waits for this rank. So data is received at once, into staging, and stored when the send has completed. */
static void prepare_receives(
	struct collet_request *request, struct collet_work_item *item, const struct collet_fast_path_step *step)
{
	item->in_staging = !step->reduces && overwrites_pending_send(request, item, step);
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!planned->peer_queue)
			continue;
		planned->queued = NULL;
		planned->transfer.status = COLLET_PENDING;
		const bool views = step->reduces && planned->bytes > COPY_VIEW_BYTES;
		request->fast_path.must_release |= views;
		planned->transfer.flags = views ? COLLET_TRANSFER_VIEW : 0;
		planned->transfer.message =
			(struct collet_message){ request->signature, request->sequence, planned->bytes };
		planned->transfer.data = address(request, item->in_staging ? planned->staging_place : planned->place);
	}
	request->fast_path.unqueued_receives = step->receive_count;
	request->fast_path.receives_prepared = true;
}

static bool is_awaited(struct collet_planned_transfer *planned)
{
	return planned->peer_queue && transfer_of(planned)->status == COLLET_PENDING;
}

static void poll_receives(
	struct collet_request *request, struct collet_work_item *item, const struct collet_fast_path_step *step)
{
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!is_awaited(planned))
			continue;
		const enum collet_try_result now =
			planned->queued ? COLLET_TRY_POST
					: collet_peer_queue_receive_now(planned->peer_queue, &planned->transfer);
		if (now == COLLET_TRY_DONE)
			request->fast_path.unqueued_receives--;
		if (now != COLLET_TRY_POST)
			continue;
		if (!planned->queued)
			queue_receive(request, item, planned);
		collet_peer_queue_try_receive(planned->peer_queue);
	}
}

static void post_sends(
	struct collet_request *request, struct collet_work_item *item, const struct collet_fast_path_step *step)
{
	const struct collet_fast_path *fast_path = &request->fast_path;
	struct collet_planned_transfer *const end = step->send_list + step->send_count;
	for (struct collet_planned_transfer *planned = step->send_list; planned < end; planned++) {
		struct collet_transfer *transfer = &planned->transfer;
		transfer->message = (struct collet_message){ request->signature, request->sequence, planned->bytes };
		if (!(transfer->flags & COLLET_TRANSFER_RETURN)) {
			transfer->flags = fast_path->send_flags;
			transfer->data = address(request, planned->place);
		}
		if (collet_peer_queue_send_now(planned->peer_queue, transfer) != COLLET_TRY_DONE) {
			struct collet_queued_transfer *queued =
				queue_transfer(request, &planned->peer_queue->send, planned, transfer->data);
			queued->transfer.flags = transfer->flags;
			item->sends_pending++;
			collet_peer_queue_post_send(planned->peer_queue);
		}
		transfer->flags = 0;
	}
}

/* Returns the address of received bytes. */
static const void *received_bytes(struct collet_planned_transfer *planned)
{
	const struct collet_transfer *transfer = transfer_of(planned);
	return transfer->flags & COLLET_TRANSFER_VIEW ? transfer->view : transfer->data;
}

/* Returns a received operand that may be overwritten; NULL if there is none. */
static struct collet_transfer *writable_operand(const struct collet_fast_path_step *step)
{
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++)
		if (planned->peer_queue && transfer_of(planned)->flags & COLLET_TRANSFER_RETURNABLE)
			return transfer_of(planned);
	return NULL;
}

static void reduce_operands(struct collet_request *request, const struct collet_fast_path_step *step)
{
	struct collet_comm_state *state = request->state;
	struct collet_operand *operands = state->tasks[0]->operands;
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		operands->is_scaled = false;
		operands++->data = planned->peer_queue ? received_bytes(planned) : address(request, planned->place);
	}
	struct collet_transfer *overwritten = writable_operand(step);
	char *view = overwritten ? (char *)(uintptr_t)overwritten->view : NULL;
	const struct collet_reduction_target target = { .result = address(request, step->value), .copy = view };
	collet_reduction_run_to(&request->reduction, &target, state->tasks[0]->operands, step->operand_count,
		step->count, step->finishes, &state->roundings);
	if (!overwritten)
		return;
	overwritten->flags &= ~(uint32_t)COLLET_TRANSFER_RETURNABLE;
	if (!step->may_return)
		return;
	overwritten->flags &= ~(uint32_t)COLLET_TRANSFER_VIEW;
	step->send_list->transfer.flags = request->fast_path.send_flags | COLLET_TRANSFER_RETURN;
	step->send_list->transfer.data = view;
}

/* Stores operands that are kept and not in their place yet. */
static void store_kept(
	struct collet_request *request, const struct collet_work_item *item, const struct collet_fast_path_step *step)
{
	const struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (const struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		const char *from = address(request, planned->peer_queue ? planned->staging_place : planned->place);
		char *to = address(request, planned->peer_queue ? planned->place : step->value);
		const uint64_t bytes = planned->peer_queue ? planned->bytes : step->count * request->element_bytes;
		if (bytes && from != to && (!planned->peer_queue || item->in_staging))
			memmove(to, from, bytes);
	}
}

static void release_receives(struct collet_request *request, const struct collet_fast_path_step *step)
{
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!planned->peer_queue)
			continue;
		if (planned->queued)
			collet_peer_queue_release(planned->peer_queue, planned->queued);
		else if (planned->transfer.flags & COLLET_TRANSFER_VIEW)
			collet_peer_queue_release_view(planned->peer_queue, request, &planned->transfer);
	}
}

/* Copies the bytes of a view to the transfer's own buffer and releases the view. */
static void copy_view(struct collet_request *request, struct collet_planned_transfer *planned)
{
	struct collet_transfer *now = &planned->transfer;
	if (now->status != COLLET_OK || !(now->flags & COLLET_TRANSFER_VIEW))
		return;
	if (now->view != now->data && now->message.bytes)
		memcpy(now->data, now->view, now->message.bytes);
	now->view = now->data;
	collet_peer_queue_release_view(planned->peer_queue, request, now);
}

/* Copies all views of the step. Peers may wait for their release before they can do what this rank waits for. */
static void copy_views(struct collet_request *request, const struct collet_fast_path_step *step)
{
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!planned->peer_queue)
			continue;
		if (planned->queued)
			collet_peer_queue_copy_view(planned->peer_queue, planned->queued);
		else
			copy_view(request, planned);
	}
}

/* True if the step is complete. */
static bool run_step(
	struct collet_request *request, struct collet_work_item *item, const struct collet_fast_path_step *step)
{
	if (step->receive_count && !request->fast_path.receives_prepared)
		prepare_receives(request, item, step);
	if (request->fast_path.unqueued_receives || item->receives_pending) {
		poll_receives(request, item, step);
		if (request->fast_path.unqueued_receives || item->receives_pending)
			return false;
	}
	if (overwrites_pending_send(request, item, step)) {
		copy_views(request, step);
		return false;
	}
	if (step->send_count && step->sends_first)
		post_sends(request, item, step);
	if (step->reduces)
		reduce_operands(request, step);
	else if (step->copies || item->in_staging)
		store_kept(request, item, step);
	if (request->fast_path.must_release)
		release_receives(request, step);
	if (step->send_count && !step->sends_first)
		post_sends(request, item, step);
	request->fast_path.receives_prepared = request->fast_path.must_release = false;
	request->finished_items++;
	return true;
}

/* True if the request fits the fast path and no call runs in task 0. */
static bool is_task_idle(const struct collet_request *request)
{
	const struct collet_task *task = request->state->tasks[0];
	return request->fast_path.is_eligible && request->fast_path.base[COLLET_STAGING] && !task->first_request &&
	       task->oldest == task->next;
}

bool collet_fast_path_is_eligible(const struct collet_request *request)
{
	return is_task_idle(request) && !request->state->fast_path_request;
}

/* Returns the bytes of a buffer with this partition. V-forms do not take this path. */
static uint64_t partition_bytes(const struct collet_request *request, const struct collet_partition *partition)
{
	const struct collet_shape *shape = &request->shape;
	return shape->count * request->element_bytes * (partition->kind == COLLET_PARTITION_BLOCKS ? shape->size : 1);
}

/* Executes the steps that need no receive. The item counts the pending transfers. */
static inline void begin(struct collet_request *request, struct collet_work_item *item)
{
	struct collet_fast_path *fast_path = &request->fast_path;
	fast_path->item = item;
	fast_path->base[COLLET_INPUT] = (char *)(uintptr_t)request->input; /* never written: see step.h */
	fast_path->base[COLLET_RESULT] = request->result;
	const uintptr_t input = (uintptr_t)request->input, result = (uintptr_t)request->result;
	fast_path->in_place = input < result + partition_bytes(request, &request->shape.result) &&
		result < input + partition_bytes(request, &request->shape.input);
	fast_path->step_index = 0;
	/* Its last call, or collet_fast_path_clear(), has left them so. */
	assert(!fast_path->unqueued_receives && !fast_path->receives_prepared && !fast_path->must_release);
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->in_staging = false;
	while (fast_path->step_index < fast_path->step_count &&
		!fast_path->steps[fast_path->step_index].receive_count &&
		run_step(request, item, &fast_path->steps[fast_path->step_index]))
		fast_path->step_index++;
}

void collet_fast_path_start(struct collet_request *request)
{
	struct collet_task *task = request->state->tasks[0];
	request->state->fast_path_request = request;
	begin(request, &task->items[task->next % TASK_WINDOW]);
}

/* ---- Calls behind another one ---- */

/* Returns the item for the first call that has not begun; NULL if it cannot begin yet. It needs an item of its own, and
 * all calls before it must have sent all their messages. */
static struct collet_work_item *item_for_queued(struct collet_comm_state *state)
{
	struct collet_work_item *items = state->tasks[0]->items;
	if (state->fast_path_queued == state->fast_path_request)
		return items;
	const struct collet_fast_path *newest = &state->fast_path_newest->fast_path;
	if (!newest->may_overlap || !state->fast_path_queued->fast_path.may_overlap ||
		newest->step_index < newest->leading_steps || newest->item->sends_pending)
		return NULL;
	struct collet_work_item *item = &items[(newest->item - items + 1) % TASK_WINDOW];
	const ptrdiff_t behind = (item - state->fast_path_request->fast_path.item + TASK_WINDOW) % TASK_WINDOW;
	return behind > 0 && behind < FAST_PATH_CALLS ? item : NULL;
}

void collet_fast_path_begin_queued(struct collet_comm_state *state)
{
	while (state->fast_path_queued) {
		struct collet_work_item *item = item_for_queued(state);
		if (!item)
			return;
		struct collet_request *request = state->fast_path_queued;
		state->fast_path_newest = request;
		state->fast_path_queued = request->fast_path.next;
		begin(request, item);
	}
}

bool collet_fast_path_follow(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_request *first = state->fast_path_request;
	if (!first || !is_task_idle(request))
		return false;
	if (!first->fast_path.next)
		state->fast_path_last = state->fast_path_newest = first;
	state->fast_path_last->fast_path.next = request;
	state->fast_path_last = request;
	if (!state->fast_path_queued)
		state->fast_path_queued = request;
	request->fast_path.step_index = 0;
	collet_fast_path_begin_queued(state);
	return true;
}

void collet_fast_path_progress_queue(struct collet_comm_state *state, uint64_t ticks)
{
	struct collet_request *first;
	do {
		collet_fast_path_begin_queued(state);
		first = state->fast_path_request;
		first->poll_ticks = ticks;
		collet_fast_path_progress(first);
		first->poll_ticks = 0;
		if (state->fast_path_request == first)
			return;
		first->fast_path.next = NULL;
	} while (state->fast_path_request);
}

void collet_fast_path_clear(struct collet_comm_state *state)
{
	for (struct collet_request *request = state->fast_path_request, *next; request; request = next) {
		struct collet_fast_path *fast_path = &request->fast_path;
		next = fast_path->next;
		fast_path->next = NULL;
		fast_path->unqueued_receives = 0;
		fast_path->receives_prepared = fast_path->must_release = false;
	}
	state->fast_path_request = state->fast_path_queued = NULL;
}

/* ---- Progress ---- */

void collet_fast_path_progress(struct collet_request *request)
{
	struct collet_fast_path *fast_path = &request->fast_path;
	struct collet_work_item *item = fast_path->item;
	while (fast_path->step_index < fast_path->step_count) {
		if (!run_step(request, item, &fast_path->steps[fast_path->step_index]))
			return;
		fast_path->step_index++;
	}
	if (!item->sends_pending && !request->poisoned)
		collet_request_end(request, COLLET_OK);
}

uint32_t collet_fast_path_poll_cost(const struct collet_request *request)
{
	const struct collet_fast_path *fast_path = &request->fast_path;
	if (!fast_path->receives_prepared)
		return 0;
	uint32_t cost = 0;
	const struct collet_fast_path_step *step = &fast_path->steps[fast_path->step_index];
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!is_awaited(planned))
			continue;
		const uint32_t polls = planned->queued ? collet_peer_queue_poll_cost(planned->peer_queue) : 1;
		if (!polls)
			return 0;
		cost += polls;
	}
	return cost;
}

bool collet_fast_path_awaits_own_core(const struct collet_request *request)
{
	const struct collet_fast_path *fast_path = &request->fast_path;
	if (!fast_path->receives_prepared)
		return false;
	const struct collet_fast_path_step *step = &fast_path->steps[fast_path->step_index];
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++)
		if (is_awaited(planned) && collet_peer_queue_shares_core(planned->peer_queue))
			return true;
	return false;
}

bool collet_fast_path_sends_to_own_core(const struct collet_request *request)
{
	const struct collet_fast_path *fast_path = &request->fast_path;
	for (uint32_t s = fast_path->step_index; s < fast_path->step_count; s++) {
		const struct collet_fast_path_step *step = &fast_path->steps[s];
		for (const struct collet_planned_transfer *planned = step->send_list;
			planned < step->send_list + step->send_count; planned++)
			if (collet_peer_queue_shares_core(planned->peer_queue))
				return true;
	}
	return false;
}

bool collet_fast_path_post_receives(struct collet_request *request)
{
	const struct collet_fast_path *fast_path = &request->fast_path;
	if (!fast_path->receives_prepared)
		return false;
	bool posted = false;
	const struct collet_fast_path_step *step = &fast_path->steps[fast_path->step_index];
	struct collet_planned_transfer *const end = step->operand_list + step->operand_count;
	for (struct collet_planned_transfer *planned = step->operand_list; planned < end; planned++) {
		if (!planned->peer_queue)
			continue;
		if (is_awaited(planned) && !planned->queued)
			queue_receive(request, fast_path->item, planned);
		if (planned->queued)
			posted |= collet_peer_queue_post_receive(planned->peer_queue);
		else
			copy_view(request, planned);
	}
	return posted;
}
