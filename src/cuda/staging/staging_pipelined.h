/* A call's buffers on a GPU, brought to the host's memory and taken back piece by piece while the call runs: a carrier,
 * the owner of a flow (engine/pipeline.h). */
#ifndef COLLET_CUDA_STAGING_STAGING_PIPELINED_H
#define COLLET_CUDA_STAGING_STAGING_PIPELINED_H

#include "cuda/driver/copy_queue.h"
#include "cuda/staging/staging_method.h"

extern const struct collet_staging_method collet_pipelined_staging;

/* Is a side so long that this pays? */
bool collet_staging_is_large(const struct collet_staging_transfer *transfer);

/* Whose data it is, where it is more than one buffer: how bytes of it come to the host's block, and leave, as far as
 * they do. Between collet_copy_queue_push_context() and leave, but for over, stop and free. */
struct collet_copy_hooks {
	void *context;
	bool has_input, has_output;
	collet_status (*copy_in)(
		void *context, struct collet_copy_queue *queue, char *host, size_t offset, size_t bytes);
	collet_status (*copy_out)(
		void *context, struct collet_copy_queue *queue, const char *host, size_t offset, size_t bytes);
	/* All has been brought and taken. Under the engine's lock. */
	void (*complete)(void *context);
	/* The request has ended, and is still there; likewise. Perhaps more than once. */
	void (*stop)(void *context);
	void (*free)(void *context);
};

/* Of cargo, which is taken over, even if this fails; both: the block of the host's. As of a carrier's make(). */
collet_status collet_pipelined_make_hooks(struct collet_context *context, const struct collet_gpu_staging_buffer *both,
	const struct collet_copy_hooks *hooks, struct collet_staging_handle **handle);

#endif
