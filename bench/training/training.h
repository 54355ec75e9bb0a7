/* collet-bench training: collet-train's strategies one after the other, in one table. */
#ifndef BENCH_TRAINING_H
#define BENCH_TRAINING_H

#include "options.h"

int bench_training(const struct bench_options *options);

#endif
