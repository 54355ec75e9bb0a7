/* Waiting: spins, then yields, then sleeps, and makes progress meanwhile. */
#ifndef COLLET_ENGINE_WAIT_H
#define COLLET_ENGINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

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

/* Advances everything until done(), which is asked under lock; deadlines end what is pending. Never called
 * under lock. */
void collet_engine_wait(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* How often a blocking call looks for its own messages alone before it waits in earnest: a microsecond or so; not at
 * all where whom it waits for may need its core. */
static inline uint32_t collet_engine_spin_budget(const struct collet_engine *engine)
{
	enum { MOST = 64 };
	if (engine->oversubscribed)
		return 0;
	return engine->spin_polls < MOST ? engine->spin_polls : MOST;
}
/* The same, called under lock, which is let go of while waiting. */
void collet_engine_wait_locked(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* One round; what done() says then. */
bool collet_engine_poll(struct collet_engine *engine, bool (*done)(void *context), void *context);
/* Lets go of lock: something is under way that this thread does not wait for now, so whoever sleeps is to see to it. */
void collet_engine_unlock_handoff(struct collet_engine *engine);

#endif
