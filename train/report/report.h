/* Shows progress on rank 0: a bar on a terminal, a line an epoch, and the same as JSON. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "report/journal.h"
#include "trainer.h"

struct report {
	const struct options *options;  /* the caller's */
	FILE *json;        /* NULL: not asked for */
	struct journal journal;
	uint32_t epochs, ranks;
	struct trainer_epoch *history;  /* those done before a resumed run included */
	uint32_t history_count;
	double began_s;
	struct times times;  /* of all epochs so far */
	bool terminal;     /* standard error ends at one: there is a bar */
	int width;         /* of the bar's line */
	double shown_s;    /* when it was last drawn */
};

/* False, after a line on standard error: what is asked for cannot be written or drawn. */
bool report_init(struct report *report, const struct options *options, uint32_t ranks);
/* False: what was written has not arrived (a full disk). A zeroed report is fine. */
bool report_deinit(struct report *report);

/* Runs after training. Prints the result, the time of each phase and the hidden share of communication; draws the
 * plot. */
bool report_end(const struct report *report);

/* trainer_watch's three; context is the report. */
void report_step(void *context, const struct trainer_progress *progress);
bool report_epoch(void *context, const struct trainer_epoch *epoch);
bool report_resumed(void *context, const struct trainer_epoch *epochs, uint32_t count, uint32_t steps_done);

#endif
