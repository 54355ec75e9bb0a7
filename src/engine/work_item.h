/* One segment of one step, under way: where its elements are, and who is at the step's ends. */
#ifndef COLLET_ENGINE_WORK_ITEM_H
#define COLLET_ENGINE_WORK_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/byte_range.h"
#include "engine/call_class.h"
#include "engine/comm_state.h"
#include "engine/request.h"

struct collet_queued_transfer;
struct collet_task;

/* One piece of one step. */
struct collet_work_item {
	struct collet_request *request;
	const struct collet_step *step; /* own_step, or one that the request keeps */
	struct collet_step own_step;
	/* The piece: elements from the start of the step's spans. per_peer: of the longest. */
	uint64_t offset, count;
	uint32_t receives_pending, sends_pending;
	uint32_t staging_slot;       /* of the lane's staging */
	bool executed;               /* combined; its sends may be posted */
	bool in_staging;             /* a kept receive that lands in staging, since its place was not free */
	bool published;              /* what its sends read is a copy in staging, or in its cell (gdr.h) */
	uint32_t channel;            /* the lane's; where requests reach a GPU's buffers (gdr.h), */
	bool is_copying;             /* and copies are to be made, or are being made, before it is executed, */
	struct collet_work_item *next_copy; /* then of this one */
	uint32_t read_count;
	struct collet_range reads[COLLET_STEP_SOURCES];
	struct collet_range writes;
	struct collet_range borrowed; /* what its sends read */
	struct collet_range excluded; /* per_peer: the ranges above are hulls, of which this part is not meant */
	void *value;                 /* where the combined piece is (to be) */
};

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
/* Must the lane's item wait for an earlier one that is not finished? Before it writes; reads_too: or reads its
 * operands. */
bool collet_work_item_conflicts(const struct collet_task *task, uint32_t index, bool with_reads);

/* ---- task.c */
void collet_work_item_transfer_done(struct collet_queued_transfer *queued, bool sent);

#endif
