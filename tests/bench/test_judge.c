/* What compare decides by, as rows of numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare/judge.h"

static void every_round_has_everybody_once(void **state)
{
	for (size_t count = 1; count < 20; count++)
		for (size_t round = 0; round < 25; round++) {
			bool seen[20] = { false };
			for (size_t place = 0; place < count; place++) {
				const size_t who = bench_turn(round, place, count);
				assert_true(who < count && !seen[who]);
				seen[who] = true;
			}
		}
}

static void everybody_starts_equally_often(void **state)
{
	for (size_t count = 1; count < 20; count++) {
		size_t starts[20] = { 0 };
		for (size_t round = 0; round < 3 * count; round++)
			starts[bench_turn(round, 0, count)]++;
		for (size_t who = 0; who < count; who++)
			assert_int_equal(starts[who], 3);
	}
}

static void who_comes_before_changes_from_round_to_round(void **state)
{
	const size_t count = 7, who = 3;
	size_t before[2];
	for (size_t round = 0; round < 2; round++)
		for (size_t place = 1; place < count; place++)
			if (bench_turn(round, place, count) == who)
				before[round] = bench_turn(round, place - 1, count);
	assert_int_not_equal(before[0], before[1]);
}

static void slow_is_more_than_five_times_the_best(void **state)
{
	assert_false(bench_is_slow(500, 100));
	assert_true(bench_is_slow(501, 100));
	assert_false(bench_is_slow(100, 100));
	assert_false(bench_is_slow(1e9, 0));   /* there is no best */
}

static void a_time_is_disturbed_when_others_had_the_cores(void **state)
{
	const double ms = 1e6;
	const struct {
		const char *what;
		struct bench_load load;
		bool disturbed;
	} rows[] = {
		{ "two cores, all ours", { 100 * ms, 2, 0, 10 * ms, 199 * ms, true, 0, 0, 10 }, false },
		{ "half idle, half ours", { 100 * ms, 2, 100 * ms, 10 * ms, 99 * ms, true, 0, 0, 10 }, false },
		{ "a stranger had half a core", { 100 * ms, 2, 0, 10 * ms, 150 * ms, false, 0, 0, 10 }, true },
		{ "less than a tick is not sure", { 100 * ms, 2, 0, 10 * ms, 190 * ms, false, 0, 0, 10 }, false },
		{ "a tick matters less in a second", { 1000 * ms, 2, 0, 10 * ms, 1950 * ms, false, 0, 0, 10 }, true },
		{ "pinned ranks kept off for 4 ms", { 100 * ms, 2, 0, 10 * ms, 196 * ms, true, 4 * ms, 0, 10 }, true },
		{ "shared cores: ranks keep each other off",
			{ 100 * ms, 2, 0, 10 * ms, 196 * ms, false, 200 * ms, 0, 10 }, false },
		{ "kept off by its own second thread",
			{ 100 * ms, 2, 0, 10 * ms, 196 * ms, true, 40 * ms, 45 * ms, 10 }, false },
		{ "a moment at each of many wake-ups",
			{ 100 * ms, 2, 0, 10 * ms, 190 * ms, true, 9 * ms, 0, 1000 }, false },
		{ "the idle time is told in steps",
			{ 100 * ms, 2, 110 * ms, 10 * ms, 99 * ms, true, 0, 0, 10 }, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (bench_is_disturbed(&rows[i].load) != rows[i].disturbed)
			fail_msg("%s: %s", rows[i].what, rows[i].disturbed ? "not noticed" : "held for disturbed");
}

static void what_must_travel_follows_from_the_collective(void **state)
{
	static const struct {
		enum bench_collective collective;
		double bytes;   /* of 4 ranks and a message of 1000 */
	} rows[] = {
		{ BENCH_ALLREDUCE, 6000 }, { BENCH_REDUCE, 3000 }, { BENCH_BROADCAST, 3000 }, { BENCH_BARRIER, 0 },
		{ BENCH_ALLGATHER, 3000 }, { BENCH_REDUCE_SCATTER, 3000 }, { BENCH_GATHER, 750 },
		{ BENCH_SCATTER, 750 }, { BENCH_ALLTOALL, 3000 }, { BENCH_SENDRECV, 4000 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bench_work work = { .collective = rows[i].collective };
		assert_true(bench_least_traffic(&work, 4, 1000) == rows[i].bytes);
		assert_true(bench_least_traffic(&work, 1, 1000) == 0);
	}
}

static void a_transport_is_believed_only_with_its_bytes(void **state)
{
	static const struct {
		const char *transport;
		double least, over_lo, background;
		bool contradicted;
	} rows[] = {
		{ "tcp", 2e6, 2.1e6, 0, false },
		{ "tcp", 2e6, 1.99e6, 0, false },     /* the counter was read early */
		{ "tcp", 2e6, 1.9e6, 0, true },
		{ "tcp", 2e6, 1000, 0, true },
		{ "tcp", 8, 280, 0, false },
		{ "tcp", 8, 0, 0, true },
		{ "shm", 2e6, 1000, 0, false },
		{ "shm", 2e6, 1.5e6, 0, false },      /* too little to be all of it: somebody else's */
		{ "shm", 2e6, 2.1e6, 0, true },
		{ "shm", 2e6, 2.1e6, 1000, true },
		{ "shm", 2e6, 2.1e6, 1e6, false },    /* others saw as much go by */
		{ "shm", 8, 280, 0, false },          /* small */
		{ "tcp", 0, 0, 0, false },            /* a barrier, a single rank */
		{ NULL, 2e6, 0, 0, false },
		{ "shm,tcp", 2e6, 0, 0, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((bench_loopback_contradiction(rows[i].transport, rows[i].least, rows[i].over_lo,
			rows[i].background) != NULL)
			!= rows[i].contradicted)
			fail_msg("row %zu: %s", i, rows[i].contradicted ? "believed" : "not believed");
}

static void ratios_are_taken_repeat_by_repeat(void **state)
{
	const double mine[] = { 1, 2, 30, 0 }, other[] = { 2, 2, 20, 5 }, none[] = { 0, 0, 0, 0 };
	const struct bench_ratio ratio = bench_ratios(mine, other, 4);
	assert_true(ratio.median == 1 && ratio.least == 0.5 && ratio.most == 1.5);
	assert_true(bench_ratios(mine, none, 4).median == 0);
	assert_true(bench_ratios(mine, other, 0).median == 0);
	double even[] = { 4, 1, 3, 2 };
	assert_true(bench_median(even, 4) == 2.5 && bench_median(even, 3) == 2);
}

static void cores_are_near_or_far_by_the_flag_on_both_sides(void **state)
{
	static const struct {
		double before_ns, after_ns;
		enum bench_cores cores;
	} rows[] = {
		{ 50, 66, BENCH_CORES_NEAR },
		{ 26, 27, BENCH_CORES_NEAR },      /* two threads of one core */
		{ 119, 118, BENCH_CORES_NEAR },
		{ 120, 121, BENCH_CORES_FAR },
		{ 240, 260, BENCH_CORES_FAR },
		{ 50, 244, BENCH_CORES_CHANGED },
		{ 244, 50, BENCH_CORES_CHANGED },
		{ 26, 60, BENCH_CORES_CHANGED },   /* both near, but not the same */
		{ 119, 120, BENCH_CORES_CHANGED },
		{ 125, 250, BENCH_CORES_CHANGED },
		{ 0, 50, BENCH_CORES_CHANGED },    /* one could not be measured */
		{ 244, 0, BENCH_CORES_CHANGED },
		{ 0, 0, BENCH_CORES_UNKNOWN },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (bench_cores_of(rows[i].before_ns, rows[i].after_ns) != rows[i].cores)
			fail_msg("%.0f, then %.0f ns: %d", rows[i].before_ns, rows[i].after_ns,
				bench_cores_of(rows[i].before_ns, rows[i].after_ns));
}

static void a_change_counts_beyond_the_noise_of_both_runs(void **state)
{
	static const struct {
		const char *what;
		struct bench_ratio then[3], now[3];
		size_t peers;
		bool slower, faster;
	} rows[] = {
		{ "the same", { { 1, 0.95, 1.05 } }, { { 1, 0.95, 1.05 } }, 1, false, false },
		{ "10 % and quiet", { { 1, 1, 1 } }, { { 1.09, 1.09, 1.09 } }, 1, false, false },
		{ "12 % and quiet", { { 1, 1, 1 } }, { { 1.12, 1.12, 1.12 } }, 1, true, false },
		{ "12 % and it was noisy then", { { 1, 0.9, 1.1 } }, { { 1.12, 1.12, 1.12 } }, 1, false, false },
		{ "12 % and it is noisy now", { { 1, 1, 1 } }, { { 1.12, 1, 1.3 } }, 1, false, false },
		{ "twice, noise or not", { { 1, 0.8, 1.2 } }, { { 2, 1.6, 2.4 } }, 1, true, false },
		{ "half", { { 1, 1, 1 } }, { { 0.5, 0.5, 0.5 } }, 1, false, true },
		{ "one peer of three became slow", { { 1, 1, 1 }, { 2, 2, 2 }, { 3, 3, 3 } },
			{ { 1, 1, 1 }, { 2, 2, 2 }, { 1, 1, 1 } }, 3, false, false },
		{ "against all three", { { 1, 1, 1 }, { 2, 2, 2 }, { 3, 3, 3 } },
			{ { 1.2, 1.2, 1.2 }, { 2.4, 2.4, 2.4 }, { 3.6, 3.6, 3.6 } }, 3, true, false },
		{ "nothing to compare with", { { 0 } }, { { 1, 1, 1 } }, 1, false, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bench_change change = bench_judge_change(rows[i].then, rows[i].now, rows[i].peers);
		if (change.slower != rows[i].slower || change.faster != rows[i].faster)
			fail_msg("%s: %.2f times, noise %.2f", rows[i].what, change.times, change.noise);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_round_has_everybody_once),
		cmocka_unit_test(everybody_starts_equally_often),
		cmocka_unit_test(who_comes_before_changes_from_round_to_round),
		cmocka_unit_test(slow_is_more_than_five_times_the_best),
		cmocka_unit_test(a_time_is_disturbed_when_others_had_the_cores),
		cmocka_unit_test(what_must_travel_follows_from_the_collective),
		cmocka_unit_test(a_transport_is_believed_only_with_its_bytes),
		cmocka_unit_test(ratios_are_taken_repeat_by_repeat),
		cmocka_unit_test(cores_are_near_or_far_by_the_flag_on_both_sides),
		cmocka_unit_test(a_change_counts_beyond_the_noise_of_both_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
