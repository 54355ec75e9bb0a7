/* collet-bench overlap: how much of a request's time hides behind what the caller does meanwhile. */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "options.h"

/* One rank's part; all ranks call it. The exit status. */
int bench_overlap(const struct bench_options *options);

#endif
