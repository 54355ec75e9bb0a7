/* Sleeps until a peer, a transport or another thread has work for this rank, and wakes sleepers. */
#ifndef COLLET_ENGINE_SLEEP_H
#define COLLET_ENGINE_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

struct collet_engine;

/* Sleeps until something arrives, for a moment, or until a time of the clock (COLLET_NEVER: none). Under the lock,
 * which it releases while asleep. */
void collet_engine_sleep(struct collet_engine *engine, int64_t until_ns);

/* Arms everything that the rank waits for, so that its events end the sleep. False if something can move now, or needs
 * polling. Both under the lock. */
bool collet_engine_arm(struct collet_engine *engine);
void collet_engine_disarm(struct collet_engine *engine);
/* Waits for events for a time, and clears them. */
void collet_engine_clear_events(struct collet_engine *engine, int timeout_ms);
/* Returns the longest sleep after which deadlines and suspicions are still checked in time. Under the lock. */
int collet_engine_sleep_limit_ms(const struct collet_engine *engine);

/* Sleeps until a request has ended or another thread has slept, at most for a time. Under the lock, which it releases
 * meanwhile. */
void collet_engine_follow(struct collet_engine *engine, int limit_ms);
/* Wakes the sleeping thread of the rank. Any thread. */
void collet_engine_wake(struct collet_engine *engine);
/* Has the threads that follow another one check their requests again, since one has ended. Under the lock. */
void collet_engine_notify_followers(struct collet_engine *engine);

#endif
