/* Receives messages and matches them with posted receives, and replies with the sends that they belong to. */
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

static bool matches(const struct collet_p2p_call *call, uint32_t source, uint32_t tag)
{
	return !call->matched && call->tag == tag && (call->peer == source || call->peer == COLLET_ANY_SOURCE);
}

static struct collet_request *find_receive(const struct collet_p2p *p2p, uint32_t source, uint32_t tag)
{
	struct collet_request *request = p2p->receives;
	while (request && !matches(&request->p2p, source, tag))
		request = request->p2p.next;
	return request;
}

/* Matches a receive with a message from source. */
static void match(struct collet_p2p *p2p, struct collet_request *request, uint32_t source)
{
	struct collet_p2p_call *call = &request->p2p;
	call->matched = true;
	if (call->peer != COLLET_ANY_SOURCE)
		return;
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
	const collet_status status = collet_p2p_send_message(state, source, P2P_RTR, call->tag, &rtr, NULL, 0, NULL);
	if (status == COLLET_OK && call->truncated)
		collet_p2p_complete_receive(state->p2p, request);
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

static void add_unexpected(struct collet_p2p *p2p, struct collet_p2p_unexpected *unexpected)
{
	*p2p->last_unexpected = unexpected;
	p2p->last_unexpected = &unexpected->next;
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

/* Handles an RTS that was received into an unexpected message. Frees it, or keeps it until a receive matches. */
static collet_status match_rts(struct collet_comm_state *state, struct collet_p2p_unexpected *unexpected)
{
	struct collet_request *request = find_receive(state->p2p, unexpected->source, unexpected->tag);
	if (!request) {
		add_unexpected(state->p2p, unexpected);
		return COLLET_OK;
	}
	const collet_status status = start_unexpected(state, request, unexpected);
	free(unexpected);
	return status;
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
	add_unexpected(state->p2p, unexpected);
	return COLLET_OK;
}

static collet_status handle_rts_pull(struct collet_comm_state *state, struct collet_p2p_peer *peer)
{
	struct collet_p2p_unexpected *unexpected = peer->incoming_unexpected;
	struct collet_bounce_rts rts;
	peer->incoming_unexpected = NULL;
	memcpy(&rts, unexpected->data, sizeof(rts));
	unexpected->is_rts = unexpected->may_pull = true;
	unexpected->header = (struct collet_p2p_header){ .bytes = rts.bytes, .id = rts.id };
	return match_rts(state, unexpected);
}

/* Handles RTR and ATS, the receiver's answers to a large message. */
static collet_status handle_reply(struct collet_comm_state *state, uint32_t source, enum collet_p2p_kind kind,
	const struct collet_p2p_header *header)
{
	struct collet_p2p *p2p = state->p2p;
	struct collet_request *request = p2p->sends;
	while (request && request->p2p.id != header->id)
		request = request->p2p.next;
	const bool dropped = kind == P2P_RTR && !header->bytes;
	if (!request || request->p2p.peer != source || (!dropped && header->bytes != request->p2p.bytes) ||
		(kind == P2P_ATS && !request->p2p.may_pull))
		return collet_fail(COLLET_ERR_TRANSPORT,
			"rank %u asked for a message that was not announced to it", source);
	collet_p2p_remove(&p2p->sends, request);
	if (kind == P2P_ATS)
		collet_p2p_handle_ats(request);
	else if (dropped)
		collet_p2p_complete(p2p, request); /* its receive was too short */
	else
		return collet_p2p_handle_rtr(request, header);
	return COLLET_OK;
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
			peer->unexpected_bytes += peer->incoming_unexpected->header.bytes;
			struct collet_p2p_unexpected *unexpected = peer->incoming_unexpected;
			peer->incoming_unexpected = NULL;
			/* A receive may have been posted while the bytes came. */
			add_unexpected(p2p, unexpected);
			collet_p2p_match_unexpected(state);
		}
		return COLLET_OK;
	case P2P_RTS: return handle_rts(state, source, tag, peer);
	case P2P_RTS_PULL: return handle_rts_pull(state, peer);
	case P2P_RTR:
	case P2P_ATS: return handle_reply(state, source, peer->incoming_kind, &peer->incoming_header);
	case P2P_DATA:
		collet_p2p_segment_received(p2p, request, peer->incoming.message.bytes);
		return COLLET_OK;
	}
	return COLLET_OK;
}

/* Matches a receive with an eager message. Returns the destination of its bytes. */
static char *match_eager(struct collet_p2p *p2p, struct collet_request *request, uint32_t source, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	match(p2p, request, source);
	call->message_bytes = bytes;
	return call->bounce ? call->bounce->cells : call->buffer;
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
	if ((kind == P2P_RTS || kind == P2P_RTR || kind == P2P_ATS) && next->bytes == sizeof(peer->incoming_header)) {
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

void collet_p2p_match_unexpected(struct collet_comm_state *state)
{
	struct collet_p2p *p2p = state->p2p;
	for (struct collet_p2p_unexpected **at = &p2p->unexpected; *at;) {
		struct collet_p2p_unexpected *unexpected = *at;
		struct collet_request *request = find_receive(p2p, unexpected->source, unexpected->tag);
		if (!request) {
			at = &unexpected->next;
			continue;
		}
		*at = unexpected->next;
		if (p2p->last_unexpected == &unexpected->next)
			p2p->last_unexpected = at;
		if (unexpected->is_rts) {
			const collet_status status = start_unexpected(state, request, unexpected);
			if (status != COLLET_OK)
				collet_comm_state_end(state, status, true, collet_last_error());
		} else {
			struct collet_p2p_call *call = &request->p2p;
			call->truncated = unexpected->header.bytes > call->bytes;
			char *to = match_eager(
				p2p, request, unexpected->source, call->truncated ? 0 : unexpected->header.bytes);
			if (call->message_bytes)
				memcpy(to, unexpected->data, call->message_bytes);
			p2p->peers[unexpected->source].unexpected_bytes -= unexpected->header.bytes;
			collet_p2p_segment_received(p2p, request, call->message_bytes);
		}
		free(unexpected);
	}
}
