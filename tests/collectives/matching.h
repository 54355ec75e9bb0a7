/* Do the ranks' steps, item by item, fit together? Without running anything. */
#ifndef COLLET_TESTS_MATCHING_H
#define COLLET_TESTS_MATCHING_H

#include "world.h"

/* Steps are moves inside their buffers; the k-th message sent is the k-th received, as long, and both ends mean the
 * same place. messages[(part * size + from) * size + to] becomes how many there are of call c. */
struct finding matching_check(const struct world *world, uint32_t c, uint64_t *messages);

enum { MATCHING_PARTS = 8 };

#endif
