/* What carries the bytes of a call on GPU memory from there and to there while the call runs. Each kind of call that is
 * not just copied before and after has one, which is a row of the table in gpu_staging.c:
 *
 *   reached   a large collective that only moves: transports do, from and to the GPU's memory
 *   piped     any large collective: by host memory as large as the buffers, cell by cell
 *   bounced   a message that is long: by a few cells of host memory, used round and round
 *
 * A row answers what gpu_staging.c asks of it, in this order: is it for this call, how much of the host's memory does
 * it need, what is its request started with (made), would it rather not (plan), and how does it rest and go. */
#ifndef COLLET_CUDA_STAGING_STAGING_METHOD_H
#define COLLET_CUDA_STAGING_STAGING_METHOD_H

#include "cuda/gpu_context.h"
#include "cuda/staging/gpu_staging.h"

struct collet_bounce_buffer;

/* Bytes of a buffer. */
struct collet_buffer_part {
	size_t offset, bytes;
};

struct collet_gpu_staging_buffer {
	struct collet_copy_stream *copy_stream; /* NULL: it is the host's, or not there; nothing is carried */
	char *gpu, *host;             /* host: what stands for it */
	size_t bytes;
	uint64_t allocation;          /* that gpu is in: the driver's number */
};

/* What is to be carried; at least one side is a GPU's. */
struct collet_staging_transfer {
	struct collet_context *context;
	enum collet_gpu_staging_kind kind;
	struct collet_gpu_staging_buffer buffers[COLLET_USER_BUFFERS];
};

/* The carrier's, for one call, with what it needs itself behind this. */
struct collet_staging_handle {
	struct collet_pipeline *pipeline;            /* of both sides; or NULL, and then */
	struct collet_bounce_buffer *bounce_buffers[COLLET_USER_BUFFERS]; /* of each that is carried: NULL, it is
	                                                                     copied before and after */
};

struct collet_staging_method {
	/* Is it for this call? The sides' hosts are not there yet. */
	bool (*supports)(const struct collet_staging_transfer *transfer);
	/* No memory of the host's stands for the sides: the request has the GPU's addresses. */
	bool is_zero_copy;
	/* Else, how much a side that is a GPU's needs. NULL: as much as it has. */
	size_t (*host_bytes)(const struct collet_gpu_staging_buffer *buffer);
	/* Nothing is copied yet. COLLET_ERR_*: nothing has happened. May take the engine's lock, for messages. */
	collet_status (*make)(const struct collet_staging_transfer *transfer, struct collet_staging_handle **handle);
	/* The request has been planned, and is not started yet. *declines: it is for the next row that takes it, and
	 * nothing has happened. COLLET_ERR_MEMORY. NULL: it need not know. */
	collet_status (*plan)(
		struct collet_staging_handle *handle, const struct collet_request *request, bool *declined);
	/* Of what is written these parts alone are to be taken; they stay the caller's. NULL: it takes no others. */
	void (*set_parts)(struct collet_staging_handle *handle, const struct collet_buffer_part *parts, size_t count);
	/* The request does not run, and may not for long: what streams it has are others' until it does. Under the
	 * engine's lock; safe to repeat. */
	void (*quiesce)(struct collet_staging_handle *handle);
	/* Its request is over. Waits for copies that are under way. false: as of collet_copy_queue_release(), of the
	 * host's memory that stands for the sides. */
	bool (*free)(struct collet_staging_handle *handle);
};

static inline bool collet_staging_is_message(const struct collet_staging_transfer *transfer)
{
	return transfer->kind == COLLET_GPU_STAGING_MESSAGE || transfer->kind == COLLET_GPU_STAGING_PULLED_MESSAGE;
}

#endif
