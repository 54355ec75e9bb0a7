/* collet-bench init: how long it takes to create a communicator, and what memory a rank needs for it. */
#ifndef BENCH_INIT_H
#define BENCH_INIT_H

#include "options.h"

int bench_init(const struct bench_options *options);

#endif
