/* collet-bench waiting: what a rank that waits for a late peer costs. */
#ifndef BENCH_WAITING_H
#define BENCH_WAITING_H

#include "options.h"

/* One rank's part; all ranks call it. The exit status. */
int bench_waiting(const struct bench_options *options);

#endif
