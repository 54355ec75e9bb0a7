/* Sets the environment variables of each rank. */
#ifndef COLLET_LAUNCH_ENVIRONMENT_H
#define COLLET_LAUNCH_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

/* Holds the bootstrap settings that all ranks of a run share. */
struct bootstrap {
	char job[JOB_BYTES];
	char store[STORE_BYTES];
	char host[HOST_BYTES]; /* MASTER_ADDR */
	uint16_t port;         /* MASTER_PORT */
	int port_holder;       /* the socket that keeps port ours on a single host; -1: none */
};

/* Chooses the address where the ranks meet. Returns false after printing the reason. bootstrap_deinit() releases the
 * port. */
bool bootstrap_init(struct bootstrap *bootstrap, const struct options *options);
void bootstrap_deinit(struct bootstrap *bootstrap);

/* Sets the variables of rank local_rank of options->local_size in the calling process. The child that becomes the
 * rank calls it. restart counts earlier starts of the job. columns is the terminal's width minus the prefix, 0
 * without a terminal. Returns false if memory is exhausted. */
bool environment_set(const struct options *options, const struct bootstrap *bootstrap, uint32_t local_rank,
	uint32_t restart, uint32_t threads, uint32_t columns);

#endif
