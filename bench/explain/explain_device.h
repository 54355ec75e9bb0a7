/* collet-bench explain --device cuda: what a communicator of these ranks does with calls on its GPUs' memory. */
#ifndef BENCH_EXPLAIN_DEVICE_H
#define BENCH_EXPLAIN_DEVICE_H

#include "options.h"

/* Runs as one of the ranks. */
int bench_explain_device(const struct bench_options *options);

#endif
