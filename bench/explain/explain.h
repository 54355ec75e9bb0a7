/* collet-bench explain: which algorithms would be chosen, and the model's times. */
#ifndef BENCH_EXPLAIN_H
#define BENCH_EXPLAIN_H

#include "options.h"

/* True if ranks are started and their communicator is asked: bench_explain_as_rank(). Otherwise the model answers:
 * bench_explain(). */
bool bench_explain_starts_ranks(const struct bench_options *options);
int bench_explain(const struct bench_options *options);
int bench_explain_as_rank(const struct bench_options *options);

#endif
