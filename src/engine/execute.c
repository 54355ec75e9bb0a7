/* Executes one item: reduces its operands or stores the received bytes, then posts its sends and releases its views.
 * task.c decides when. */
#include <string.h>

#include "collectives/step.h"
#include "core/copy.h"
#include "engine/comm_state.h"
#include "engine/gdr.h"
#include "engine/peer_queue.h"
#include "engine/pipeline.h"
#include "engine/remote_iterator.h"
#include "engine/request.h"
#include "engine/task.h"
#include "engine/transfer_ring.h"
#include "engine/work_item.h"
#include "reduce/reduce.h"

/* Size of the blocks in which a value is computed that is copied as well. */
enum { BLOCK_BYTES = 32 << 10 };

/* Returns this rank's own operand, scaled and rounded to the dtype. Its peers get the same value, so that all ranks
 * reduce the same operands. */
static const void *scaled_copy(struct collet_task *task, const struct collet_work_item *item, const void *data)
{
	const struct collet_request *request = item->request;
	const struct collet_operand operand = { data, true };
	char *copy = work_item_slot(task, item, request->fan_in + 1);
	if (item->count)
		collet_reduction_run(
			&request->reduction, copy, &operand, 1, item->count, false, &task->state->roundings);
	return copy;
}

/* Prepares the messages that queue_sends() in task.c has queued, in its order. */
static void pack_messages(struct collet_task *task, struct collet_work_item *item)
{
	struct collet_request *request = item->request;
	const bool scale = request->prescales && item->step->source[0].buffer == COLLET_INPUT;
	uint32_t segment = 0;
	for (struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next_message(&at, item);) {
		const struct collet_operand operand = { at.place, scale };
		char *into = work_item_slot(task, item, segment++);
		if (at.count)
			collet_reduction_run(&request->reduction, into, &operand, 1, at.count, false,
				&task->state->roundings);
	}
}

void collet_work_item_copy_views(struct collet_task *task, struct collet_work_item *item)
{
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_SOURCES);
		remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		collet_peer_queue_copy_view(peer_queue, collet_transfer_ring_find(&peer_queue->receive, item));
	}
}

/* Returns the address of the bytes received from a peer. */
static const void *received_from(const struct collet_task *task, const struct collet_work_item *item, uint32_t position)
{
	struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, position);
	return collet_transfer_ring_find(&peer_queue->receive, item)->transfer.view;
}

/* Computes the item's value from its operands. A published value that has a destination is computed there, and copied
 * to staging, for the peers, while it is in a cache. The order and the block size matter: the C library's memcpy()
 * copies such blocks by string moves. Lines of staging are in the peers' caches too, and string moves can overwrite
 * them without fetching them, while the stores of reduction kernels cannot. */
static void compute_value(struct collet_task *task, const struct collet_work_item *item,
	struct collet_operand *operands, uint32_t count, void *overwritten, bool finish)
{
	const struct collet_request *request = item->request;
	const size_t element_bytes = request->element_bytes;
	char *value = item->value, *copy = NULL;
	if (item->published && range_is_local(request, &item->step->destination[0])) {
		copy = value;
		value = work_item_destination(item);
	}
	const uint64_t block = copy ? BLOCK_BYTES / element_bytes : item->count;
	for (uint64_t left = item->count, block_count; left > 0; left -= block_count) {
		block_count = left < block ? left : block;
		const size_t bytes = block_count * element_bytes;
		const struct collet_reduction_target target = { value, overwritten,
			!copy && work_item_is_nontemporal(item) };
		collet_reduction_run_to(
			&request->reduction, &target, operands, count, block_count, finish, &task->state->roundings);
		if (overwritten)
			overwritten = (char *)overwritten + bytes;
		for (uint32_t i = 0; i < count; i++)
			operands[i].data = (const char *)operands[i].data + bytes;
		if (copy) {
			memcpy(copy, value, bytes);
			copy += bytes;
		}
		value += bytes;
	}
}

/* Returns the received operand that may be overwritten by the value and sent back; NULL if there is none. The item must
 * send its value to the rank that the operand came from, and to no other. */
static struct collet_queued_transfer *returnable_operand(struct collet_task *task, const struct collet_work_item *item)
{
	const struct collet_step *step = item->step;
	struct remote_iterator at = remote_iterator_of(item->request, step, REMOTE_DESTINATIONS);
	if (item->published || step->is_per_peer || !remote_iterator_next(&at))
		return NULL;
	struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
	struct collet_queued_transfer *queued = collet_transfer_ring_find(&peer_queue->receive, item);
	if (!queued || !(queued->transfer.flags & COLLET_TRANSFER_RETURNABLE) || remote_iterator_next(&at))
		return NULL;
	return queued;
}

/* Reduces into the view of an operand, and stores the value at its destination too. The item's send then returns the
 * view. */
static void reduce_and_return(struct collet_task *task, struct collet_work_item *item,
	struct collet_queued_transfer *operand, uint32_t count, bool finish)
{
	const struct collet_request *request = item->request;
	char *view = (char *)(uintptr_t)operand->transfer.view;
	char *destination =
		range_is_local(request, &item->step->destination[0]) ? work_item_destination(item) : NULL;
	const struct collet_reduction_target target = { destination ? destination : view, destination ? view : NULL,
		destination && request->nontemporal_results };
	collet_reduction_run_to(
		&request->reduction, &target, task->operands, count, item->count, finish, &task->state->roundings);
	struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_DESTINATIONS);
	(void)remote_iterator_next(&at);
	struct collet_queued_transfer *send = collet_transfer_ring_find_unready(
		&work_item_peer_queue(task, item, at.position)->send, item);
	send->transfer.data = view;
	send->transfer.flags |= COLLET_TRANSFER_RETURN;
	operand->transfer.flags &= ~(uint32_t)(COLLET_TRANSFER_VIEW | COLLET_TRANSFER_RETURNABLE);
}

/* Returns a received operand that may be overwritten; NULL if there is none. */
static void *writable_view(const struct collet_task *task, const struct collet_work_item *item)
{
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_SOURCES);
		remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		struct collet_transfer *transfer = &collet_transfer_ring_find(&peer_queue->receive, item)->transfer;
		if (!(transfer->flags & COLLET_TRANSFER_RETURNABLE))
			continue;
		transfer->flags &= ~(uint32_t)COLLET_TRANSFER_RETURNABLE;
		return (void *)(uintptr_t)transfer->view;
	}
	return NULL;
}

static void reduce_operands(struct collet_task *task, struct collet_work_item *item)
{
	struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	uint32_t operands = 0;
	for (uint32_t e = 0; e < step->source_count; e++) {
		const struct collet_buffer_range *range = &step->source[e];
		for (uint32_t i = 0; i < range->peers.count; i++) {
			const uint32_t position = collet_peers_at(&range->peers, i, request->shape.size);
			struct collet_operand *operand = &task->operands[operands++];
			operand->is_scaled = false;
			if (position == request->shape.rank) {
				operand->data =
					request_address(request, range->buffer, range->span.first + item->offset);
				if (request->prescales && range->buffer == COLLET_INPUT)
					operand->data = scaled_copy(task, item, operand->data);
			} else {
				operand->data = received_from(task, item, position);
			}
		}
	}
	const bool finish = step->is_final && request->finishes;
	struct collet_queued_transfer *returnable = returnable_operand(task, item);
	if (returnable)
		reduce_and_return(task, item, returnable, operands, finish);
	else
		compute_value(task, item, task->operands, operands, writable_view(task, item), finish);
}

/* Stores a value that is kept: a local operand, or bytes that were received into staging. */
static void store_kept(struct collet_task *task, struct collet_work_item *item)
{
	struct collet_request *request = item->request;
	const struct collet_buffer_range *source = &item->step->source[0];
	if (range_is_local(request, source)) {
		const char *from = work_item_source(item);
		const bool scale = request->prescales && source->buffer == COLLET_INPUT;
		const bool finish = item->step->is_final && request->finishes;
		struct collet_operand operand = { from, scale };
		if (scale || finish || item->published)
			compute_value(task, item, &operand, 1, NULL, finish);
		else if (range_is_local(request, &item->step->destination[0]) && from != work_item_destination(item) &&
			item->count)
			collet_copy(work_item_destination(item), from, item->count * request->element_bytes,
				work_item_is_nontemporal(item) ? COLLET_COPY_NONTEMPORAL : 0);
		return;
	}
	uint32_t segment = 0;
	struct remote_iterator at = remote_iterator_of(request, item->step, REMOTE_SOURCES);
	while (item->in_staging && remote_iterator_next_message(&at, item)) {
		char *place = item->step->is_per_peer ? at.place : item->value;
		const char *staging = work_item_slot(task, item, segment++);
		if (at.count)
			memcpy(place, staging, at.count * request->element_bytes);
	}
	if (item->published && range_is_local(request, &item->step->destination[0]) && item->count)
		memcpy(work_item_destination(item), item->value, item->count * request->element_bytes);
}

static void release_receives(struct collet_task *task, const struct collet_work_item *item)
{
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_SOURCES);
		remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		struct collet_queued_transfer *queued = collet_transfer_ring_find(&peer_queue->receive, item);
		if (queued)  /* per-peer step: a chunk may have no such segment */
			collet_peer_queue_release(peer_queue, queued);
	}
}

void collet_work_item_post_sends(struct collet_task *task, const struct collet_work_item *item)
{
	for (struct remote_iterator at = remote_iterator_of(item->request, item->step, REMOTE_DESTINATIONS);
		remote_iterator_next(&at);) {
		struct collet_peer_queue *peer_queue = work_item_peer_queue(task, item, at.position);
		struct collet_queued_transfer *queued = collet_transfer_ring_find_unready(&peer_queue->send, item);
		if (!queued)
			continue;
		queued->is_ready = true;
		collet_peer_queue_post_ready(peer_queue);
	}
}

void collet_work_item_finish(struct collet_task *task, struct collet_work_item *item)
{
	item->executed = true;
	if (item->request->pipeline)
		collet_pipeline_item_written(item->request->pipeline, item);
	release_receives(task, item);
	if (item->sends_pending)
		collet_work_item_post_sends(task, item);
}

void collet_work_item_execute(struct collet_task *task, struct collet_work_item *item)
{
	if (collet_gdr_of(item->request)) {
		collet_gdr_execute(task, item);
		return;
	}
	/* Data that is sent unmodified leaves before it is copied to its destination. */
	if (item->sends_pending && !item->step->is_per_peer && work_item_is_plain_copy(item) &&
		item->value == work_item_source(item))
		collet_work_item_post_sends(task, item);
	if (item->step->is_reduction)
		reduce_operands(task, item);
	else if (work_item_packs_messages(item))
		pack_messages(task, item);
	else if (!(item->step->is_per_peer && range_is_local(item->request, &item->step->source[0])))
		store_kept(task, item);
	collet_work_item_finish(task, item);
}
