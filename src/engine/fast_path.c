/* Small calls, run on the spot: another executor of the same steps.
 *
 * When nothing else is under way in its lane and each of its few steps is one small piece, there is nothing to overlap:
 * the steps are taken in order, each one's receives waited for, without window or conflicts. Of two paired steps the
 * one that only sends goes first, so that ranks that exchange do not wait for each other.
 *
 * The steps are those that fast_path_plan.c has kept. Where a route's queue is empty a transfer is tried at once, past
 * it: mostly it settles then, and a receive is tried again for a while. What does not settle so goes through the queues
 * as everywhere, so that order, deadlines, loss and sleep are the engine's: a send is posted where it is queued, and a
 * receive when something has come. */
#include <string.h>

#include "engine/engine.h"
#include "engine/work_item.h"

/* Up to here what is combined is not left with the transport: it costs more to give a view back than to copy this. */
enum { COPIED_BYTES = 128 };

static char *address(const struct collet_request *request, struct collet_place place)
{
	/* Of a buffer that is NULL nobody needs a byte, so it does not matter what this makes of it. */
	return (char *)((uintptr_t)request->small.base[place.buffer] + place.first);
}

static struct collet_queued *queue_move(
	struct collet_request *request, struct collet_queue *queue, const struct collet_move *move, char *data)
{
	struct collet_queued *queued = collet_queue_add(queue, request->small.item);
	queued->transfer.message = (struct collet_message){ request->signature, request->sequence, move->bytes };
	queued->transfer.data = data;
	queued->ready = true;
	return queued;
}

/* May what the step writes be on its way still? */
static bool writes_what_is_sent(
	const struct collet_request *request, const struct collet_item *item, const struct collet_small_step *step)
{
	return item->sends_pending && (step->rewrites || (step->rewrites_in_place && request->small.in_place));
}

/* A receive's, whichever way it goes. */
static struct collet_transfer *transfer_of(struct collet_move *move)
{
	return move->queued ? &move->queued->transfer : &move->now;
}

/* It will not settle at once, or nobody looks for it any more. */
static void queue_receive(struct collet_request *request, struct collet_item *item, struct collet_move *move)
{
	move->queued = queue_move(request, &move->route->receive, move, move->now.data);
	move->queued->transfer.flags = move->now.flags;
	request->small.holds = true;
	request->small.listening--;
	item->receives_pending++;
}

/* What is written here may be on its way still. Small sends have mostly settled when they were posted; one that has not
 * may wait for its receiver, and that one for us: so what comes is taken first, and kept aside until it has gone. */
static void expect_receives(
	struct collet_request *request, struct collet_item *item, const struct collet_small_step *step)
{
	item->staged = !step->combines && writes_what_is_sent(request, item, step);
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!move->route)
			continue;
		move->queued = NULL;
		move->now.status = COLLET_PENDING;
		const bool views = step->combines && move->bytes > COPIED_BYTES;
		request->small.holds |= views;
		move->now.flags = views ? COLLET_TRANSFER_VIEW : 0;
		move->now.message = (struct collet_message){ request->signature, request->sequence, move->bytes };
		move->now.data = address(request, item->staged ? move->spare : move->place);
	}
	request->small.listening = step->receives;
	request->small.entered = true;
}

static bool is_awaited(struct collet_move *move)
{
	return move->route && transfer_of(move)->status == COLLET_PENDING;
}

static void take_receives(
	struct collet_request *request, struct collet_item *item, const struct collet_small_step *step)
{
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!is_awaited(move))
			continue;
		const enum collet_try_result now =
			move->queued ? COLLET_TRY_POST : collet_route_receive_now(move->route, &move->now);
		if (now == COLLET_TRY_DONE)
			request->small.listening--;
		if (now != COLLET_TRY_POST)
			continue;
		if (!move->queued)
			queue_receive(request, item, move);
		collet_route_take(move->route);
	}
}

static void send_value(struct collet_request *request, struct collet_item *item, const struct collet_small_step *step)
{
	const struct collet_small *small = &request->small;
	struct collet_move *const end = step->send + step->sends;
	for (struct collet_move *move = step->send; move < end; move++) {
		char *data = address(request, move->place);
		move->now.message = (struct collet_message){ request->signature, request->sequence, move->bytes };
		move->now.flags = small->send_flags;
		move->now.data = data;
		if (collet_route_send_now(move->route, &move->now) == COLLET_TRY_DONE)
			continue;
		struct collet_queued *queued = queue_move(request, &move->route->send, move, data);
		queued->transfer.flags = small->send_flags;
		item->sends_pending++;
		collet_route_send(move->route);
	}
}

/* Where a receive's bytes are. */
static const void *bytes_of(struct collet_move *move)
{
	const struct collet_transfer *transfer = transfer_of(move);
	return transfer->flags & COLLET_TRANSFER_VIEW ? transfer->view : transfer->data;
}

static void combine(struct collet_request *request, const struct collet_small_step *step)
{
	struct collet_group *group = request->group;
	struct collet_operand *operands = group->lanes[0]->operands;
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		operands->is_scaled = false;
		operands++->data = move->route ? bytes_of(move) : address(request, move->place);
	}
	collet_reduction_run(&request->reduction, address(request, step->value), group->lanes[0]->operands,
		step->operands, step->count, step->finishes, &group->roundings);
}

/* Kept operands that are not in their place yet. */
static void keep(struct collet_request *request, const struct collet_item *item, const struct collet_small_step *step)
{
	const struct collet_move *const end = step->operand + step->operands;
	for (const struct collet_move *move = step->operand; move < end; move++) {
		const char *from = address(request, move->route ? move->spare : move->place);
		char *to = address(request, move->route ? move->place : step->value);
		const uint64_t bytes = move->route ? move->bytes : step->count * request->element_bytes;
		if (bytes && from != to && (!move->route || item->staged))
			memmove(to, from, bytes);
	}
}

static void release_receives(struct collet_request *request, const struct collet_small_step *step)
{
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!move->route)
			continue;
		if (move->queued)
			collet_route_release(move->route, move->queued);
		else if (move->now.flags & COLLET_TRANSFER_VIEW)
			collet_route_release_now(move->route, request, &move->now);
	}
}

/* Bytes that lie in a transport's or a peer's memory are taken to their own place. */
static void unload_now(struct collet_request *request, struct collet_move *move)
{
	struct collet_transfer *now = &move->now;
	if (now->status != COLLET_OK || !(now->flags & COLLET_TRANSFER_VIEW))
		return;
	if (now->view != now->data && now->message.bytes)
		memcpy(now->data, now->view, now->message.bytes);
	now->view = now->data;
	collet_route_release_now(move->route, request, now);
}

/* Peers may be waiting for just that, to be done with what they lent and so with what they must do for us. */
static void unload_receives(struct collet_request *request, const struct collet_small_step *step)
{
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!move->route)
			continue;
		if (move->queued)
			collet_route_unload(move->route, move->queued);
		else
			unload_now(request, move);
	}
}

/* True: the step is done. */
static bool run_step(struct collet_request *request, struct collet_item *item, const struct collet_small_step *step)
{
	if (step->receives && !request->small.entered)
		expect_receives(request, item, step);
	if (request->small.listening || item->receives_pending) {
		take_receives(request, item, step);
		if (request->small.listening || item->receives_pending)
			return false;
	}
	if (writes_what_is_sent(request, item, step)) {
		unload_receives(request, step);
		return false;
	}
	if (step->sends && step->sends_first)
		send_value(request, item, step);
	if (step->combines)
		combine(request, step);
	else if (step->copies || item->staged)
		keep(request, item, step);
	if (request->small.holds)
		release_receives(request, step);
	if (step->sends && !step->sends_first)
		send_value(request, item, step);
	request->small.entered = request->small.holds = false;
	request->finished_items++;
	return true;
}

bool collet_inline_fits(const struct collet_request *request)
{
	const struct collet_group *group = request->group;
	const struct collet_lane *lane = group->lanes[0];
	return request->small.fits && lane && !lane->first && lane->oldest == lane->next && !group->inlined;
}

/* Of a buffer that is cut so; a v-form is not run here. */
static uint64_t cut_bytes(const struct collet_request *request, const struct collet_partition *cut)
{
	const struct collet_shape *shape = &request->shape;
	return shape->count * request->element_bytes * (cut->kind == COLLET_PARTITION_BLOCKS ? shape->size : 1);
}

void collet_inline_begin(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_small *small = &request->small;
	struct collet_lane *lane = group->lanes[0];
	struct collet_item *item = &lane->items[lane->next % LANE_WINDOW];
	group->inlined = request;
	small->item = item;
	small->base[COLLET_INPUT] = (char *)(uintptr_t)request->input;  /* never written: see step.h */
	small->base[COLLET_RESULT] = request->result;
	small->base[COLLET_SCRATCH] = group->scratch;
	small->base[COLLET_STAGING] = lane->staging;
	const uintptr_t input = (uintptr_t)request->input, result = (uintptr_t)request->result;
	small->in_place = input < result + cut_bytes(request, &request->shape.result) &&
		result < input + cut_bytes(request, &request->shape.input);
	small->at = small->listening = 0;
	small->entered = small->holds = false;
	item->request = request;
	item->receives_pending = item->sends_pending = 0;
	item->staged = false;
	while (small->at < small->step_count && !small->step[small->at].receives &&
		run_step(request, item, &small->step[small->at]))
		small->at++;
}

void collet_inline_advance(struct collet_request *request)
{
	struct collet_small *small = &request->small;
	struct collet_item *item = small->item;
	while (small->at < small->step_count) {
		if (!run_step(request, item, &small->step[small->at]))
			return;
		small->at++;
	}
	if (!item->sends_pending && !request->spoilt)
		collet_request_end(request, COLLET_OK);
}

uint32_t collet_inline_look_cost(const struct collet_request *request)
{
	const struct collet_small *small = &request->small;
	if (!small->entered)
		return 0;
	uint32_t cost = 0;
	const struct collet_small_step *step = &small->step[small->at];
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!is_awaited(move))
			continue;
		const uint32_t looks = move->queued ? collet_route_look_cost(move->route) : 1;
		if (!looks)
			return 0;
		cost += looks;
	}
	return cost;
}

bool collet_inline_awaits_own_core(const struct collet_request *request)
{
	const struct collet_small *small = &request->small;
	if (!small->entered)
		return false;
	const struct collet_small_step *step = &small->step[small->at];
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++)
		if (is_awaited(move) && collet_route_shares_core(move->route))
			return true;
	return false;
}

bool collet_inline_owes_own_core(const struct collet_request *request)
{
	const struct collet_small *small = &request->small;
	for (uint32_t s = small->at; s < small->step_count; s++) {
		const struct collet_small_step *step = &small->step[s];
		for (const struct collet_move *move = step->send; move < step->send + step->sends; move++)
			if (collet_route_shares_core(move->route))
				return true;
	}
	return false;
}

bool collet_inline_post(struct collet_request *request)
{
	const struct collet_small *small = &request->small;
	if (!small->entered)
		return false;
	bool some = false;
	const struct collet_small_step *step = &small->step[small->at];
	struct collet_move *const end = step->operand + step->operands;
	for (struct collet_move *move = step->operand; move < end; move++) {
		if (!move->route)
			continue;
		if (is_awaited(move) && !move->queued)
			queue_receive(request, small->item, move);
		if (move->queued)
			some |= collet_route_post(move->route);
		else
			unload_now(request, move);
	}
	return some;
}
