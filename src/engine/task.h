/* An independent sequence of work items: one part of a program, or every channels-th segment of it. */
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

struct collet_operand;
struct collet_request;

enum {
	TASK_WINDOW = 16,            /* items under way in a lane; > COLLET_LOOKAHEAD */
	PUBLISH_WINDOW = COLLET_LOOKAHEAD + 2, /* the same of a request that publishes: what is in staging should still
	                                be in a cache when peers come to read it */
	/* Of a lane, touched only as far as used. The odd 64 KiB make a slot's pieces a little longer, together, than
	 * 512 KiB: behind them, a span of a power of two has no message of some bytes. */
	COLLET_STAGING_BYTES = (8 << 20) + (64 << 10)
};

struct collet_task {
	struct collet_comm_state *state;
	uint32_t channel;
	struct collet_request *first_request, *last_request; /* requests that have items to enter here, in starting
	                                                        order */
	struct collet_cursor cursor;          /* in the first */
	struct collet_work_item items[TASK_WINDOW];
	uint32_t oldest, next;                /* items[oldest % TASK_WINDOW] up to next are under way; both only grow */
	uint32_t free_slots;                  /* bit mask */
	bool has_pending_item;                /* items[next] is filled in, but its routes have no room yet */
	char *staging;                        /* in the arena, if that had room: then local peers have it mapped */
	bool staging_is_mapped;
	struct collet_operand *operands;      /* group size + 2, for one execution */
};

/* The item's route to who is at this position. */
static inline struct collet_peer_queue *work_item_peer_queue(
	const struct collet_task *task, const struct collet_work_item *item, uint32_t position)
{
	return collet_peer_queue_get(task->state, task->channel, request_comm_rank(item->request, position));
}

/* The item's slot of the lane's staging: see collet_slot_segments(). */
static inline char *work_item_slot(const struct collet_task *task, const struct collet_work_item *item, uint32_t piece)
{
	return task->staging + (size_t)item->staging_slot * (COLLET_STAGING_BYTES / TASK_WINDOW) +
		(size_t)piece * (size_t)item->request->segment_elements * item->request->element_bytes;
}

/* ---- task.c. Under lock. */
void collet_task_progress(struct collet_task *task);

/* ---- task_staging.c */
/* The group's lane of that channel, made if there is none yet. COLLET_ERR_MEMORY. */
collet_status collet_task_get(struct collet_comm_state *state, uint32_t channel, struct collet_task **task);
void collet_task_destroy(struct collet_task *task);
/* How many pieces an item's slot of the staging has room for, if it gets pieces from up to fan_in peers: these; the
 * value, if it has no place of its own; and this rank's own operand, scaled, or one more of the parts that a scatter's
 * root makes for its peers. */
uint32_t collet_slot_segments(enum collet_collective collective, uint32_t fan_in);
/* The elements of a piece of about piece_bytes, such that a slot holds so many of them. */
uint64_t collet_segment_elements(uint32_t segment_bytes, uint32_t slot_segments, size_t element_bytes);

#endif
