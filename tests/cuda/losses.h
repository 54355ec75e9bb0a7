/* Tests of lost ranks, with any arrangement of GPUs. */
#ifndef TESTS_CUDA_LOSSES_H
#define TESTS_CUDA_LOSSES_H

#include "gpu.h"

/* What one rank does instead of the call that all others make. */
enum loss_how { LOSS_DIES, LOSS_ABORTS, LOSS_CALLS_ANOTHER, LOSS_LEAVES, LOSS_COMES_LATE, LOSS_HOWS };
enum loss_way { LOSS_BLOCKING, LOSS_BY_REQUEST, LOSS_ON_STREAM, LOSS_IN_GRAPH, LOSS_WAYS };

/* The call: u32, in place, with an algorithm that the library chooses. */
struct loss_call {
	/* Starts the rank's GPU, and creates a communicator if the run is bare. Returns false after it has reported a
	 * failure. */
	bool (*begin)(struct gpu *gpu, struct rank *rank);
	const void *context;         /* for begin */
	enum call_kind kind;         /* ALLREDUCE or ALLGATHER */
	uint64_t count;
	bool registered;             /* the buffer is registered with the communicator, and accessed directly */
	const char *gpu_path;         /* expected call path of rank 0 (collet_plan.gpu) */
};

/* The context of a run's options. */
struct loss {
	const struct loss_call *call;
	enum loss_how how;
	enum loss_way way;
	uint32_t lost;
};

/* Tries each loss with each way to call, for each rank: all others must be told what has happened. Includes the losses
 * up to `last`. In a sampled run a share of them, and at least one. */
void losses_must_be_told(const struct ranks_options *options, const struct loss_call *call, enum loss_way first);
/* Rank 2 dies during launches of a graph of two calls of `count` u32. The others' launches must complete, and report
 * it. The GPU must have been started; it is ended. */
void losses_in_graphs(struct gpu *gpu, uint64_t count);
/* Runs the body, and fails the test unless every rank but this one returns without a report. rank == size: every rank
 * must. */
void losses_must_spare(const struct ranks_options *options, ranks_body *body, uint32_t lost);

#endif
