/* Receives messages and matches them with posted receives, and replies with the sends that they belong to. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <collet/tools.h>

#include "core/status.h"
#include "engine/comm_state.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/request.h"

enum { MAX_UNEXPECTED_BYTES = 64 << 20 }; /* of one peer; beyond it, nothing more is received from the peer */

/* Returns the earlier of two entries, of which either may be NULL. */
static struct collet_match_entry *earlier(struct collet_match_entry *a, struct collet_match_entry *b)
{
	return !a || (b && b->order < a->order) ? b : a;
}

/* Returns the receive that was posted first among those that a message matches; NULL if there is none. */
static struct collet_request *find_receive(struct collet_p2p *p2p, uint32_t source, uint32_t tag)
{
	struct collet_match_entry *entry = collet_match_first(&p2p->receives, source, tag);
	if (p2p->any_source_count)
		entry = earlier(entry, collet_match_first(&p2p->receives, COLLET_ANY_SOURCE, tag));
	return collet_p2p_request_of(entry);
}

/* Matches a receive with a message from source. */
static void match(struct collet_p2p *p2p, struct collet_request *request, uint32_t source)
{
	struct collet_p2p_call *call = &request->p2p;
	call->posted_order = call->match.order;
	collet_match_remove(&call->match);
	if (call->peer != COLLET_ANY_SOURCE)
		return;
	call->from_any = true;
	call->peer = source;
	p2p->any_source_count--;
	collet_p2p_await_peer(p2p, request);
}

/* Matches a receive with the RTS of a large message. Pulls the data if the sender has exported them, else sends RTR.
 * A message that is too long is not received: an RTR of 0 bytes tells its sender. */
static collet_status start_rendezvous(struct collet_comm_state *state, struct collet_request *request, uint32_t source,
	const struct collet_p2p_header *header, const struct collet_bounce_rts *rts)
{
	bool export_again = false;
	struct collet_p2p_call *call = &request->p2p;
	match(state->p2p, request, source);
	call->id = header->id;
	call->message_bytes = header->bytes;
	call->truncated = header->bytes > call->bytes;
	if (rts && !call->truncated && collet_p2p_pull(request, rts, &export_again))
		return COLLET_OK;
	struct collet_p2p_header rtr = {
		.bytes = call->truncated ? 0 : header->bytes, .id = header->id, .export_again = export_again };
	collet_p2p_fill_rtr(request, &rtr);
	collet_status status = collet_p2p_send_message(state, source, P2P_RTR, call->tag, &rtr, NULL, 0, NULL);
	if (status == COLLET_OK && call->truncated)
		collet_p2p_complete_receive(state->p2p, request);
	else if (status == COLLET_OK)
		status = collet_match_add(&state->p2p->rendezvous, &call->match, source, (uint32_t)call->id);
	return status;
}

static struct collet_p2p_unexpected *create_unexpected(uint32_t source, uint32_t tag, uint64_t bytes)
{
	struct collet_p2p_unexpected *unexpected = calloc(1, sizeof(*unexpected) + bytes);
	if (!unexpected)
		return NULL;
	unexpected->source = source;
	unexpected->tag = tag;
	unexpected->header.bytes = bytes;
	return unexpected;
}

static void remove_unexpected(struct collet_p2p_unexpected *unexpected)
{
	collet_match_remove(&unexpected->of_source);
	collet_match_remove(&unexpected->of_any);
	*unexpected->previous = unexpected->next;
	if (unexpected->next)
		unexpected->next->previous = unexpected->previous;
}

/* Removes a message that is about to be delivered. */
static void take_unexpected(struct collet_p2p *p2p, struct collet_p2p_unexpected *unexpected)
{
	remove_unexpected(unexpected);
	if (!unexpected->is_rts)
		p2p->peers[unexpected->source].unexpected_bytes -= unexpected->header.bytes;
}

/* Stores a message until a receive matches. Frees it on failure. */
static collet_status add_unexpected(struct collet_p2p *p2p, struct collet_p2p_unexpected *unexpected)
{
	struct collet_match_table *table = &p2p->unexpected;
	unexpected->next = p2p->all_unexpected;
	unexpected->previous = &p2p->all_unexpected;
	if (unexpected->next)
		unexpected->next->previous = &unexpected->next;
	p2p->all_unexpected = unexpected;
	collet_status status = collet_match_add(table, &unexpected->of_source, unexpected->source, unexpected->tag);
	if (status == COLLET_OK)
		status = collet_match_add(table, &unexpected->of_any, COLLET_ANY_SOURCE, unexpected->tag);
	if (status != COLLET_OK) {
		remove_unexpected(unexpected);
		free(unexpected);
	}
	return status;
}

/* Returns the first message that arrived among those that a receive matches; NULL if there is none. */
static struct collet_p2p_unexpected *find_unexpected(struct collet_p2p *p2p, uint32_t source, uint32_t tag)
{
	struct collet_match_entry *entry = collet_match_first(&p2p->unexpected, source, tag);
	const size_t offset = source == COLLET_ANY_SOURCE ? offsetof(struct collet_p2p_unexpected, of_any) :
							    offsetof(struct collet_p2p_unexpected, of_source);
	return entry ? (struct collet_p2p_unexpected *)((char *)entry - offset) : NULL;
}

static collet_status start_unexpected(
	struct collet_comm_state *state, struct collet_request *request, const struct collet_p2p_unexpected *unexpected)
{
	struct collet_bounce_rts rts;
	if (unexpected->may_pull)
		memcpy(&rts, unexpected->data, sizeof(rts));
	return start_rendezvous(
		state, request, unexpected->source, &unexpected->header, unexpected->may_pull ? &rts : NULL);
}

/* Matches a receive with an eager message. Returns the destination of its bytes. */
static char *match_eager(struct collet_p2p *p2p, struct collet_request *request, uint32_t source, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	match(p2p, request, source);
	call->message_bytes = bytes;
	return call->bounce ? call->bounce->cells : call->buffer;
}

/* Copies a message to the receive that it matches. */
static void deliver_eager(
	struct collet_comm_state *state, struct collet_request *request, const struct collet_p2p_unexpected *unexpected)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_p2p_call *call = &request->p2p;
	call->truncated = unexpected->header.bytes > call->bytes;
	char *to = match_eager(p2p, request, unexpected->source, call->truncated ? 0 : unexpected->header.bytes);
	if (call->message_bytes)
		memcpy(to, unexpected->data, call->message_bytes);
	collet_p2p_segment_received(p2p, request, call->message_bytes);
}

/* Gives a complete message to the receive that it matches, and frees it. */
static collet_status deliver(
	struct collet_comm_state *state, struct collet_request *request, struct collet_p2p_unexpected *unexpected)
{
	collet_status status = COLLET_OK;
	if (unexpected->is_rts)
		status = start_unexpected(state, request, unexpected);
	else
		deliver_eager(state, request, unexpected);
	free(unexpected);
	return status;
}

/* Handles a complete message that no receive had matched when it began to arrive. One may do so now. */
static collet_status deliver_or_store(struct collet_comm_state *state, struct collet_p2p_unexpected *unexpected)
{
	struct collet_request *request = find_receive(state->p2p, unexpected->source, unexpected->tag);
	if (request)
		return deliver(state, request, unexpected);
	if (!unexpected->is_rts)
		state->p2p->peers[unexpected->source].unexpected_bytes += unexpected->header.bytes;
	return add_unexpected(state->p2p, unexpected);
}

static collet_status handle_rts(
	struct collet_comm_state *state, uint32_t source, uint32_t tag, struct collet_p2p_peer *peer)
{
	struct collet_request *request = find_receive(state->p2p, source, tag);
	if (request)
		return start_rendezvous(state, request, source, &peer->incoming_header, NULL);
	struct collet_p2p_unexpected *unexpected = create_unexpected(source, tag, 0);
	if (!unexpected)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
	unexpected->is_rts = true;
	unexpected->header = peer->incoming_header;
	return add_unexpected(state->p2p, unexpected);
}

static collet_status handle_rts_pull(struct collet_comm_state *state, struct collet_p2p_peer *peer)
{
	struct collet_p2p_unexpected *unexpected = peer->incoming_unexpected;
	struct collet_bounce_rts rts;
	peer->incoming_unexpected = NULL;
	memcpy(&rts, unexpected->data, sizeof(rts));
	unexpected->is_rts = unexpected->may_pull = true;
	unexpected->header = (struct collet_p2p_header){ .bytes = rts.bytes, .id = rts.id };
	return deliver_or_store(state, unexpected);
}

/* Returns the entry of the large message with this number; NULL if there is none. Its tag is the number's low half. */
static struct collet_match_entry *find_numbered(struct collet_match_table *table, uint32_t rank, uint64_t id)
{
	struct collet_match_entry *entry = collet_match_first(table, rank, (uint32_t)id);
	while (entry && collet_p2p_request_of(entry)->p2p.id != id)
		entry = entry->next;
	return entry;
}

/* Handles RTR and ATS, the receiver's answers to a large message. */
static collet_status handle_reply(struct collet_comm_state *state, uint32_t source, enum collet_p2p_kind kind,
	const struct collet_p2p_header *header)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_match_entry *entry = find_numbered(&p2p->sends, source, header->id);
	struct collet_request *request = collet_p2p_request_of(entry);
	const bool dropped = kind == P2P_RTR && !header->bytes;
	if (!request && kind == P2P_RTR && collet_p2p_forget_withdrawn(p2p, source, header->id))
		return COLLET_OK;
	if (!request || (!dropped && header->bytes != request->p2p.bytes) ||
		(kind == P2P_ATS && !request->p2p.may_pull))
		return collet_fail(COLLET_ERR_TRANSPORT,
			"rank %u asked for a message that was not announced to it", source);
	collet_match_remove(entry);
	if (kind == P2P_ATS)
		collet_p2p_handle_ats(request);
	else if (dropped)
		collet_p2p_complete(p2p, request); /* its receive was too short */
	else
		return collet_p2p_handle_rtr(request, header);
	return COLLET_OK;
}

/* Returns the announcement of this number; NULL if it was matched. */
static struct collet_p2p_unexpected *find_announced(const struct collet_p2p *p2p, uint32_t source, uint64_t id)
{
	struct collet_p2p_unexpected *unexpected = p2p->all_unexpected;
	while (unexpected && !(unexpected->is_rts && unexpected->source == source && unexpected->header.id == id))
		unexpected = unexpected->next;
	return unexpected;
}

/* Has a receive whose message was withdrawn wait for another, in its old place. */
static collet_status wait_again(struct collet_comm_state *state, struct collet_request *request)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_p2p_call *call = &request->p2p;
	collet_match_remove(&call->match);
	call->id = call->message_bytes = 0;
	if (call->from_any) {
		collet_p2p_stop_awaiting(p2p, request);
		call->peer = COLLET_ANY_SOURCE;
		p2p->any_source_count++;
	}
	struct collet_p2p_unexpected *unexpected = find_unexpected(p2p, call->peer, call->tag);
	if (!unexpected)
		return collet_match_put_back(&p2p->receives, &call->match, call->peer, call->tag, call->posted_order);
	take_unexpected(p2p, unexpected);
	call->match.order = call->posted_order;
	return deliver(state, request, unexpected);
}

/* Handles WITHDRAW. It crosses the RTR of a receive that has matched the message, or else is answered by one. */
static collet_status handle_withdraw(struct collet_comm_state *state, uint32_t source, uint64_t id)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_p2p_unexpected *announced = find_announced(p2p, source, id);
	if (announced) {
		const struct collet_p2p_header answer = { .id = id };
		remove_unexpected(announced);
		free(announced);
		return collet_p2p_send_message(state, source, P2P_RTR, 0, &answer, NULL, 0, NULL);
	}
	struct collet_match_entry *entry = find_numbered(&p2p->rendezvous, source, id);
	/* A receive that was too short has ended. */
	return entry ? wait_again(state, collet_p2p_request_of(entry)) : COLLET_OK;
}

/* Handles a complete message. */
static collet_status handle_message(struct collet_comm_state *state, uint32_t source, struct collet_p2p_peer *peer)
{
	struct collet_p2p *p2p = state->p2p;
	const uint32_t tag = (uint32_t)peer->incoming.message.signature;
	struct collet_request *request = peer->incoming_request;
	peer->incoming_request = NULL;
	switch (peer->incoming_kind) {
	case P2P_EAGER:
		if (request) {
			collet_p2p_segment_received(p2p, request, peer->incoming.message.bytes);
		} else {
			struct collet_p2p_unexpected *unexpected = peer->incoming_unexpected;
			peer->incoming_unexpected = NULL;
			return deliver_or_store(state, unexpected);
		}
		return COLLET_OK;
	case P2P_RTS: return handle_rts(state, source, tag, peer);
	case P2P_RTS_PULL: return handle_rts_pull(state, peer);
	case P2P_WITHDRAW: return handle_withdraw(state, source, peer->incoming_header.id);
	case P2P_RTR:
	case P2P_ATS: return handle_reply(state, source, peer->incoming_kind, &peer->incoming_header);
	case P2P_DATA:
		collet_p2p_segment_received(p2p, request, peer->incoming.message.bytes);
		return COLLET_OK;
	}
	return COLLET_OK;
}

/* Chooses the destination of the next message. Sets *must_retry if there is none yet. */
static collet_status place_incoming(struct collet_comm_state *state, uint32_t source, struct collet_p2p_peer *peer,
	const struct collet_message *next, bool *must_retry)
{
	struct collet_p2p *p2p = state->p2p;
	const enum collet_p2p_kind kind = (enum collet_p2p_kind)(next->signature >> 32);
	const uint32_t tag = (uint32_t)next->signature;
	peer->incoming_kind = kind;
	peer->incoming_request = NULL;
	*must_retry = false;
	if (kind == P2P_EAGER && next->bytes <= COLLET_EAGER_BYTES_MAX) {
		struct collet_request *request = find_receive(p2p, source, tag);
		if (request && next->bytes <= request->p2p.bytes) {
			peer->incoming_request = request;
			peer->incoming.data = match_eager(p2p, request, source, next->bytes);
			return COLLET_OK;
		}
		peer->incoming_unexpected = create_unexpected(source, tag, next->bytes);
		if (!peer->incoming_unexpected)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->incoming_unexpected->data;
		return COLLET_OK;
	}
	if (kind == P2P_RTS_PULL && next->bytes == sizeof(struct collet_bounce_rts)) {
		peer->incoming_unexpected = create_unexpected(source, tag, next->bytes);
		if (!peer->incoming_unexpected)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->incoming_unexpected->data;
		return COLLET_OK;
	}
	if ((kind == P2P_RTS || kind == P2P_RTR || kind == P2P_ATS || kind == P2P_WITHDRAW) &&
		next->bytes == sizeof(peer->incoming_header)) {
		peer->incoming.data = &peer->incoming_header;
		return COLLET_OK;
	}
	if (kind == P2P_DATA) {
		const enum collet_p2p_placed placed = collet_p2p_place_segment(p2p, source, peer, next);
		*must_retry = placed == P2P_NO_CELL;
		if (placed != P2P_NO_RECEIVE)
			return COLLET_OK;
	}
	return collet_fail(COLLET_ERR_TRANSPORT, "rank %u sent an invalid point-to-point message (kind %u, %llu bytes)",
		source, (unsigned)kind, (unsigned long long)next->bytes);
}

collet_status collet_p2p_progress_receives(struct collet_comm_state *state, uint32_t source,
	struct collet_p2p_peer *peer, struct collet_endpoint *endpoint)
{
	const bool needed = peer->waiter_count;
	for (;;) {
		if (peer->receiving) {
			if (peer->incoming.status == COLLET_PENDING)
				return COLLET_OK;
			peer->receiving = false;
			if (peer->incoming.status != COLLET_OK)
				return peer->incoming.status;
			const collet_status status = handle_message(state, source, peer);
			if (status != COLLET_OK)
				return status;
			/* The next message is for a call that has not been made yet. Leaving it in the transport saves
			 * a copy and memory. */
			if (needed && !peer->waiter_count)
				return COLLET_OK;
		}
		struct collet_message next;
		if (peer->unexpected_bytes > MAX_UNEXPECTED_BYTES || !endpoint->transport->peek(endpoint, &next))
			return endpoint->status;
		bool must_retry;
		peer->incoming.flags = 0;
		const collet_status status = place_incoming(state, source, peer, &next, &must_retry);
		if (status != COLLET_OK || must_retry)
			return status;
		peer->incoming.status = COLLET_PENDING;
		peer->incoming.message = next;
		peer->receiving = true;
		peer->received_count++;
		endpoint->transport->post_recv(endpoint, &peer->incoming);
	}
}

collet_status collet_p2p_post_receive(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_p2p *p2p = state->p2p;
	struct collet_p2p_call *call = &request->p2p;
	struct collet_p2p_unexpected *unexpected =
		p2p->all_unexpected ? find_unexpected(p2p, call->peer, call->tag) : NULL;
	if (!unexpected)
		return collet_match_add(&p2p->receives, &call->match, call->peer, call->tag);
	take_unexpected(p2p, unexpected);
	call->match.order = p2p->receives.next_order++;
	return deliver(state, request, unexpected);
}
