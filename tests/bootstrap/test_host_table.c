/* Tests the host table of rank 0: which rank is asked for the topology, which answers are accepted, and which
 * localities result. Also tests that real ranks learn where all others run. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/meet/host_table.h"
#include "cpus.h"
#include "skip.h"
#include "world.h"

enum { ANY = COLLET_LOCALITY_ANY };

static bool arrive(struct collet_host_table *hosts, uint32_t rank, uint64_t host, uint32_t threads)
{
	const uint8_t mask[2] = { (uint8_t)threads, (uint8_t)(threads >> 8) };
	bool ask;
	assert_int_equal(collet_host_table_add_rank(hosts, rank, host, mask,
				 threads >> 8 ? 2
				 : threads    ? 1
					      : 0,
				 &ask),
		COLLET_OK);
	assert_int_equal(collet_host_table_is_asked(hosts, rank), ask);
	return ask;
}

/* Four cores of two caches. */
static const struct collet_locality machine[4] = {{{0, 0, 0, 0}}, {{0, 0, 0, 1}}, {{0, 0, 1, 2}}, {{0, 0, 1, 3}}};

static void the_second_of_a_host_is_asked(void **state)
{
	struct collet_host_table hosts;
	assert_int_equal(collet_host_table_init(&hosts, 5), COLLET_OK);
	assert_false(arrive(&hosts, 0, 7, 1));
	assert_false(arrive(&hosts, 1, 8, 1));
	assert_true(arrive(&hosts, 2, 7, 2));
	assert_false(arrive(&hosts, 3, 7, 4));
	assert_int_equal(hosts.unanswered_count, 1);
	assert_false(collet_host_table_set_topology(&hosts, 3, machine, sizeof(machine))); /* it was not asked */
	assert_true(collet_host_table_set_topology(&hosts, 2, machine, sizeof(machine)));
	assert_int_equal(hosts.unanswered_count, 0);
	assert_false(collet_host_table_set_topology(&hosts, 2, machine, sizeof(machine))); /* once is enough */
	assert_true(arrive(&hosts, 4, 8, 8));
	collet_host_table_deinit(&hosts);
	collet_host_table_deinit(&hosts);
}

static void who_leaves_unanswered_is_replaced(void **state)
{
	struct collet_host_table hosts;
	assert_int_equal(collet_host_table_init(&hosts, 3), COLLET_OK);
	assert_false(arrive(&hosts, 0, 7, 1));
	assert_true(arrive(&hosts, 1, 7, 2));
	collet_host_table_remove_rank(&hosts, 1);
	collet_host_table_remove_rank(&hosts, 1);
	assert_int_equal(hosts.unanswered_count, 0);
	assert_true(arrive(&hosts, 2, 7, 4));
	assert_false(arrive(&hosts, 1, 7, 2));
	assert_true(collet_host_table_set_topology(&hosts, 2, machine, sizeof(machine)));
	/* The rank reconnects from another host each time, and back. */
	for (uint64_t host = 20; host < 40; host++) {
		collet_host_table_remove_rank(&hosts, 2);
		assert_int_equal(arrive(&hosts, 2, host % 2 ? 7 : host, 4), false);
	}
	collet_host_table_deinit(&hosts);
}

static void localities_of_all(void **state)
{
	struct collet_host_table hosts;
	struct collet_peer_info infos[5] = { 0 };
	assert_int_equal(collet_host_table_init(&hosts, 5), COLLET_OK);
	arrive(&hosts, 0, 7, 1 << 3);
	arrive(&hosts, 1, 7, 1 << 0);
	arrive(&hosts, 2, 7, 3 << 2);
	arrive(&hosts, 3, 9, 3);         /* alone on its host, so its topology is not read */
	arrive(&hosts, 4, 7, 0);         /* its binding is not known */
	assert_true(collet_host_table_set_topology(&hosts, 1, machine, sizeof(machine)));
	collet_host_table_fill_infos(&hosts, infos);
	const struct collet_locality wanted[5] = { { { 0, 0, 1, 3 } }, { { 0, 0, 0, 0 } }, { { 0, 0, 1, ANY } },
		{ { ANY, ANY, ANY, ANY } }, { { ANY, ANY, ANY, ANY } } };
	for (uint32_t r = 0; r < 5; r++)
		assert_memory_equal(&infos[r].locality, &wanted[r], sizeof(wanted[r]));
	assert_int_equal(infos[0].host_cores, 3);
	assert_int_equal(infos[3].host_cores, 2);
	collet_host_table_deinit(&hosts);
}

/* Tests the cores that the ranks of a host have together: bound, not bound, and with a quota (8192: none). */
static void cores_of_a_host(void **state)
{
	static const struct {
		const char *name;
		uint32_t bound[3];
		uint16_t quota[3];
		uint32_t cores;
	} rows[] = {
		{ "bound to one each", { 1, 2, 4 }, { 8192, 8192, 8192 }, 3 },
		{ "all to the same", { 1, 1, 1 }, { 8192, 8192, 8192 }, 1 },
		{ "overlapping", { 3, 6, 12 }, { 8192, 8192, 8192 }, 4 },
		{ "not bound", { 0xff, 0xff, 0xff }, { 8192, 8192, 8192 }, 8 },
		{ "a quota alone", { 0xff, 0xff, 0xff }, { 2, 2, 2 }, 2 },
		{ "bound, but a quota", { 1, 2, 4 }, { 2, 2, 2 }, 2 },
		{ "the tightest quota", { 0xff, 0xff, 0xff }, { 5, 8192, 3 }, 3 },
		{ "some bound, some not", { 0xfff, 1, 2 }, { 8192, 8192, 8192 }, 12 },
		{ "nobody can tell", { 0, 0, 0 }, { 8192, 8192, 8192 }, 4 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct collet_host_table hosts;
		struct collet_peer_info infos[3] = { 0 };
		assert_int_equal(collet_host_table_init(&hosts, 3), COLLET_OK);
		for (uint32_t r = 0; r < 3; r++) {
			arrive(&hosts, r, 5, rows[i].bound[r]);
			infos[r].usable_cores = 4;
			infos[r].quota_cores = rows[i].quota[r];
		}
		assert_true(collet_host_table_set_topology(&hosts, 1, NULL, 0));
		collet_host_table_fill_infos(&hosts, infos);
		if (infos[0].host_cores != rows[i].cores || infos[2].host_cores != rows[i].cores)
			fail_msg("%s: %u cores", rows[i].name, infos[0].host_cores);
		collet_host_table_deinit(&hosts);
	}
}

static void nonsense_is_not_believed(void **state)
{
	struct collet_host_table hosts;
	static const struct collet_locality endless[COLLET_MAX_CPUS + 1];
	assert_int_equal(collet_host_table_init(&hosts, 2), COLLET_OK);
	arrive(&hosts, 0, 7, 1);
	assert_true(arrive(&hosts, 1, 7, 2));
	assert_false(collet_host_table_set_topology(&hosts, 1, machine, sizeof(machine) - 1));
	assert_false(collet_host_table_set_topology(&hosts, 1, endless, sizeof(endless)));
	assert_int_equal(hosts.unanswered_count, 1);
	/* Numbers only mean same or different: all are valid. */
	const struct collet_locality odd[2] = { { { 65534, 3, ANY, 9 } }, { { 1, ANY, 7, 65534 } } };
	assert_true(collet_host_table_set_topology(&hosts, 1, odd, sizeof(odd)));
	struct collet_peer_info infos[2] = { 0 };
	collet_host_table_fill_infos(&hosts, infos);
	assert_memory_equal(&infos[1].locality, &odd[1], sizeof(odd[1]));
	collet_host_table_deinit(&hosts);
}

/* ---- Real ranks ---- */

struct bound_rank {
	struct test_rank rank;
	int cpu;
	pthread_t thread;
};

static void *bind_and_meet(void *context)
{
	struct bound_rank *bound = context;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)bound->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		return NULL;
	test_rank_start(&bound->rank);   /* its thread inherits the binding */
	test_rank_join(&bound->rank);
	return NULL;
}

/* Binds ranks to two cores in turn. HWLOC_SYNTHETIC describes a machine with one package per hardware thread. */
static void ranks_know_where_the_others_run(void **state)
{
	enum { SIZE = 5 };
	int cpus[2];
	if (!test_two_cpus(cpus))
		skip_because("this process may use one core only");
	struct bound_rank ranks[SIZE] = { 0 };
	char name[32], store[64], described[64];
	snprintf(described, sizeof(described), "pack:%d core:1 pu:1", cpus[1] + 1);
	setenv("HWLOC_SYNTHETIC", described, 1);
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < SIZE; r++) {
		test_rank_set(&ranks[r].rank, r, SIZE, store, NULL, 20000);
		ranks[r].cpu = cpus[r % 2];
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, bind_and_meet, &ranks[r]), 0);
	}
	for (uint32_t r = 0; r < SIZE; r++)
		pthread_join(ranks[r].thread, NULL);
	unsetenv("HWLOC_SYNTHETIC");
	for (uint32_t r = 0; r < SIZE; r++) {
		if (ranks[r].rank.status)
			fail_msg("rank %u: %s", r, ranks[r].rank.sentence);
		const struct collet_peer_info *infos = ranks[r].rank.bootstrap.peer_infos;
		for (uint32_t i = 0; i < SIZE; i++) {
			assert_int_equal(infos[i].locality.ids[COLLET_LEVEL_PACKAGE], cpus[i % 2]);
			assert_int_equal(infos[i].locality.ids[COLLET_LEVEL_CORE], cpus[i % 2]);
			assert_int_equal(infos[i].usable_cores, 1);
			assert_int_equal(infos[i].host_cores, 2);
		}
		assert_memory_equal(&ranks[r].rank.peer_info, &infos[r], sizeof(infos[r]));
	}
	for (uint32_t r = 0; r < SIZE; r++)
		test_world_deinit(&ranks[r].rank, 1);
}

/* hwloc cannot read the host: the bootstrap succeeds without a topology. */
static void a_host_that_cannot_be_read(void **state)
{
	struct test_rank ranks[3] = { 0 };
	char name[32], store[64];
	setenv("HWLOC_COMPONENTS", "stop", 1);
	test_unique_name(name);
	snprintf(store, sizeof(store), "unix:%s", name);
	for (uint32_t r = 0; r < 3; r++)
		test_rank_set(&ranks[r], r, 3, store, NULL, 20000);
	test_world_meet(ranks, 3);
	unsetenv("HWLOC_COMPONENTS");
	for (uint32_t r = 0; r < 3; r++)
		if (ranks[r].status)
			fail_msg("rank %u: %s", r, ranks[r].sentence);
	test_world_deinit(ranks, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_second_of_a_host_is_asked),
		cmocka_unit_test(who_leaves_unanswered_is_replaced),
		cmocka_unit_test(localities_of_all),
		cmocka_unit_test(cores_of_a_host),
		cmocka_unit_test(nonsense_is_not_believed),
		cmocka_unit_test(ranks_know_where_the_others_run),
		cmocka_unit_test(a_host_that_cannot_be_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
