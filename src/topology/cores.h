/* How many cores this process may really use: what spinning and the number of helpers depend on. */
#ifndef COLLET_TOPOLOGY_CORES_H
#define COLLET_TOPOLOGY_CORES_H

#include <stdint.h>

/* The affinity mask, and no more than the cgroups' CPU quotas (v2 cpu.max, v1 cpu.cfs_quota_us, of the process's group
 * and all above it) allow, rounded up; at least 1. */
uint32_t collet_usable_cores(void);

/* How many cores the cgroups' quotas allow all their processes together, rounded up; 8192: there is no quota. */
uint32_t collet_quota_cores(void);

/* The same as collet_usable_cores() where the cgroup file system is mounted at root and the process's groups are listed
 * in the file groups. */
uint32_t collet_usable_cores_at(const char *root, const char *groups);

#endif
