/* Reads how much CPU time the cgroups of this process allow. */
#ifndef COLLET_LAUNCH_QUOTA_H
#define COLLET_LAUNCH_QUOTA_H

/* Returns the tightest CPU limit from this process's cgroup up to the root, in CPUs (1.5: one and a half). 0: there
 * is no limit, or none can be read. Handles both cgroup versions. membership is /proc/self/cgroup and mount is
 * /sys/fs/cgroup; tests pass others. */
double quota_cpus(const char *membership, const char *mount);

#endif
