/* Opens two ends of an shm endpoint pair in one process, and gives access to their structs, for the tests of shm
 * alone. */
#ifndef TESTS_TRANSPORT_SHM_PAIR_H
#define TESTS_TRANSPORT_SHM_PAIR_H

#include "pair.h"
#include "transport/shm/shm_endpoint.h"

enum { KIB = 1 << 10, MIB = 1 << 20, ARENA_BYTES = 64 * MIB };

extern const struct collet_transport collet_shm_transport;
static const struct collet_transport *const shm = &collet_shm_transport;

static inline struct shm_endpoint *inside(struct pair *pair, int which)
{
	return (struct shm_endpoint *)pair->ends[which].endpoint;
}

/* Opens both ends, as threads of this process or as if they were two processes. arenas: two arenas to initialize, or
 * NULL. */
void shm_pair_open(struct pair *pair, bool processes, struct collet_arena *arenas);

/* Returns the units that an end may fill, with those that its peer has given back and it has not looked at. */
uint64_t shm_units_owned(struct pair *pair, int which, enum shm_pool_kind kind);
/* Returns the units of a pool. */
uint64_t shm_units_of_pool(enum shm_pool_kind kind);
/* Returns the units of the last run that an end has sent. */
uint64_t shm_last_run(struct pair *pair, int which, enum shm_pool_kind kind);

/* Makes the ends behave as if ranks outnumbered cores. */
void shm_pair_oversubscribe(struct pair *pair);

#endif
