/* Sleeping until a peer, a transport or another thread has something to do here. */
#ifndef COLLET_ENGINE_SLEEP_H
#define COLLET_ENGINE_SLEEP_H

struct collet_engine;

/* Until something comes, or for a moment. Lets go of the lock while asleep. */
void collet_engine_sleep(struct collet_engine *engine);

/* Any thread. */
void collet_engine_wake(struct collet_engine *engine);
/* A request has ended: whoever may wait for it looks again. Under lock. */
void collet_engine_notify_followers(struct collet_engine *engine);

#endif
