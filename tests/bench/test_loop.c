/* The timed loop over a library of one rank that lives in this file: what it calls, with which buffers, how often, and
 * that a result which is wrong is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop.h"
#include "pin.h"

struct fake {
	uint64_t calls, barriers;
	uint64_t wrong_from;      /* results of calls from this one on have a wrong element */
	uint64_t fail_at;         /* this call fails */
	const void *last_recv;
	uint64_t other_buffers;   /* calls whose receive buffer was not the last one's */
	bool spoils;              /* a call leaves zeros in its input */
};

static int run_allreduce(void *context, const struct bench_call *call)
{
	struct fake *fake = context;
	fake->calls++;
	fake->other_buffers += call->recv != fake->last_recv;
	fake->last_recv = call->recv;
	if (call->recv != call->send)
		memcpy(call->recv, call->send, call->count * 4);
	if (fake->wrong_from && fake->calls >= fake->wrong_from)
		((uint32_t *)call->recv)[call->count / 2] ^= 1;
	if (fake->spoils)
		memset((void *)(uintptr_t)call->send, 0, call->count * 4);
	return fake->fail_at && fake->calls >= fake->fail_at;
}

static int run_barrier(void *context, const struct bench_call *call)
{
	((struct fake *)context)->barriers++;
	return 0;
}

static struct bench_library library_of(struct fake *fake)
{
	const struct bench_library library = { .context = fake, .rank = 0, .size = 1,
		.run = { [BENCH_ALLREDUCE] = run_allreduce, [BENCH_BARRIER] = run_barrier } };
	return library;
}

static const struct bench_work work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_F32, .op = COLLET_SUM };

static void a_batch_calls_as_often_as_it_says(void **state)
{
	struct fake fake = { 0 };
	const struct bench_library library = library_of(&fake);
	struct bench_run run;
	struct bench_times times;
	assert_null(bench_run_init(&run, &library, &work, 100, BENCH_MALLOC, false, NULL));
	assert_int_equal(bench_run_batch(&run, 1000, &times), 0);
	assert_int_equal(fake.calls, 1000);
	assert_int_equal(fake.barriers, 1);
	assert_int_equal(fake.other_buffers, 1);
	assert_true(times.elapsed_ns > 0 && times.cpu_ns >= 0);
	assert_int_equal(bench_run_synced_batch(&run, 10, &times), 0);
	assert_int_equal(fake.barriers, 11);
	bench_run_deinit(&run);
}

static void cold_buffers_change_with_every_call(void **state)
{
	struct fake fake = { 0 };
	const struct bench_library library = library_of(&fake);
	struct bench_run run;
	struct bench_times times;
	assert_null(bench_run_init(&run, &library, &work, 1 << 20, BENCH_MALLOC, true, NULL));
	assert_true(run.buffers.slots * run.buffers.slot_bytes > bench_cache_bytes());
	assert_int_equal(bench_run_batch(&run, 5, &times), 0);
	assert_int_equal(fake.other_buffers, 5);
	bench_run_deinit(&run);
}

static void a_wrong_element_is_counted(void **state)
{
	static const enum bench_buffer_kind kinds[] = { BENCH_MALLOC, BENCH_HUGE };
	for (size_t k = 0; k < 2; k++)
		for (uint32_t in_place = 0; in_place < 2; in_place++) {
			struct fake fake = { .wrong_from = 2 };
			const struct bench_library library = library_of(&fake);
			struct bench_work here = work;
			struct bench_run run;
			uint64_t wrong = 7, first = 7;
			here.in_place = in_place;
			assert_null(bench_run_init(&run, &library, &here, 100, kinds[k], false, NULL));
			assert_int_equal(bench_run_checked(&run, &wrong, &first), 0);
			assert_int_equal(wrong, 0);
			assert_int_equal(bench_run_checked(&run, &wrong, &first), 0);
			assert_int_equal(wrong, 1);
			assert_int_equal(first, 50);
			bench_run_deinit(&run);
		}
}

static void inputs_are_rewritten_and_results_read_around_each_call(void **state)
{
	static const struct {
		bool in_place, cold;
		uint64_t wrong_from, wrong;
	} rows[] = { { false, false, 0, 0 }, { false, true, 0, 0 }, { true, false, 0, 0 }, { false, false, 4, 2 },
		{ true, false, 5, 1 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t ns[8];
		struct bench_samples samples = { .ns = ns, .capacity = 8 };
		struct fake fake = { .wrong_from = rows[i].wrong_from, .spoils = !rows[i].in_place };
		struct bench_library library = library_of(&fake);
		struct bench_work here = work;
		struct bench_run run;
		uint64_t wrong = 7;
		library.one_host = i % 2 == 0;
		here.in_place = rows[i].in_place;
		assert_null(bench_run_init(&run, &library, &here, 100, BENCH_MALLOC, rows[i].cold, NULL));
		assert_int_equal(bench_run_rewritten(&run, 5, &samples, &wrong), 0);
		assert_int_equal(fake.calls, 5);
		assert_int_equal(fake.barriers, 5);
		assert_int_equal(fake.other_buffers, rows[i].cold ? 5 : 1);
		assert_int_equal(samples.count, 5);
		assert_int_equal(wrong, rows[i].wrong);
		/* The array is full. */
		assert_int_equal(bench_run_rewritten(&run, 50, &samples, &wrong), 0);
		assert_int_equal(samples.count, 8);
		bench_run_deinit(&run);
	}
}

static void a_failing_call_ends_the_loop(void **state)
{
	struct fake fake = { .fail_at = 3 };
	const struct bench_library library = library_of(&fake);
	struct bench_run run;
	struct bench_times times;
	assert_null(bench_run_init(&run, &library, &work, 100, BENCH_MALLOC, false, NULL));
	assert_int_not_equal(bench_run_batch(&run, 1000, &times), 0);
	assert_int_equal(fake.calls, 3);
	bench_run_deinit(&run);
}

/* Of the first calls, some are slow, as connections are opened and protocols tried. */
static void the_first_calls_are_not_timed(void **state)
{
	static const struct {
		const char *what;
		double seconds;
		int64_t slow_ns, each_ns;
		uint64_t slow_calls;
		uint64_t least_calls, iterations;   /* untimed, timed */
	} rows[] = {
		{ "a short message", 0.1, 20000, 250, 2, 80000, 400000 },
		{ "trials of 64 calls", 0.04, 300000, 70000, 64, 128, 571 },
		{ "one slow call is as long as a batch", 0.01, 1300000, 70000, 1, 128, 142 },
		{ "the time is over before so many calls", 0.05, 10000000, 10000000, 0, 5, 5 },
		{ "one call takes longer than the time", 0.01, 20000000, 20000000, 0, 2, 1 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bench_calibration calibration = bench_calibration_begin(rows[i].seconds);
		uint64_t calls = 0, iterations = 0;
		while (iterations == 0) {
			int64_t elapsed_ns = 0;
			for (uint64_t c = 0; c < calibration.batch; c++)
				elapsed_ns += calls++ < rows[i].slow_calls ? rows[i].slow_ns : rows[i].each_ns;
			iterations = bench_calibration_next(&calibration, elapsed_ns);
		}
		if (calls < rows[i].least_calls || calls <= rows[i].slow_calls || iterations != rows[i].iterations)
			fail_msg("%s: %llu calls before, %llu timed", rows[i].what, (unsigned long long)calls,
				(unsigned long long)iterations);
	}
	assert_int_equal(bench_warm_iterations(1), 1);
	assert_int_equal(bench_warm_iterations(1000), 51);
	assert_int_equal(bench_rewritten_iterations(1), 1);
	assert_int_equal(bench_rewritten_iterations(1000), 251);
	assert_int_equal(bench_rewritten_iterations(BENCH_ITERATIONS_MAX), 2000);
}

static void what_a_library_lacks_is_known_before(void **state)
{
	struct fake fake = { 0 };
	const struct bench_library library = library_of(&fake);
	struct bench_work other = work;
	struct bench_run run;
	assert_true(bench_library_can(&library, &work, 1));
	other.collective = BENCH_ALLTOALL;
	assert_false(bench_library_can(&library, &other, 1));
	assert_non_null(bench_run_init(&run, &library, &work, 1, BENCH_ALLOC, false, NULL));
}

static void percentiles_are_of_the_sorted_sample(void **state)
{
	int64_t ns[] = { 50, 10, 40, 20, 30 };
	struct bench_samples samples = { .ns = ns, .capacity = 5, .count = 5 };
	assert_int_equal(bench_percentile(&samples, 0.5), 30);
	assert_int_equal(bench_percentile(&samples, 0.99), 50);
	assert_int_equal(bench_percentile(&samples, 0), 10);
	samples.count = 0;
	assert_int_equal(bench_percentile(&samples, 0.5), 0);
}

static void this_machine_has_cores(void **state)
{
	assert_true(bench_core_count() >= 1);
	const uint32_t cores = bench_core_count();
	assert_false(bench_pin(0, cores + 1, false));   /* not enough for all: none is bound */
	assert_int_equal(bench_core_count(), cores);
}

static void ranks_that_share_are_bound_all_the_same(void **state)
{
	const uint32_t cores = bench_core_count();
	const pid_t child = fork();   /* bound for good */
	assert_true(child >= 0);
	if (child == 0)
		_exit(!(bench_pin(2 * cores - 1, 2 * cores, true) && bench_is_pinned()));
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_calls_as_often_as_it_says),
		cmocka_unit_test(cold_buffers_change_with_every_call),
		cmocka_unit_test(a_wrong_element_is_counted),
		cmocka_unit_test(inputs_are_rewritten_and_results_read_around_each_call),
		cmocka_unit_test(a_failing_call_ends_the_loop),
		cmocka_unit_test(the_first_calls_are_not_timed),
		cmocka_unit_test(what_a_library_lacks_is_known_before),
		cmocka_unit_test(percentiles_are_of_the_sorted_sample),
		cmocka_unit_test(this_machine_has_cores),
		cmocka_unit_test(ranks_that_share_are_bound_all_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
