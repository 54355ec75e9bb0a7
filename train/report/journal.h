/* --log: a run as lines of JSON, one every so many steps and one an epoch. */
#ifndef TRAIN_JOURNAL_H
#define TRAIN_JOURNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "trainer.h"

struct journal {
	FILE *file;                 /* NULL: there is none */
	const char *path;           /* the caller's */
	uint32_t every;             /* steps a line */
	uint32_t count;             /* steps of this epoch since the last line, and sums over them */
	double loss, accuracy;
};

/* path NULL: none. A resumed run appends to what is there. All return false after a line on standard error. */
bool journal_open(struct journal *journal, const char *path, uint32_t every, bool append);
/* Removes lines of later steps, and an incomplete last line, from a file that is appended to. Both come from a run
 * that ended before it could save. */
bool journal_cut(struct journal *journal, uint32_t steps_done);
bool journal_step(struct journal *journal, const struct trainer_progress *progress);
bool journal_epoch(struct journal *journal, const struct trainer_epoch *epoch);
bool journal_close(struct journal *journal);

#endif
