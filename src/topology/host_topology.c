#include "topology/host_topology.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* Loads only the kinds of objects that are used here. Others would cost time and memory. */
static bool load(hwloc_topology_t topology, const char *synthetic)
{
	static const hwloc_obj_type_t kinds[] = {
		HWLOC_OBJ_PACKAGE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_CORE};
	if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) != 0)
		return false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (hwloc_topology_set_type_filter(topology, kinds[i], HWLOC_TYPE_FILTER_KEEP_ALL) != 0)
			return false;
	/* hwloc attaches a NUMA node that is part of a cache to a group object of its cores. */
	if (hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) != 0)
		return false;
	if (hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0)
		return false;
	if (synthetic && hwloc_topology_set_synthetic(topology, synthetic) != 0)
		return false;
	return hwloc_topology_load(topology) == 0;
}

static uint16_t level_index(unsigned index)
{
	return index < COLLET_LOCALITY_ANY ? (uint16_t)index : COLLET_LOCALITY_ANY;
}

static uint16_t ancestor(hwloc_topology_t topology, hwloc_obj_t pu, hwloc_obj_type_t kind)
{
	const hwloc_obj_t found = hwloc_get_ancestor_obj_by_type(topology, kind, pu);
	return found ? level_index(found->logical_index) : COLLET_LOCALITY_ANY;
}

static struct collet_locality locality_of_pu(hwloc_topology_t topology, hwloc_obj_t pu)
{
	struct collet_locality locality = collet_locality_any();
	locality.ids[COLLET_LEVEL_PACKAGE] = ancestor(topology, pu, HWLOC_OBJ_PACKAGE);
	/* Some threads have several nodes (fast and large memory): take the first. */
	const int node = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : -1;
	if (node >= 0)
		locality.ids[COLLET_LEVEL_OUTER] = level_index((unsigned)node);
	locality.ids[COLLET_LEVEL_INNER] = ancestor(topology, pu, HWLOC_OBJ_L3CACHE);
	if (locality.ids[COLLET_LEVEL_INNER] == COLLET_LOCALITY_ANY)
		locality.ids[COLLET_LEVEL_INNER] = ancestor(topology, pu, HWLOC_OBJ_L2CACHE);
	locality.ids[COLLET_LEVEL_CORE] = ancestor(topology, pu, HWLOC_OBJ_CORE);
	/* Where hwloc sees no cores, each hardware thread counts as one. */
	if (locality.ids[COLLET_LEVEL_CORE] == COLLET_LOCALITY_ANY)
		locality.ids[COLLET_LEVEL_CORE] = level_index(pu->logical_index);
	return locality;
}

/* Puts the wider of NUMA node and cache at the outer level. Before the call the node is the outer one. The two are
 * swapped if some cache belongs to several nodes. */
static void put_wider_level_first(struct collet_host_topology *host_topology)
{
	uint16_t node_of[COLLET_MAX_CPUS];
	bool swap = false;
	memset(node_of, 0xff, sizeof(node_of));
	for (uint32_t i = 0; i < host_topology->cpu_count; i++) {
		const uint16_t *at = host_topology->cpus[i].ids;
		const uint16_t node = at[COLLET_LEVEL_OUTER], cache = at[COLLET_LEVEL_INNER];
		if (cache >= COLLET_MAX_CPUS || node == COLLET_LOCALITY_ANY)
			continue;
		swap |= node_of[cache] != COLLET_LOCALITY_ANY && node_of[cache] != node;
		node_of[cache] = node;
	}
	for (uint32_t i = 0; swap && i < host_topology->cpu_count; i++) {
		uint16_t *at = host_topology->cpus[i].ids;
		const uint16_t node = at[COLLET_LEVEL_OUTER];
		at[COLLET_LEVEL_OUTER] = at[COLLET_LEVEL_INNER];
		at[COLLET_LEVEL_INNER] = node;
	}
}

static collet_status read_cpus(struct collet_host_topology *host_topology, hwloc_topology_t topology)
{
	const int last = hwloc_bitmap_last(hwloc_topology_get_topology_cpuset(topology));
	if (last < 0 || last >= COLLET_MAX_CPUS)
		return collet_fail(COLLET_ERR_SYSTEM,
			"hwloc sees no hardware threads, or one numbered %d of at most %d", last, COLLET_MAX_CPUS);
	host_topology->cpus = malloc(((size_t)last + 1) * sizeof(*host_topology->cpus));
	if (!host_topology->cpus)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the topology of this host");
	host_topology->cpu_count = (uint32_t)last + 1;
	for (uint32_t i = 0; i < host_topology->cpu_count; i++)
		host_topology->cpus[i] = collet_locality_any();
	for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu));)
		host_topology->cpus[pu->os_index] = locality_of_pu(topology, pu);
	put_wider_level_first(host_topology);
	return COLLET_OK;
}

collet_status collet_host_topology_read(struct collet_host_topology *host_topology, const char *synthetic)
{
	hwloc_topology_t topology;
	*host_topology = (struct collet_host_topology){ 0 };
	if (hwloc_topology_init(&topology) != 0)
		return collet_fail(COLLET_ERR_SYSTEM, "hwloc cannot start: %s", strerror(errno));
	const collet_status status = load(topology, synthetic) ? read_cpus(host_topology, topology) :
		collet_fail(COLLET_ERR_SYSTEM, "hwloc cannot read this machine: %s", strerror(errno));
	hwloc_topology_destroy(topology);
	return status;
}

void collet_host_topology_deinit(struct collet_host_topology *host_topology)
{
	free(host_topology->cpus);
	*host_topology = (struct collet_host_topology){ 0 };
}

static bool is_known(const struct collet_locality *cpu)
{
	return cpu->ids[COLLET_LEVEL_CORE] != COLLET_LOCALITY_ANY;
}

struct collet_locality collet_host_topology_locality(
	const struct collet_host_topology *host_topology, const uint8_t *mask, uint32_t bytes)
{
	struct collet_locality common = collet_locality_any();
	bool any = false;
	for (uint32_t i = 0; i < host_topology->cpu_count && i / 8 < bytes; i++) {
		const struct collet_locality *cpu = &host_topology->cpus[i];
		if (!(mask[i / 8] >> (i % 8) & 1) || !is_known(cpu))
			continue;
		if (!any)
			common = *cpu;
		any = true;
		for (int level = 0; level < COLLET_LEVEL_COUNT; level++)
			if (common.ids[level] != cpu->ids[level])
				common.ids[level] = COLLET_LOCALITY_ANY;
	}
	return common;
}

uint32_t collet_binding_read(uint8_t mask[COLLET_BINDING_BYTES])
{
	cpu_set_t *set = CPU_ALLOC(COLLET_MAX_CPUS);
	uint32_t bytes = 0;
	memset(mask, 0, COLLET_BINDING_BYTES);
	if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(COLLET_MAX_CPUS), set) == 0) {
		for (uint32_t i = 0; i < COLLET_MAX_CPUS; i++) {
			if (!CPU_ISSET_S(i, CPU_ALLOC_SIZE(COLLET_MAX_CPUS), set))
				continue;
			mask[i / 8] |= (uint8_t)(1 << i % 8);
			bytes = i / 8 + 1;
		}
	}
	CPU_FREE(set);
	return bytes;
}
