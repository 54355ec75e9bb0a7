/* Tells how much memory this host can still give, so that a size that does not fit is refused. Otherwise the kernel
 * would kill a rank, or another process. */
#ifndef BENCH_HOST_MEMORY_H
#define BENCH_HOST_MEMORY_H

#include <stdint.h>

/* Returns the bytes that are available to this process: the kernel's estimate for the host (MemAvailable), or what its
 * memory cgroups leave if that is less. File pages that can be dropped count as available. Swap does not. Infinite if
 * nothing is known. */
double bench_memory_available(void);
/* Does the same, for tests: meminfo and groups are files as /proc/meminfo and /proc/self/cgroup, root is the mount
 * point of the cgroup file systems. */
double bench_memory_available_at(const char *meminfo, const char *root, const char *groups);

/* Prints how much ranks of one host need for messages of so many bytes, and how much there is. */
void bench_memory_complain(uint64_t message_bytes, uint32_t ranks, double needed, double available);

#endif
