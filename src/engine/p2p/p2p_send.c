/* Messages on their way out, and the ends of requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/call_class.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"

enum { SPARES_MOST = 64 };

void collet_p2p_need(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	if (peer->needs++)
		return;
	peer->next_needed = p2p->needed;
	if (p2p->needed)
		p2p->needed->previous_needed = &peer->next_needed;
	p2p->needed = peer;
	peer->previous_needed = &p2p->needed;
}

static void need_no_more(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	assert(peer->needs);
	if (--peer->needs)
		return;
	if (p2p->next_look == peer)
		p2p->next_look = peer->next_needed;
	*peer->previous_needed = peer->next_needed;
	if (peer->next_needed)
		peer->next_needed->previous_needed = peer->previous_needed;
}

void collet_p2p_need_peer(struct collet_p2p *p2p, struct collet_request *request)
{
	request->p2p.needs_peer = true;
	collet_p2p_need(p2p, request->p2p.peer);
}

void collet_p2p_need_peer_no_more(struct collet_p2p *p2p, struct collet_request *request)
{
	if (request->p2p.needs_peer)
		need_no_more(p2p, request->p2p.peer);
	request->p2p.needs_peer = false;
}

/* ---- Ends of requests ---- */

void collet_p2p_remove(struct collet_request **list, struct collet_request *request)
{
	while (*list && *list != request)
		list = &(*list)->p2p.next;
	if (*list)
		*list = request->p2p.next;
}

static void tell_took(const struct collet_request *request)
{
	const struct collet_p2p_call *call = &request->p2p;
	const uint64_t bytes = call->sends ? call->bytes : call->message_bytes;
	if (bytes >= COLLET_CALL_TOLD_BYTES)
		collet_message_took(request, COLLET_CALL_MESSAGE, call->peer, bytes);
}

/* An exchange takes as long as its longer half; its size is that of what is sent. */
static void tell_exchange_took(struct collet_request *exchange, const struct collet_p2p_call *half)
{
	struct collet_p2p_call *call = &exchange->p2p;
	if (half->sends)
		call->bytes = half->bytes;
	if (call->pending_parts) {
		call->peer = half->peer;
	} else if (call->bytes >= COLLET_CALL_TOLD_BYTES) {
		collet_message_took(exchange, COLLET_CALL_EXCHANGE, half->peer, call->bytes);
		if (call->peer != half->peer)
			collet_message_took(exchange, COLLET_CALL_EXCHANGE, call->peer, call->bytes);
	}
}

void collet_p2p_end(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->bounce)
		collet_bounce_stop(call->bounce);
	collet_p2p_need_peer_no_more(p2p, request);
	if (!call->sends) {
		collet_p2p_remove(&p2p->receives, request);
		p2p->last_receive = &p2p->receives;
		while (*p2p->last_receive)
			p2p->last_receive = &(*p2p->last_receive)->p2p.next;
	}
	p2p->pending--;
	p2p->ended++;
	struct collet_request *parent = call->parent;
	const enum collet_status status = call->truncated ? COLLET_ERR_TRUNCATED : COLLET_OK;
	if (!parent)
		tell_took(request);
	collet_request_end(request, status);
	if (!parent)
		return;
	parent->p2p.truncated |= call->truncated;
	parent->p2p.pending_parts--;
	tell_exchange_took(parent, call);
	collet_request_free(request);
	if (parent->p2p.pending_parts == 0)
		collet_request_end(parent, parent->p2p.truncated ? COLLET_ERR_TRUNCATED : COLLET_OK);
}

void collet_p2p_end_receive(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->received && !call->truncated)
		*call->received =
			(collet_received){ call->peer, call->tag, call->message_bytes / call->element_bytes };
	collet_p2p_end(p2p, request);
}

/* ---- Sending ---- */

static struct collet_p2p_outgoing *get_outgoing(struct collet_p2p *p2p)
{
	struct collet_p2p_outgoing *out = p2p->spare;
	if (!out)
		return calloc(1, sizeof(*out));
	p2p->spare = out->next;
	p2p->spares--;
	out->next = NULL;
	out->transfer = (struct collet_transfer){ 0 };
	return out;
}

static void put_outgoing(struct collet_p2p *p2p, struct collet_p2p_outgoing *out)
{
	if (p2p->spares == SPARES_MOST) {
		free(out);
		return;
	}
	out->next = p2p->spare;
	p2p->spare = out;
	p2p->spares++;
}

void collet_p2p_free_outgoing(struct collet_p2p_outgoing *first)
{
	for (struct collet_p2p_outgoing *next; first; first = next) {
		next = first->next;
		free(first);
	}
}

/* Who sends and receives in one call waits for its peer all the same, who has asked for what is announced; a short
 * message that nobody has asked for should be out of its sender's hands at once. */
static uint32_t flags_of(
	const struct collet_group *group, enum collet_p2p_kind kind, const struct collet_request *request)
{
	const bool exchange = request && request->p2p.parent;
	const uint32_t call = request ?
		collet_call_flags(exchange ? COLLET_CALL_EXCHANGE : COLLET_CALL_MESSAGE, request->p2p.bytes) : 0;
	if (kind == EAGER)
		return call | (exchange && !group->engine->crowded ? COLLET_TRANSFER_WAITS :
                                                                       COLLET_TRANSFER_EAGER);
	const uint32_t where = request && request->p2p.on_gpu ? COLLET_TRANSFER_GPU : 0;
	return call | where | (kind == DATA && exchange ? COLLET_TRANSFER_WAITS : 0);
}

collet_status collet_p2p_send_message(struct collet_group *group, uint32_t to, enum collet_p2p_kind kind, uint32_t tag,
	const struct collet_p2p_note *note, const void *data, uint64_t bytes, struct collet_request *request)
{
	struct collet_p2p *p2p = group->p2p;
	struct collet_route *route = collet_p2p_route(group, to);
	struct collet_p2p_outgoing *out = route ? get_outgoing(p2p) : NULL;
	if (!out) {
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message to rank %u", to);
	}
	struct collet_p2p_peer *peer = &p2p->peers[to];
	out->request = request;
	out->transfer.status = COLLET_CANCELLED;  /* not posted yet */
	out->transfer.message = (struct collet_message){ collet_p2p_signature(kind, tag), peer->sent++, bytes };
	out->transfer.data = (void *)(uintptr_t)data;
	out->transfer.flags = flags_of(group, kind, request);
	if (note) {
		out->note = *note;
		out->transfer.data = &out->note;
		out->transfer.message.bytes = sizeof(out->note);
	}
	if (peer->first_out)
		peer->last_out->next = out;
	else
		peer->first_out = out;
	peer->last_out = out;
	p2p->busy++;
	collet_p2p_need(p2p, to);
	return COLLET_OK;
}

bool collet_p2p_send_now(struct collet_group *group, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
	struct collet_p2p_peer *peer = &group->p2p->peers[to];
	struct collet_conduit *conduit = collet_p2p_conduit(collet_route_peek(group, COLLET_CHANNEL_P2P, to));
	if (!conduit || !conduit->transport->send_now || peer->first_out)
		return false;
	struct collet_transfer now = {
		.status = COLLET_PENDING,
		.message = { collet_p2p_signature(EAGER, tag), peer->sent, bytes },
		.data = (void *)(uintptr_t)data,
	};
	if (conduit->transport->send_now(conduit, &now) != COLLET_NOW_DONE)
		return false;
	peer->sent++;
	return true;
}

static bool is_posted(const struct collet_p2p_outgoing *out)
{
	return out->transfer.status != COLLET_CANCELLED;
}

static void post_queued(const struct collet_p2p_peer *peer, struct collet_conduit *conduit)
{
	for (struct collet_p2p_outgoing *out = peer->first_out; out; out = out->next) {
		if (is_posted(out))
			continue;
		out->transfer.status = COLLET_PENDING;
		conduit->transport->post_send(conduit, &out->transfer);
	}
}

/* The first of the queue has been sent. A message's next piece may be queued by that. */
static void take_sent(struct collet_p2p *p2p, uint32_t rank)
{
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	struct collet_p2p_outgoing *out = peer->first_out;
	struct collet_request *request = out->request;
	peer->first_out = out->next;
	p2p->busy--;
	p2p->ended++;
	need_no_more(p2p, rank);
	put_outgoing(p2p, out);
	if (request && request->p2p.id)
		collet_p2p_piece_sent(request);
	else if (request)
		collet_p2p_end(p2p, request);
}

bool collet_p2p_advance_out(struct collet_group *group, uint32_t rank, struct collet_conduit *conduit)
{
	struct collet_p2p_peer *peer = &group->p2p->peers[rank];
	do {
		post_queued(peer, conduit);
		while (peer->first_out && is_posted(peer->first_out) &&
			peer->first_out->transfer.status != COLLET_PENDING) {
			if (peer->first_out->transfer.status != COLLET_OK)
				return false;
			take_sent(group->p2p, rank);
		}
	} while (peer->first_out && !is_posted(peer->last_out));
	return true;
}
