/* What collet-run tells each rank through its environment. */
#ifndef COLLET_LAUNCH_ENVIRONMENT_H
#define COLLET_LAUNCH_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

/* What all ranks of one run share. */
struct bootstrap {
	char job[JOB_BYTES];
	char store[STORE_BYTES];
	char host[HOST_BYTES]; /* MASTER_ADDR */
	uint16_t port;         /* MASTER_PORT */
	int port_holder;       /* the socket that keeps port ours on a single host; -1: none */
};

/* Decides where the ranks meet. False: said why. deinit() gives the port back. */
bool bootstrap_init(struct bootstrap *bootstrap, const struct options *options);
void bootstrap_deinit(struct bootstrap *bootstrap);

/* Sets, in the calling process's own environment, what rank local_rank of options->local_size is told. It is called in
 * the child that is about to become the rank. restart: how often the job has been started before. columns: the
 * terminal's width less the prefix, 0 if there is none. False: out of memory. */
bool environment_set(const struct options *options, const struct bootstrap *bootstrap, uint32_t local_rank,
	uint32_t restart, uint32_t threads, uint32_t columns);

#endif
