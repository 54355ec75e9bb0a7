/* What gpu_hierarchical.c and gpu_hierarchical_blocks.c know of each other. */
#ifndef COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_INTERNAL_H
#define COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_INTERNAL_H

#include "cuda/shared_gpu/gpu_hierarchical.h"
#include "cuda/staging/staging_pipelined.h"

struct gpu_hierarchical {
	struct collet_context *context;
	struct collet_request *request; /* while its program is the part between hosts; else NULL */
	const struct collet_program *planned_program;
	bool prescales; /* as it was planned */
	void *shared_call; /* the leader's; NULL: it has been told that it is over */
	const struct collet_kernel_set *kernels;
	struct collet_gpu_reduction reduction;
	size_t element_bytes;
	bool scales;
	cu_pointer device_address; /* where the GPU has the host's block, if a kernel writes there */
	struct collet_shape shape;
	uint32_t size, root; /* root: a place; size: it is on another host */
	uint32_t members[COLLET_SHARED_GPU_RANKS]; /* by place: ranks, rising */
	struct collet_span_plan_rank ranks[];
};

/* gpu_hierarchical.c: a launch that copies spans of bytes, each of one source. */
collet_status gpu_hierarchical_copy(const struct gpu_hierarchical *hierarchical, cu_stream stream,
	const struct collet_gpu_span *spans, uint32_t count);

/* ---- gpu_hierarchical_blocks.c. Of cargo (staging_pipelined.h). */
/* NULL; or why a v-form's ranks of this host do not go together. */
const char *gpu_hierarchical_blocks_differ(const struct gpu_hierarchical *hierarchical);
/* All-gather: the blocks of this host's ranks, which its other ranks have from the GPU; and those of others'. */
collet_status gpu_hierarchical_copy_in_blocks(
	void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes);
collet_status gpu_hierarchical_copy_out_blocks(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);
/* Reduce-scatter: each of its ranks its own. */
collet_status gpu_hierarchical_copy_out_own(
	void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);

#endif
