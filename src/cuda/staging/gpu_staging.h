/* Calls on GPU memory, by way of the host's: what a call reads is copied to host memory before it starts, what it
 * writes is copied to the GPU when it has ended; or a carrier (staging_method.h) does both while it runs. Host and GPU
 * buffers may be mixed, on one rank and between ranks. */
#ifndef COLLET_CUDA_STAGING_GPU_STAGING_H
#define COLLET_CUDA_STAGING_GPU_STAGING_H

#include "api/comm.h"

/* The caller's buffer of one call: bytes 0, it is not used. */
struct collet_side {
	const void *first;
	size_t bytes;
};

enum { COLLET_READ, COLLET_WRITTEN, COLLET_SIDES };

/* What may become of a side that is long; which of it, the carriers say (staging_method.h). A short one is copied
 * whole. */
enum collet_staging {
	COLLET_STAGED_FLOWS,   /* a collective: the request is to be started with collet_staged_flow() */
	COLLET_STAGED_REACHED, /* one that only moves: likewise, and what transports know stays where it is */
	COLLET_STAGED_BOUNCES, /* a message: its request is to be started with collet_staged_bounce() */
	COLLET_STAGED_PULLED   /* the same, with a rank of this host that has a GPU (see cuda/peer_gpus/ipc_get.h) */
};

struct collet_staged;

/* Where a side is a GPU's, its first becomes the address of host memory that stands for it, filled with what the call
 * reads, if that is not left to a flow or bounce. A collective's sides that overlap stay so. *staged NULL: both are the
 * host's, nothing has happened. COLLET_ERR_ARGUMENT, _MEMORY, _SYSTEM: nothing has happened either. Waits for the copy,
 * not for what other streams of the program do: what they write must be there before the call. */
collet_status collet_staged_begin(struct collet_context *context, const char *function,
	struct collet_side sides[COLLET_SIDES], enum collet_staging staging, struct collet_staged **staged);
/* Of cargo (staging_pipelined.h), which is taken over, even if this fails: so many bytes of host memory, that it is
 * brought to and taken from, for a request to be started with collet_staged_flow(). sides: what this rank has of it on
 * the GPU. */
struct collet_piped_cargo;
collet_status collet_staged_of(struct collet_context *context, struct collet_copier *copier,
	const struct collet_side sides[COLLET_SIDES], size_t bytes, const struct collet_piped_cargo *cargo,
	char **host, struct collet_staged **staged);
/* Where kernels reach that memory, in the current CUDA context, the copier's. COLLET_ERR_MEMORY: it cannot be
 * page-locked; COLLET_ERR_SYSTEM. */
collet_status collet_staged_find_block(const struct collet_staged *staged, cu_pointer *gpu);
/* For a flow; its request has been planned, and is not started yet. COLLET_ERR_MEMORY. */
collet_status collet_staged_plan(struct collet_staged *staged, struct collet_request *request);
/* NULL: it has been filled, and is emptied by collet_staged_end(). */
struct collet_pipeline *collet_staged_flow(const struct collet_staged *staged);
/* Of a side: COLLET_READ, COLLET_WRITTEN; NULL likewise, or there is nothing to copy. */
struct collet_bounce_buffer *collet_staged_bounce(const struct collet_staged *staged, int side);
/* Its request has ended, or never starts, and is still there. Under the engine's lock, before end or drop. */
void collet_staged_stop(const struct collet_staged *staged);
/* The same for a call on a stream: nothing is copied yet, and the host's memory is page-locked, since a copy to other
 * memory would keep the caller waiting; that it cannot be is COLLET_ERR_MEMORY. */
collet_status collet_staged_lay_out(struct collet_context *context, const char *function,
	struct collet_side sides[COLLET_SIDES], enum collet_staging staging, struct collet_staged **staged);
/* What the call reads, where that is not brought in pieces; whole: and what is in the buffer that it writes, since it
 * may write less than all of it. The stream's CUDA context is current. */
collet_status collet_staged_enqueue_in(const struct collet_staged *staged, cu_stream stream, bool whole);
/* What the call has written, likewise. */
collet_status collet_staged_enqueue_out(const struct collet_staged *staged, cu_stream stream);
/* Is a buffer of it there, on a GPU? */
bool collet_staged_uses(const struct collet_staged *staged, const char *first, size_t bytes);
/* Nothing of it is under way any more; NULL is fine. */
void collet_staged_drop(struct collet_staged *staged);
/* Of what is written only these blocks are, in elements (v-forms); COLLET_ERR_MEMORY. */
collet_status collet_staged_blocks(struct collet_staged *staged, size_t element_bytes, uint32_t size,
	const uint64_t *counts, const uint64_t *displacements);
/* Which of these a collective is. */
enum collet_staging collet_call_staging(const collet_comm *comm, const struct collet_call_arguments *call);
/* A collective's arguments become what stands for them (call_path.c). listed: of recv, these blocks are written;
 * NULL: all of it is. COLLET_ERR_UNSUPPORTED, _MEMORY. */
collet_status collet_call_take_staged(const collet_comm *comm, struct collet_call_arguments *call,
	const struct collet_side sides[COLLET_SIDES], const struct collet_partition *listed,
	struct collet_staged *staged);
/* Which of these messages are. */
enum collet_staging collet_halves_staging(
	const collet_comm *comm, const struct collet_half *halves, uint32_t count);
/* The halves' buffers become what stands for them; staged NULL: nothing does (point_to_point.c). */
void collet_halves_take_staged(struct collet_half *halves, uint32_t count, const struct collet_side sides[COLLET_SIDES],
	const struct collet_staged *staged);
/* Of what is written only what a message has brought is: *received, which is the caller's or, if that is NULL, one of
 * staged's own. */
collet_received *collet_staged_received(struct collet_staged *staged, collet_received *received, size_t element_bytes);
/* The call has ended so. Copies back what it has written, if it has ended well and that has not been done, and frees
 * staged; NULL is fine. The status of both. */
collet_status collet_staged_end(struct collet_staged *staged, collet_status status);

#endif
