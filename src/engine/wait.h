/* What the files that wait know of each other: wait.c, watchdog.c, sleep.c and progress_thread.c. All of it under the
 * engine's lock. */
#ifndef COLLET_ENGINE_WAIT_H
#define COLLET_ENGINE_WAIT_H

#include "engine/engine.h"

/* ---- wait.c */
/* How long a thread has waited in vain: it spins, then yields, then sleeps. */
struct collet_spin_wait {
	uint32_t spin_polls, polls, rounds;
	int64_t yielding_since;
};
/* After a round that moved nothing. Lets go of the lock now and then. */
void collet_engine_wait_once(struct collet_engine *engine, struct collet_spin_wait *spin_wait);
/* After one that moved something. */
static inline void collet_spin_wait_reset(struct collet_spin_wait *spin_wait)
{
	spin_wait->polls = 0;
	spin_wait->yielding_since = 0;
}

/* ---- watchdog.c */
/* Deadlines, suspicions and warnings of everything pending. */
void collet_engine_run_watchdog(struct collet_engine *engine);

/* ---- sleep.c */
/* Until something comes, or for a moment. Lets go of the lock while asleep. */
void collet_engine_sleep(struct collet_engine *engine);

/* ---- progress_thread.c */
/* Does a user's thread wait, or is it about to? Relaxed, as everywhere: it says who should run, and orders nothing. */
static inline bool collet_engine_has_waiters(const struct collet_engine *engine)
{
	return atomic_load_explicit(&engine->user_waiters, memory_order_relaxed) != 0;
}
/* Has the progress thread wake up, a moment from now: if it has the same core as whoever calls, it would else take
 * that away at once, from one who was about to leave it, to sleep perhaps. Not under lock too. */
void collet_progress_thread_wake(const struct collet_engine *engine, long delay_ns);

#endif
