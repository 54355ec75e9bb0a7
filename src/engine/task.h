/* A task executes an independent sequence of work items: one part of a program, or every channels-th segment of it. */
#ifndef COLLET_ENGINE_TASK_H
#define COLLET_ENGINE_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/program.h"
#include "collectives/step.h"
#include "engine/cursor.h"
#include "engine/peer_queue.h"
#include "engine/request.h"
#include "engine/work_item.h"

struct collet_engine;
struct collet_operand;
struct collet_request;

enum {
	TASK_WINDOW = 16,            /* most items under way in a task; > COLLET_LOOKAHEAD */
	/* The same for a request that publishes: staged data should still be in a cache when peers read it. */
	PUBLISH_WINDOW = COLLET_LOOKAHEAD + 2,
	/* A task's staging; only used pages take memory. The extra 64 KiB make a slot's segments a little longer than
	 * 512 KiB in total, so that a span of a power of two does not end in a tiny message. */
	COLLET_STAGING_BYTES = (8 << 20) + (64 << 10)
};

struct collet_task {
	struct collet_comm_state *state;
	uint32_t channel;
	struct collet_request *first_request, *last_request; /* requests that have items to issue, in order of start */
	struct collet_cursor cursor;          /* position in the first of them */
	struct collet_work_item items[TASK_WINDOW];
	/* Items oldest to next - 1 are under way, at index % TASK_WINDOW. Both only grow. */
	uint32_t oldest, next;
	uint32_t free_slots;                  /* bit mask of slots of the staging */
	bool awaits_slice;                    /* the first request has another slice (wide_sums.h), not begun yet */
	bool has_pending_item;                /* items[next] is filled in, but some peer queue has no room */
	char *staging;                        /* in the arena if that had room; then local peers have it mapped */
	bool staging_is_mapped;
	struct collet_operand *operands;      /* for one execution: one for each rank, and COLLET_STEP_SOURCES more */
};

/* Returns the queue to the peer at this position, for the item's channel. */
static inline struct collet_peer_queue *work_item_peer_queue(
	const struct collet_task *task, const struct collet_work_item *item, uint32_t position)
{
	return collet_peer_queue_get(task->state, task->channel, request_comm_rank(item->request, position));
}

/* Returns a segment of the item's slot of the staging: see collet_slot_segments(). */
static inline char *work_item_slot(
	const struct collet_task *task, const struct collet_work_item *item, uint32_t segment)
{
	return task->staging + (size_t)item->staging_slot * (COLLET_STAGING_BYTES / TASK_WINDOW) +
		(size_t)segment * (size_t)item->request->segment_elements * item->request->element_bytes;
}

/* ---- task.c. Under lock. */
void collet_task_progress(struct collet_task *task);

/* ---- task_staging.c */
/* Reserves address space; only used pages take memory. Prefers the arena, so that local peers can read it: *is_mapped.
 * NULL: out of memory. */
void *collet_staging_alloc(struct collet_engine *engine, size_t bytes, bool *is_mapped);
void collet_staging_free(struct collet_engine *engine, void *staging, size_t bytes, bool is_mapped);
/* Returns the communicator's task for the channel, creating it if needed. COLLET_ERR_MEMORY. */
collet_status collet_task_get(struct collet_comm_state *state, uint32_t channel, struct collet_task **task);
void collet_task_destroy(struct collet_task *task);
/* Returns how many segments a slot of the staging must hold if an item receives from up to fan_in peers. It holds
 * those, the value if that has no destination, and this rank's scaled operand or one more message that a scatter's
 * root prepares. */
uint32_t collet_slot_segments(enum collet_collective collective, uint32_t fan_in);
/* Returns the elements of a segment of about segment_bytes, such that a slot holds slot_segments of them. */
uint64_t collet_segment_elements(uint32_t segment_bytes, uint32_t slot_segments, size_t element_bytes);

#endif
