/* A hook into the rounds of progress of one communicator. */
#ifndef COLLET_ENGINE_PROGRESS_HOOK_H
#define COLLET_ENGINE_PROGRESS_HOOK_H

#include <stdbool.h>
#include <stddef.h>

struct collet_comm_state;
struct collet_request;

/* For who does a group's calls by other means than lanes (see cuda/shared_gpu/shared_gpu.h,
 * cuda/peer_gpus/device_collective.h). Under lock. */
struct collet_progress_hooks {
	/* In each round of progress while the group has not ended. true: something has got on, and may have left
	 * transfers that only the next round moves. */
	bool (*progress)(struct collet_comm_state *state, void *context);
	/* Does it need no further round before a message comes? */
	bool (*is_idle)(const void *context);
	/* Which ranks a held request waits for, for a sentence. false: somebody else does it. */
	bool (*name_awaited)(
		const void *context, const struct collet_request *request, char *text, size_t capacity);
	/* The group is over, and its requests are about to end: then buffers are the callers'. NULL: nothing. */
	void (*release_buffers)(void *context);
};

/* One of those who do, in a group's list. */
struct collet_progress_hook {
	struct collet_progress_hook *next;
	const struct collet_progress_hooks *table;
	void *context;                       /* the hooks' */
};

/* ---- comm_state.c */
/* The hook stays where it is until it is removed; one that is in no list may be removed. */
void collet_comm_state_add_hook(struct collet_comm_state *state, struct collet_progress_hook *hook);
void collet_comm_state_remove_hook(struct collet_comm_state *state, const struct collet_progress_hook *hook);

#endif
