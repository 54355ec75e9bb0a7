/* Measures between cores that exist, and refuses those that do not. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "skip.h"

/* Returns how many of the first two hardware threads of this process there are. */
static uint32_t two_cpus(uint32_t cpus[2])
{
	cpu_set_t mine;
	uint32_t found = 0;
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	for (uint32_t cpu = 0; found < 2 && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &mine))
			cpus[found++] = cpu;
	return found;
}

static void a_bound_thread_measures_to_another_core(void **state)
{
	uint32_t cpus[2];
	cpu_set_t before, one, after;
	if (two_cpus(cpus) < 2)
		skip_because("this process may use one core only");
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(cpus[0], &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	const double ns = collet_core_latency_ns(cpus[0], cpus[1]);
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	assert_true(CPU_EQUAL(&one, &after));
	/* 0: the other core was too busy. */
	assert_true(ns == 0 || (ns > 0.1 && ns < 1e8));
}

static void there_is_nothing_to_measure(void **state)
{
	uint32_t cpus[2];
	assert_true(two_cpus(cpus) > 0);
	const struct {
		uint32_t cpu, other;
	} rows[] = {
		{ cpus[0], cpus[0] }, { cpus[0], CPU_SETSIZE - 1 }, { CPU_SETSIZE - 1, cpus[0] },
		{ cpus[0], UINT32_MAX }, { UINT32_MAX, cpus[0] }, { CPU_SETSIZE - 1, UINT32_MAX },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_true(collet_core_latency_ns(rows[i].cpu, rows[i].other) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bound_thread_measures_to_another_core),
		cmocka_unit_test(there_is_nothing_to_measure),
	};
	return cmocka_run_group_tests_name("core_latency", tests, NULL, NULL);
}
