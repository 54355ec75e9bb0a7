/* How a host is built: of each hardware thread, which package, NUMA node, last-level cache and core it is part of.
 * hwloc reads it, which costs milliseconds and megabytes, so one rank of a host does, and hands on this. */
#ifndef COLLET_TOPOLOGY_MACHINE_H
#define COLLET_TOPOLOGY_MACHINE_H

#include <collet/collet.h>

#include "topology/locality.h"

enum {
	COLLET_MAX_CPUS = 8192,                         /* the kernel's own limit */
	COLLET_BINDING_BYTES = COLLET_MAX_CPUS / 8      /* of a mask with a bit for each */
};

/* By the kernel's number of a hardware thread; one that there is not is ANY at all levels. It travels as it is. */
struct collet_machine {
	uint32_t cpu_count;
	struct collet_locality *cpus;
};

/* By hwloc: this machine; or, for tests, one made of a synthetic description ("pack:2 numa:2 core:4 pu:1"). What a
 * cgroup keeps from this process is read too: other ranks of the host may have other cgroups. COLLET_ERR_SYSTEM;
 * COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_machine_read(struct collet_machine *machine, const char *synthetic);
/* Accepts a zeroed one; safe to repeat. */
void collet_machine_deinit(struct collet_machine *machine);

/* What all hardware threads of a mask (bit i % 8 of byte i / 8 for number i) have in common; threads that the machine
 * does not know are left out, and no thread at all has nothing in common with anything. */
struct collet_locality collet_machine_locality(
	const struct collet_machine *machine, const uint8_t *mask, uint32_t bytes);

/* The calling thread's affinity as such a mask; returns its bytes, without zeros at the end. 0: it cannot be read. */
uint32_t collet_binding_read(uint8_t mask[COLLET_BINDING_BYTES]);

#endif
