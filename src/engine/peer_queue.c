/* Queues and posts the transfers of an endpoint. A task queues an item's transfers when it issues the item, and each is
 * posted in queue order when it is ready. So the messages between two ranks keep (request, step) order, while items may
 * overtake one another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/mismatch.h"
#include "engine/peer_queue.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/work_item.h"

enum { RING_MASK = TRANSFER_RING_SIZE - 1 };

void collet_peer_queue_activate(struct collet_peer_queue *peer_queue)
{
	if (peer_queue->previous_active)
		return;
	struct collet_engine *engine = peer_queue->state->engine;
	peer_queue->next_active = engine->active_queues;
	if (engine->active_queues)
		engine->active_queues->previous_active = &peer_queue->next_active;
	engine->active_queues = peer_queue;
	peer_queue->previous_active = &engine->active_queues;
}

void collet_peer_queue_deactivate(struct collet_peer_queue *peer_queue)
{
	if (!peer_queue->previous_active)
		return;
	*peer_queue->previous_active = peer_queue->next_active;
	if (peer_queue->next_active)
		peer_queue->next_active->previous_active = peer_queue->previous_active;
	peer_queue->previous_active = NULL;
}

bool collet_transfer_ring_is_full(const struct collet_transfer_ring *ring)
{
	return ring->tail - ring->head == TRANSFER_RING_SIZE;
}

struct collet_queued_transfer *collet_transfer_ring_add(
	struct collet_transfer_ring *ring, struct collet_work_item *item)
{
	assert(!collet_transfer_ring_is_full(ring));
	struct collet_queued_transfer *queued = &ring->entry[ring->tail++ & RING_MASK];
	queued->item = item;
	queued->is_ready = false;
	queued->released = false;
	queued->transfer.status = COLLET_PENDING;
	queued->transfer.flags = 0;
	queued->transfer.view = NULL;
	return queued;
}

struct collet_queued_transfer *collet_transfer_ring_find(
	struct collet_transfer_ring *ring, const struct collet_work_item *item)
{
	for (uint32_t i = ring->head; i != ring->tail; i++) {
		struct collet_queued_transfer *queued = &ring->entry[i & RING_MASK];
		if (queued->item == item && !queued->released)
			return queued;
	}
	return NULL;
}

struct collet_queued_transfer *collet_transfer_ring_find_unready(
	struct collet_transfer_ring *ring, const struct collet_work_item *item)
{
	for (uint32_t i = ring->posted; i != ring->tail; i++) {
		struct collet_queued_transfer *queued = &ring->entry[i & RING_MASK];
		if (queued->item == item && !queued->is_ready)
			return queued;
	}
	return NULL;
}

static void pop_released(struct collet_transfer_ring *ring)
{
	while (ring->head != ring->completed && ring->entry[ring->head & RING_MASK].released)
		ring->head++;
}

/* Reports a transfer's failure, which concerns the whole communicator. */
static void report_failure(struct collet_peer_queue *peer_queue, const struct collet_request *request,
	const struct collet_transfer *transfer)
{
	struct collet_comm_state *state = peer_queue->state;
	const enum collet_status status = transfer->status;
	/* Relaxed: a hint, which is read in every round until the communicator ends. */
	if (atomic_load_explicit(&state->mismatch.suspected_status, memory_order_relaxed) != COLLET_OK)
		return;
	if (status == COLLET_ERR_MISMATCH) {
		collet_mismatch_suspect(state, peer_queue->peer, request, &transfer->message);
		return;
	}
	char call[160], error_text[COLLET_ERROR_BYTES];
	collet_call_describe(&request->call, call, sizeof(call));
	snprintf(error_text, sizeof(error_text), "%s: %s", call, collet_last_error());
	pthread_mutex_lock(&state->engine->connections_lock);
	collet_mismatch_suspect_loss(state, peer_queue->peer, status, error_text);
	pthread_mutex_unlock(&state->engine->connections_lock);
}

void collet_peer_queue_release_view(
	struct collet_peer_queue *peer_queue, struct collet_request *request, struct collet_transfer *transfer)
{
	struct collet_endpoint *endpoint = atomic_load_explicit(&peer_queue->endpoint, memory_order_relaxed);
	endpoint->transport->release_view(endpoint, transfer);
	transfer->flags &= ~(uint32_t)(COLLET_TRANSFER_VIEW | COLLET_TRANSFER_RETURNABLE);
	if (transfer->status != COLLET_OK) {
		request->poisoned = true;
		report_failure(peer_queue, request, transfer);
	}
}

/* Releases the view of a queued transfer. */
static void release_view(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued)
{
	collet_peer_queue_release_view(peer_queue, queued->item->request, &queued->transfer);
}

void collet_peer_queue_copy_view(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued)
{
	struct collet_transfer *transfer = &queued->transfer;
	if (!(transfer->flags & COLLET_TRANSFER_VIEW))
		return;
	if (transfer->view != transfer->data && transfer->message.bytes)
		memcpy(transfer->data, transfer->view, transfer->message.bytes);
	transfer->view = transfer->data;
	release_view(peer_queue, queued);
}

void collet_peer_queue_copy_views(struct collet_peer_queue *peer_queue)
{
	struct collet_transfer_ring *ring = &peer_queue->receive;
	for (uint32_t i = ring->head; i != ring->completed; i++)
		if (!ring->entry[i & RING_MASK].released)
			collet_peer_queue_copy_view(peer_queue, &ring->entry[i & RING_MASK]);
}

void collet_peer_queue_release(struct collet_peer_queue *peer_queue, struct collet_queued_transfer *queued)
{
	if (queued->transfer.flags & COLLET_TRANSFER_VIEW)
		release_view(peer_queue, queued);
	queued->released = true;
	queued->item = NULL;
	pop_released(&peer_queue->receive);
}

/* Tells items of transfers that have completed. Returns how many have. */
static uint32_t complete_transfers(struct collet_peer_queue *peer_queue, struct collet_transfer_ring *ring, bool sent)
{
	uint32_t completed = 0;
	while (ring->completed != ring->posted) {
		struct collet_queued_transfer *queued = &ring->entry[ring->completed & RING_MASK];
		if (queued->transfer.status == COLLET_PENDING)
			break;
		if (queued->transfer.status != COLLET_OK) {
			report_failure(peer_queue, queued->item->request, &queued->transfer);
			break;
		}
		ring->completed++;
		completed++;
		if (sent)
			queued->released = true;
		collet_work_item_transfer_done(queued, sent);
	}
	if (completed)
		pop_released(ring);
	return completed;
}

void collet_peer_queue_post_ready(struct collet_peer_queue *peer_queue)
{
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (!endpoint) {
		collet_connections_request(peer_queue);
		return;
	}
	struct collet_transfer_ring *ring = &peer_queue->receive;
	while (ring->posted != ring->tail && ring->entry[ring->posted & RING_MASK].is_ready)
		endpoint->transport->post_recv(endpoint, &ring->entry[ring->posted++ & RING_MASK].transfer);
	ring = &peer_queue->send;
	while (ring->posted != ring->tail && ring->entry[ring->posted & RING_MASK].is_ready)
		endpoint->transport->post_send(endpoint, &ring->entry[ring->posted++ & RING_MASK].transfer);
}

/* Handles the only queued transfer if it completed when it was posted, so that nothing need poll for it. */
static bool completed_immediately(struct collet_transfer_ring *ring, struct collet_queued_transfer *queued, bool sent)
{
	if (queued->transfer.status != COLLET_OK || ring->completed + 1 != ring->tail)
		return false;
	ring->completed++;
	if (sent && ring->head + 1 == ring->tail)
		ring->head++;
	else
		queued->released = sent;
	collet_work_item_transfer_done(queued, sent);
	return true;
}

enum collet_try_result collet_peer_queue_send_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (!endpoint || !endpoint->transport->try_send || peer_queue->send.completed != peer_queue->send.tail)
		return COLLET_TRY_POST;
	return endpoint->transport->try_send(endpoint, transfer);
}

enum collet_try_result collet_peer_queue_receive_now(
	struct collet_peer_queue *peer_queue, struct collet_transfer *transfer)
{
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (!endpoint || !endpoint->transport->try_recv || peer_queue->receive.completed != peer_queue->receive.tail)
		return COLLET_TRY_POST;
	return endpoint->transport->try_recv(endpoint, transfer);
}

void collet_peer_queue_post_send(struct collet_peer_queue *peer_queue)
{
	struct collet_transfer_ring *ring = &peer_queue->send;
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (endpoint && ring->posted + 1 == ring->tail) {
		struct collet_queued_transfer *queued = &ring->entry[ring->posted++ & RING_MASK];
		endpoint->transport->post_send(endpoint, &queued->transfer);
		if (completed_immediately(ring, queued, true))
			return;
	}
	collet_peer_queue_activate(peer_queue);
	collet_peer_queue_post_ready(peer_queue);
}

void collet_peer_queue_try_receive(struct collet_peer_queue *peer_queue)
{
	struct collet_transfer_ring *ring = &peer_queue->receive;
	if (ring->posted == ring->tail)
		return;
	struct collet_queued_transfer *queued = &ring->entry[ring->posted & RING_MASK];
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (endpoint && endpoint->transport->is_recv_ready && ring->posted + 1 == ring->tail) {
		if (!endpoint->transport->is_recv_ready(endpoint, queued->transfer.message.bytes))
			return;
		ring->posted++;
		endpoint->transport->post_recv(endpoint, &queued->transfer);
		if (completed_immediately(ring, queued, false))
			return;
	}
	collet_peer_queue_activate(peer_queue);
	collet_peer_queue_post_ready(peer_queue);
}

bool collet_peer_queue_post_receive(struct collet_peer_queue *peer_queue)
{
	const bool was_posted = peer_queue->receive.posted == peer_queue->receive.tail;
	collet_peer_queue_activate(peer_queue);
	collet_peer_queue_post_ready(peer_queue);
	return !was_posted;
}

uint32_t collet_peer_queue_progress(struct collet_peer_queue *peer_queue)
{
	collet_peer_queue_post_ready(peer_queue);
	/* Load it again: the control thread may have opened it meanwhile. */
	struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (!endpoint)
		return 0;
	if (endpoint->posted)
		endpoint->transport->progress(endpoint);
	const uint32_t completed = complete_transfers(peer_queue, &peer_queue->receive, false) +
				   complete_transfers(peer_queue, &peer_queue->send, true);
	if (peer_queue->send.head == peer_queue->send.tail && peer_queue->receive.head == peer_queue->receive.tail)
		collet_peer_queue_deactivate(peer_queue);
	return completed;
}

struct collet_peer_queue *collet_peer_queue_find(const struct collet_comm_state *state, uint32_t channel, uint32_t peer)
{
	/* Acquire, pairing with the release store of its creator: this thread, or the control thread if the peer
	 * dialed. */
	return atomic_load_explicit(&state->peer_queues[(size_t)channel * state->size + peer], memory_order_acquire);
}

struct collet_peer_queue *collet_peer_queue_get(struct collet_comm_state *state, uint32_t channel, uint32_t peer)
{
	struct collet_peer_queue *peer_queue = collet_peer_queue_find(state, channel, peer);
	return peer_queue ? peer_queue : collet_connections_get_queue(state, channel, peer);
}

uint32_t collet_peer_queue_poll_cost(const struct collet_peer_queue *peer_queue)
{
	const struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	if (!endpoint || !endpoint->transport->is_recv_ready || peer_queue->receive.posted == peer_queue->receive.tail)
		return 0;
	return endpoint->transport->caps & COLLET_CAP_SYSCALLS ? COLLET_SYSCALL_POLLS : 1;
}

bool collet_peer_queue_shares_core(const struct collet_peer_queue *peer_queue)
{
	const struct collet_endpoint *endpoint = collet_peer_queue_endpoint(peer_queue);
	return endpoint && endpoint->peer_cpu && endpoint->peer_cpu == peer_queue->state->engine->wake.shared_cpu;
}
