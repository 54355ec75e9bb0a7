/* collet-bench COLLECTIVE: every size on every rank of one communicator. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "options.h"

/* Runs as one rank, pinned already or not; rank 0 prints. The process's exit status. */
int bench_measure(const struct bench_options *options);
/* The same, as the rank that comm_options name. */
int bench_measure_as(const struct bench_options *options, const collet_options *comm_options);

#endif
