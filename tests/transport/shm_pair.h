/* Opens two ends of an shm endpoint pair in one process, and gives access to their structs, for the tests of shm
 * alone. */
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
	return (struct shm_endpoint *)pair->ends[which].endpoint;
}

/* Opens both ends, as threads of this process or as if they were two processes. arenas: two arenas to initialize, or
 * NULL. */
void shm_pair_open(struct pair *pair, bool processes, struct collet_arena *arenas);

/* Captures what an end logs, from level info on. */
struct shm_log_capture {
	FILE *log;
	int error;  /* the original standard error */
	char text[1000];
};
void shm_log_capture_begin(struct shm_log_capture *capture, struct end *end);
/* Ends the capture; the text is then in `text`. */
void shm_log_capture_end(struct shm_log_capture *capture);

#endif
