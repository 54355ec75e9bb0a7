/* What the files that work on a lane's items share: where elements are, and who is at a step's ends. */
#ifndef COLLET_ENGINE_WORK_ITEM_H
#define COLLET_ENGINE_WORK_ITEM_H

#include "engine/call_class.h"
#include "engine/engine.h"

static inline char *request_address(const struct collet_request *request, enum collet_buffer buffer, uint64_t first)
{
	char *base = buffer == COLLET_RESULT ? request->result :
		buffer == COLLET_INPUT       ? (char *)(uintptr_t)request->input :  /* never written: see step.h */
                                               request->state->scratch;
	return base ? base + first * request->element_bytes : NULL;
}

static inline bool range_is_local(const struct collet_request *request, const struct collet_buffer_range *end)
{
	return end->peers.count == 1 && end->peers.first == request->shape.rank;
}

static inline uint32_t request_comm_rank(const struct collet_request *request, uint32_t position)
{
	return request->shape.order ? request->shape.order[position] : position;
}

/* The item's route to who is at this position. */
static inline struct collet_peer_queue *work_item_peer_queue(
	const struct collet_task *task, const struct collet_work_item *item, uint32_t position)
{
	return collet_peer_queue_get(task->state, task->channel, request_comm_rank(item->request, position));
}

/* Elements of this item's piece in a per_peer span, and where they start; false: that chunk has no such piece. */
static inline bool work_item_peer_segment(const struct collet_request *request, const struct collet_work_item *item,
	enum collet_buffer buffer, uint32_t position, struct collet_span *span)
{
	*span = collet_partition_chunk(collet_step_partition(&request->shape, buffer), &request->shape, position);
	if (item->offset && item->offset >= span->count)
		return false;
	const uint64_t left = span->count - item->offset;
	span->first += item->offset;
	span->count = left < request->segment_elements ? left : request->segment_elements;
	return true;
}

/* The item's slot of the lane's staging: see collet_slot_segments(). */
static inline char *work_item_slot(const struct collet_task *task, const struct collet_work_item *item, uint32_t piece)
{
	return task->staging + (size_t)item->staging_slot * (COLLET_STAGING_BYTES / TASK_WINDOW) +
		(size_t)piece * (size_t)item->request->segment_elements * item->request->element_bytes;
}

/* Of a step that sends each peer another part of a buffer: are the parts made in the slot? */
static inline bool work_item_packs_parts(const struct collet_work_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return step->is_per_peer && range_is_local(request, &step->source[0]) &&
		(item->published || (request->prescales && step->source[0].buffer == COLLET_INPUT));
}

/* In the caller's memory, of a step with such a destination. */
static inline char *work_item_destination(const struct collet_work_item *item)
{
	const struct collet_buffer_range *end = &item->step->destination[0];
	return request_address(item->request, end->buffer, end->span.first + item->offset);
}

/* Of a step that is no per_peer one, with a source here. */
static inline char *work_item_source(const struct collet_work_item *item)
{
	const struct collet_buffer_range *end = &item->step->source[0];
	return request_address(item->request, end->buffer, end->span.first + item->offset);
}

/* Is the item's value what this rank has, as it is? */
static inline bool work_item_is_plain_copy(const struct collet_work_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return !step->is_reduction && range_is_local(request, &step->source[0]) &&
		!(request->prescales && step->source[0].buffer == COLLET_INPUT) &&
		!(request->averages && step->is_final);
}

/* No step of the collective combines anything. */
static inline bool request_never_reduces(const struct collet_request *request)
{
	return !collet_collective_is_reduction(request->program->collective);
}

/* What a transport may know of a send: COLLET_TRANSFER_*. */
static inline uint32_t request_send_flags(const struct collet_request *request)
{
	const enum collet_collective collective = request->program->collective;
	const bool waits = collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE_SCATTER ||
		collective == COLLET_ALLGATHER || collective == COLLET_ALLTOALL;
	return (request_never_reduces(request) ? 0 : COLLET_TRANSFER_CONTIGUOUS) |
	       (waits ? COLLET_TRANSFER_EXCHANGE : 0) | collet_request_class_flags(request);
}

/* ---- value_placement.c */
/* Where an item's value is to be, and whether that is a copy for peers to read. */
void collet_work_item_place_value(struct collet_task *task, struct collet_work_item *item);
/* Where the combined piece goes: in place, or into the item's staging if it only travels on. What is sent as it is, is
 * sent from where it is, even if it has a place here too: so it can leave before it is copied there, and from lines
 * that the peers may still have from last time. But from its place if they have mapped that one. */
char *collet_work_item_value_address(const struct collet_task *task, const struct collet_work_item *item);
/* Does the item send what this rank has just combined, to one peer, which sends it as much? */
bool collet_work_item_is_fresh(const struct collet_work_item *item);

/* ---- task_staging.c */
/* The group's lane of that channel, made if there is none yet. COLLET_ERR_MEMORY. */
collet_status collet_task_get(struct collet_comm_state *state, uint32_t channel, struct collet_task **task);

/* ---- execute.c */
/* The item has its bytes and its place: combines or keeps, and lets its sends go. */
void collet_work_item_execute(struct collet_task *task, struct collet_work_item *item);
/* Its part in that where somebody else copies: what it sends may go; it has been executed. */
void collet_work_item_post_sends(struct collet_task *task, const struct collet_work_item *item);
void collet_work_item_finish(struct collet_task *task, struct collet_work_item *item);
/* An item that has its bytes but must wait for its place takes them into its staging and gives the views back: peers
 * may be waiting for just that, to be done with what they lent and so with what they must do for us. */
void collet_work_item_copy_views(struct collet_task *task, struct collet_work_item *item);

/* ---- conflict.c */
/* Finds out what the item reads and writes of this rank's memory. */
void collet_work_item_fill_ranges(const struct collet_request *request, struct collet_work_item *item);
bool collet_ranges_overlap(struct collet_range a, struct collet_range b);
/* Must the lane's item wait for an earlier one that is not finished? Before it writes; reads_too: or reads its
 * operands. */
bool collet_work_item_conflicts(const struct collet_task *task, uint32_t index, bool with_reads);

#endif
