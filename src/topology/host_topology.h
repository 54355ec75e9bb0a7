/* Reads the topology of a host: the package, NUMA node, last-level cache and core of each hardware thread. hwloc needs
 * milliseconds and megabytes for this. So only one rank of a host reads it, and sends this compact form to rank 0. */
#ifndef COLLET_TOPOLOGY_HOST_TOPOLOGY_H
#define COLLET_TOPOLOGY_HOST_TOPOLOGY_H

#include <collet/collet.h>

#include "topology/locality.h"

enum {
	COLLET_MAX_CPUS = 8192,                         /* the kernel's limit */
	COLLET_BINDING_BYTES = COLLET_MAX_CPUS / 8      /* a mask with one bit per hardware thread */
};

/* Localities by the kernel's number of a hardware thread. A number without a thread is ANY at all levels. The array is
 * sent without conversion. */
struct collet_host_topology {
	uint32_t cpu_count;
	struct collet_locality *cpus;
};

/* Reads this machine by hwloc. For tests, synthetic describes another one ("pack:2 numa:2 core:4 pu:1"); else it is
 * NULL. Hardware threads that a cgroup hides from this process are included, because other ranks of the host may have
 * other cgroups. Fails with COLLET_ERR_SYSTEM or COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_host_topology_read(
	struct collet_host_topology *host_topology, const char *synthetic);
/* Frees the array. Accepts a zeroed machine, and may be called twice. */
void collet_host_topology_deinit(struct collet_host_topology *host_topology);

/* Returns the locality that all hardware threads of a mask share, with ANY at each level where they differ. Thread i is
 * bit i % 8 of byte i / 8. Threads that the machine does not have are ignored. An empty mask gives ANY everywhere. */
struct collet_locality collet_host_topology_locality(
	const struct collet_host_topology *host_topology, const uint8_t *mask, uint32_t bytes);

/* Reads the calling thread's affinity into such a mask. Returns its length in bytes without trailing zeros, or 0 if it
 * cannot be read. */
uint32_t collet_binding_read(uint8_t mask[COLLET_BINDING_BYTES]);

#endif
