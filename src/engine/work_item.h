/* What the files that work on a lane's items share: where elements are, and who is at a step's ends. */
#ifndef COLLET_ENGINE_WORK_ITEM_H
#define COLLET_ENGINE_WORK_ITEM_H

#include "engine/call_class.h"
#include "engine/engine.h"

static inline char *item_address(const struct collet_request *request, enum collet_buffer buffer, uint64_t first)
{
	char *base = buffer == COLLET_RESULT ? request->result :
		buffer == COLLET_INPUT       ? (char *)(uintptr_t)request->input :  /* never written: see step.h */
                                               request->group->scratch;
	return base ? base + first * request->element_bytes : NULL;
}

static inline bool item_is_local(const struct collet_request *request, const struct collet_buffer_range *end)
{
	return end->peers.count == 1 && end->peers.first == request->shape.rank;
}

static inline uint32_t item_group_rank(const struct collet_request *request, uint32_t position)
{
	return request->shape.order ? request->shape.order[position] : position;
}

/* The item's route to who is at this position. */
static inline struct collet_route *item_route(
	const struct collet_lane *lane, const struct collet_item *item, uint32_t position)
{
	return collet_route_get(lane->group, lane->channel, item_group_rank(item->request, position));
}

/* Elements of this item's piece in a per_peer span, and where they start; false: that chunk has no such piece. */
static inline bool item_per_peer_piece(const struct collet_request *request, const struct collet_item *item,
	enum collet_buffer buffer, uint32_t position, struct collet_span *span)
{
	*span = collet_partition_chunk(collet_step_partition(&request->shape, buffer), &request->shape, position);
	if (item->offset && item->offset >= span->count)
		return false;
	const uint64_t left = span->count - item->offset;
	span->first += item->offset;
	span->count = left < request->piece ? left : request->piece;
	return true;
}

/* The item's slot of the lane's staging: see collet_slot_pieces(). */
static inline char *item_slot(const struct collet_lane *lane, const struct collet_item *item, uint32_t piece)
{
	return lane->staging + (size_t)item->slot * (COLLET_STAGING_BYTES / LANE_WINDOW) +
		(size_t)piece * (size_t)item->request->piece * item->request->element_bytes;
}

/* Of a step that sends each peer another part of a buffer: are the parts made in the slot? */
static inline bool item_makes_each(const struct collet_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return step->is_per_peer && item_is_local(request, &step->source[0]) &&
		(item->published || (request->prescales && step->source[0].buffer == COLLET_INPUT));
}

/* In the caller's memory, of a step with such a destination. */
static inline char *item_final_place(const struct collet_item *item)
{
	const struct collet_buffer_range *end = &item->step->destination[0];
	return item_address(item->request, end->buffer, end->span.first + item->offset);
}

/* Of a step that is no per_peer one, with a source here. */
static inline char *item_source_place(const struct collet_item *item)
{
	const struct collet_buffer_range *end = &item->step->source[0];
	return item_address(item->request, end->buffer, end->span.first + item->offset);
}

/* Is the item's value what this rank has, as it is? */
static inline bool item_is_plain_copy(const struct collet_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return !step->is_reduction && item_is_local(request, &step->source[0]) &&
		!(request->prescales && step->source[0].buffer == COLLET_INPUT) &&
		!(request->averages && step->is_final);
}

/* No step of the collective combines anything. */
static inline bool request_only_moves(const struct collet_request *request)
{
	return !collet_collective_is_reduction(request->program->collective);
}

/* What a transport may know of a send: COLLET_TRANSFER_*. */
static inline uint32_t request_send_flags(const struct collet_request *request)
{
	const enum collet_collective collective = request->program->collective;
	const bool waits = collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE_SCATTER ||
		collective == COLLET_ALLGATHER || collective == COLLET_ALLTOALL;
	return (request_only_moves(request) ? 0 : COLLET_TRANSFER_CONTIGUOUS) | (waits ? COLLET_TRANSFER_EXCHANGE : 0) |
		collet_request_call_flags(request);
}

/* ---- value_placement.c */
/* Where an item's value is to be, and whether that is a copy for peers to read. */
void collet_item_place_value(struct collet_lane *lane, struct collet_item *item);
/* Where the combined piece goes: in place, or into the item's staging if it only travels on. What is sent as it is, is
 * sent from where it is, even if it has a place here too: so it can leave before it is copied there, and from lines
 * that the peers may still have from last time. But from its place if they have mapped that one. */
char *collet_item_value_place(const struct collet_lane *lane, const struct collet_item *item);
/* Does the item send what this rank has just combined, to one peer, which sends it as much? */
bool collet_item_is_fresh(const struct collet_item *item);

/* ---- task_staging.c */
/* The group's lane of that channel, made if there is none yet. COLLET_ERR_MEMORY. */
collet_status collet_lane_get(struct collet_group *group, uint32_t channel, struct collet_lane **lane);

/* ---- execute.c */
/* The item has its bytes and its place: combines or keeps, and lets its sends go. */
void collet_item_execute(struct collet_lane *lane, struct collet_item *item);
/* Its part in that where somebody else copies: what it sends may go; it has been executed. */
void collet_item_let_sends_go(struct collet_lane *lane, const struct collet_item *item);
void collet_item_finish(struct collet_lane *lane, struct collet_item *item);
/* An item that has its bytes but must wait for its place takes them into its staging and gives the views back: peers
 * may be waiting for just that, to be done with what they lent and so with what they must do for us. */
void collet_item_unload(struct collet_lane *lane, struct collet_item *item);

/* ---- conflict.c */
/* Finds out what the item reads and writes of this rank's memory. */
void collet_item_fill_ranges(const struct collet_request *request, struct collet_item *item);
bool collet_ranges_overlap(struct collet_range a, struct collet_range b);
/* Must the lane's item wait for an earlier one that is not finished? Before it writes; reads_too: or reads its
 * operands. */
bool collet_item_conflicts(const struct collet_lane *lane, uint32_t index, bool reads_too);

#endif
