/* collet-bench tune --device cuda: the links of a GPU, for the tuning. */
#ifndef BENCH_TUNE_DEVICE_H
#define BENCH_TUNE_DEVICE_H

#include "options.h"

int bench_tune_device(const struct bench_options *options);

#endif
