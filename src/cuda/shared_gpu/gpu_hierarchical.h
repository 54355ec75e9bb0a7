/* Hierarchical collectives of hosts whose ranks have GPUs. The first rank of a host, its leader, has its GPU combine
 * the inputs of all local ranks, or copy the root's. It exchanges the result with other hosts for all of them, and has
 * the GPU copy what it receives to them. All three are pipelined by segments. The other ranks have the same GPU, or
 * GPUs that it can access.
 *
 * Averages of narrow floats pass between hosts as sums of f32 (engine/wide_sums.h), added along that tree.
 *
 * An all-reduce combines along the program's tree over hosts, so the result is bit-equal to the one in host memory. A
 * reduce and a reduce-scatter combine a host's ranks in one pass, with rounding, and then the hosts; in host memory
 * both are one pass. */
#ifndef COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_H
#define COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_H

#include "api/call.h"
#include "cuda/shared_gpu/shared_gpu.h"

/* Implements between_hosts of struct collet_shared_gpu_events. */
collet_status collet_gpu_hierarchical_start(struct collet_request *request, const struct collet_local_ranks *local);

#endif
