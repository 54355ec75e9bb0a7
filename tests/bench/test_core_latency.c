/* How near two cores are: a time that can be, of this machine's cores, and nothing left behind. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "limits/core_latency.h"

static void a_flag_takes_a_time_that_can_be(void **state)
{
	cpu_set_t mine;
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	const double took_ns = bench_core_latency_ns();
	/* Less than a cycle of any core; or more than the time that it has. */
	assert_true(took_ns == 0 || (took_ns > 0.1 && took_ns < 1e8));
	if (CPU_COUNT(&mine) < 2)
		assert_true(took_ns == 0);
}

static void it_binds_nobody(void **state)
{
	cpu_set_t before, after;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	(void)bench_core_latency_ns();
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
}

static void with_one_core_there_is_nothing_to_measure(void **state)
{
	cpu_set_t before, one;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	const double took_ns = bench_core_latency_ns();
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	assert_true(took_ns == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flag_takes_a_time_that_can_be),
		cmocka_unit_test(it_binds_nobody),
		cmocka_unit_test(with_one_core_there_is_nothing_to_measure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
