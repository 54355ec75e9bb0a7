/* Tests what the two ends of an shm endpoint pair learn from each other, with made-up times and no clock.
 * test_shm_trials.c tests how one end chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "shm_pair.h"

enum {
	CALL = 7,
	CALLS = 2 * SHM_TRIAL_BURSTS * SHM_TRIAL_GROUP_CALLS * (SHM_TRIAL_GROUPS + 1)
};

/* Ticks that a call of a MiB takes at an end, by the protocol that both ends use. */
struct costs {
	uint32_t ring, reads;
};

static void send_some(struct pair *pair, int which, bool mutual)
{
	struct shm_endpoint *end = inside(pair, which);
	collet_shm_tuning_sent(end, CALL, mutual, end->cma_classes[CALL]);
}

static void took(struct pair *pair, int which, struct costs costs, bool read)
{
	shm->report_call_time(pair->ends[which].endpoint, CALL, MIB, read ? costs.reads : costs.ring);
}

/* The longer time of the two ends counts, and both use the same protocol. */
static void both_ends_use_one_protocol(void **state)
{
	static const struct {
		const char *what;
		struct costs costs[2];
		bool reads;
	} rows[] = {
		{ "both gain by reads", { { 1000, 500 }, { 1000, 500 } }, true },
		{ "both lose by reads", { { 500, 1000 }, { 500, 1000 } }, false },
		{ "the first takes longer and gains", { { 1000, 900 }, { 300, 600 } }, true },
		{ "the other takes longer and gains", { { 300, 600 }, { 1000, 900 } }, true },
		{ "the first takes longer by reads", { { 300, 1000 }, { 900, 500 } }, false },
		{ "the other takes longer by reads", { { 900, 500 }, { 300, 1000 } }, false },
	};
	for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		assert_true(inside(&pair, 0)->is_follower != inside(&pair, 1)->is_follower);
		unsigned different = 0;
		for (unsigned i = 0; i < CALLS; i++) {
			const bool one = inside(&pair, 0)->cma_classes[CALL];
			const bool other = inside(&pair, 1)->cma_classes[CALL];
			send_some(&pair, 0, true);
			send_some(&pair, 1, true);
			took(&pair, 0, rows[row].costs[0], one);
			took(&pair, 1, rows[row].costs[1], other);
			different += one != other;
		}
		/* The deciding end changes first, and the other with its next call: one call of difference at each
		 * change. */
		if (different > SHM_TRIAL_BURSTS + 2)
			fail_msg("%s: %u calls went different ways", rows[row].what, different);
		for (int which = 0; which < 2; which++)
			if (inside(&pair, which)->cma_classes[CALL] != rows[row].reads)
				fail_msg("%s: end %d uses the other protocol", rows[row].what, which);
		pair_close(&pair);
	}
}

/* An end that alone sends decides, whichever end has dialed. The receiver's times count too. */
static void a_lone_sender_decides(void **state)
{
	for (int sender = 0; sender < 2; sender++) {
		struct pair pair;
		shm_pair_open(&pair, true, NULL);
		const struct costs sends = { 500, 700 }, receives = { 1000, 500 };
		for (unsigned i = 0; i < CALLS; i++) {
			const bool read = inside(&pair, sender)->cma_classes[CALL];
			send_some(&pair, sender, false);
			took(&pair, sender, sends, read);
			took(&pair, !sender, receives, read);
		}
		assert_true(inside(&pair, sender)->cma_classes[CALL]);
		assert_false(inside(&pair, sender)->cma_classes[CALL + 1]);
		pair_close(&pair);
	}
}

/* Some messages of a call have no choice: those for many peers never use CMA. */
static void messages_without_choice_do_not_stop_learning(void **state)
{
	const struct costs costs = { 1000, 500 };
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	for (unsigned i = 0; i < CALLS; i++) {
		const bool read = inside(&pair, 0)->cma_classes[CALL];
		collet_shm_tuning_sent(inside(&pair, 0), CALL, false, false);
		send_some(&pair, 0, false);
		took(&pair, 0, costs, read);
		took(&pair, 1, costs, read);
	}
	assert_true(inside(&pair, 0)->tuning[CALL].trials.is_trained);
	assert_true(inside(&pair, 0)->cma_classes[CALL]);
	pair_close(&pair);
}

/* Ignores a call that used CMA although none was wanted, and an impossible time. */
static void meaningless_times_are_ignored(void **state)
{
	struct pair pair;
	shm_pair_open(&pair, true, NULL);
	struct shm_endpoint *end = inside(&pair, 0);
	for (unsigned i = 0; i < CALLS; i++) {
		collet_shm_tuning_sent(end, CALL, false, false);
		collet_shm_tuning_sent(end, CALL, false, true);
		shm->report_call_time(&end->endpoint, CALL, MIB, 1000);
		shm->report_call_time(&end->endpoint, CALL, MIB, 1000); /* nothing was sent in this call */
		shm->report_call_time(&end->endpoint, SHM_CALL_CLASSES, MIB, 1000);
		shm->report_call_time(&end->endpoint, CALL, 0, 1000);
	}
	assert_int_equal(end->tuning[CALL].trials.calls, 0);
	assert_int_equal(end->tuning[CALL].trials.burst, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_use_one_protocol),
		cmocka_unit_test(a_lone_sender_decides),
		cmocka_unit_test(messages_without_choice_do_not_stop_learning),
		cmocka_unit_test(meaningless_times_are_ignored),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
