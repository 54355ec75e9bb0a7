/* Queues, posts and completes outgoing messages, and completes requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/request.h"

enum { MAX_FREE_OUTGOING = 64 };

void collet_p2p_add_waiter(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	if (peer->waiter_count++)
		return;
	peer->next_awaited = p2p->awaited;
	if (p2p->awaited)
		p2p->awaited->previous_awaited = &peer->next_awaited;
	p2p->awaited = peer;
	peer->previous_awaited = &p2p->awaited;
}

static void remove_waiter(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	assert(peer->waiter_count);
	if (--peer->waiter_count)
		return;
	if (p2p->next_poll == peer)
		p2p->next_poll = peer->next_awaited;
	*peer->previous_awaited = peer->next_awaited;
	if (peer->next_awaited)
		peer->next_awaited->previous_awaited = peer->previous_awaited;
}

void collet_p2p_await_peer(struct collet_p2p *p2p, struct collet_request *request)
{
	request->p2p.awaits_peer = true;
	collet_p2p_add_waiter(p2p, request->p2p.peer);
}

void collet_p2p_stop_awaiting(struct collet_p2p *p2p, struct collet_request *request)
{
	if (request->p2p.awaits_peer)
		remove_waiter(p2p, request->p2p.peer);
	request->p2p.awaits_peer = false;
}

/* ---- Completion of requests ---- */

static enum collet_status outcome_of(const struct collet_p2p_call *call)
{
	return call->outcome == COLLET_OK && call->truncated ? COLLET_ERR_TRUNCATED : call->outcome;
}

void collet_p2p_complete(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->bounce)
		collet_bounce_stop(call->bounce);
	collet_p2p_stop_awaiting(p2p, request);
	collet_match_remove(&call->match);
	p2p->request_count--;
	p2p->completed_count++;
	struct collet_request *parent = call->parent;
	const enum collet_status status = outcome_of(call);
	collet_request_end(request, status);
	if (!parent)
		return;
	parent->p2p.truncated |= call->truncated;
	if (call->outcome != COLLET_OK)
		parent->p2p.outcome = call->outcome;
	parent->p2p.pending_ops--;
	collet_request_release(request);
	if (parent->p2p.pending_ops == 0)
		collet_request_end(parent, outcome_of(&parent->p2p));
}

void collet_p2p_complete_receive(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->received && !call->truncated)
		*call->received =
			(collet_received){ call->peer, call->tag, call->message_bytes / call->element_bytes };
	collet_p2p_complete(p2p, request);
}

/* ---- Sending ---- */

static struct collet_p2p_outgoing *get_outgoing(struct collet_p2p *p2p)
{
	struct collet_p2p_outgoing *out = p2p->free_outgoing;
	if (!out)
		return calloc(1, sizeof(*out));
	p2p->free_outgoing = out->next;
	p2p->free_count--;
	out->next = NULL;
	out->transfer = (struct collet_transfer){ 0 };
	return out;
}

static void put_outgoing(struct collet_p2p *p2p, struct collet_p2p_outgoing *out)
{
	if (p2p->free_count == MAX_FREE_OUTGOING) {
		free(out);
		return;
	}
	out->next = p2p->free_outgoing;
	p2p->free_outgoing = out;
	p2p->free_count++;
}

void collet_p2p_free_outgoing(struct collet_p2p_outgoing *first)
{
	for (struct collet_p2p_outgoing *next; first; first = next) {
		next = first->next;
		free(first);
	}
}

/* A sendrecv waits for its peer anyway, so its transfers may need an answer (EXCHANGE). Other eager messages should
 * complete without one, because their receiver may not want them for long (EAGER). */
static uint32_t transfer_flags(
	const struct collet_comm_state *state, enum collet_p2p_kind kind, const struct collet_request *request)
{
	const bool exchange = request && request->p2p.parent;
	if (kind == P2P_EAGER)
		return exchange && !state->engine->oversubscribed ? COLLET_TRANSFER_EXCHANGE : COLLET_TRANSFER_EAGER;
	const uint32_t where = request && request->p2p.is_gpudirect ? COLLET_TRANSFER_GPU : 0;
	return where | (kind == P2P_DATA && exchange ? COLLET_TRANSFER_EXCHANGE : 0);
}

collet_status collet_p2p_send_message(struct collet_comm_state *state, uint32_t to, enum collet_p2p_kind kind,
	uint32_t tag, const struct collet_p2p_header *header, const void *data, uint64_t bytes,
	struct collet_request *request)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_peer_queue *peer_queue = collet_p2p_peer_queue(state, to);
	struct collet_p2p_outgoing *out = peer_queue ? get_outgoing(p2p) : NULL;
	if (!out) {
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message to rank %u", to);
	}
	struct collet_p2p_peer *peer = &p2p->peers[to];
	out->request = request;
	out->transfer.status = COLLET_CANCELLED;  /* not posted yet */
	out->transfer.message = (struct collet_message){ .signature = collet_p2p_signature(kind, tag), .bytes = bytes };
	out->transfer.data = (void *)(uintptr_t)data;
	out->transfer.flags = transfer_flags(state, kind, request);
	if (header) {
		out->header = *header;
		out->transfer.data = &out->header;
		out->transfer.message.bytes = sizeof(out->header);
	}
	if (peer->first_out)
		peer->last_out->next = out;
	else
		peer->first_out = out;
	peer->last_out = out;
	if (!peer->next_out)
		peer->next_out = out;
	p2p->outgoing_count++;
	collet_p2p_add_waiter(p2p, to);
	return COLLET_OK;
}

bool collet_p2p_try_send(struct collet_comm_state *state, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
	struct collet_p2p_peer *peer = &state->p2p->peers[to];
	struct collet_endpoint *endpoint = collet_p2p_endpoint(collet_peer_queue_find(state, COLLET_CHANNEL_P2P, to));
	if (!endpoint || !endpoint->transport->try_send || peer->first_out)
		return false;
	struct collet_transfer transfer = {
		.status = COLLET_PENDING,
		.message = { collet_p2p_signature(P2P_EAGER, tag), peer->sent_count, bytes },
		.data = (void *)(uintptr_t)data,
		.flags = COLLET_TRANSFER_EAGER,
	};
	if (endpoint->transport->try_send(endpoint, &transfer) != COLLET_TRY_DONE)
		return false;
	peer->sent_count++;
	return true;
}

static void post_queued(struct collet_p2p_peer *peer, struct collet_endpoint *endpoint)
{
	for (; peer->next_out; peer->next_out = peer->next_out->next) {
		peer->next_out->transfer.status = COLLET_PENDING;
		peer->next_out->transfer.message.sequence = peer->sent_count++;
		endpoint->transport->post_send(endpoint, &peer->next_out->transfer);
	}
}

void collet_p2p_drop_outgoing(struct collet_p2p *p2p, uint32_t rank, struct collet_p2p_outgoing *out)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	struct collet_p2p_outgoing *before = NULL;
	for (struct collet_p2p_outgoing *at = peer->first_out; at != out; at = at->next)
		before = at;
	if (before)
		before->next = out->next;
	else
		peer->first_out = out->next;
	if (peer->last_out == out)
		peer->last_out = before;
	if (peer->next_out == out)
		peer->next_out = out->next;
	p2p->outgoing_count--;
	remove_waiter(p2p, rank);
	put_outgoing(p2p, out);
}

/* Completes the first message of the queue, which has been sent. This may queue the next segment of its request. */
static void complete_sent(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	struct collet_p2p_outgoing *out = peer->first_out;
	struct collet_request *request = out->request;
	peer->first_out = out->next;
	p2p->outgoing_count--;
	p2p->completed_count++;
	remove_waiter(p2p, rank);
	put_outgoing(p2p, out);
	if (request && request->p2p.id)
		collet_p2p_segment_sent(request);
	else if (request)
		collet_p2p_complete(p2p, request);
}

bool collet_p2p_progress_sends(struct collet_comm_state *state, uint32_t rank, struct collet_endpoint *endpoint)
{
	struct collet_p2p_peer *peer = &state->p2p->peers[rank];
	do {
		post_queued(peer, endpoint);
		while (peer->first_out != peer->next_out && peer->first_out->transfer.status != COLLET_PENDING) {
			if (peer->first_out->transfer.status != COLLET_OK)
				return false;
			complete_sent(state->p2p, rank);
		}
	} while (peer->next_out);
	return true;
}
