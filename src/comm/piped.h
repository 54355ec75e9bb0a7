/* A call's buffers on a GPU, brought to the host's memory and taken back piece by piece while the call runs: the owner
 * of a flow (engine/flow.h). */
#ifndef COLLET_COMM_PIPED_H
#define COLLET_COMM_PIPED_H

#include "comm/comm.h"
#include "cuda/pipe.h"
#include "engine/flow.h"

/* Bytes of a buffer. */
struct collet_part {
	size_t offset, bytes;
};

/* What is brought or taken. */
struct collet_piped_side {
	struct collet_copier *copier; /* NULL: nothing is */
	char *gpu, *host;
	size_t bytes;
};

struct collet_piped;

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

/* Nothing is copied yet. COLLET_ERR_*: nothing has happened. */
collet_status collet_piped_make(struct collet_piped **piped, struct collet_context *context,
	const struct collet_piped_side *in, const struct collet_piped_side *out);
/* Of cargo, which is taken over, even if this fails. */
collet_status collet_piped_make_of(struct collet_piped **piped, struct collet_context *context,
	const struct collet_piped_side *both, const struct collet_piped_cargo *cargo);
/* Its flow does not run, and may not for long: its streams are others' until it does. */
void collet_piped_rest(struct collet_piped *piped);
/* The request that had its flow has been stopped. Waits for copies that are under way; NULL is fine. */
void collet_piped_free(struct collet_piped *piped);
/* Of what is written these parts alone are taken; they stay the caller's. */
void collet_piped_take_parts(struct collet_piped *piped, const struct collet_part *parts, size_t count);
struct collet_flow *collet_piped_flow(struct collet_piped *piped);

#endif
