/* Fences that others run: of two threads that each store and then load what the other stores, one must see the other;
 * so each needs a full barrier in between, or one of them, the one that is in no hurry, has the kernel run it on the
 * other's core, too. */
#ifndef COLLET_CORE_FENCE_H
#define COLLET_CORE_FENCE_H

#include <stdbool.h>

/* From here on others, also of other processes, may fence this process. False: this kernel has no such thing. Costs
 * milliseconds, once, where the process has threads already. */
bool collet_fence_register(void);
/* Every thread of every process that has joined has run a full barrier when this returns. Of a process that has
 * joined. */
void collet_fence_all(void);

#endif
