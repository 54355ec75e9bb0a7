/* Tells which of the ranks that ended early was the first. The others end because of it. */
#ifndef BENCH_FIRST_FAILURE_H
#define BENCH_FIRST_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

/* How a rank ended. */
struct bench_end {
	bool has_ended;            /* by itself; not what this program has killed afterwards */
	int wait_status;           /* as waitpid() gives it */
	int64_t gave_up_ns;        /* when it reported a failure; 0: it reported none */
	bool is_told;              /* its report is what another rank told it */
};

/* Returns the rank that failed first: one that a signal has killed; else one that ended without a report; else the one
 * with the earliest report of its own; else the one with the earliest report. A rank tells the others before it
 * reports, so their reports may be earlier. count: all go on, or have ended well. */
uint32_t bench_first_failure(const struct bench_end *ends, uint32_t count);

#endif
