/* collet-bench request: what a request costs over the same call without one, and the rate of requests in flight. */
#ifndef BENCH_REQUEST_H
#define BENCH_REQUEST_H

#include "options.h"

/* One rank's part; all ranks call it. The exit status. */
int bench_request(const struct bench_options *options);

#endif
