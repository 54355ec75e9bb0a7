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

struct collet_direct;
struct call;

enum { COLLET_ORDER_WORDS = 1024 };  /* of each rank; the first is the leader's own, of what it has launched */

/* 0: not done; 1: done, or there is nothing to wait for any more. */
struct collet_order_word {
	_Atomic uint32_t *host;
	cu_pointer gpu;
	uint32_t number;             /* 0: it is none */
};

struct collet_order {
	_Atomic uint32_t *words;     /* by place; NULL: there are none */
	size_t bytes;
	cu_pointer gpu;              /* where the GPU has them */
	uint16_t unused[COLLET_ORDER_WORDS]; /* of this rank's */
	uint32_t unused_count;
	uint32_t launched;           /* leader: so many calls' ends are the GPU's to tell, */
	struct call *first, **last;  /* of which it may be at these yet */
};

/* ---- While connecting. That there will be no words is no error. */
/* Leader: makes the file, and hands it to the others before it tells them anything more. */
void collet_order_offer(struct collet_direct *direct);
/* The others, when they have been told. */
void collet_order_take(struct collet_direct *direct);

/* ---- Leader, under lock. */
/* Behind a launch, in its context: has the stream tell all ranks. false: nobody is told, and their hosts must be. */
bool collet_order_put(struct collet_direct *direct, const struct call *call);
/* The others have been told of the launch; what it uses is put back when the GPU has done it. */
void collet_order_keep(struct collet_direct *direct, struct call *call);
void collet_order_reap(struct collet_direct *direct);

/* Nothing of the leader's stream is under way. streams: some of this rank's may wait for words yet, which stay. */
void collet_order_end(struct collet_direct *direct, bool streams);
/* In a forked child. */
void collet_order_forget(struct collet_order *order);

#endif
