/* Tests the topology of machines that are described to hwloc, and of this one, and the localities of bindings on
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topology/host_topology.h"

enum { ANY = COLLET_LOCALITY_ANY };

/* Hardware threads first .. last, as a list of ranges ended by first > last. */
struct range {
	uint32_t first, last;
};

static void bind_to(uint8_t mask[COLLET_BINDING_BYTES], const struct range *ranges)
{
	memset(mask, 0, COLLET_BINDING_BYTES);
	for (; ranges->first <= ranges->last; ranges++)
		for (uint32_t i = ranges->first; i <= ranges->last; i++)
			mask[i / 8] |= (uint8_t)(1 << i % 8);
}

static const struct {
	const char *name, *machine;
	struct range binding[3];
	struct collet_locality locality; /* package, outer, inner, core */
} rows[] = {
#define SOCKETS "pack:2 numa:2 l3:1 core:4 pu:1"
	{ "a core", SOCKETS, { { 0, 0 }, { 1, 0 } }, { { 0, 0, 0, 0 } } },
	{ "the last core", SOCKETS, { { 15, 15 }, { 1, 0 } }, { { 1, 3, 3, 15 } } },
	{ "two cores of a node", SOCKETS, { { 5, 6 }, { 1, 0 } }, { { 0, 1, 1, ANY } } },
	{ "a socket", SOCKETS, { { 8, 15 }, { 1, 0 } }, { { 1, ANY, ANY, ANY } } },
	{ "a core of each socket", SOCKETS, { { 1, 1 }, { 9, 9 }, { 1, 0 } }, { { ANY, ANY, ANY, ANY } } },
	{ "everything: not bound", SOCKETS, { { 0, 15 }, { 1, 0 } }, { { ANY, ANY, ANY, ANY } } },
	{ "a cpuset with more than there is", SOCKETS, { { 12, 400 }, { 1, 0 } }, { { 1, 3, 3, ANY } } },
	{ "nothing that there is", SOCKETS, { { 64, 70 }, { 1, 0 } }, { { ANY, ANY, ANY, ANY } } },
	{ "nothing at all", SOCKETS, { { 1, 0 } }, { { ANY, ANY, ANY, ANY } } },
#define THREADS "pack:1 numa:1 l3:2 core:2 pu:2"
	{ "one thread of a core", THREADS, { { 3, 3 }, { 1, 0 } }, { { 0, 0, 0, 1 } } },
	{ "both threads of a core", THREADS, { { 4, 5 }, { 1, 0 } }, { { 0, 0, 1, 2 } } },
	{ "a thread each of two cores", THREADS, { { 1, 2 }, { 1, 0 } }, { { 0, 0, 0, ANY } } },
	{ "one package: even all is in it", THREADS, { { 0, 7 }, { 1, 0 } }, { { 0, 0, ANY, ANY } } },
#define CACHES "pack:1 l3:2 numa:2 core:2 pu:1"
	{ "a cache of two nodes is outside", CACHES, { { 2, 3 }, { 1, 0 } }, { { 0, 0, 1, ANY } } },
	{ "one of both nodes of a cache", CACHES, { { 0, 3 }, { 1, 0 } }, { { 0, 0, ANY, ANY } } },
#define NO_L3 "pack:2 l2:2 core:2 pu:1"
	{ "without a third cache the second", NO_L3, { { 2, 3 }, { 1, 0 } }, { { 0, 0, 1, ANY } } },
#define BARE "pu:4"
	{ "threads are cores where these are not seen", BARE, { { 2, 2 }, { 1, 0 } }, { { ANY, 0, ANY, 2 } } },
};

static void localities(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_host_topology machine;
		uint8_t mask[COLLET_BINDING_BYTES];
		if (collet_host_topology_read(&machine, rows[i].machine) != COLLET_OK)
			fail_msg("%s: %s", rows[i].name, collet_last_error());
		bind_to(mask, rows[i].binding);
		const struct collet_locality locality = collet_host_topology_locality(&machine, mask, sizeof(mask));
		if (memcmp(&locality, &rows[i].locality, sizeof(locality)) != 0)
			fail_msg("%s: it is at %u %u %u %u", rows[i].name, locality.ids[0], locality.ids[1],
				locality.ids[2], locality.ids[3]);
		collet_host_topology_deinit(&machine);
		collet_host_topology_deinit(&machine);
	}
}

/* The kernel's numbers of threads need not follow the machine: here the two threads of a core are 4 apart. */
static void threads_by_the_kernels_numbers(void **state)
{
	struct collet_host_topology machine;
	uint8_t mask[COLLET_BINDING_BYTES];
	assert_int_equal(collet_host_topology_read(&machine, "pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)"), COLLET_OK);
	assert_int_equal(machine.cpu_count, 8);
	bind_to(mask, (const struct range[]){ { 1, 1 }, { 5, 5 }, { 1, 0 } });
	assert_int_equal(collet_host_topology_locality(&machine, mask, 1).ids[COLLET_LEVEL_CORE], 1);
	bind_to(mask, (const struct range[]){ { 1, 2 }, { 1, 0 } });
	assert_int_equal(collet_host_topology_locality(&machine, mask, 1).ids[COLLET_LEVEL_CORE], ANY);
	collet_host_topology_deinit(&machine);
}

/* On every machine, all threads that this process may use are known and have a locality. */
static void this_machine(void **state)
{
	struct collet_host_topology machine;
	uint8_t mask[COLLET_BINDING_BYTES];
	unsetenv("HWLOC_SYNTHETIC");
	if (collet_host_topology_read(&machine, NULL) != COLLET_OK)
		fail_msg("%s", collet_last_error());
	const uint32_t bytes = collet_binding_read(mask);
	assert_in_range(bytes, 1, COLLET_BINDING_BYTES);
	assert_int_not_equal(mask[bytes - 1], 0);
	for (uint32_t i = 0; i < 8 * bytes; i++) {
		if (!(mask[i / 8] >> i % 8 & 1))
			continue;
		uint8_t one[COLLET_BINDING_BYTES] = { 0 };
		one[i / 8] = (uint8_t)(1 << i % 8);
		assert_in_range(i, 0, machine.cpu_count - 1);
		assert_int_not_equal(collet_host_topology_locality(&machine, one, bytes).ids[COLLET_LEVEL_CORE], ANY);
	}
	collet_host_topology_deinit(&machine);
}

static void nonsense_is_refused(void **state)
{
	struct collet_host_topology machine;
	assert_int_equal(collet_host_topology_read(&machine, "pack:none"), COLLET_ERR_SYSTEM);
	assert_null(machine.cpus);
	assert_non_null(strstr(collet_last_error(), "hwloc"));
	assert_int_equal(collet_host_topology_read(&machine, "pu:2(indexes=0,8192)"), COLLET_ERR_SYSTEM);
	assert_non_null(strstr(collet_last_error(), "8192"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(localities),
		cmocka_unit_test(threads_by_the_kernels_numbers),
		cmocka_unit_test(this_machine),
		cmocka_unit_test(nonsense_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
