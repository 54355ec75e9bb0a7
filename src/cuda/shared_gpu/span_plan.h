/* What one launch does for all ranks: a collective as spans to fold and to copy, over buffers that are all within
 * reach. Pure: it reads shapes and addresses, and allocates nothing.
 *
 * A collective that combines does so in rank order, in one pass over all ranks' operands that rounds once: the order,
 * and the bits, of the algorithms called "direct" (and of "two_shot"). One that moves needs no algorithm. */
#ifndef COLLET_CUDA_SHARED_GPU_SPAN_PLAN_H
#define COLLET_CUDA_SHARED_GPU_SPAN_PLAN_H

#include "collectives/program.h"
#include "cuda/kernels/kernel_set.h"

/* A rank's buffers, as the leader sees them; NULL: it does not use it. */
struct collet_span_plan_rank {
	char *send, *recv;
	uint64_t send_bytes, recv_bytes;
	struct collet_partition input, result; /* of a v-form: LISTED, or the own block's count alone */
	double scale;
};

struct collet_span_plan_call {
	enum collet_collective collective;
	bool is_vector;                      /* a v-form */
	uint32_t size, root;
	uint64_t count;
	size_t element_bytes;
	bool is_scaled;
};

/* The caller's memory, for worlds of up to so many ranks. */
struct collet_span_plan {
	struct collet_gpu_span *spans;       /* most * most */
	uint32_t span_count;
	void **addresses;                    /* 2 * most * (most + 1) */
	uint32_t address_count;
	double *scales;                      /* most */
	uint32_t max_ranks;
};

collet_status collet_span_plan_init(struct collet_span_plan *plan, uint32_t most);
void collet_span_plan_deinit(struct collet_span_plan *plan);  /* a zeroed one is fine */

/* NULL; or why one launch cannot do it, for people. It does not judge what was called: where lengths disagree, say, the
 * ordinary way finds out and reports. */
const char *collet_span_plan_make(struct collet_span_plan *plan, const struct collet_span_plan_call *call,
	const struct collet_span_plan_rank *ranks);

#endif
