/* Walks a request's program: yields one work item after another, in passes of PASS_SEGMENTS segments of each step. */
#ifndef COLLET_ENGINE_CURSOR_H
#define COLLET_ENGINE_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/step.h"

struct collet_request;
struct collet_task;
struct collet_work_item;

enum {
	/* Segments of each step in one pass. Less than COLLET_LOOKAHEAD, so that a pass of sends leaves room for the
	 * receives that follow it. */
	PASS_SEGMENTS = 3
};

/* The position of a task in a request's program. */
struct collet_cursor {
	uint32_t part;
	uint64_t steps, step, pass;
	uint32_t segment;            /* in the pass, among the segments of this channel */
	bool at_second;              /* the second of two paired steps is next */
	bool has_more_passes;        /* some step has segments beyond this pass */
	bool loaded, is_pair;        /* current[0] holds the step; current[1] the next one, paired with it */
	struct collet_step current[2];
	uint64_t longest_span[2];    /* of each of them, in elements */
};

/* ---- cursor.c. Under lock. */
/* Goes to the start of the task's first request. */
void collet_cursor_begin(struct collet_task *task);
/* Writes the next step and segment of the task's first request into item. False if there is none left. */
bool collet_cursor_next(struct collet_task *task, struct collet_work_item *item);
/* Returns the elements of a step's longest span. */
uint64_t collet_step_longest_span(const struct collet_request *request, const struct collet_step *step);

#endif
