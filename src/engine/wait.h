/* Waits: spins, then yields, then sleeps, and makes progress meanwhile. */
#ifndef COLLET_ENGINE_WAIT_H
#define COLLET_ENGINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* How long a thread has waited without progress. */
struct collet_spin_wait {
	uint32_t spin_polls, polls, rounds;
	int64_t yielding_since;
	int64_t until_ns;                    /* no sleep lasts longer */
};
/* Spins, yields or sleeps once, after a round that moved nothing. Releases the lock now and then. Under the lock. */
void collet_engine_wait_once(struct collet_engine *engine, struct collet_spin_wait *spin_wait);
/* Starts over, after a round that moved something. */
static inline void collet_spin_wait_reset(struct collet_spin_wait *spin_wait)
{
	spin_wait->polls = 0;
	spin_wait->yielding_since = 0;
}

/* Makes progress on everything until done() is true, which is called under the lock. Deadlines end pending requests.
 * Not under the lock. */
void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* Returns how often a blocking call polls for its own messages alone before it waits: for about a microsecond, but
 * never if the peer may need this core. */
static inline uint32_t collet_engine_spin_budget(const struct collet_engine *engine)
{
	enum { MOST = 64 };
	if (engine->oversubscribed)
		return 0;
	return engine->spin_polls < MOST ? engine->spin_polls : MOST;
}
/* Does the same as collet_engine_wait(), under the lock, which it releases while it waits. */
void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* Does the same as collet_engine_wait(), but returns false if done() is not true by this time of the clock. */
bool collet_engine_wait_until(
	struct collet_engine *engine, bool (*done)(void *context), void *context, int64_t until_ns);
/* Makes progress until a request has ended since this function returned last. Returns false if none has by this time of
 * the clock (0: after one round): then the caller may poll the descriptor. Not under the lock. */
bool collet_engine_progress_until(struct collet_engine *engine, int64_t until_ns);
/* Wakes a thread that is to do what this one will not. Under the lock. */
void collet_engine_wake_idle(struct collet_engine *engine);
/* Makes one round of progress and returns done(). */
bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* Releases the lock and wakes a sleeping thread, which takes over what this thread has started and does not wait
 * for. */
void collet_engine_unlock_handoff(struct collet_engine *engine);

#endif
