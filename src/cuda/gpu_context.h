/* What a context and a communicator have of GPUs. Both exist where there is a driver that can be used. */
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
	struct collet_streams *streams;      /* of all communicators */
	struct collet_device_collectives *leaked_device_collectives; /* whose memory streams may still use */
};

/* comm->gpu */
struct collet_gpu_comm {
	struct collet_shared_gpu *shared_gpu; /* NULL if no leader launches for several ranks */
	struct collet_device_collectives *device_collectives; /* NULL if ranks launch no kernels of their own */
	struct collet_streams *streams;      /* NULL until a call is made on a stream (stream/stream_call.h) */
	bool has_gpudirect;                  /* transports of all pairs of ranks take GPU memory */
	uint32_t ranks_per_gpu;              /* of the GPU with most; 1 if none is shared */
};

/* Opens the driver and sets context->gpu, before peer_info is sent. If there is no driver, context->gpu stays NULL and
 * context->no_gpu_reason says why; that is COLLET_OK. */
collet_status collet_gpu_context_open(struct collet_context *context);
/* Frees context->gpu, which may be NULL. Returns false if a GPU may still use memory of the context: nothing has been
 * freed then. In a forked child it frees nothing of the driver's, which is the parent's. */
bool collet_gpu_context_close(struct collet_context *context, bool forked);

/* Sets comm->gpu and comm->has_gpu_leaders, the last step of creating a communicator. Tests with the other ranks what
 * their GPUs can do together; blocks. After a failure collet_gpu_comm_abort() and collet_gpu_comm_close() follow. */
collet_status collet_gpu_comm_open(collet_comm *comm);
/* Destroying a communicator, first: waits for what its GPUs have completed on streams. */
void collet_gpu_comm_drain(collet_comm *comm);
/* Then: releases what waits for its streams and kernels; none starts any more. Under the engine's lock. */
void collet_gpu_comm_abort(collet_comm *comm);
/* Then, when the communicator's state has been torn down: frees comm->gpu. Returns false if streams may still use the
 * context's memory, which must not be freed. Not under lock. */
bool collet_gpu_comm_close(collet_comm *comm);
/* Frees comm->gpu in a forked child. */
void collet_gpu_comm_forget(collet_comm *comm);

#endif
