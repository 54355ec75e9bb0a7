/* A staging method for large collectives: copies a GPU's buffers to host memory and back, cell by cell, while the call
 * runs (engine/pipeline.h). */
#ifndef COLLET_CUDA_STAGING_STAGING_PIPELINED_H
#define COLLET_CUDA_STAGING_STAGING_PIPELINED_H

#include "cuda/driver/copy_queue.h"
#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_pipelined_staging;

/* True if a buffer is so long that this pays. */
bool collet_staging_is_large(const struct collet_staging_transfer *transfer);

/* Copies for a call whose data is in more than one buffer: how bytes get to the host block and from there. Called with
 * the copy queue's context current, except for complete, stop and free. */
struct collet_copy_hooks {
	void *context;
	bool has_input, has_output;
	size_t spare_bytes; /* host memory behind the block, for the hooks themselves */
	collet_status (*copy_in)(
		void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes);
	collet_status (*copy_out)(
		void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);
	/* Told when all copies are done. Under the engine's lock. */
	void (*complete)(void *context);
	/* Told when the request has ended and still exists; likewise. Perhaps more than once. */
	void (*stop)(void *context);
	void (*free)(void *context);
};

/* Makes a handle whose bytes the hooks copy, as make() of a staging method does. The handle owns the hooks, even if
 * this fails. both: the host memory of the input and of the result, which are in one block. */
collet_status collet_pipelined_make_hooks(struct collet_context *context, const struct collet_gpu_staging_buffer *both,
	const struct collet_copy_hooks *hooks, struct collet_staging_handle **handle);

#endif
