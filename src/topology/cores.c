#include "topology/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/host_topology.h"

static uint32_t cores_by_affinity(void)
{
	cpu_set_t *set = CPU_ALLOC(COLLET_MAX_CPUS);
	const size_t bytes = CPU_ALLOC_SIZE(COLLET_MAX_CPUS);
	uint32_t count = 1;
	if (!set)
		return count;
	if (sched_getaffinity(0, bytes, set) == 0)
		count = (uint32_t)CPU_COUNT_S(bytes, set);
	CPU_FREE(set);
	return count ? count : 1;
}

/* Reads the quota of one group, and returns false if it has none. Version 2 has a line such as "max 100000" or
 * "50000 100000"; version 1 has quota (-1: none) and period in two files. */
static bool read_quota(const char *folder, double *cores)
{
	char path[768], first[32];
	long long quota = -1, period = 0;
	snprintf(path, sizeof(path), "%s/cpu.max", folder);
	FILE *file = fopen(path, "re");
	if (file) {
		int got = fscanf(file, "%31s %lld", first, &period);
		fclose(file);
		if (got == 2 && strcmp(first, "max") != 0)
			quota = atoll(first);
	} else {
		snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
		if (!(file = fopen(path, "re")))
			return false;
		int got = fscanf(file, "%lld", &quota);
		fclose(file);
		snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
		if (got != 1 || !(file = fopen(path, "re")))
			return false;
		got = fscanf(file, "%lld", &period);
		fclose(file);
		if (got != 1)
			return false;
	}
	if (quota <= 0 || period <= 0)
		return false;
	*cores = (double)quota / (double)period;
	return true;
}

/* Lowers *cores to the tightest quota of a group and all groups above it. */
static void apply_quotas(const char *mount, const char *group, double *cores)
{
	char folder[640];
	int used = snprintf(folder, sizeof(folder), "%s%s", mount, group);
	if (used < 0 || (size_t)used >= sizeof(folder))
		return;
	size_t mount_bytes = strlen(mount);
	for (;;) {
		double quota;
		if (read_quota(folder, &quota) && quota < *cores)
			*cores = quota;
		char *slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < mount_bytes)
			return;
		*slash = 0;
	}
}

/* Returns max_cores, lowered to what the cgroups' quotas allow, rounded up. */
static uint32_t limit_by_quota(uint32_t max_cores, const char *root, const char *groups)
{
	double cores = max_cores;
	char line[512], mount[256];
	FILE *file = fopen(groups, "re");
	while (file && fgets(line, sizeof(line), file)) {  /* "0::/group" (v2), "4:cpu,cpuacct:/group" (v1) */
		line[strcspn(line, "\n")] = 0;
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		controllers++;
		if (*controllers && !strstr(controllers, "cpu"))
			continue;
		snprintf(mount, sizeof(mount), "%s%s%s", root, *controllers ? "/" : "", controllers);
		apply_quotas(mount, strcmp(group, "/") == 0 ? "" : group, &cores);
		if (*controllers) {  /* v1 is often mounted as plain "cpu" */
			snprintf(mount, sizeof(mount), "%s/cpu", root);
			apply_quotas(mount, strcmp(group, "/") == 0 ? "" : group, &cores);
		}
	}
	if (file)
		fclose(file);
	/* In a container the group's own path is often not visible. Its quota is then at the root of the mount. */
	apply_quotas(root, "", &cores);
	uint32_t whole = (uint32_t)cores;
	return whole + (cores > whole);
}

uint32_t collet_usable_cores_at(const char *root, const char *groups)
{
	return limit_by_quota(cores_by_affinity(), root, groups);
}

uint32_t collet_usable_cores(void)
{
	return collet_usable_cores_at("/sys/fs/cgroup", "/proc/self/cgroup");
}

uint32_t collet_quota_cores(void)
{
	return limit_by_quota(COLLET_MAX_CPUS, "/sys/fs/cgroup", "/proc/self/cgroup");
}
