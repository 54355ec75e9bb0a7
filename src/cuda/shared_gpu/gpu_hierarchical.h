/* Hierarchical collectives of hosts whose ranks have GPUs: the host's first rank, its leader, has its GPU combine what
 * all of them have (or copies what the root has), goes between hosts with it for all of them, and has the GPU hand out
 * what comes of it; all three piece by piece, at the same time. The others have the same GPU, or some that it reaches.
 *
 * An all-reduce combines along the tree that the program has for hosts, so bits are those of the host's memory. A
 * reduce and a reduce-scatter combine a host's ranks in one pass and round, and then hosts; in the host's memory both
 * are one pass. */
#ifndef COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_H
#define COLLET_CUDA_SHARED_GPU_GPU_HIERARCHICAL_H

#include "api/comm.h"
#include "cuda/shared_gpu/shared_gpu.h"

/* The event `share` of cuda/shared_gpu/shared_gpu.h. */
collet_status collet_gpu_hierarchical_start(struct collet_request *request, const struct collet_local_ranks *local);

#endif
