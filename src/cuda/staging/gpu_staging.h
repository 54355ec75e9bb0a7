/* Stages calls on GPU memory: they run on host memory.
 *
 * What a call reads is copied to host memory before it starts. What it writes is copied to the GPU when it has ended.
 * Or a staging method (staging_method.h) copies both while it runs. Host and GPU buffers may be mixed, on one rank and
 * between ranks. */
#ifndef COLLET_CUDA_STAGING_GPU_STAGING_H
#define COLLET_CUDA_STAGING_GPU_STAGING_H

#include "api/call.h"
#include "api/point_to_point.h"
#include "cuda/driver/copy_stream.h"

/* How a long buffer may be staged; staging_method.h says which are long. A short one is copied whole. */
enum collet_gpu_staging_kind {
	/* A collective. Its request is started with collet_gpu_staging_pipeline(). */
	COLLET_GPU_STAGING_COLLECTIVE,
	/* A collective that does not reduce. Started likewise. Buffers that transports have registered need no host
	 * memory. */
	COLLET_GPU_STAGING_GPUDIRECT,
	/* An average of narrow floats: copied whole, since its program may run on widened copies (wide_sums.h). */
	COLLET_GPU_STAGING_AVERAGE,
	/* A message. Its request is started with collet_gpu_staging_bounce(). */
	COLLET_GPU_STAGING_MESSAGE,
	/* A message with a rank of this host that has a GPU (cuda/peer_gpus/ipc_get.h): likewise. */
	COLLET_GPU_STAGING_PULLED_MESSAGE
};

struct collet_gpu_staging;

/* Begins staging. For each buffer in GPU memory, `first` becomes the address of host memory that replaces it. That
 * memory has the bytes that the call reads, unless a pipeline or a bounce buffer brings them later. Buffers of a
 * collective that overlap still do. *staging is NULL if both buffers are in host memory. COLLET_ERR_ARGUMENT, _MEMORY,
 * _SYSTEM: nothing has happened. Waits for its own copy, but not for the streams of the application. What these write
 * must be there before the call. */
collet_status collet_gpu_staging_begin(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging);
/* Begins staging whose bytes the hooks copy (staging_pipelined.h). Acquires so many bytes of host memory, for a request
 * that is started with collet_gpu_staging_pipeline(). buffers: where this rank has these bytes on the GPU. The staging
 * owns the hooks, even if this fails. */
struct collet_copy_hooks;
collet_status collet_gpu_staging_begin_hooks(struct collet_context *context, struct collet_copy_stream *copy_stream,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], size_t bytes,
	const struct collet_copy_hooks *hooks, char **host, struct collet_gpu_staging **staging);
/* Returns the address by which kernels access that host memory, in the current CUDA context, which is that of the copy
 * stream. COLLET_ERR_MEMORY if it cannot be page-locked; COLLET_ERR_SYSTEM. */
collet_status collet_gpu_staging_device_address(const struct collet_gpu_staging *staging, cu_pointer *gpu);
/* Tells the staging method of its request, which has been planned and not started. COLLET_ERR_MEMORY. */
collet_status collet_gpu_staging_plan(struct collet_gpu_staging *staging, struct collet_request *request);
/* Returns the pipeline to start the request with. NULL if the memory has been filled, and collet_gpu_staging_end()
 * empties it. */
struct collet_pipeline *collet_gpu_staging_pipeline(const struct collet_gpu_staging *staging);
/* Returns the bounce buffer of COLLET_SEND_BUFFER or COLLET_RECV_BUFFER. NULL likewise, or if nothing is copied. */
struct collet_bounce_buffer *collet_gpu_staging_bounce(const struct collet_gpu_staging *staging, int buffer);
/* Stops staging whose request has ended or never starts. Under the engine's lock, before collet_gpu_staging_end() or
 * collet_gpu_staging_free(). */
void collet_gpu_staging_stop(const struct collet_gpu_staging *staging);
/* Begins staging for a call on a stream, without copying yet. The host memory is page-locked, since a copy to other
 * memory would block the caller; COLLET_ERR_MEMORY if it cannot be. */
collet_status collet_gpu_staging_begin_on_stream(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging);
/* Enqueues the copy of what the call reads, unless a pipeline brings it. whole: also of the buffer that it writes,
 * since the call may write less than all of it. The stream's CUDA context is current. */
collet_status collet_gpu_staging_enqueue_copy_in(
	const struct collet_gpu_staging *staging, cu_stream stream, bool whole);
/* Enqueues the copy of what the call has written, likewise. */
collet_status collet_gpu_staging_enqueue_copy_out(const struct collet_gpu_staging *staging, cu_stream stream);
/* True if a GPU buffer of the call overlaps this memory. */
bool collet_gpu_staging_uses(const struct collet_gpu_staging *staging, const char *first, size_t bytes);
/* Frees staging of which no copy is pending. NULL is fine. */
void collet_gpu_staging_free(struct collet_gpu_staging *staging);
/* Restricts what is written to these blocks, in elements (v-forms). COLLET_ERR_MEMORY. */
collet_status collet_gpu_staging_set_blocks(struct collet_gpu_staging *staging, size_t element_bytes, uint32_t size,
	const uint64_t *counts, const uint64_t *displacements);
/* Returns the kind of staging that a collective needs. */
enum collet_gpu_staging_kind collet_call_staging_kind(
	const collet_comm *comm, const struct collet_call_arguments *call);
/* Makes the arguments use the host memory of their staging (call_path.c). vector: the only blocks of recv that are
 * written; NULL if all of it is. COLLET_ERR_UNSUPPORTED, _MEMORY. */
collet_status collet_call_use_staging(const collet_comm *comm, struct collet_call_arguments *call,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	struct collet_gpu_staging *staging);
/* Limits the copy back to the bytes that a message has brought, by *received. Returns received, or, if that is NULL,
 * one that the staging owns. */
collet_received *collet_gpu_staging_set_received(
	struct collet_gpu_staging *staging, collet_received *received, size_t element_bytes);
/* Ends staging when its call has ended with this status: on COLLET_OK copies back what the call has written, unless
 * that has been done. Frees staging; NULL is fine. Returns the status of both. */
collet_status collet_gpu_staging_end(struct collet_gpu_staging *staging, collet_status status);

#endif
