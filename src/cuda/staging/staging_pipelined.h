/* A call's buffers on a GPU, brought to the host's memory and taken back piece by piece while the call runs: a carrier,
 * the owner of a flow (engine/pipeline.h). */
#ifndef COLLET_CUDA_STAGING_STAGING_PIPELINED_H
#define COLLET_CUDA_STAGING_STAGING_PIPELINED_H

#include "cuda/driver/copy_queue.h"
#include "cuda/staging/staging_method.h"
#include "engine/pipeline.h"

extern const struct collet_carrier collet_piped_carrier;

/* Is a side so long that this pays? */
bool collet_load_is_large(const struct collet_load *load);

/* Whose data it is, where it is more than one buffer: how bytes of it come to the host's block, and leave, as far as
 * they do. Between collet_pipe_enter() and leave, but for over, stop and free. */
struct collet_piped_cargo {
	void *owner;
	bool brings, takes;
	collet_status (*bring)(void *owner, struct collet_pipe *pipe, char *host, size_t offset, size_t bytes);
	collet_status (*take)(void *owner, struct collet_pipe *pipe, const char *host, size_t offset, size_t bytes);
	/* All has been brought and taken. Under the engine's lock. */
	void (*over)(void *owner);
	/* The request has ended, and is still there; likewise. Perhaps more than once. */
	void (*stop)(void *owner);
	void (*free)(void *owner);
};

/* Of cargo, which is taken over, even if this fails; both: the block of the host's. As of a carrier's make(). */
collet_status collet_piped_make_of(struct collet_context *context, const struct collet_staged_side *both,
	const struct collet_piped_cargo *cargo, struct collet_carried **carried);

#endif
