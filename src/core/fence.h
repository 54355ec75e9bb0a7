/* Runs memory barriers on other cores (membarrier(2)). Two threads that each store, and then load the other's location,
 * both need a full barrier in between. With this, the fast thread needs none: the slow one has the kernel run a
 * barrier on both cores. */
#ifndef COLLET_CORE_FENCE_H
#define COLLET_CORE_FENCE_H

#include <stdbool.h>

/* Allows threads of all processes to fence this process. Returns false if the kernel does not support it. Takes some
 * milliseconds once if the process already has several threads. */
bool collet_fence_register(void);
/* Runs a full barrier on every thread of every registered process before it returns. The calling process must be
 * registered too. */
void collet_fence_all(void);

#endif
