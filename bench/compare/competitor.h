/* One library of a comparison: its ranks, running and waiting for commands. */
#ifndef BENCH_COMPETITOR_H
#define BENCH_COMPETITOR_H

#include <sys/types.h>

#include "driver.h"
#include "peers/variants.h"

/* The socket and folder through which all drivers of a run connect to collet-bench. */
struct bootstrap {
	char folder[64];        /* private, removed at the end */
	char socket_path[96];
	int listener;
	uint32_t ranks;
	bool pin;
	uint32_t started;       /* competitors so far; names their folders */
};

struct competitor {
	char name[64];               /* "openmpi", "openmpi:ucx" */
	const struct peer_variant *variant;  /* NULL: collet itself */
	const char *transport;       /* as asked for; NULL: the library's own choice */
	pid_t *pids;                 /* the launcher, or each rank; 0: ended */
	uint32_t pid_count;
	int *fds;                    /* by rank; NULL: it is out of the race */
	pid_t *rank_pids;            /* by rank: its ranks themselves, whoever started them */
	uint32_t ranks;
	bool pinned;
	uint32_t refused;            /* collectives that it does not offer, a bit each: said once */
	char version[64];
	char folder[80];             /* its own, in that of struct bootstrap: its log, Gloo's store */
	char log_path[96];
	bool missing;                /* its library is not installed */
	char problem[320];           /* why it is out */
};

/* Opens the socket. Returns false after printing the reason. */
bool bootstrap_init(struct bootstrap *bootstrap, uint32_t ranks, bool pin);
void bootstrap_deinit(struct bootstrap *bootstrap);

/* Starts its ranks and waits until all have connected. Returns false if that fails; c->problem says why, and it need
 * not be stopped. */
bool competitor_start(struct competitor *c, struct bootstrap *bootstrap);
/* Sends a command to all ranks and merges their answers: the longest time, the sum of CPU time and of wrong
 * elements. Returns false if it failed or did not answer in time. Then it has been stopped, and c->problem says why.
 * BENCH_CANNOT is no failure. */
bool competitor_command(struct competitor *c, const struct bench_command *command, double deadline_seconds,
	struct bench_reply *merged);
void competitor_stop(struct competitor *c);

#endif
