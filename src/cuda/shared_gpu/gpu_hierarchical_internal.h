/* Declarations that gpu_hierarchical.c and gpu_hierarchical_blocks.c share. */
#ifndef COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_INTERNAL_H
#define COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_INTERNAL_H

#include "cuda/shared_gpu/gpu_hierarchical.h"
#include "cuda/staging/staging_pipelined.h"

struct gpu_hierarchical {
	struct collet_context *context;
	struct collet_request *request; /* while its program is the part between hosts; otherwise NULL */
	const struct collet_program *planned_program;
	bool prescales; /* prescales of the planned request */
	/* An average of narrow floats: between hosts, and in the block, sums are f32. narrow_host has room for results
	 * of the dtype. */
	bool is_wide;
	char *narrow_host;
	collet_status (*copy_out_narrow)(
		void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);
	void *shared_call; /* the leader's call; NULL once it was told that this part is complete */
	const struct collet_kernel_set *kernels;
	struct collet_gpu_reduction reduction;
	size_t element_bytes;
	bool scales;
	cu_pointer device_address; /* address of the staging memory, if a kernel writes to it */
	struct collet_shape shape;
	uint32_t size, root; /* root as a member; size if on another host */
	uint32_t members[COLLET_SHARED_GPU_RANKS]; /* by member: ranks, ascending */
	struct collet_span_plan_rank ranks[];
};

/* Launches copies of spans, each with one source; counts are in bytes. */
collet_status gpu_hierarchical_copy(const struct gpu_hierarchical *hierarchical, cu_stream stream,
	const struct collet_gpu_span *spans, uint32_t count);

/* ---- gpu_hierarchical_blocks.c: copy hooks (staging_pipelined.h) ---- */
/* Returns why the ranks of this host cannot do a v-form together; NULL if they can. */
const char *gpu_hierarchical_blocks_differ(const struct gpu_hierarchical *hierarchical);
/* All-gather: copies in the local ranks' blocks, and to other local ranks; copies out those of other hosts. */
collet_status gpu_hierarchical_copy_in_blocks(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes);
collet_status gpu_hierarchical_copy_out_blocks(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);
/* Reduce-scatter: copies each local rank's own block to it. */
collet_status gpu_hierarchical_copy_out_own(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);

#endif
