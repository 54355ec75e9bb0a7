/* Messages out and in, and how they meet the sends and receives that they belong to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/p2p_internal.h"

enum {
	SPARES_MOST = 64,
	KEPT_BYTES_MOST = 64 << 20        /* of unasked-for messages of a peer; beyond, its conduit is left alone */
};

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

static uint64_t signature_of(enum collet_p2p_kind kind, uint32_t tag)
{
	return (uint64_t)kind << 32 | tag;
}

/* ---- Ends of requests ---- */

static void remove_from(struct collet_request **list, struct collet_request *request)
{
	while (*list && *list != request)
		list = &(*list)->p2p.next;
	if (*list)
		*list = request->p2p.next;
}

static void end_request(struct collet_p2p *p2p, struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	if (!call->sends) {
		need_no_more(p2p, call->peer);
		remove_from(&p2p->receives, request);
		p2p->last_receive = &p2p->receives;
		while (*p2p->last_receive)
			p2p->last_receive = &(*p2p->last_receive)->p2p.next;
	}
	p2p->pending--;
	p2p->ended++;
	struct collet_request *parent = call->parent;
	const enum collet_status status = call->truncated ? COLLET_ERR_TRUNCATED : COLLET_OK;
	collet_request_end(request, status);
	if (!parent)
		return;
	parent->p2p.truncated |= call->truncated;
	collet_request_free(request);
	if (--parent->p2p.pending_parts == 0)
		collet_request_end(parent, parent->p2p.truncated ? COLLET_ERR_TRUNCATED : COLLET_OK);
}

static void end_receive(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	if (call->received && !call->truncated)
		*call->received = (collet_received){ call->peer, call->tag, bytes / call->element_bytes };
	end_request(p2p, request);
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
	out->transfer.message = (struct collet_message){ signature_of(kind, tag), peer->sent++, bytes };
	out->transfer.data = (void *)(uintptr_t)data;
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

bool collet_p2p_send_now(struct collet_request *request)
{
	struct collet_group *group = request->group;
	const struct collet_p2p_call *call = &request->p2p;
	struct collet_p2p_peer *peer = &group->p2p->peers[call->peer];
	struct collet_conduit *conduit = collet_p2p_conduit(collet_p2p_route(group, call->peer));
	if (!conduit || !conduit->transport->send_now || peer->first_out)
		return false;
	struct collet_transfer now = {
		.status = COLLET_PENDING,
		.message = { signature_of(EAGER, call->tag), peer->sent, call->bytes },
		.data = call->buffer,
	};
	if (conduit->transport->send_now(conduit, &now) != COLLET_NOW_DONE)
		return false;
	peer->sent++;
	end_request(group->p2p, request);
	return true;
}

bool collet_p2p_advance_out(struct collet_group *group, uint32_t rank, struct collet_conduit *conduit)
{
	struct collet_p2p *p2p = group->p2p;
	struct collet_p2p_peer *peer = &p2p->peers[rank];
	for (struct collet_p2p_outgoing *out = peer->first_out; out; out = out->next) {
		if (out->transfer.status != COLLET_CANCELLED)
			continue;
		out->transfer.status = COLLET_PENDING;
		conduit->transport->post_send(conduit, &out->transfer);
	}
	while (peer->first_out && peer->first_out->transfer.status != COLLET_PENDING) {
		struct collet_p2p_outgoing *out = peer->first_out;
		if (out->transfer.status != COLLET_OK)
			return false;
		peer->first_out = out->next;
		p2p->busy--;
		p2p->ended++;
		need_no_more(p2p, rank);
		if (out->request)
			end_request(p2p, out->request);
		put_outgoing(p2p, out);
	}
	return true;
}

/* ---- Receiving ---- */

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
	collet_p2p_need(p2p, source);
}

/* A large message goes into this receive: ask for it. One that is too long is fetched by nobody; its sender is told. */
static collet_status fetch(struct collet_group *group, struct collet_request *request, uint32_t source,
	const struct collet_p2p_note *note)
{
	struct collet_p2p_call *call = &request->p2p;
	match(group->p2p, request, source);
	call->id = note->id;
	call->truncated = note->bytes > call->bytes;
	const struct collet_p2p_note ask = { call->truncated ? 0 : note->bytes, note->id };
	const collet_status status = collet_p2p_send_message(group, source, FETCH, call->tag, &ask, NULL, 0, NULL);
	if (status == COLLET_OK && call->truncated)
		end_receive(group->p2p, request, 0);
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
			end_receive(p2p, request, peer->incoming.message.bytes);
		} else {
			peer->kept_bytes += peer->keeping->note.bytes;
			struct collet_p2p_kept *kept = peer->keeping;
			peer->keeping = NULL;
			/* A receive may have been posted while the bytes came. */
			add_kept(p2p, kept);
			collet_p2p_match_kept(group);
		}
		return COLLET_OK;
	case ANNOUNCE:
		request = find_receive(p2p, source, tag);
		if (request)
			return fetch(group, request, source, &peer->note);
		peer->keeping = keep(source, tag, 0);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->keeping->announced = true;
		peer->keeping->note = peer->note;
		add_kept(p2p, peer->keeping);
		peer->keeping = NULL;
		return COLLET_OK;
	case FETCH:
		for (request = p2p->sends; request && request->p2p.id != peer->note.id;)
			request = request->p2p.next;
		if (!request || request->p2p.peer != source || peer->note.bytes > request->p2p.bytes)
			return collet_fail(COLLET_ERR_TRANSPORT,
				"rank %u asked for a message that was not announced to it", source);
		remove_from(&p2p->sends, request);
		need_no_more(p2p, source);
		if (peer->note.bytes == 0) {
			end_request(p2p, request);  /* its receive was too short: dropped */
			return COLLET_OK;
		}
		return collet_p2p_send_message(
			group, source, DATA, request->p2p.tag, NULL, request->p2p.buffer, request->p2p.bytes, request);
	case DATA:
		end_receive(p2p, request, peer->incoming.message.bytes);
		return COLLET_OK;
	}
	return COLLET_OK;
}

/* Where the message that is next goes. */
static collet_status place(
	struct collet_group *group, uint32_t source, struct collet_p2p_peer *peer, const struct collet_message *next)
{
	struct collet_p2p *p2p = group->p2p;
	const enum collet_p2p_kind kind = (enum collet_p2p_kind)(next->signature >> 32);
	const uint32_t tag = (uint32_t)next->signature;
	peer->incoming_kind = kind;
	peer->into = NULL;
	if (kind == EAGER && next->bytes <= COLLET_EAGER_BYTES) {
		struct collet_request *request = find_receive(p2p, source, tag);
		if (request && next->bytes <= request->p2p.bytes) {
			match(p2p, request, source);
			peer->into = request;
			peer->incoming.data = request->p2p.buffer;
			return COLLET_OK;
		}
		peer->keeping = keep(source, tag, next->bytes);
		if (!peer->keeping)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a message from rank %u", source);
		peer->incoming.data = peer->keeping->data;
		return COLLET_OK;
	}
	if ((kind == ANNOUNCE || kind == FETCH) && next->bytes == sizeof(peer->note)) {
		peer->incoming.data = &peer->note;
		return COLLET_OK;
	}
	if (kind == DATA) {
		/* Large messages of a pair come in the order in which they were fetched. */
		for (struct collet_request *request = p2p->receives; request; request = request->p2p.next) {
			if (request->p2p.started && request->p2p.peer == source && request->p2p.tag == tag &&
				request->p2p.id && next->bytes <= request->p2p.bytes) {
				peer->into = request;
				peer->incoming.data = request->p2p.buffer;
				return COLLET_OK;
			}
		}
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
		const collet_status status = place(group, source, peer, &next);
		if (status != COLLET_OK)
			return status;
		peer->incoming.status = COLLET_PENDING;
		peer->incoming.flags = 0;
		peer->incoming.message = next;
		peer->receiving = true;
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
			const collet_status status = fetch(group, request, kept->source, &kept->note);
			if (status != COLLET_OK)
				collet_group_end(group, status, true, collet_last_error());
		} else {
			struct collet_p2p_call *call = &request->p2p;
			match(p2p, request, kept->source);
			call->truncated = kept->note.bytes > call->bytes;
			if (!call->truncated && kept->note.bytes)
				memcpy(call->buffer, kept->data, kept->note.bytes);
			p2p->peers[kept->source].kept_bytes -= kept->note.bytes;
			end_receive(p2p, request, kept->note.bytes);
		}
		free(kept);
	}
}
