/* Stores a rank's spans for --trace, and merges the ranks' spans into one file. */
#ifndef TRAIN_TIMELINE_SPANS_H
#define TRAIN_TIMELINE_SPANS_H

#include "report/timeline.h"

/* Crosses the wire as it is. */
struct span {
	int64_t began_ns, ended_ns; /* on this rank's clock */
	uint64_t bytes;             /* of a bucket */
	uint32_t step;              /* from 0, in all epochs */
	uint32_t phase;             /* PHASES: the transfer of a bucket */
	uint32_t bucket, reserved;
};

struct spans {
	struct span *spans; /* in the order in which they ended */
	uint64_t count, dropped;
};

/* timeline_write() of them. */
bool spans_write(const struct spans *spans, collet_comm *comm, const char *path);

#endif
