/* Declares staging methods: how a call on GPU memory is copied while it runs. A call that is copied only before and
 * after has none. Other calls have one, a row of the table in gpu_staging.c:
 *
 *   gpudirect   a large collective that does not reduce: transports read and write the GPU memory
 *   pipelined   any large collective: through host memory as large as the buffers, cell by cell
 *   bounced     a long message: through a few cells of host memory, used in turn
 *
 * gpu_staging.c asks a row in this order: does it support the call, how much host memory does it need, which handle
 * does the request start with (make), does it decline the planned request (plan), and how does it stop and end. */
#ifndef COLLET_CUDA_STAGING_STAGING_METHOD_H
#define COLLET_CUDA_STAGING_STAGING_METHOD_H

#include "cuda/gpu_context.h"
#include "cuda/staging/gpu_staging.h"

struct collet_bounce_buffer;

/* A part of a buffer, in bytes. */
struct collet_buffer_part {
	size_t offset, bytes;
};

struct collet_gpu_staging_buffer {
	struct collet_copy_stream *copy_stream; /* NULL if the buffer is in host memory or unused: nothing is copied */
	char *gpu, *host;                       /* host: the host memory that replaces gpu */
	size_t bytes;
	uint64_t allocation; /* the driver's number of the allocation that gpu is in */
};

/* The buffers to copy; at least one is in GPU memory. */
struct collet_staging_transfer {
	struct collet_context *context;
	enum collet_gpu_staging_kind kind;
	struct collet_gpu_staging_buffer buffers[COLLET_USER_BUFFERS];
};

/* A method's state for one call. The method's own members follow it. */
struct collet_staging_handle {
	struct collet_pipeline *pipeline; /* of both buffers; or NULL */
	/* Without a pipeline, that of each buffer. Where it is NULL, the buffer is copied before or after the call. */
	struct collet_bounce_buffer *bounce_buffers[COLLET_USER_BUFFERS];
};

struct collet_staging_method {
	/* True if it takes this call. The buffers' host members are not set yet. */
	bool (*supports)(const struct collet_staging_transfer *transfer);
	/* The method needs no host memory: the request uses the GPU addresses. */
	bool is_zero_copy;
	/* Returns how much host memory a GPU buffer needs, unless is_zero_copy. NULL: as much as its size. */
	size_t (*host_bytes)(const struct collet_gpu_staging_buffer *buffer);
	/* Makes the handle; copies nothing yet. On COLLET_ERR_* nothing has happened. May take the engine's lock. */
	collet_status (*make)(const struct collet_staging_transfer *transfer, struct collet_staging_handle **handle);
	/* Tells the method of the request, which has been planned and not started. *declined: nothing has happened, and
	 * the next row that supports the call gets the request. COLLET_ERR_MEMORY. NULL if the method need not know. */
	collet_status (*plan)(
		struct collet_staging_handle *handle, const struct collet_request *request, bool *declined);
	/* Restricts what is written to these parts, which stay the caller's. NULL if the method needs no parts. */
	void (*set_parts)(struct collet_staging_handle *handle, const struct collet_buffer_part *parts, size_t count);
	/* Releases copy streams while the request does not run, perhaps for long. Under the engine's lock; safe to
	 * repeat. */
	void (*quiesce)(struct collet_staging_handle *handle);
	/* Frees the handle when its request is over; waits for pending copies. Returns false if copies of the host
	 * memory may still be pending, as collet_copy_queue_release() does. */
	bool (*free)(struct collet_staging_handle *handle);
};

static inline bool collet_staging_is_message(const struct collet_staging_transfer *transfer)
{
	return transfer->kind == COLLET_GPU_STAGING_MESSAGE || transfer->kind == COLLET_GPU_STAGING_PULLED_MESSAGE;
}

#endif
