/* Tests the harness itself: ranks meet in every mode; one that fails, dies or never ends is found and named. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"

static const enum ranks_mode modes[] = { RANKS_PROCESSES, RANKS_THREADS, RANKS_MIXED };
static const char *const transports[] = { "shm", "tcp" };

static void sum_of_ranks(struct rank *rank)
{
	uint32_t sum = rank->rank + 1;
	if (!rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, NULL), "allreduce"))
		return;
	rank_check(rank, sum == rank->size * (rank->size + 1) / 2, "the sum of the ranks is %u", sum);
	((uint32_t *)rank->shared)[rank->rank] = sum;
}

static void ranks_meet_in_every_mode(void **state)
{
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		for (size_t t = 0; t < sizeof(transports) / sizeof(transports[0]); t++) {
			const struct ranks_options options = { .mode = modes[m], .size = 3, .transport = transports[t],
				.shared_bytes = 3 * sizeof(uint32_t) };
			struct ranks *ranks = ranks_start(&options, sum_of_ranks);
			assert_true(ranks_wait(ranks));
			assert_true(ranks_all_passed(ranks));
			const uint32_t *sums = ranks_shared(ranks);
			assert_true(sums[0] == 6 && sums[1] == 6 && sums[2] == 6);
			ranks_free(&ranks);
		}
	}
}

static void one_is_wrong(struct rank *rank)
{
	rank_doing(rank, "being wrong");
	rank_check(rank, rank->rank != 1, "this is %s", "wrong");
	rank_check(rank, false || rank->rank != 1, "the first report counts");
}

static void a_report_reaches_the_test(void **state)
{
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		struct ranks *ranks = ranks_start(&(struct ranks_options){ .mode = modes[m], .size = 2 }, one_is_wrong);
		assert_true(ranks_wait(ranks));
		assert_false(ranks_report(ranks, 0)->failed);
		assert_true(ranks_report(ranks, 1)->failed);
		assert_string_equal(ranks_report(ranks, 1)->sentence, "this is wrong");
		assert_string_equal(ranks_report(ranks, 1)->doing, "being wrong");
		ranks_free(&ranks);
	}
}

static void rank_1_never_calls(struct rank *rank)
{
	if (rank->rank == 0) {
		rank_doing(rank, "waiting for rank 1");
		rank_status(rank, collet_barrier(rank->comm, NULL), COLLET_OK, "barrier");
	}
	rank_await(rank, 0, 1);
}

/* Rank 0 blocks in a barrier, rank 1 in an event that is never posted. */
static void the_deadline_ends_ranks_that_are_stuck(void **state)
{
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		const struct ranks_options options = { .mode = modes[m], .size = 2, .deadline_ms = 300 };
		struct ranks *ranks = ranks_start(&options, rank_1_never_calls);
		assert_false(ranks_wait(ranks));
		assert_int_equal(ranks_report(ranks, 0)->end, RANK_STUCK);
		assert_string_equal(ranks_report(ranks, 0)->doing, "waiting for rank 1");
		assert_true(ranks_report(ranks, 0)->failed);
		ranks_free(&ranks);
	}
}

static void exit_or_be_killed(struct rank *rank)
{
	if (rank->rank == 0)
		_exit(7);
	rank_post(rank, 1);
	rank_await(rank, 0, 1);
}

static void ends_of_processes_are_told_apart(void **state)
{
	struct ranks *ranks = ranks_start(&(struct ranks_options){ .size = 2, .bare = true }, exit_or_be_killed);
	assert_true(ranks_await(ranks, 1, 1));
	kill(ranks_pid(ranks, 1), SIGKILL);
	assert_true(ranks_wait(ranks));
	assert_int_equal(ranks_report(ranks, 0)->end, RANK_EXITED);
	assert_int_equal(ranks_report(ranks, 0)->code, 7);
	assert_int_equal(ranks_report(ranks, 1)->end, RANK_KILLED);
	assert_int_equal(ranks_report(ranks, 1)->code, SIGKILL);
	ranks_free(&ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_meet_in_every_mode),
		cmocka_unit_test(a_report_reaches_the_test),
		cmocka_unit_test(the_deadline_ends_ranks_that_are_stuck),
		cmocka_unit_test(ends_of_processes_are_told_apart),
	};
	return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
