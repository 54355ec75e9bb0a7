/* Messages that come in, and how they meet the receives and sends that they belong to. */
#include <stdlib.h>
#include <string.h>

#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"

enum { KEPT_BYTES_MOST = 64 << 20 };      /* of unasked-for messages of a peer; beyond, its conduit is left alone */

static bool matches(const struct collet_p2p_call *call, uint32_t source, uint32_t tag)
{
	return !call->started && call->tag == tag && (call->peer == source || call->peer == COLLET_ANY_SOURCE);
}

static struct collet_request *find_receive(const struct collet_p2p *p2p, uint32_t source, uint32_t tag)
{
	struct collet_request *request = p2p->receives;
	while (request && !matches(&request->p2p, source, tag))
		request = request->p2p.next;
	return request;
}

/* A message from source is this receive's. */
static void match(struct collet_p2p *p2p, struct collet_request *request, uint32_t source)
{
	struct collet_p2p_call *call = &request->p2p;
	call->started = true;
	if (call->peer != COLLET_ANY_SOURCE)
		return;
	call->peer = source;
	p2p->any--;
	collet_p2p_need_peer(p2p, request);
}

/* A large message goes into this receive: ask for it, or, if it is offered, take it. One that is too long is fetched by
 * nobody; its sender is told. */
static collet_status fetch(struct collet_group *group, struct collet_request *request, uint32_t source,
	const struct collet_p2p_note *note, const struct collet_bounce_offer *offer)
{
	bool again = false;
	struct collet_p2p_call *call = &request->p2p;
	match(group->p2p, request, source);
	call->id = note->id;
	call->message_bytes = note->bytes;
	call->truncated = note->bytes > call->bytes;
	if (offer && !call->truncated && collet_p2p_pull(request, offer, &again))
		return COLLET_OK;
	struct collet_p2p_note ask = {
		.bytes = call->truncated ? 0 : note->bytes, .id = note->id, .again = again };
	collet_p2p_ask(request, &ask);
	const collet_status status = collet_p2p_send_message(group, source, FETCH, call->tag, &ask, NULL, 0, NULL);
	if (status == COLLET_OK && call->truncated)
		collet_p2p_end_receive(group->p2p, request);
	return status;
}

static struct collet_p2p_kept *keep(uint32_t source, uint32_t tag, uint64_t bytes)
{
	struct collet_p2p_kept *kept = calloc(1, sizeof(*kept) + bytes);
	if (!kept)
		return NULL;
	kept->source = source;
	kept->tag = tag;
	kept->note.bytes = bytes;
	return kept;
}

static void add_kept(struct collet_p2p *p2p, struct collet_p2p_kept *kept)
{
	*p2p->last_kept = kept;
	p2p->last_kept = &kept->next;
}

static collet_status fetch_kept(
	struct collet_group *group, struct collet_request *request, const struct collet_p2p_kept *kept)
{
	struct collet_bounce_offer offer;
	if (kept->offered)
		memcpy(&offer, kept->data, sizeof(offer));
	return fetch(group, request, kept->source, &kept->note, kept->offered ? &offer : NULL);
}

/* A large message may be had; kept is freed, or stays until there is a receive for it. */
static collet_status take_announcement(struct collet_group *group, struct collet_p2p_kept *kept)
{
	struct collet_request *request = find_receive(group->p2p, kept->source, kept->tag);
	if (!request) {
		add_kept(group->p2p, kept);
		return COLLET_OK;
	}
	const collet_status status = fetch_kept(group, request, kept);
	free(kept);
	return status;
}

static collet_status announced(struct collet_group *group, uint32_t source, uint32_t tag, struct collet_p2p_peer *peer)
{
	struct collet_request *request = find_receive(group->p2p, source, tag);
	if (request)
		return fetch(group, request, source, &peer->note, NULL);
	struct collet_p2p_kept *kept = keep(source, tag, 0);
	if (!kept)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
	kept->announced = true;
	kept->note = peer->note;
	add_kept(group->p2p, kept);
	return COLLET_OK;
}

static collet_status offered(struct collet_group *group, struct collet_p2p_peer *peer)
{
	struct collet_p2p_kept *kept = peer->keeping;
	struct collet_bounce_offer offer;
	peer->keeping = NULL;
	memcpy(&offer, kept->data, sizeof(offer));
	kept->announced = kept->offered = true;
	kept->note = (struct collet_p2p_note){ .bytes = offer.bytes, .id = offer.id };
	return take_announcement(group, kept);
}

/* The receiver of a large message has answered. */
static collet_status answered(
	struct collet_group *group, uint32_t source, enum collet_p2p_kind kind, const struct collet_p2p_note *note)
{
	struct collet_p2p *p2p = group->p2p;
	struct collet_request *request = p2p->sends;
	while (request && request->p2p.id != note->id)
		request = request->p2p.next;
	const bool dropped = kind == FETCH && !note->bytes;
	if (!request || request->p2p.peer != source || (!dropped && note->bytes != request->p2p.bytes) ||
		(kind == TAKEN && !request->p2p.offered))
		return collet_fail(COLLET_ERR_TRANSPORT,
			"rank %u asked for a message that was not announced to it", source);
	collet_p2p_remove(&p2p->sends, request);
	if (kind == TAKEN)
		collet_p2p_taken(request);
	else if (dropped)
		collet_p2p_end(p2p, request);  /* its receive was too short */
	else
		return collet_p2p_fetched(request, note);
	return COLLET_OK;
}

/* A message has come whole. */
static collet_status arrived(struct collet_group *group, uint32_t source, struct collet_p2p_peer *peer)
{
	struct collet_p2p *p2p = group->p2p;
	const uint32_t tag = (uint32_t)peer->incoming.message.signature;
	struct collet_request *request = peer->into;
	peer->into = NULL;
	switch (peer->incoming_kind) {
	case EAGER:
		if (request) {
			collet_p2p_piece_came(p2p, request, peer->incoming.message.bytes);
		} else {
			peer->kept_bytes += peer->keeping->note.bytes;
			struct collet_p2p_kept *kept = peer->keeping;
			peer->keeping = NULL;
			/* A receive may have been posted while the bytes came. */
			add_kept(p2p, kept);
			collet_p2p_match_kept(group);
		}
		return COLLET_OK;
	case ANNOUNCE: return announced(group, source, tag, peer);
	case OFFER: return offered(group, peer);
	case FETCH:
	case TAKEN: return answered(group, source, peer->incoming_kind, &peer->note);
	case DATA:
		collet_p2p_piece_came(p2p, request, peer->incoming.message.bytes);
		return COLLET_OK;
	}
	return COLLET_OK;
}

/* An eager message of so many bytes is this receive's: where they go. */
static char *take_eager(struct collet_p2p *p2p, struct collet_request *request, uint32_t source, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	match(p2p, request, source);
	call->message_bytes = bytes;
	return call->bounce ? call->bounce->cells : call->buffer;
}

/* Where the message that is next goes; *later: nowhere yet. */
static collet_status place(struct collet_group *group, uint32_t source, struct collet_p2p_peer *peer,
	const struct collet_message *next, bool *later)
{
	struct collet_p2p *p2p = group->p2p;
	const enum collet_p2p_kind kind = (enum collet_p2p_kind)(next->signature >> 32);
	const uint32_t tag = (uint32_t)next->signature;
	peer->incoming_kind = kind;
	peer->into = NULL;
	*later = false;
	if (kind == EAGER && next->bytes <= COLLET_EAGER_BYTES_MOST) {
		struct collet_request *request = find_receive(p2p, source, tag);
		if (request && next->bytes <= request->p2p.bytes) {
			peer->into = request;
			peer->incoming.data = take_eager(p2p, request, source, next->bytes);
			return COLLET_OK;
		}
		peer->keeping = keep(source, tag, next->bytes);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->keeping->data;
		return COLLET_OK;
	}
	if (kind == OFFER && next->bytes == sizeof(struct collet_bounce_offer)) {
		peer->keeping = keep(source, tag, next->bytes);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->keeping->data;
		return COLLET_OK;
	}
	if ((kind == ANNOUNCE || kind == FETCH || kind == TAKEN) && next->bytes == sizeof(peer->note)) {
		peer->incoming.data = &peer->note;
		return COLLET_OK;
	}
	if (kind == DATA) {
		const enum collet_p2p_placed placed = collet_p2p_place_piece(p2p, source, peer, next);
		*later = placed == PLACED_LATER;
		if (placed != PLACED_NOWHERE)
			return COLLET_OK;
	}
	return collet_fail(COLLET_ERR_TRANSPORT,
		"rank %u sent a point-to-point message that makes no sense (kind %u, %llu bytes)", source,
		(unsigned)kind, (unsigned long long)next->bytes);
}

collet_status collet_p2p_advance_in(struct collet_group *group, uint32_t source, struct collet_p2p_peer *peer,
	struct collet_conduit *conduit)
{
	const bool needed = peer->needs;
	for (;;) {
		if (peer->receiving) {
			if (peer->incoming.status == COLLET_PENDING)
				return COLLET_OK;
			peer->receiving = false;
			if (peer->incoming.status != COLLET_OK)
				return peer->incoming.status;
			const collet_status status = arrived(group, source, peer);
			if (status != COLLET_OK)
				return status;
			/* What follows is for a call that has not been made yet: its bytes are copied once less, and no
			 * memory is taken for them, if they wait where they are until it is. */
			if (needed && !peer->needs)
				return COLLET_OK;
		}
		struct collet_message next;
		if (peer->kept_bytes > KEPT_BYTES_MOST || !conduit->transport->peek(conduit, &next))
			return conduit->status;
		bool later;
		peer->incoming.flags = 0;
		const collet_status status = place(group, source, peer, &next, &later);
		if (status != COLLET_OK || later)
			return status;
		peer->incoming.status = COLLET_PENDING;
		peer->incoming.message = next;
		peer->receiving = true;
		peer->came++;
		conduit->transport->post_recv(conduit, &peer->incoming);
	}
}

void collet_p2p_match_kept(struct collet_group *group)
{
	struct collet_p2p *p2p = group->p2p;
	for (struct collet_p2p_kept **at = &p2p->kept; *at;) {
		struct collet_p2p_kept *kept = *at;
		struct collet_request *request = find_receive(p2p, kept->source, kept->tag);
		if (!request) {
			at = &kept->next;
			continue;
		}
		*at = kept->next;
		if (p2p->last_kept == &kept->next)
			p2p->last_kept = at;
		if (kept->announced) {
			const collet_status status = fetch_kept(group, request, kept);
			if (status != COLLET_OK)
				collet_group_end(group, status, true, collet_last_error());
		} else {
			struct collet_p2p_call *call = &request->p2p;
			call->truncated = kept->note.bytes > call->bytes;
			char *to = take_eager(p2p, request, kept->source, call->truncated ? 0 : kept->note.bytes);
			if (call->message_bytes)
				memcpy(to, kept->data, call->message_bytes);
			p2p->peers[kept->source].kept_bytes -= kept->note.bytes;
			collet_p2p_piece_came(p2p, request, call->message_bytes);
		}
		free(kept);
	}
}
