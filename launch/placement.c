/* Places ranks on cores. Neighbouring ranks get neighbouring cores in hwloc's logical order. Ring neighbours then
 * share caches and a NUMA node, however the operating system numbers the cores. If ranks outnumber cores, neighbours
 * share a core: a rank then yields its core to the rank it waits for, and keeps its cache. */
#include "placement.h"

#include <errno.h>
#include <string.h>

#include "busy.h"
#include "quota.h"
#include "say.h"

/* Returns the next core that has an allowed PU; NULL after the last. On a machine whose cores hwloc cannot see, a PU
 * counts as a core. */
static hwloc_obj_t next_core(const struct placement *placement, hwloc_obj_t previous)
{
	const hwloc_obj_type_t type =
		hwloc_get_nbobjs_by_type(placement->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
	hwloc_obj_t core = previous;
	do {
		core = hwloc_get_next_obj_by_type(placement->topology, type, core);
	} while (core != NULL && !hwloc_bitmap_intersects(core->cpuset, placement->allowed));
	return core;
}

bool placement_init(struct placement *placement)
{
	memset(placement, 0, sizeof(*placement));
	placement->allowed = hwloc_bitmap_alloc();
	if (placement->allowed == NULL || hwloc_topology_init(&placement->topology) != 0) {
		placement->topology = NULL;
		say("hwloc cannot start: %s", strerror(errno));
		return false;
	}
	if (hwloc_topology_load(placement->topology) != 0) {
		say("hwloc cannot read this machine: %s", strerror(errno));
		return false;
	}
	/* If the affinity cannot be read, all cores that hwloc shows are used. */
	if (hwloc_get_cpubind(placement->topology, placement->allowed, HWLOC_CPUBIND_PROCESS) != 0)
		hwloc_bitmap_copy(placement->allowed, hwloc_topology_get_allowed_cpuset(placement->topology));
	for (hwloc_obj_t core = next_core(placement, NULL); core != NULL; core = next_core(placement, core))
		placement->core_count++;
	placement->usable_count = placement->core_count > 0 ? placement->core_count : 1;
	const double quota = quota_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
	if (quota > 0 && quota < placement->usable_count)
		placement->usable_count = quota < 1 ? 1 : (uint32_t)quota;
	return true;
}

void placement_deinit(struct placement *placement)
{
	hwloc_bitmap_free(placement->allowed);
	if (placement->topology != NULL)
		hwloc_topology_destroy(placement->topology);
	memset(placement, 0, sizeof(*placement));
}

/* Returns false under a quota: other containers share the cores, and would be bound to the same first ones. */
static bool are_ours(const struct placement *placement)
{
	return placement->usable_count == placement->core_count;
}

/* Returns true if ranks may share cores evenly. With an uneven share (three ranks on two cores) or other load, bound
 * ranks would wait for each other. Unbound ranks move to idle cores. */
static bool may_share(const struct placement *placement, uint32_t local_size)
{
	return placement->core_count > 0 && local_size > placement->core_count &&
		local_size % placement->core_count == 0 && are_ours(placement) && !busy_others("/proc/loadavg");
}

bool placement_choose(struct placement *placement, enum bind_policy policy, uint32_t local_size)
{
	placement->cores_per_rank = placement->sharing_ranks = 0;
	if (policy == BIND_NONE)
		return true;
	const bool enough = placement->core_count >= local_size;
	if (policy == BIND_CORE) {
		if (!enough) {
			say("--bind core: %u ranks need as many cores, and this process may use %u; start fewer ranks, "
				"or use --bind none",
				local_size, placement->core_count);
			return false;
		}
		placement->cores_per_rank = 1;
		return true;
	}
	if (policy == BIND_SHARE ? !enough : may_share(placement, local_size)) {
		placement->cores_per_rank = 1;
		placement->sharing_ranks = local_size;
	} else if (policy == BIND_SHARE) {
		placement->cores_per_rank = 1;
	} else if (enough && are_ours(placement)) {
		placement->cores_per_rank = placement->core_count / local_size;
	}
	return true;
}

bool placement_bind(const struct placement *placement, uint32_t local_rank)
{
	if (placement->cores_per_rank == 0)
		return true;
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	if (set == NULL) {
		errno = ENOMEM;
		return false;
	}
	const uint32_t first = placement->sharing_ranks > 0 ?
		(uint32_t)((uint64_t)local_rank * placement->core_count / placement->sharing_ranks) :
		local_rank * placement->cores_per_rank;
	uint32_t index = 0;
	for (hwloc_obj_t core = next_core(placement, NULL); core != NULL; core = next_core(placement, core), index++) {
		if (index >= first && index - first < placement->cores_per_rank)
			hwloc_bitmap_or(set, set, core->cpuset);
	}
	hwloc_bitmap_and(set, set, placement->allowed);
	const bool bound = hwloc_set_cpubind(placement->topology, set, HWLOC_CPUBIND_PROCESS) == 0;
	const int error = errno;
	hwloc_bitmap_free(set);
	errno = error;
	return bound;
}

uint32_t placement_threads(const struct placement *placement, uint32_t local_size)
{
	if (placement->cores_per_rank > 0)
		return placement->cores_per_rank;
	return placement->usable_count > local_size ? placement->usable_count / local_size : 1;
}
