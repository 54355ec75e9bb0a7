/* What rank 0 shows: a progress bar on a terminal, a line an epoch, and the same as JSON. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "trainer.h"

struct report {
	FILE *json;        /* NULL: not asked for */
	uint32_t epochs, ranks;
	struct times times;  /* of all epochs so far */
	bool terminal;     /* standard error ends at one: there is a bar */
	int width;         /* of the bar's line */
	double shown_s;    /* when it was last drawn */
};

/* json_path: NULL for none, "-" for standard output. False, after a line on standard error: it cannot be written. */
bool report_init(struct report *report, const char *json_path, uint32_t epochs, uint32_t ranks);
/* False: what was written has not arrived (a full disk). A zeroed report is fine. */
bool report_deinit(struct report *report);

/* After training, what the time went into and what share of communication was hidden. */
void report_times(const struct report *report);

/* trainer_watch's two; context is the report. */
void report_step(void *context, const struct trainer_progress *progress);
bool report_epoch(void *context, const struct trainer_epoch *epoch);

#endif
