/* How streams of ranks that share a GPU are told that it has done a call of theirs: by words that the leader's stream
 * sets behind its launch, and that the ranks' streams wait for. So no host stands between a launch's end and what the
 * streams hold after it.
 *
 * The words are in a file of the leader's that all of them map and have page-locked, and that serves for nothing else:
 * what a stream sets late, when its communicator has ended, hits nobody's memory. Each word is one rank's, for one call
 * at a time; whoever ends the communicator sets those of its own rank, which lets its streams go on. Threads of the
 * leader's process have none, nor those that its file does not reach: then hosts tell all streams. */
#ifndef COLLET_CUDA_SHARED_GPU_COMPLETION_FLAGS_H
#define COLLET_CUDA_SHARED_GPU_COMPLETION_FLAGS_H

#include <collet/collet.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver/driver_api.h"

struct collet_shared_gpu;
struct call;

enum { COLLET_COMPLETION_FLAGS = 1024 }; /* of each rank; the first is the leader's own, of what it has launched */

/* 0: not done; 1: done, or there is nothing to wait for any more. */
struct collet_completion_flag {
	_Atomic uint32_t *host;
	cu_pointer gpu;
	uint32_t index;              /* 0: it is none */
};

struct collet_completion_flags {
	_Atomic uint32_t *flags;     /* by place; NULL: there are none */
	size_t bytes;
	cu_pointer gpu;              /* where the GPU has them */
	uint16_t free_flags[COLLET_COMPLETION_FLAGS]; /* of this rank's */
	uint32_t free_count;
	uint32_t launched;           /* leader: so many calls' ends are the GPU's to tell, */
	struct shared_call *first, **last; /* of which it may be at these yet */
};

/* ---- While connecting. That there will be no words is no error. */
/* Leader: makes the file, and hands it to the others before it tells them anything more. */
void collet_completion_flags_create(struct collet_shared_gpu *shared_gpu);
/* The others, when they have been told. */
void collet_completion_flags_attach(struct collet_shared_gpu *shared_gpu);

/* ---- Leader, under lock. */
/* Behind a launch, in its context: has the stream tell all ranks. false: nobody is told, and their hosts must be. */
bool collet_completion_flags_enqueue(struct collet_shared_gpu *shared_gpu, const struct shared_call *call);
/* The others have been told of the launch; what it uses is put back when the GPU has done it. */
void collet_completion_flags_defer_release(struct collet_shared_gpu *shared_gpu, struct shared_call *call);
void collet_completion_flags_reap(struct collet_shared_gpu *shared_gpu);

/* Nothing of the leader's stream is under way. streams: some of this rank's may wait for words yet, which stay. */
void collet_completion_flags_deinit(struct collet_shared_gpu *shared_gpu, bool streams);
/* In a forked child. */
void collet_completion_flags_forget(struct collet_completion_flags *flags);

#endif
