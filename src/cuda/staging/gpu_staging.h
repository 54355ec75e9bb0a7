/* Calls on GPU memory, by way of the host's: what a call reads is copied to host memory before it starts, what it
 * writes is copied to the GPU when it has ended; or a carrier (staging_method.h) does both while it runs. Host and GPU
 * buffers may be mixed, on one rank and between ranks. */
#ifndef COLLET_CUDA_STAGING_GPU_STAGING_H
#define COLLET_CUDA_STAGING_GPU_STAGING_H

#include "api/call.h"
#include "api/point_to_point.h"
#include "cuda/driver/copy_stream.h"

/* What may become of a side that is long; which of it, the carriers say (staging_method.h). A short one is copied
 * whole. */
enum collet_gpu_staging_kind {
	COLLET_GPU_STAGING_COLLECTIVE, /* a collective: the request is to be started with
	                                  collet_gpu_staging_pipeline() */
	COLLET_GPU_STAGING_GPUDIRECT, /* one that only moves: likewise, and what transports know stays where it is */
	COLLET_GPU_STAGING_MESSAGE, /* a message: its request is to be started with collet_gpu_staging_bounce() */
	COLLET_GPU_STAGING_PULLED_MESSAGE /* the same, with a rank of this host that has a GPU (see
	                                     cuda/peer_gpus/ipc_get.h) */
};

struct collet_gpu_staging;

/* Where a side is a GPU's, its first becomes the address of host memory that stands for it, filled with what the call
 * reads, if that is not left to a flow or bounce. A collective's sides that overlap stay so. *staged NULL: both are the
 * host's, nothing has happened. COLLET_ERR_ARGUMENT, _MEMORY, _SYSTEM: nothing has happened either. Waits for the copy,
 * not for what other streams of the program do: what they write must be there before the call. */
collet_status collet_gpu_staging_begin(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging);
/* Of cargo (staging_pipelined.h), which is taken over, even if this fails: so many bytes of host memory, that it is
 * brought to and taken from, for a request to be started with collet_gpu_staging_pipeline(). sides: what this rank has
 * of it on the GPU. */
struct collet_copy_hooks;
collet_status collet_gpu_staging_begin_hooks(struct collet_context *context, struct collet_copy_stream *copy_stream,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], size_t bytes,
	const struct collet_copy_hooks *hooks, char **host, struct collet_gpu_staging **staging);
/* Where kernels reach that memory, in the current CUDA context, the copier's. COLLET_ERR_MEMORY: it cannot be
 * page-locked; COLLET_ERR_SYSTEM. */
collet_status collet_gpu_staging_device_address(const struct collet_gpu_staging *staging, cu_pointer *gpu);
/* For a flow; its request has been planned, and is not started yet. COLLET_ERR_MEMORY. */
collet_status collet_gpu_staging_plan(struct collet_gpu_staging *staging, struct collet_request *request);
/* NULL: it has been filled, and is emptied by collet_gpu_staging_end(). */
struct collet_pipeline *collet_gpu_staging_pipeline(const struct collet_gpu_staging *staging);
/* Of a side: COLLET_SEND_BUFFER, COLLET_RECV_BUFFER; NULL likewise, or there is nothing to copy. */
struct collet_bounce_buffer *collet_gpu_staging_bounce(const struct collet_gpu_staging *staging, int buffer);
/* Its request has ended, or never starts, and is still there. Under the engine's lock, before end or drop. */
void collet_gpu_staging_stop(const struct collet_gpu_staging *staging);
/* The same for a call on a stream: nothing is copied yet, and the host's memory is page-locked, since a copy to other
 * memory would keep the caller waiting; that it cannot be is COLLET_ERR_MEMORY. */
collet_status collet_gpu_staging_begin_on_stream(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging);
/* What the call reads, where that is not brought in pieces; whole: and what is in the buffer that it writes, since it
 * may write less than all of it. The stream's CUDA context is current. */
collet_status collet_gpu_staging_enqueue_copy_in(
	const struct collet_gpu_staging *staging, cu_stream stream, bool whole);
/* What the call has written, likewise. */
collet_status collet_gpu_staging_enqueue_copy_out(const struct collet_gpu_staging *staging, cu_stream stream);
/* Is a buffer of it there, on a GPU? */
bool collet_gpu_staging_uses(const struct collet_gpu_staging *staging, const char *first, size_t bytes);
/* Nothing of it is under way any more; NULL is fine. */
void collet_gpu_staging_free(struct collet_gpu_staging *staging);
/* Of what is written only these blocks are, in elements (v-forms); COLLET_ERR_MEMORY. */
collet_status collet_gpu_staging_set_blocks(struct collet_gpu_staging *staging, size_t element_bytes, uint32_t size,
	const uint64_t *counts, const uint64_t *displacements);
/* Which of these a collective is. */
enum collet_gpu_staging_kind collet_call_staging_kind(
	const collet_comm *comm, const struct collet_call_arguments *call);
/* A collective's arguments become what stands for them (call_path.c). listed: of recv, these blocks are written;
 * NULL: all of it is. COLLET_ERR_UNSUPPORTED, _MEMORY. */
collet_status collet_call_use_staging(const collet_comm *comm, struct collet_call_arguments *call,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	struct collet_gpu_staging *staging);
/* Of what is written only what a message has brought is: *received, which is the caller's or, if that is NULL, one of
 * staged's own. */
collet_received *collet_gpu_staging_set_received(
	struct collet_gpu_staging *staging, collet_received *received, size_t element_bytes);
/* The call has ended so. Copies back what it has written, if it has ended well and that has not been done, and frees
 * staged; NULL is fine. The status of both. */
collet_status collet_gpu_staging_end(struct collet_gpu_staging *staging, collet_status status);

#endif
