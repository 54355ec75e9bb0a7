/* Ranks that are lost on the way, whatever GPU they have. */
#ifndef TESTS_CUDA_LOSSES_H
#define TESTS_CUDA_LOSSES_H

#include "gpu.h"

/* Rank 2 dies among launches of a graph of two calls; the others' go on, and pass, and they are told. The GPU has been
 * started, and is ended. */
void losses_in_graphs(struct gpu *gpu);
/* Runs it, and fails the test unless every rank but this one returned with nothing to report; rank size: every one. */
void losses_must_spare(const struct ranks_options *options, ranks_body *body, uint32_t lost);

#endif
