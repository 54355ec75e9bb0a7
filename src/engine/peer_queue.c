/* Routes: a conduit's two queues. Transfers are queued in item order when an item enters its lane, and posted in queue
 * order once each is ready, so that the messages between two ranks keep (request, step) order however items overtake
 * one another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { MASK = ROUTE_QUEUE - 1 };

void collet_route_activate(struct collet_route *route)
{
	if (route->previous_active)
		return;
	struct collet_engine *engine = route->group->engine;
	route->next_active = engine->active;
	if (engine->active)
		engine->active->previous_active = &route->next_active;
	engine->active = route;
	route->previous_active = &engine->active;
}

static void deactivate(struct collet_route *route)
{
	if (!route->previous_active)
		return;
	*route->previous_active = route->next_active;
	if (route->next_active)
		route->next_active->previous_active = route->previous_active;
	route->previous_active = NULL;
}

bool collet_queue_full(const struct collet_queue *queue)
{
	return queue->tail - queue->head == ROUTE_QUEUE;
}

struct collet_queued *collet_queue_add(struct collet_queue *queue, struct collet_item *item)
{
	assert(!collet_queue_full(queue));
	struct collet_queued *queued = &queue->entry[queue->tail++ & MASK];
	queued->item = item;
	queued->ready = false;
	queued->released = false;
	queued->transfer.status = COLLET_PENDING;
	queued->transfer.flags = 0;
	queued->transfer.view = NULL;
	return queued;
}

struct collet_queued *collet_queue_find(struct collet_queue *queue, const struct collet_item *item)
{
	for (uint32_t i = queue->head; i != queue->tail; i++) {
		struct collet_queued *queued = &queue->entry[i & MASK];
		if (queued->item == item && !queued->released)
			return queued;
	}
	return NULL;
}

struct collet_queued *collet_queue_find_waiting(struct collet_queue *queue, const struct collet_item *item)
{
	for (uint32_t i = queue->posted; i != queue->tail; i++) {
		struct collet_queued *queued = &queue->entry[i & MASK];
		if (queued->item == item && !queued->ready)
			return queued;
	}
	return NULL;
}

static void forget_released(struct collet_queue *queue)
{
	while (queue->head != queue->settled && queue->entry[queue->head & MASK].released)
		queue->head++;
}

/* What a settled transfer's status means to the whole group. */
static void fail(
	struct collet_route *route, const struct collet_request *request, const struct collet_transfer *transfer)
{
	struct collet_group *group = route->group;
	const enum collet_status status = transfer->status;
	/* Relaxed: a hint; it is asked at every round until the group ends. */
	if (atomic_load_explicit(&group->board.suspected, memory_order_relaxed) != COLLET_OK)
		return;
	if (status == COLLET_ERR_MISMATCH) {
		collet_board_suspect(group, route->peer, request, &transfer->message);
		return;
	}
	char call[160], sentence[COLLET_ERROR_BYTES];
	collet_call_describe(&request->call, call, sizeof(call));
	snprintf(sentence, sizeof(sentence), "%s: %s", call, collet_last_error());
	pthread_mutex_lock(&group->engine->fabric_lock);
	collet_board_doubt(group, route->peer, status, sentence);
	pthread_mutex_unlock(&group->engine->fabric_lock);
}

void collet_route_release_now(
	struct collet_route *route, struct collet_request *request, struct collet_transfer *transfer)
{
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_relaxed);
	conduit->transport->release_view(conduit, transfer);
	transfer->flags &= ~(uint32_t)COLLET_TRANSFER_VIEW;
	if (transfer->status != COLLET_OK) {
		request->spoilt = true;
		fail(route, request, transfer);
	}
}

/* A view is needed no more. */
static void give_back(struct collet_route *route, struct collet_queued *queued)
{
	collet_route_release_now(route, queued->item->request, &queued->transfer);
}

void collet_route_unload(struct collet_route *route, struct collet_queued *queued)
{
	struct collet_transfer *transfer = &queued->transfer;
	if (!(transfer->flags & COLLET_TRANSFER_VIEW))
		return;
	if (transfer->view != transfer->data && transfer->message.bytes)
		memcpy(transfer->data, transfer->view, transfer->message.bytes);
	transfer->view = transfer->data;
	give_back(route, queued);
}

void collet_route_unload_all(struct collet_route *route)
{
	struct collet_queue *queue = &route->receive;
	for (uint32_t i = queue->head; i != queue->settled; i++)
		if (!queue->entry[i & MASK].released)
			collet_route_unload(route, &queue->entry[i & MASK]);
}

void collet_route_release(struct collet_route *route, struct collet_queued *queued)
{
	if (queued->transfer.flags & COLLET_TRANSFER_VIEW)
		give_back(route, queued);
	queued->released = true;
	queued->item = NULL;
	forget_released(&route->receive);
}

/* Tells items of what has settled since. Returns how many. */
static uint32_t take_settled(struct collet_route *route, struct collet_queue *queue, bool sent)
{
	uint32_t taken = 0;
	while (queue->settled != queue->posted) {
		struct collet_queued *queued = &queue->entry[queue->settled & MASK];
		if (queued->transfer.status == COLLET_PENDING)
			break;
		if (queued->transfer.status != COLLET_OK) {
			fail(route, queued->item->request, &queued->transfer);
			break;
		}
		queue->settled++;
		taken++;
		if (sent)
			queued->released = true;
		collet_item_settled(queued, sent);
	}
	if (taken)
		forget_released(queue);
	return taken;
}

void collet_route_pump(struct collet_route *route)
{
	/* Pairs with the control thread's release store that publishes the conduit, open and ready. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (!conduit) {
		collet_fabric_want(route);
		return;
	}
	struct collet_queue *queue = &route->receive;
	while (queue->posted != queue->tail && queue->entry[queue->posted & MASK].ready)
		conduit->transport->post_recv(conduit, &queue->entry[queue->posted++ & MASK].transfer);
	queue = &route->send;
	while (queue->posted != queue->tail && queue->entry[queue->posted & MASK].ready)
		conduit->transport->post_send(conduit, &queue->entry[queue->posted++ & MASK].transfer);
}

/* The one transfer that is queued settled as it was posted: nobody need look for it. */
static bool settled_at_once(struct collet_queue *queue, struct collet_queued *queued, bool sent)
{
	if (queued->transfer.status != COLLET_OK || queue->settled + 1 != queue->tail)
		return false;
	queue->settled++;
	if (sent && queue->head + 1 == queue->tail)
		queue->head++;
	else
		queued->released = sent;
	collet_item_settled(queued, sent);
	return true;
}

enum collet_try_result collet_route_send_now(struct collet_route *route, struct collet_transfer *transfer)
{
	/* Acquire, as in the pump. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (!conduit || !conduit->transport->try_send || route->send.settled != route->send.tail)
		return COLLET_TRY_POST;
	return conduit->transport->try_send(conduit, transfer);
}

enum collet_try_result collet_route_receive_now(struct collet_route *route, struct collet_transfer *transfer)
{
	/* Acquire, as in the pump. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (!conduit || !conduit->transport->try_recv || route->receive.settled != route->receive.tail)
		return COLLET_TRY_POST;
	return conduit->transport->try_recv(conduit, transfer);
}

void collet_route_send(struct collet_route *route)
{
	struct collet_queue *queue = &route->send;
	/* Acquire, as in the pump. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (conduit && queue->posted + 1 == queue->tail) {
		struct collet_queued *queued = &queue->entry[queue->posted++ & MASK];
		conduit->transport->post_send(conduit, &queued->transfer);
		if (settled_at_once(queue, queued, true))
			return;
	}
	collet_route_activate(route);
	collet_route_pump(route);
}

void collet_route_take(struct collet_route *route)
{
	struct collet_queue *queue = &route->receive;
	if (queue->posted == queue->tail)
		return;
	struct collet_queued *queued = &queue->entry[queue->posted & MASK];
	/* Acquire, as in the pump. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (conduit && conduit->transport->is_recv_ready && queue->posted + 1 == queue->tail) {
		if (!conduit->transport->is_recv_ready(conduit, queued->transfer.message.bytes))
			return;
		queue->posted++;
		conduit->transport->post_recv(conduit, &queued->transfer);
		if (settled_at_once(queue, queued, false))
			return;
	}
	collet_route_activate(route);
	collet_route_pump(route);
}

bool collet_route_post(struct collet_route *route)
{
	const bool posted = route->receive.posted == route->receive.tail;
	collet_route_activate(route);
	collet_route_pump(route);
	return !posted;
}

uint32_t collet_route_progress(struct collet_route *route)
{
	collet_route_pump(route);
	/* Acquire, as in the pump: it may have been published since. */
	struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (!conduit)
		return 0;
	if (conduit->posted)
		conduit->transport->progress(conduit);
	const uint32_t taken = take_settled(route, &route->receive, false) + take_settled(route, &route->send, true);
	if (route->send.head == route->send.tail && route->receive.head == route->receive.tail)
		deactivate(route);
	return taken;
}

struct collet_route *collet_route_peek(const struct collet_group *group, uint32_t channel, uint32_t peer)
{
	/* Pairs with the release store of whoever made it: this thread, or the control thread for a peer that dialed.
	 */
	return atomic_load_explicit(&group->routes[(size_t)channel * group->size + peer], memory_order_acquire);
}

struct collet_route *collet_route_get(struct collet_group *group, uint32_t channel, uint32_t peer)
{
	struct collet_route *route = collet_route_peek(group, channel, peer);
	return route ? route : collet_fabric_route(group, channel, peer);
}

uint32_t collet_route_look_cost(const struct collet_route *route)
{
	/* Acquire, as in the pump. */
	const struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	if (!conduit || !conduit->transport->is_recv_ready || route->receive.posted == route->receive.tail)
		return 0;
	return conduit->transport->caps & COLLET_CAP_SYSCALLS ? COLLET_CALL_LOOKS : 1;
}

bool collet_route_shares_core(const struct collet_route *route)
{
	/* Acquire, as in the pump. */
	const struct collet_endpoint *conduit = atomic_load_explicit(&route->conduit, memory_order_acquire);
	return conduit && conduit->peer_cpu && conduit->peer_cpu == route->group->engine->wake.shared_cpu;
}

void collet_route_stop(struct collet_route *route)
{
	deactivate(route);
}
