/* Adds functions to a communicator's rounds of progress. The GPU paths, which execute calls without tasks, use them:
 * see cuda/shared_gpu/shared_gpu.h and cuda/peer_gpus/device_collective.h. */
#ifndef COLLET_ENGINE_PROGRESS_HOOK_H
#define COLLET_ENGINE_PROGRESS_HOOK_H

#include <stdbool.h>
#include <stddef.h>

struct collet_comm_state;
struct collet_request;

/* Called under the engine's lock. */
struct collet_progress_hook_ops {
	/* Makes progress, in each round until the communicator ends. True if something progressed; it may have left
	 * transfers that the next round moves. */
	bool (*progress)(struct collet_comm_state *state, void *context);
	/* True if it needs no further round before a message arrives. */
	bool (*is_idle)(const void *context);
	/* Names the ranks that a deferred request waits for, for a sentence. False if the request is not its own. */
	bool (*name_awaited)(
		const void *context, const struct collet_request *request, char *text, size_t capacity);
	/* Stops using the callers' buffers, since the communicator has ended and its requests are about to end. May be
	 * NULL. */
	void (*release_buffers)(void *context);
};

/* An entry in a communicator's list of hooks. */
struct collet_progress_hook {
	struct collet_progress_hook *next;
	const struct collet_progress_hook_ops *table;
	void *context;                       /* passed to the functions */
};

/* ---- comm_state.c */
/* Adds a hook, whose memory must stay valid until it is removed. Removing a hook that is in no list does nothing. */
void collet_comm_state_add_hook(struct collet_comm_state *state, struct collet_progress_hook *hook);
void collet_comm_state_remove_hook(struct collet_comm_state *state, const struct collet_progress_hook *hook);

#endif
