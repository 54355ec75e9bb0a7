/* The place that a task has reached in a request's program. */
#ifndef COLLET_ENGINE_CURSOR_H
#define COLLET_ENGINE_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/step.h"

struct collet_request;
struct collet_task;
struct collet_work_item;

enum {
	PASS_SEGMENTS = 3            /* pieces of each step in one pass; < COLLET_LOOKAHEAD, so that a pass of sends
	                                leaves room for the receives that follow it */
};

/* Where a lane has got to in a request's program. */
struct collet_cursor {
	uint32_t part;
	uint64_t steps, step, pass;
	uint32_t segment;            /* in the pass; counts this channel's own */
	bool at_second;              /* of two paired steps, the second is next */
	bool has_more_passes;        /* some step has pieces beyond this pass */
	bool loaded, is_pair;        /* current holds step, and the next one if they are paired */
	struct collet_step current[2];
	uint64_t longest_span[2];    /* their spans */
};

/* ---- cursor.c. Under lock. */
/* Back to the start of the lane's first request. */
void collet_cursor_begin(struct collet_task *task);
/* Writes the next step and piece of the lane's first request into item; false when there is none left. */
bool collet_cursor_next(struct collet_task *task, struct collet_work_item *item);
/* Elements of a step's spans, of the longest if there are several. */
uint64_t collet_step_longest_span(const struct collet_request *request, const struct collet_step *step);

#endif
