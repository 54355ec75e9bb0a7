/* Ranks that are threads of this process (--threads). */
#ifndef BENCH_THREADS_H
#define BENCH_THREADS_H

#include "options.h"

/* One rank's work, and its exit status as if it were a process. */
typedef int bench_thread_rank(const struct bench_options *options, const collet_options *comm_options);

/* Runs it as options->ranks ranks (0: one for each core) that meet each other. The worst of their statuses. */
int bench_threads_run(const struct bench_options *options, bench_thread_rank *rank);

#endif
