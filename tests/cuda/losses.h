/* Ranks that are lost on the way, whatever GPU they have. */
#ifndef TESTS_CUDA_LOSSES_H
#define TESTS_CUDA_LOSSES_H

#include "gpu.h"

/* What one rank does instead of the call that all others make. */
enum loss_how { LOSS_DIES, LOSS_ABORTS, LOSS_CALLS_ANOTHER, LOSS_LEAVES, LOSS_COMES_LATE, LOSS_HOWS };
enum loss_way { LOSS_BLOCKING, LOSS_BY_REQUEST, LOSS_ON_STREAM, LOSS_IN_GRAPH, LOSS_WAYS };

/* Of u32, in place, by an algorithm of the library's choice. */
struct loss_call {
	/* The rank's GPU, and a communicator if the run is bare; false: reported. */
	bool (*begin)(struct gpu *gpu, struct rank *rank);
	const void *context;         /* begin's */
	enum call_kind kind;         /* ALLREDUCE or ALLGATHER */
	uint64_t count;
	bool registered;             /* with the communicator, which reaches it there */
	const char *gpu_way;         /* how rank 0 goes (collet_plan.gpu) */
};

/* The context of a run's options. */
struct loss {
	const struct loss_call *call;
	enum loss_how how;
	enum loss_way way;
	uint32_t lost;
};

/* Each way to be lost with each way to call, and each rank in its turn: all others are told what has happened. The last
 * ways from this one on. Of a sample some of it, and one at least. */
void losses_must_be_told(const struct ranks_options *options, const struct loss_call *call, enum loss_way first);
/* Rank 2 dies among launches of a graph of two calls of so many u32; the others' go on, and pass, and they are told.
 * The GPU has been started, and is ended. */
void losses_in_graphs(struct gpu *gpu, uint64_t count);
/* Runs it, and fails the test unless every rank but this one returned with nothing to report; rank size: every one. */
void losses_must_spare(const struct ranks_options *options, ranks_body *body, uint32_t lost);

#endif
