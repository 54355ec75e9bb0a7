/* Starts the ranks of tune: this program again, a process each. */
#ifndef BENCH_TUNE_START_H
#define BENCH_TUNE_START_H

#include <stdint.h>
#include <stdio.h>

/* The measurement to start, and its tuning. */
struct tune_start {
	const char *transport;
	uint32_t ranks;
	const char *tuning;          /* COLLET_TUNING; NULL: as it is in this process */
	const char *limits;          /* a folder: measure limits, by the tunings there; NULL: sweep */
};

/* Runs the ranks to their end. Returns their output from its beginning; the caller closes it. NULL after printing
 * why they failed. */
FILE *tune_start_ranks(const struct tune_start *start, char **argv);

#endif
