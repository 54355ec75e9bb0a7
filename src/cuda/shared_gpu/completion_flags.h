/* Tells streams of ranks that share a GPU that it has completed their call. The leader's stream sets flags behind its
 * launch, and the ranks' streams wait for them. So no host stands between a launch's end and the work behind the call.
 *
 * The flags are in a memfd of the leader that all ranks map and page-lock. It serves for nothing else: a flag that a
 * stream sets late, after its communicator has ended, hits no other memory. Each flag belongs to one rank, for one call
 * at a time. Whoever ends the communicator sets those of its own rank, which releases its streams. If members are
 * threads of the leader's process, or cannot get the file, there are no flags, and hosts signal all streams. */
#ifndef COLLET_CUDA_SHARED_GPU_COMPLETION_FLAGS_H
#define COLLET_CUDA_SHARED_GPU_COMPLETION_FLAGS_H

#include <collet/collet.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver/driver_api.h"

struct collet_shared_gpu;
struct shared_call;

enum { COLLET_COMPLETION_FLAGS = 1024 }; /* for each rank; the leader's first counts its launches */

/* A flag is 0 until the call is complete, or there is nothing to wait for; then 1. */
struct collet_completion_flag {
	_Atomic uint32_t *host;
	cu_pointer gpu;
	uint32_t index;              /* 0 if there is no flag */
};

struct collet_completion_flags {
	_Atomic uint32_t *flags;     /* by member; NULL if there are none */
	size_t bytes;
	cu_pointer gpu;              /* where the GPU accesses them */
	uint16_t free_flags[COLLET_COMPLETION_FLAGS]; /* of this rank */
	uint32_t free_count;
	uint32_t launched;           /* leader: number of calls that the GPU signals */
	struct shared_call *first, **last; /* those that it may not have completed yet */
};

/* ---- While connecting. That flags cannot be had is no error. ---- */
/* Leader: creates the file, and sends it to the others before any further message. */
void collet_completion_flags_create(struct collet_shared_gpu *shared_gpu);
/* Followers, after the leader's message: map the file. */
void collet_completion_flags_attach(struct collet_shared_gpu *shared_gpu);

/* ---- Leader, with the lock. ---- */
/* Makes the stream signal all ranks after a launch; needs its context. Returns false if hosts must signal instead. */
bool collet_completion_flags_enqueue(struct collet_shared_gpu *shared_gpu, const struct shared_call *call);
/* Keeps the call's mappings until the GPU has completed it. The others know of the launch already. */
void collet_completion_flags_defer_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
void collet_completion_flags_reap(struct collet_shared_gpu *shared_gpu);

/* Requires that the leader's stream is idle. streams: some of this rank's may still wait for flags, which then stay
 * mapped. */
void collet_completion_flags_deinit(struct collet_shared_gpu *shared_gpu, bool streams);
/* For a forked child. */
void collet_completion_flags_atfork_child(struct collet_completion_flags *flags);

#endif
