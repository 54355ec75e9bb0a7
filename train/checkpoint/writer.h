/* Puts images on the disk while training goes on: each by a thread of its own, one at a time. On rank 0 alone. */
#ifndef TRAIN_WRITER_H
#define TRAIN_WRITER_H

#include <pthread.h>
#include <stdbool.h>

struct snapshot;
struct options;

/* Zeroed: nothing was written yet. */
struct writer {
	const struct options *options;
	struct snapshot *snapshot;       /* the thread's until it is joined */
	pthread_t thread;
	bool is_writing;
	bool failed;               /* the last snapshot is not on the disk; a line on standard error has said why */
};

/* Takes ownership of the snapshot and starts writing it. No other write may be in progress. */
void writer_begin(struct writer *writer, const struct options *options, struct snapshot *snapshot);
/* Waits until nothing is being written any more; failed is known then. */
void writer_wait(struct writer *writer);

#endif
