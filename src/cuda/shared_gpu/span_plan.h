/* Plans one launch for all ranks: a collective as spans to reduce and to copy, over buffers that are all accessible.
 * Pure: it reads shapes and addresses, and allocates nothing.
 *
 * Collectives that reduce do so in rank order, in one pass over all ranks' operands that rounds once. That is the
 * order, and gives the bits, of the algorithms "direct" and "two_shot". Collectives that only move data need no
 * algorithm. */
#ifndef COLLET_CUDA_SHARED_GPU_SPAN_PLAN_H
#define COLLET_CUDA_SHARED_GPU_SPAN_PLAN_H

#include "collectives/program.h"
#include "cuda/kernels/kernel_set.h"

/* A rank's buffers, as the leader addresses them; NULL if unused. */
struct collet_span_plan_rank {
	char *send, *recv;
	uint64_t send_bytes, recv_bytes;
	struct collet_partition input, result; /* of a v-form: lists, or only the count of the own block */
	double scale;
};

struct collet_span_plan_call {
	enum collet_collective collective;
	bool is_vector;
	uint32_t size, root;
	uint64_t count;
	size_t element_bytes;
	bool is_scaled;
};

/* Memory for plans of up to max_ranks ranks. */
struct collet_span_plan {
	struct collet_gpu_span *spans;       /* max_ranks * max_ranks */
	uint32_t span_count;
	void **addresses;                    /* 2 * max_ranks * (max_ranks + 1) */
	uint32_t address_count;
	double *scales;                      /* max_ranks */
	uint32_t max_ranks;
};

collet_status collet_span_plan_init(struct collet_span_plan *plan, uint32_t max_ranks);
void collet_span_plan_deinit(struct collet_span_plan *plan);  /* a zeroed object is allowed */

/* Returns NULL, or why one launch cannot do it, for people. It does not validate the call: if lengths differ, for
 * instance, the staged call finds out and reports it. */
const char *collet_span_plan_make(struct collet_span_plan *plan, const struct collet_span_plan_call *call,
	const struct collet_span_plan_rank *ranks);

#endif
