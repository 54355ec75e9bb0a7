/* A work item is one segment of one step, under way in a task. The functions here say where its elements are and which
 * peers its step names. */
#ifndef COLLET_ENGINE_WORK_ITEM_H
#define COLLET_ENGINE_WORK_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/byte_range.h"
#include "engine/comm_state.h"
#include "engine/request.h"

struct collet_queued_transfer;
struct collet_task;

struct collet_work_item {
	struct collet_request *request;
	const struct collet_step *step; /* own_step, or a step that the request keeps */
	struct collet_step own_step;
	/* The segment, in elements from the start of the step's spans. Per-peer step: of the longest span. */
	uint64_t offset, count;
	uint32_t receives_pending, sends_pending;
	uint32_t staging_slot;       /* its slot of the task's staging */
	bool executed;               /* reduced or stored; its sends may be posted */
	bool in_staging;             /* it receives into staging, since its destination was not free */
	bool published;              /* its sends read a copy in staging, or in its cell (gdr.h) */
	uint32_t channel;            /* the task's channel */
	bool is_copying;             /* GPUDirect (gdr.h): its copies must complete before it is executed */
	struct collet_work_item *next_copy; /* GPUDirect: the item that is copied next */
	uint32_t read_count;
	struct collet_byte_range reads[COLLET_STEP_SOURCES];
	struct collet_byte_range writes;
	struct collet_byte_range borrowed; /* the memory that its sends read */
	struct collet_byte_range excluded; /* per-peer step: the ranges above are hulls; this one is not accessed */
	void *value;                 /* address of the reduced segment */
};

static inline char *request_address(const struct collet_request *request, enum collet_buffer buffer, uint64_t first)
{
	const struct collet_wide_sums *wide = &request->wide;
	if (wide->memory && buffer != COLLET_SCRATCH)
		return (buffer == COLLET_RESULT ? wide->result : wide->memory) + first * request->element_bytes;
	char *base = buffer == COLLET_RESULT ? request->result :
		buffer == COLLET_INPUT       ? (char *)(uintptr_t)request->input :  /* never written: see step.h */
                                               request->state->scratch;
	return base ? base + first * request->element_bytes : NULL;
}

static inline bool range_is_local(const struct collet_request *request, const struct collet_buffer_range *range)
{
	return range->peers.count == 1 && range->peers.first == request->shape.rank;
}

static inline uint32_t request_comm_rank(const struct collet_request *request, uint32_t position)
{
	return request->shape.order ? request->shape.order[position] : position;
}

/* Computes this item's segment of a per-peer span. False if that chunk has no such segment. */
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

/* True if the messages of a per-peer step are copied or scaled into the slot before they are sent. */
static inline bool work_item_packs_messages(const struct collet_work_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return step->is_per_peer && range_is_local(request, &step->source[0]) &&
		(item->published || (request->prescales && step->source[0].buffer == COLLET_INPUT));
}

/* Returns the local destination of a step that has one. */
static inline char *work_item_destination(const struct collet_work_item *item)
{
	const struct collet_buffer_range *range = &item->step->destination[0];
	return request_address(item->request, range->buffer, range->span.first + item->offset);
}

/* Returns the local source of a step that has one and is not per-peer. */
static inline char *work_item_source(const struct collet_work_item *item)
{
	const struct collet_buffer_range *range = &item->step->source[0];
	return request_address(item->request, range->buffer, range->span.first + item->offset);
}

/* True if the item's value is an unmodified copy of local data. */
static inline bool work_item_is_plain_copy(const struct collet_work_item *item)
{
	const struct collet_request *request = item->request;
	const struct collet_step *step = item->step;
	return !step->is_reduction && range_is_local(request, &step->source[0]) &&
		!(request->prescales && step->source[0].buffer == COLLET_INPUT) &&
		!(request->finishes && step->is_final);
}

/* True if no step of the collective reduces. */
static inline bool request_never_reduces(const struct collet_request *request)
{
	return !collet_collective_is_reduction(request->program->collective);
}

/* Returns the hints for a transport about a send: COLLET_TRANSFER_*. */
static inline uint32_t request_send_flags(const struct collet_request *request)
{
	const enum collet_collective collective = request->program->collective;
	const bool waits = collective == COLLET_ALLREDUCE || collective == COLLET_REDUCE_SCATTER ||
		collective == COLLET_ALLGATHER || collective == COLLET_ALLTOALL;
	return (request_never_reduces(request) ? 0 : COLLET_TRANSFER_CONTIGUOUS) |
	       (waits ? COLLET_TRANSFER_EXCHANGE : 0);
}

/* ---- value_placement.c */
/* True if the call's results should be stored past the caches: they are larger than these, and no step reads them. */
bool collet_request_is_nontemporal(const struct collet_request *request);
/* True if the item's result is stored so. Not if its sends read it there. */
static inline bool work_item_is_nontemporal(const struct collet_work_item *item)
{
	const struct collet_step *step = item->step;
	return item->request->nontemporal_results && step->destination_count == 1 &&
		range_is_local(item->request, &step->destination[0]);
}
/* Chooses the address of an item's value, and whether it is a copy for peers to read. */
void collet_work_item_place_value(struct collet_task *task, struct collet_work_item *item);
/* Returns the address of the reduced segment: its destination, or the item's staging if the segment is only forwarded.
 * Unmodified data is sent from its source, even if it has a destination here too. So it can leave before it is copied,
 * and from cache lines that peers may still hold from the last call. If peers have mapped the destination, it is sent
 * from there. */
char *collet_work_item_value_address(const struct collet_task *task, const struct collet_work_item *item);
/* True if the item sends data that this rank has just reduced, to one peer that sends as much in return. */
bool collet_work_item_is_in_cache(const struct collet_work_item *item);

/* ---- execute.c */
/* Executes an item whose bytes have arrived and whose destination is free: reduces or stores them, posts its sends. */
void collet_work_item_execute(struct collet_task *task, struct collet_work_item *item);
/* Do the same in two steps, if other code makes the copies: post the sends; then mark the item executed. */
void collet_work_item_post_sends(struct collet_task *task, const struct collet_work_item *item);
void collet_work_item_finish(struct collet_task *task, struct collet_work_item *item);
/* Copies the views of an item into its staging and releases them. An item that must wait for its destination does this,
 * since peers may wait for the release of their memory before they can do what this rank waits for. */
void collet_work_item_copy_views(struct collet_task *task, struct collet_work_item *item);

/* ---- conflict.c */
/* Fills in the ranges of this rank's memory that the item reads and writes. */
void collet_work_item_fill_ranges(const struct collet_request *request, struct collet_work_item *item);
/* True if the task's item must wait for an earlier unfinished one before it writes, or, with_reads, before it reads its
 * operands. */
bool collet_work_item_conflicts(const struct collet_task *task, uint32_t index, bool with_reads);

/* ---- task.c */
void collet_work_item_transfer_done(struct collet_queued_transfer *queued, bool sent);

#endif
