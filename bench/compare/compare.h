/* collet-bench compare: collet and its peers in one run, taking turns. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "options.h"

int bench_compare(const struct bench_options *options);
/* collet as one of the libraries compared; started by bench_compare(). */
int bench_collet_driver(const struct bench_options *options);

#endif
