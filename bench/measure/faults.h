/* collet-bench faults: measures how long after kill -9 of one rank the last survivor is notified. */
#ifndef BENCH_FAULTS_H
#define BENCH_FAULTS_H

#include "options.h"

int bench_faults(const struct bench_options *options);

#endif
