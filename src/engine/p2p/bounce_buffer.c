/* Keeps the state of bounce buffers, between their owners and the messages that fill or empty the cells. */
#include <assert.h>

#include "engine/comm_state.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/p2p/internal.h"
#include "engine/request.h"

static uint32_t segment_count(uint64_t bytes)
{
	return (uint32_t)((bytes + COLLET_BOUNCE_CELL_BYTES - 1) / COLLET_BOUNCE_CELL_BYTES);
}

void collet_p2p_start_bounce(struct collet_request *request)
{
	struct collet_bounce_buffer *bounce = request->p2p.bounce;
	struct collet_bounce_buffer **list = &request->state->p2p->bounces;
	assert(!bounce->request);
	bounce->started = bounce->filled = bounce->emptied = 0;
	bounce->request = request;
	bounce->next = *list;
	if (bounce->next)
		bounce->next->previous = &bounce->next;
	*list = bounce;
	bounce->previous = list;
}

void collet_bounce_stop(struct collet_bounce_buffer *bounce)
{
	if (!bounce->request)
		return;
	*bounce->previous = bounce->next;
	if (bounce->next)
		bounce->next->previous = bounce->previous;
	bounce->request = NULL;
	bounce->needs_polling = false;
}

bool collet_bounce_may_copy(const struct collet_bounce_buffer *bounce)
{
	const struct collet_p2p_call *call = &bounce->request->p2p;
	if (!call->is_send)
		return bounce->started < bounce->filled;
	return bounce->started < segment_count(call->message_bytes) &&
	       bounce->started - bounce->emptied < COLLET_BOUNCE_CELL_COUNT;
}

struct collet_byte_range collet_bounce_segment(const struct collet_bounce_buffer *bounce, uint32_t segment)
{
	const uint64_t left = bounce->request->p2p.message_bytes - (uint64_t)segment * COLLET_BOUNCE_CELL_BYTES;
	return (struct collet_byte_range){
		bounce->cells + (size_t)(segment % COLLET_BOUNCE_CELL_COUNT) * COLLET_BOUNCE_CELL_BYTES,
		(size_t)(left < COLLET_BOUNCE_CELL_BYTES ? left : COLLET_BOUNCE_CELL_BYTES) };
}

void collet_bounce_copied(struct collet_bounce_buffer *bounce, uint32_t count)
{
	struct collet_request *request = bounce->request;
	if (request->p2p.is_send) {
		bounce->filled += count;
		collet_p2p_send_segments(request);
		return;
	}
	bounce->emptied += count;
	if (bounce->emptied == segment_count(request->p2p.message_bytes))
		collet_p2p_complete_receive(request->state->p2p, request);
}

uint32_t collet_p2p_progress_bounces(const struct collet_p2p *p2p)
{
	uint32_t moved = 0;
	for (struct collet_bounce_buffer *bounce = p2p->bounces, *next; bounce; bounce = next) {
		next = bounce->next;
		moved += bounce->progress(bounce);
	}
	return moved;
}

bool collet_p2p_bounces_idle(const struct collet_p2p *p2p)
{
	const struct collet_bounce_buffer *bounce = p2p->bounces;
	while (bounce && !bounce->needs_polling)
		bounce = bounce->next;
	return !bounce;
}

void collet_bounce_pulled(struct collet_bounce_buffer *bounce)
{
	struct collet_request *request = bounce->request;
	struct collet_comm_state *state = request->state;
	const struct collet_p2p_call *call = &request->p2p;
	const struct collet_p2p_header header = { .bytes = call->message_bytes, .id = call->id };
	struct collet_endpoint_stats *pull_stats = &state->p2p->peers[call->peer].pull_stats;
	pull_stats->messages_received++;
	pull_stats->bytes_received += call->message_bytes;
	const collet_status status =
		collet_p2p_send_message(state, call->peer, P2P_ATS, call->tag, &header, NULL, 0, NULL);
	if (status == COLLET_OK)
		collet_p2p_complete_receive(state->p2p, request);
	else
		collet_comm_state_end(state, status, true, collet_last_error());
}
