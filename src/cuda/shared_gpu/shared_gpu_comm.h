/* A communicator's calls of ranks that share a GPU: what cuda/shared_gpu/shared_gpu.h needs of it, and what it needs of
 * that. */
#ifndef COLLET_CUDA_SHARED_GPU_SHARED_GPU_COMM_H
#define COLLET_CUDA_SHARED_GPU_SHARED_GPU_COMM_H

#include "api/call.h"
#include "cuda/shared_gpu/shared_gpu.h"

/* Tests whether the ranks may go together, if they have one GPU; blocks for as long. COLLET_ERR_*: the group has ended,
 * or is to. */
collet_status collet_comm_make_shared_gpu(collet_comm *comm);
/* Is this call one of which it is decided, with all ranks, which way it goes? Alike on all ranks. */
bool collet_call_may_share_gpu(const collet_comm *comm, const struct collet_call_arguments *call);
/* The same of such a call once it is planned. If not, it goes by way of the host. */
bool collet_request_is_for_leader(const collet_comm *comm, const struct collet_request *request);
/* Gives a planned request host buffers in place of the GPU's. COLLET_ERR_*: nothing has happened. Under lock. */
collet_status collet_request_use_staging(struct collet_request *request, const struct collet_call_buffers *given);

#endif
