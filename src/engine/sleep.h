/* Sleeps until a peer, a transport or another thread has work for this rank, and wakes sleepers. */
#ifndef COLLET_ENGINE_SLEEP_H
#define COLLET_ENGINE_SLEEP_H

struct collet_engine;

/* Sleeps until something arrives, or for a moment. Under the lock, which it releases while asleep. */
void collet_engine_sleep(struct collet_engine *engine);

/* Wakes the sleeping thread of the rank. Any thread. */
void collet_engine_wake(struct collet_engine *engine);
/* Has the threads that follow another one check their requests again, since one has ended. Under the lock. */
void collet_engine_notify_followers(struct collet_engine *engine);

#endif
