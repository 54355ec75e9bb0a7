/* Lets a caller poll a descriptor instead of waiting in the library.
 *
 * The descriptor is an epoll that holds the engine's own and a timer. While the engine is *watched*, everything that it
 * waits for is armed, as in a sleep. The timer makes the descriptor readable for deadlines, and when another thread
 * makes progress or starts a call: that changes what must be armed. */
#ifndef COLLET_ENGINE_WATCH_H
#define COLLET_ENGINE_WATCH_H

#include "engine/engine.h"

/* Opens the descriptor unless it is open. Under the lock. */
collet_status collet_watch_open(struct collet_engine *engine);
void collet_watch_close(struct collet_engine *engine);
/* Watches from now on, if the descriptor is open. Nothing has moved in the last round. Under the lock. */
void collet_watch_begin(struct collet_engine *engine);
/* Stops watching, since the caller makes progress, and clears what has made the descriptor readable. Under the lock. */
void collet_watch_end(struct collet_engine *engine);
/* Stops watching, since another thread does something, and makes the descriptor readable. Under the lock. */
void collet_watch_interrupt(struct collet_engine *engine);

#endif
