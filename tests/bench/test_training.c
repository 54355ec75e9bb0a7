/* What collet-bench training predicts: arithmetic that must agree with itself, and with what strategies are known
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "training/training_model.h"

/* A large model, so that what travels shows. */
static const struct training_facts facts = { .transport = "tcp", .model_bytes = 100e6, .batch_bytes = 1e6,
	.compute_s = 0.1, .servers = 1, .local_steps = 8 };

static struct training_prediction predict(enum training_strategy strategy, uint32_t ranks)
{
	struct training_prediction prediction;
	assert_true(training_predict(strategy, &facts, ranks, &prediction));
	return prediction;
}

static void strategies_have_names(void **state)
{
	for (int s = 0; s < TRAINING_STRATEGIES; s++)
		assert_int_equal(training_strategy_find(training_strategy_name((enum training_strategy)s)), s);
	assert_int_equal(training_strategy_find("hope"), TRAINING_STRATEGIES);
}

static void one_rank_waits_for_nobody(void **state)
{
	for (int s = 0; s < TRAINING_STRATEGIES; s++) {
		if (s == TRAINING_PARAMETER_SERVER || s == TRAINING_ASYNC)
			continue;
		const struct training_prediction alone = predict((enum training_strategy)s, 1);
		assert_true(alone.efficiency == 1 && alone.bytes == 0 && alone.workers == 1);
	}
	struct training_prediction none;
	assert_false(training_predict(TRAINING_PARAMETER_SERVER, &facts, 1, &none));
	assert_false(training_predict(TRAINING_ASYNC, &facts, 1, &none));
}

static void no_more_ranks_are_better_than_so_many_times_one(void **state)
{
	for (int s = 0; s < TRAINING_STRATEGIES; s++)
		for (uint32_t ranks = 2; ranks <= 64; ranks *= 2) {
			const struct training_prediction p = predict((enum training_strategy)s, ranks);
			assert_true(p.efficiency > 0 && p.efficiency < 1);
			assert_true(p.step_s > facts.compute_s);
			assert_true(p.bytes > 0 && p.bytes <= 2 * (facts.model_bytes + facts.batch_bytes));
		}
}

/* Where one rank's link is everybody's, more ranks make it worse; and so all-reduce won. */
static void all_reduce_wins(void **state)
{
	const double allreduce = predict(TRAINING_ALLREDUCE, 64).step_s;
	assert_true(predict(TRAINING_GATHER, 64).step_s > 3 * allreduce);
	assert_true(predict(TRAINING_PARAMETER_SERVER, 64).step_s > 3 * allreduce);
	assert_true(predict(TRAINING_DATA_PARALLEL, 64).step_s > allreduce);
	assert_true(predict(TRAINING_LOCAL_SGD, 64).step_s < allreduce);
	assert_true(predict(TRAINING_GOSSIP, 64).step_s == predict(TRAINING_GOSSIP, 8).step_s);
	assert_true(predict(TRAINING_ALLREDUCE, 8).bytes == 2 * 7.0 / 8 * facts.model_bytes);
}

static void what_is_hidden_costs_nothing(void **state)
{
	struct training_facts hidden = facts;
	struct training_prediction p;
	hidden.hidden = 1;
	assert_true(training_predict(TRAINING_ALLREDUCE, &hidden, 8, &p));
	assert_true(p.efficiency == 1 && p.bytes == predict(TRAINING_ALLREDUCE, 8).bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strategies_have_names),
		cmocka_unit_test(one_rank_waits_for_nobody),
		cmocka_unit_test(no_more_ranks_are_better_than_so_many_times_one),
		cmocka_unit_test(all_reduce_wins),
		cmocka_unit_test(what_is_hidden_costs_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
