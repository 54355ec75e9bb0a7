/* Declares the GPU state of a context and of a communicator: context->gpu and comm->gpu of api/offload.h. Both are NULL
 * without a usable driver. */
#ifndef COLLET_CUDA_GPU_CONTEXT_H
#define COLLET_CUDA_GPU_CONTEXT_H

#include "api/comm.h"
#include "cuda/driver/copy_stream.h"
#include "cuda/driver/device.h"
#include "cuda/staging/pinned.h"

/* context->gpu */
struct collet_gpu_context {
	struct collet_cuda cuda;
	struct collet_copy_streams copy_streams;
	struct collet_pinned_pool pinned;
	struct collet_device device;
	/* Under the engine's lock. */
	struct collet_streams *streams;                              /* of all communicators */
	struct collet_device_collectives *leaked_device_collectives; /* whose memory streams may still use */
};

/* comm->gpu */
struct collet_gpu_comm {
	struct collet_shared_gpu *shared_gpu;                 /* NULL if no leader launches for several ranks */
	struct collet_device_collectives *device_collectives; /* NULL if ranks launch no kernels of their own */
	struct collet_streams *streams; /* NULL until a call is made on a stream (stream/stream_call.h) */
	bool has_gpudirect;             /* transports of all pairs of ranks take GPU memory */
	uint32_t ranks_per_gpu;         /* the most ranks on one GPU; 1 if none is shared */
};

/* Implement the functions of the same names in api/offload.h. */
collet_status collet_gpu_context_open(struct collet_context *context);
bool collet_gpu_context_close(struct collet_context *context, bool is_forked);
collet_status collet_gpu_comm_open(collet_comm *comm);
void collet_gpu_comm_abort(collet_comm *comm);
bool collet_gpu_comm_close(collet_comm *comm);
void collet_gpu_comm_atfork_child(collet_comm *comm);

#endif
