/* Moves the data of large messages, after the receiver's RTR. A message goes whole from buffer to buffer, or in
 * segments if the engine cannot access the buffer of either end. The RTR gives the length of segments, and the sender
 * has a limit too. So one form of message serves any two ends. */
#include "core/status.h"
#include "engine/byte_range.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/p2p/p2p.h"
#include "engine/peer_queue.h"
#include "engine/request.h"

enum { MAX_IN_FLIGHT = COLLET_BOUNCE_CELL_COUNT }; /* segments of one message that are posted at a time */

/* ---- Sending ---- */

/* Returns the length of the next segment and sets *data, or returns 0 if none is ready. */
static uint64_t next_segment(const struct collet_p2p_call *call, const void **data)
{
	const uint64_t left = call->message_bytes - call->moved_bytes;
	if (!left || call->in_flight == MAX_IN_FLIGHT)
		return 0;
	if (call->bounce) {
		const uint32_t segment = call->bounce->emptied + call->in_flight;
		if (segment == call->bounce->filled)
			return 0;
		const struct collet_byte_range range = collet_bounce_segment(call->bounce, segment);
		*data = range.first;
		return range.bytes;
	}
	*data = (const char *)call->buffer + call->moved_bytes;
	return left < call->segment_bytes ? left : call->segment_bytes;
}

void collet_p2p_send_segments(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_p2p_call *call = &request->p2p;
	const void *data;
	uint64_t bytes;
	while (call->has_rtr && (bytes = next_segment(call, &data)) != 0) {
		const collet_status status = collet_p2p_send_message(
			state, call->peer, P2P_DATA, (uint32_t)call->id, NULL, data, bytes, request);
		if (status != COLLET_OK) {
			collet_comm_state_end(state, status, true, collet_last_error());
			return;
		}
		call->moved_bytes += bytes;
		call->in_flight++;
	}
}

/* ---- GPUDirect ---- */

bool collet_p2p_may_gpudirect(const struct collet_request *request, uint64_t bytes)
{
	const struct collet_p2p_call *call = &request->p2p;
	struct collet_endpoint *endpoint =
		collet_p2p_endpoint(collet_peer_queue_find(request->state, COLLET_CHANNEL_P2P, call->peer));
	return endpoint && call->bounce && endpoint->transport->accepts_gpu &&
	       endpoint->transport->accepts_gpu(endpoint, call->bounce->user_buffer, bytes);
}

/* Replaces the bounce buffer by the user's buffer. The contents of the cells are not used. */
static void use_gpudirect(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	collet_bounce_stop(call->bounce);
	call->buffer = call->bounce->user_buffer;
	call->bounce = NULL;
	call->is_gpudirect = true;
}

/* ---- Pulling ---- */

bool collet_p2p_pull(struct collet_request *request, const struct collet_bounce_rts *rts, bool *export_again)
{
	struct collet_bounce_buffer *bounce = request->p2p.bounce;
	*export_again = false;
	return bounce && bounce->pull && bounce->pull(bounce, rts->handle, export_again);
}

void collet_p2p_handle_ats(struct collet_request *request)
{
	struct collet_p2p *p2p = request->state->p2p;
	struct collet_endpoint_stats *pull_stats = &p2p->peers[request->p2p.peer].pull_stats;
	pull_stats->messages_sent++;
	pull_stats->bytes_sent += request->p2p.bytes;
	collet_p2p_complete(p2p, request);
}

/* ---- The receiver's answer ---- */

collet_status collet_p2p_handle_rtr(struct collet_request *request, const struct collet_p2p_header *header)
{
	struct collet_p2p_call *call = &request->p2p;
	if (header->export_again && call->may_pull)
		call->bounce->export_again(call->bounce, request);
	const bool may_be_whole = header->may_gpudirect || !header->segment_bytes;
	if (may_be_whole && collet_p2p_may_gpudirect(request, call->message_bytes))
		use_gpudirect(request);
	else if (call->bounce && !call->bounce->request)
		collet_p2p_start_bounce(request);
	const uint64_t longest = call->bounce ? COLLET_BOUNCE_CELL_BYTES : call->message_bytes;
	if (call->bounce && header->segment_bytes && header->segment_bytes < longest)
		return collet_fail(COLLET_ERR_TRANSPORT, "rank %u asked for a message in segments of %llu bytes",
			call->peer, (unsigned long long)header->segment_bytes);
	const bool whole = header->may_gpudirect && !call->bounce;
	call->segment_bytes =
		!whole && header->segment_bytes && header->segment_bytes < longest ? header->segment_bytes : longest;
	call->has_rtr = true;
	collet_p2p_send_segments(request);
	return COLLET_OK;
}

void collet_p2p_segment_sent(struct collet_request *request)
{
	struct collet_p2p_call *call = &request->p2p;
	call->in_flight--;
	if (call->bounce)
		call->bounce->emptied++;
	collet_p2p_send_segments(request);
	if (!call->in_flight && call->moved_bytes == call->message_bytes)
		collet_p2p_complete(request->state->p2p, request);
}

/* ---- Receiving ---- */

void collet_p2p_fill_rtr(struct collet_request *request, struct collet_p2p_header *header)
{
	struct collet_p2p_call *call = &request->p2p;
	header->segment_bytes = call->bounce ? COLLET_BOUNCE_CELL_BYTES : 0;
	header->may_gpudirect = call->may_gpudirect = collet_p2p_may_gpudirect(request, header->bytes);
}

enum collet_p2p_placed collet_p2p_place_segment(
	struct collet_p2p *p2p, uint32_t source, struct collet_p2p_peer *peer, const struct collet_message *next)
{
	struct collet_request *request =
		collet_p2p_request_of(collet_match_first(&p2p->rendezvous, source, (uint32_t)next->signature));
	if (!request)
		return P2P_NO_RECEIVE;
	const struct collet_p2p_call *call = &request->p2p;
	const uint64_t left = call->message_bytes - call->moved_bytes;
	if (!next->bytes || next->bytes > left)
		return P2P_NO_RECEIVE;
	if (call->may_gpudirect && next->bytes == call->message_bytes)
		use_gpudirect(request);
	peer->incoming.flags = call->is_gpudirect ? COLLET_TRANSFER_GPU : 0;
	const struct collet_bounce_buffer *bounce = call->bounce;
	if (!bounce) {
		peer->incoming.data = (char *)call->buffer + call->moved_bytes;
	} else {
		const struct collet_byte_range range = collet_bounce_segment(bounce, bounce->filled);
		if (next->bytes != range.bytes)
			return P2P_NO_RECEIVE;
		if (bounce->filled - bounce->emptied == COLLET_BOUNCE_CELL_COUNT)
			return P2P_NO_CELL;
		peer->incoming.data = (char *)(uintptr_t)range.first;
	}
	peer->incoming_request = request;
	return P2P_PLACED;
}

void collet_p2p_segment_received(struct collet_p2p *p2p, struct collet_request *request, uint64_t bytes)
{
	struct collet_p2p_call *call = &request->p2p;
	const bool whole = (call->moved_bytes += bytes) == call->message_bytes;
	/* The sender may leave now, even if segments have to be copied out of the cells. */
	if (whole)
		collet_p2p_stop_awaiting(p2p, request);
	if (call->bounce && bytes)
		call->bounce->filled++;
	else if (whole)
		collet_p2p_complete_receive(p2p, request);
}
