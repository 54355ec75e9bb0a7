/* What connects a communicator to the leader of ranks that share a GPU (shared_gpu.h). */
#ifndef COLLET_CUDA_SHARED_GPU_SHARED_GPU_COMM_H
#define COLLET_CUDA_SHARED_GPU_SHARED_GPU_COMM_H

#include "api/call.h"
#include "cuda/shared_gpu/shared_gpu.h"

/* Tests whether one rank can launch for all, if ranks share a GPU; blocks. Sets shared_gpu, ranks_per_gpu and
 * has_gpu_leaders. COLLET_ERR_*: the communicator has ended, or must be ended. */
collet_status collet_comm_make_shared_gpu(collet_comm *comm);
/* True if the leader decides how this call is executed. Alike on all ranks. */
bool collet_call_may_share_gpu(const collet_comm *comm, const struct collet_call_arguments *call);
/* The same of such a call once it is planned. If false, each rank stages its buffers. */
bool collet_request_is_for_leader(const collet_comm *comm, const struct collet_request *request);
/* Replaces GPU buffers of a planned request by staging. On COLLET_ERR_* nothing has happened. Under lock. */
collet_status collet_request_use_staging(struct collet_request *request, const struct collet_call_buffers *given);

#endif
