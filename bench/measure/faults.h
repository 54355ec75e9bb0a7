/* collet-bench faults: how long after the end of one rank, by kill -9, the last survivor has been told. */
#ifndef BENCH_FAULTS_H
#define BENCH_FAULTS_H

#include "options.h"

int bench_faults(const struct bench_options *options);

#endif
