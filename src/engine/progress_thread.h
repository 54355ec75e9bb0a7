/* The optional thread that makes progress while no thread of the user does. */
#ifndef COLLET_ENGINE_PROGRESS_THREAD_H
#define COLLET_ENGINE_PROGRESS_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include <collet/collet.h>

#include "engine/engine.h"

collet_status collet_engine_start_progress_thread(struct collet_engine *engine);
void collet_engine_stop_progress_thread(struct collet_engine *engine);

/* Does a user's thread wait, or is it about to? Relaxed, as everywhere: it says who should run, and orders nothing. */
static inline bool collet_engine_has_waiters(const struct collet_engine *engine)
{
	return atomic_load_explicit(&engine->user_waiters, memory_order_relaxed) != 0;
}
/* Has the progress thread wake up, a moment from now: if it has the same core as whoever calls, it would else take
 * that away at once, from one who was about to leave it, to sleep perhaps. Not under lock too. */
void collet_progress_thread_wake(const struct collet_engine *engine, long delay_ns);

#endif
