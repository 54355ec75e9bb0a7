/* collet-bench list, explain: what there is and what would be chosen. No rank is started. */
#ifndef BENCH_EXPLAIN_H
#define BENCH_EXPLAIN_H

#include "options.h"

int bench_list(const struct bench_options *options);
int bench_explain(const struct bench_options *options);

#endif
