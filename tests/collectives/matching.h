/* Checks that the ranks' steps match each other, item by item, without running them. */
#ifndef COLLET_TESTS_MATCHING_H
#define COLLET_TESTS_MATCHING_H

#include "world.h"

/* Checks that steps are moves inside their buffers. The k-th message sent must be the k-th received, of the same
 * length, and both ranks must mean the same place. Sets messages[(part * size + from) * size + to] to their number in
 * call c. */
struct finding matching_check(const struct world *world, uint32_t c, uint64_t *messages);

enum { MATCHING_PARTS = 8 };

#endif
