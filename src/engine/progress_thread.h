/* The optional progress thread makes progress while no thread of the user waits. */
#ifndef COLLET_ENGINE_PROGRESS_THREAD_H
#define COLLET_ENGINE_PROGRESS_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include <collet/collet.h>

#include "engine/engine.h"

/* Starts it, on this CPU (-1: where the calling thread may run). */
collet_status collet_engine_start_progress_thread(struct collet_engine *engine, int cpu);
void collet_engine_stop_progress_thread(struct collet_engine *engine);

/* True if a user's thread waits or is about to. Relaxed, as everywhere: it decides who should run, and orders
 * nothing. */
static inline bool collet_engine_has_waiters(const struct collet_engine *engine)
{
	return atomic_load_explicit(&engine->user_waiters, memory_order_relaxed) != 0;
}
/* Wakes the progress thread after a delay. If it has the caller's core, an immediate wake would preempt the caller,
 * which may be about to sleep and free the core anyway. With or without the lock. */
void collet_progress_thread_wake(const struct collet_engine *engine, long delay_ns);

#endif
