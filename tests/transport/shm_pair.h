/* Two ends of an shm conduit in one process, and a look inside: for the tests of what is shm's own. */
#ifndef TESTS_TRANSPORT_SHM_PAIR_H
#define TESTS_TRANSPORT_SHM_PAIR_H

#include <stdio.h>

#include "pair.h"
#include "transport/shm/shm_endpoint.h"

enum { KIB = 1 << 10, MIB = 1 << 20, ARENA_BYTES = 64 * MIB };

extern const struct collet_transport collet_shm_transport;
static const struct collet_transport *const shm = &collet_shm_transport;

static inline struct shm_endpoint *inside(struct pair *pair, int which)
{
	return (struct shm_endpoint *)pair->ends[which].conduit;
}

/* Opens both ends, as threads of this process or as if they were two processes. arenas: two, to be made; or NULL. */
void shm_pair_open(struct pair *pair, bool processes, struct collet_arena *arenas);

/* What an end logs, from info on. */
struct shm_ear {
	FILE *log;
	int error;  /* where it would go */
	char said[1000];
};
void shm_ear_open(struct shm_ear *ear, struct end *end);
/* Then it is in said. */
void shm_ear_close(struct shm_ear *ear);

#endif
