/* collet-bench list: the algorithms and transports of this build. */
#ifndef BENCH_LIST_H
#define BENCH_LIST_H

#include <collet/tools.h>

#include "options.h"

int bench_list(const struct bench_options *options);

/* Returns all algorithms of a collective (NULL: of all); NULL on failure. The caller frees it. */
collet_algorithm_info *bench_list_algorithms(const char *collective, size_t *count);

#endif
