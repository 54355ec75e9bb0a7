/* Large messages that have been asked for: whole from buffer to buffer; or, if either end's buffer is one that the
 * engine cannot touch, in pieces. How long these may be says the receiver, who asks, so that one form of message serves
 * any two ends; the sender has its own limit too. */
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"

enum { FLYING_MOST = COLLET_BOUNCE_CELLS };  /* pieces of a message that the transport has at a time */

/* ---- Cells ---- */

static uint32_t pieces_of(uint64_t bytes)
{
	return (uint32_t)((bytes + COLLET_BOUNCE_CELL - 1) / COLLET_BOUNCE_CELL);
}

void collet_p2p_start_bounce(struct collet_request *request)
{
	struct collet_bounce *bounce = request->p2p.bounce;
	struct collet_bounce **list = &request->group->p2p->bounces;
	assert(!bounce->request);
	bounce->begun = bounce->filled = bounce->emptied = 0;
	bounce->request = request;
	bounce->next = *list;
	if (bounce->next)
		bounce->next->previous = &bounce->next;
	*list = bounce;
	bounce->previous = list;
}

void collet_bounce_stop(struct collet_bounce *bounce)
{
	if (!bounce->request)
		return;
	*bounce->previous = bounce->next;
	if (bounce->next)
		bounce->next->previous = bounce->previous;
	bounce->request = NULL;
	bounce->busy = false;
}

bool collet_bounce_is_due(const struct collet_bounce *bounce)
{
	const struct collet_p2p_call *call = &bounce->request->p2p;
	if (!call->sends)
		return bounce->begun < bounce->filled;
	return bounce->begun < pieces_of(call->message_bytes) && bounce->begun - bounce->emptied < COLLET_BOUNCE_CELLS;
}

struct collet_range collet_bounce_piece(const struct collet_bounce *bounce, uint32_t piece)
{
	const uint64_t left = bounce->request->p2p.message_bytes - (uint64_t)piece * COLLET_BOUNCE_CELL;
	return (struct collet_range){
		bounce->cells + (size_t)(piece % COLLET_BOUNCE_CELLS) * COLLET_BOUNCE_CELL,
		(size_t)(left < COLLET_BOUNCE_CELL ? left : COLLET_BOUNCE_CELL) };
}

void collet_bounce_copied(struct collet_bounce *bounce, uint32_t count)
{
	struct collet_request *request = bounce->request;
	if (request->p2p.sends) {
		bounce->filled += count;
		collet_p2p_send_pieces(request);
		return;
	}
	bounce->emptied += count;
	if (bounce->emptied == pieces_of(request->p2p.message_bytes))
		collet_p2p_end_receive(request->group->p2p, request);
}

uint32_t collet_p2p_advance_bounces(const struct collet_p2p *p2p)
{
	uint32_t moved = 0;
	for (struct collet_bounce *bounce = p2p->bounces, *next; bounce; bounce = next) {
		next = bounce->next;
		moved += bounce->advance(bounce);
	}
	return moved;
}

bool collet_p2p_bounces_rest(const struct collet_p2p *p2p)
{
	const struct collet_bounce *bounce = p2p->bounces;
	while (bounce && !bounce->busy)
		bounce = bounce->next;
	return !bounce;
}

/* ---- Sending ---- */

/* The next piece, if there is one that may go; *data: where it is. */
static uint64_t next_piece(const struct collet_p2p_call *call, const void **data)
{
	const uint64_t left = call->message_bytes - call->moved_bytes;
	if (!left || call->flying == FLYING_MOST)
		return 0;
	if (call->bounce) {
		const uint32_t piece = call->bounce->emptied + call->flying;
		if (piece == call->bounce->filled)
			return 0;
		const struct collet_range range = collet_bounce_piece(call->bounce, piece);
		*data = range.first;
		return range.bytes;
	}
	*data = (const char *)call->buffer + call->moved_bytes;
	return left < call->piece_bytes ? left : call->piece_bytes;
}

void collet_p2p_send_pieces(struct collet_request *request)
{
	struct collet_group *group = request->group;
	struct collet_p2p_call *call = &request->p2p;
	const void *data;
	uint64_t bytes;
	while (call->fetched && (bytes = next_piece(call, &data)) != 0) {
		const collet_status status = collet_p2p_send_message(
			group, call->peer, DATA, (uint32_t)call->id, NULL, data, bytes, request);
		if (status != COLLET_OK) {
			collet_group_end(group, status, true, collet_last_error());
			return;
		}
		call->moved_bytes += bytes;
		call->flying++;
	}
}

/* ---- As it is ---- */

bool collet_p2p_reaches_gpu(const struct collet_request *request, uint64_t bytes)
{
	const struct collet_p2p_call *call = &request->p2p;
	struct collet_conduit *conduit =
		collet_p2p_conduit(collet_route_peek(request->group, COLLET_CHANNEL_P2P, call->peer));
	return conduit && call->bounce && conduit->transport->takes_gpu &&
	       conduit->transport->takes_gpu(conduit, call->bounce->buffer, bytes);
}

/* No cells any more: what they have been filled with is not wanted. */
static void go_whole(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	collet_bounce_stop(call->bounce);
	call->buffer = call->bounce->buffer;
	call->bounce = NULL;
	call->on_gpu = true;
}

/* ---- Pulled ---- */

bool collet_p2p_pull(struct collet_request *request, const struct collet_bounce_offer *offer, bool *again)
{
	struct collet_bounce *bounce = request->p2p.bounce;
	*again = false;
	return bounce && bounce->pull && bounce->pull(bounce, offer->where, again);
}

void collet_bounce_pulled(struct collet_bounce *bounce)
{
	struct collet_request *request = bounce->request;
	struct collet_group *group = request->group;
	const struct collet_p2p_call *call = &request->p2p;
	const struct collet_p2p_note note = { .bytes = call->message_bytes, .id = call->id };
	struct collet_conduit_stats *pulled = &group->p2p->peers[call->peer].pulled;
	pulled->messages_received++;
	pulled->bytes_received += call->message_bytes;
	const collet_status status =
		collet_p2p_send_message(group, call->peer, TAKEN, call->tag, &note, NULL, 0, NULL);
	if (status == COLLET_OK)
		collet_p2p_end_receive(group->p2p, request);
	else
		collet_group_end(group, status, true, collet_last_error());
}

void collet_p2p_taken(struct collet_request *request)
{
	struct collet_p2p *p2p = request->group->p2p;
	struct collet_conduit_stats *pulled = &p2p->peers[request->p2p.peer].pulled;
	pulled->messages_sent++;
	pulled->bytes_sent += request->p2p.bytes;
	collet_p2p_end(p2p, request);
}

/* ---- Being asked ---- */

collet_status collet_p2p_fetched(struct collet_request *request, const struct collet_p2p_note *note)
{
	struct collet_p2p_call *call = &request->p2p;
	if (note->again && call->offered)
		call->bounce->show_again(call->bounce, request);
	const bool may_be_whole = note->whole || !note->piece_bytes;
	if (may_be_whole && collet_p2p_reaches_gpu(request, call->message_bytes))
		go_whole(request);
	else if (call->bounce && !call->bounce->request)
		collet_p2p_start_bounce(request);
	const uint64_t longest = call->bounce ? COLLET_BOUNCE_CELL : call->message_bytes;
	if (call->bounce && note->piece_bytes && note->piece_bytes < longest)
		return collet_fail(COLLET_ERR_TRANSPORT, "rank %u asked for a message in pieces of %llu bytes",
			call->peer, (unsigned long long)note->piece_bytes);
	const bool whole = note->whole && !call->bounce;
	call->piece_bytes = !whole && note->piece_bytes && note->piece_bytes < longest ? note->piece_bytes : longest;
	call->fetched = true;
	collet_p2p_send_pieces(request);
	return COLLET_OK;
}

void collet_p2p_piece_sent(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	call->flying--;
	if (call->bounce)
		call->bounce->emptied++;
	collet_p2p_send_pieces(request);
	if (!call->flying && call->moved_bytes == call->message_bytes)
		collet_p2p_end(request->group->p2p, request);
}

/* ---- Receiving ---- */

void collet_p2p_ask(struct collet_request *request, struct collet_p2p_note *note)
{
	struct collet_p2p_call *call = &request->p2p;
	note->piece_bytes = call->bounce ? COLLET_BOUNCE_CELL : 0;
	note->whole = call->takes_whole = collet_p2p_reaches_gpu(request, note->bytes);
}

static struct collet_request *find_fetched(const struct collet_p2p *p2p, uint32_t source, uint32_t id)
{
	struct collet_request *request = p2p->receives;
	while (request && !(request->p2p.started && request->p2p.peer == source && request->p2p.id &&
				  (uint32_t)request->p2p.id == id))
		request = request->p2p.next;
	return request;
}

enum collet_p2p_placed collet_p2p_place_piece(
	struct collet_p2p *p2p, uint32_t source, struct collet_p2p_peer *peer, const struct collet_message *next)
{
	struct collet_request *request = find_fetched(p2p, source, (uint32_t)next->signature);
	if (!request)
		return PLACED_NOWHERE;
	const struct collet_p2p_call *call = &request->p2p;
	const uint64_t left = call->message_bytes - call->moved_bytes;
	if (!next->bytes || next->bytes > left)
		return PLACED_NOWHERE;
	if (call->takes_whole && next->bytes == call->message_bytes)
		go_whole(request);
	peer->incoming.flags = call->on_gpu ? COLLET_TRANSFER_GPU : 0;
	const struct collet_bounce *bounce = call->bounce;
	if (!bounce) {
		peer->incoming.data = (char *)call->buffer + call->moved_bytes;
	} else {
		const struct collet_range range = collet_bounce_piece(bounce, bounce->filled);
		if (next->bytes != range.bytes)
			return PLACED_NOWHERE;
		if (bounce->filled - bounce->emptied == COLLET_BOUNCE_CELLS)
			return PLACED_LATER;
		peer->incoming.data = (char *)(uintptr_t)range.first;
	}
	peer->into = request;
	return PLACED;
}

void collet_p2p_piece_came(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	const bool whole = (call->moved_bytes += bytes) == call->message_bytes;
	/* Whoever sent it may leave, whatever has to be copied yet. */
	if (whole)
		collet_p2p_need_peer_no_more(p2p, request);
	if (call->bounce && bytes)
		call->bounce->filled++;
	else if (whole)
		collet_p2p_end_receive(p2p, request);
}
