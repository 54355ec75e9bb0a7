/* Finds the cores for the ranks of this host, and binds each rank to its share. */
#ifndef COLLET_LAUNCH_PLACEMENT_H
#define COLLET_LAUNCH_PLACEMENT_H

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"

struct placement {
	hwloc_topology_t topology;
	hwloc_bitmap_t allowed;  /* the PUs this process may run on */
	uint32_t core_count;     /* cores with at least one of them */
	uint32_t usable_count;   /* no more than the CPU quota allows, at least 1 */
	uint32_t cores_per_rank; /* 0: ranks are not bound */
	uint32_t sharing_ranks;  /* of this host, if they share cores; 0: each has its own */
};

/* Reads the machine. Returns false after printing the reason. deinit() accepts a zeroed placement. */
bool placement_init(struct placement *placement);
void placement_deinit(struct placement *placement);

/* Chooses how local_size ranks are bound. Returns false, after printing why, if the policy cannot be followed. */
bool placement_choose(struct placement *placement, enum bind_policy policy, uint32_t local_size);

/* Binds the calling process, which becomes this local rank. Returns false with errno if the system refused. */
bool placement_bind(const struct placement *placement, uint32_t local_rank);

/* Returns OMP_NUM_THREADS for one of local_size ranks: its share of the usable cores. */
uint32_t placement_threads(const struct placement *placement, uint32_t local_size);

#endif
