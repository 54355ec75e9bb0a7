/* Which cores there are for the ranks of this host, and which of them each rank is bound to. */
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

/* Reads the machine. False: said why. deinit() takes a zeroed placement too. */
bool placement_init(struct placement *placement);
void placement_deinit(struct placement *placement);

/* Settles how local_size ranks are bound. False (said why): the policy cannot be followed. */
bool placement_choose(struct placement *placement, enum bind_policy policy, uint32_t local_size);

/* Binds the calling process, which is to become this local rank. False: the system refused; errno says why. */
bool placement_bind(const struct placement *placement, uint32_t local_rank);

/* OMP_NUM_THREADS for one of local_size ranks: its share of the usable cores. */
uint32_t placement_threads(const struct placement *placement, uint32_t local_size);

#endif
