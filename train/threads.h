/* Ranks that are threads of this process (--threads). */
#ifndef TRAIN_THREADS_H
#define TRAIN_THREADS_H

#include <stdbool.h>

#include <collet/collet.h>

#include "options.h"

/* One rank's work; false: it has failed. */
typedef bool threads_rank(collet_comm *comm, const struct options *options);

/* Runs it as options->threads ranks, each with a communicator of its own; one that fails ends the others. False if any
 * has failed, after a line on standard error. */
bool threads_run(const struct options *options, threads_rank *rank);

#endif
