/* Counts the cores that this process may really use. Spin budgets and numbers of threads depend on it. */
#ifndef COLLET_TOPOLOGY_CORES_H
#define COLLET_TOPOLOGY_CORES_H

#include <stdint.h>

/* Returns the number of cores in the affinity mask, but no more than the cgroups' CPU quotas allow, rounded up. It is
 * at least 1. The quotas are v2 cpu.max or v1 cpu.cfs_quota_us, of the process's group and all groups above it. */
uint32_t collet_usable_cores(void);

/* Returns how many cores the cgroups' quotas allow to all their processes together, rounded up. Returns COLLET_MAX_CPUS
 * if there is no quota. */
uint32_t collet_quota_cores(void);

/* Does the same as collet_usable_cores(), for tests: root is the mount point of the cgroup file system, groups a file
 * that lists the process's groups. */
uint32_t collet_usable_cores_at(const char *root, const char *groups);

#endif
