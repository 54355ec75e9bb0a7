/* How much CPU time the cgroups of this process allow. */
#ifndef COLLET_LAUNCH_QUOTA_H
#define COLLET_LAUNCH_QUOTA_H

/* CPUs' worth of time that the tightest limit on the way from this process's cgroup to the root allows (1.5: one and a
 * half); 0: no limit, or none that can be read. Both cgroup versions. membership is /proc/self/cgroup and mount
 * /sys/fs/cgroup, but for tests. */
double quota_cpus(const char *membership, const char *mount);

#endif
