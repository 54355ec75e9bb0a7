/* Binding by hwloc, which knows cores from hardware threads and respects the cgroup's cpuset. */
#include "pin.h"

#include <stdlib.h>

#include <hwloc.h>

/* The machine as this process may use it; NULL where hwloc cannot say. */
static hwloc_topology_t load(void)
{
	hwloc_topology_t topology;
	if (hwloc_topology_init(&topology) != 0)
		return NULL;
	if (hwloc_topology_load(topology) == 0)
		return topology;
	hwloc_topology_destroy(topology);
	return NULL;
}

/* Returns the cores that the process is bound to, limited to those it may use. The caller frees the set. */
static hwloc_bitmap_t bound(hwloc_topology_t topology)
{
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	if (set != NULL && hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) != 0)
		hwloc_bitmap_copy(set, hwloc_topology_get_allowed_cpuset(topology));
	return set;
}

/* The at-th core that meets the set; NULL past the last. *count, if wanted, is how many there are. */
static hwloc_obj_t core_at(hwloc_topology_t topology, hwloc_const_bitmap_t set, uint32_t at, uint32_t *count)
{
	hwloc_obj_t found = NULL, core = NULL;
	uint32_t seen = 0;
	const hwloc_obj_type_t type =
		hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
	while ((core = hwloc_get_next_obj_by_type(topology, type, core)) != NULL) {
		if (!hwloc_bitmap_intersects(core->cpuset, set))
			continue;
		if (seen++ == at)
			found = core;
	}
	if (count != NULL)
		*count = seen;
	return found;
}

uint32_t bench_core_count(void)
{
	uint32_t count = 0;
	hwloc_topology_t topology = load();
	if (topology == NULL)
		return 1;
	hwloc_bitmap_t set = bound(topology);
	if (set != NULL)
		core_at(topology, set, 0, &count);
	hwloc_bitmap_free(set);
	hwloc_topology_destroy(topology);
	return count > 0 ? count : 1;
}

uint32_t bench_first_cpus(uint32_t *cpus, uint32_t most)
{
	uint32_t found = 0;
	hwloc_topology_t topology = load();
	hwloc_bitmap_t set = topology != NULL ? bound(topology) : NULL;
	for (hwloc_obj_t core; found < most && set != NULL && (core = core_at(topology, set, found, NULL)) != NULL;
		found++) {
		hwloc_bitmap_t usable = hwloc_bitmap_alloc();
		const bool is_known = usable != NULL && hwloc_bitmap_and(usable, core->cpuset, set) == 0;
		const int cpu = is_known ? hwloc_bitmap_first(usable) : -1;
		hwloc_bitmap_free(usable);
		if (cpu < 0)
			break;
		cpus[found] = (uint32_t)cpu;
	}
	hwloc_bitmap_free(set);
	if (topology != NULL)
		hwloc_topology_destroy(topology);
	return found;
}

bool bench_pin(uint32_t local_rank, uint32_t local_size, bool share)
{
	bool done = false;
	uint32_t count = 0;
	hwloc_topology_t topology = getenv(BENCH_NO_PIN_VARIABLE) == NULL ? load() : NULL;
	if (topology == NULL)
		return false;
	hwloc_bitmap_t set = bound(topology);
	if (set != NULL) {
		hwloc_obj_t core = core_at(topology, set, local_rank, &count);
		if (count < local_size)
			core = share
				? core_at(topology, set, (uint32_t)((uint64_t)local_rank * count / local_size), NULL)
				: NULL;
		if (core != NULL)
			done = hwloc_set_cpubind(topology, core->cpuset, HWLOC_CPUBIND_PROCESS) == 0;
	}
	hwloc_bitmap_free(set);
	hwloc_topology_destroy(topology);
	return done;
}

bool bench_is_pinned(void)
{
	return bench_core_count() == 1;
}
