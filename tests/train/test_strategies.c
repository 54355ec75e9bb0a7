/* What each strategy promises: values that are equal after every epoch (trainer_run() compares them), bits that do not
 * depend on which of them made the same sums, and what is theirs alone: bounded staleness, a drift that mixing
 * bounds, an n-th of the optimiser's memory, no bytes in between. Ranks are threads here. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"
#include "runs.h"
#include "sample.h"
#include "strategies/strategy.h"

enum { EPOCHS = 2 };

/* 360 images, 20 a batch: shares of 2, 3 and 4 ranks are whole batches but for the last of 4 ranks. */
#define SHORT                                                                                                          \
	"--dataset", "digits", "--train-samples", "360", "--test-samples", "101", "--batch-size", "20", "--epochs",    \
		"2", "--model", "linear"

static const char *const names[] = { "allreduce", "gather", "data-parallel", "parameter-server", "async", "gossip",
	"local-sgd", "sharded" };
enum { NAMES = sizeof(names) / sizeof(names[0]) };

static void assert_near(double seen, double expected, double most)
{
	if (!(fabs(seen - expected) <= most))
		fail_msg("%.9g, not %.9g", seen, expected);
}

/* Every one of them ends well, with the same values. */
static struct run *run_alike(uint32_t ranks, const char *const *words)
{
	struct run *run = run_words(ranks, words, NULL, true);
	for (uint32_t rank = 0; rank < ranks; rank++)
		for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
			assert_int_equal(run->epochs[rank][epoch].checksum, run->epochs[0][epoch].checksum);
	return run;
}

static uint64_t checksum_of(uint32_t ranks, const char *const *words)
{
	struct run *run = run_alike(ranks, words);
	const uint64_t checksum = run->epochs[0][EPOCHS - 1].checksum;
	free(run);
	return checksum;
}

static void there_are_no_others(void **state)
{
	size_t count = 0;
	for (; strategies[count]; count++)
		assert_string_equal(strategies[count]->name, names[count]);
	assert_int_equal(count, NAMES);
}

static void values_are_equal_and_learn_something(void **state)
{
	for (size_t i = 0; i < NAMES; i++) {
		for (uint32_t ranks = 2; ranks <= 3; ranks++) {
			if (!sample_has(10 * i + ranks))
				continue;
			struct run *run =
				run_alike(ranks, (const char *const[]){ SHORT, "--strategy", names[i], NULL });
			const struct trainer_epoch *epochs = run->epochs[0];
			assert_string_equal(epochs[0].strategy, names[i]);
			assert_true(epochs[0].checksum != epochs[1].checksum);
			assert_true(epochs[1].loss < 0.8 * epochs[0].loss);
			assert_true(epochs[1].test_accuracy > 0.3);
			assert_true(epochs[1].bytes_per_step > 0);
			assert_true(epochs[1].busiest_bytes_per_step >= epochs[1].bytes_per_step);
			free(run);
		}
	}
}

/* Of asynchronous training alone it is not so. */
static void the_same_words_give_the_same_bits(void **state)
{
	for (size_t i = 0; i < NAMES; i++) {
		const char *const words[] = { SHORT, "--strategy", names[i], NULL };
		if (strcmp(names[i], "async") != 0 && sample_has(100 + i))
			assert_int_equal(checksum_of(3, words), checksum_of(3, words));
	}
}

/* Whoever adds the same numbers in the same order has the same bits; of two operands there is but one order. */
static void the_same_sums_give_the_same_bits(void **state)
{
	static const struct {
		const char *name, *algorithm;
		const char *optimiser;
		uint32_t ranks, workers;
		const char *more[2];
	} rows[] = {
		{ "gather", "direct", "sgd", 3, 3, { NULL } },
		{ "gather", "tree", "adamw", 4, 4, { NULL } },
		{ "data-parallel", "direct", "sgd", 3, 3, { NULL } },
		{ "data-parallel", "scatter_gather", "adamw", 4, 4, { NULL } },
		{ "sharded", "direct", "sgd", 3, 3, { NULL } },
		{ "sharded", "direct", "adamw", 4, 4, { NULL } },
		{ "sharded", "ring", "sgd", 2, 2, { NULL } },
		{ "parameter-server", NULL, "sgd", 3, 2, { NULL } },
		{ "parameter-server", NULL, "adamw", 4, 3, { NULL } },
		{ "parameter-server", NULL, "adamw", 4, 2, { "--servers", "2" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *words[40] = { SHORT, "--optimizer", rows[i].optimiser, "--algorithm", "direct", NULL };
		if (!sample_has(200 + i))
			continue;
		const uint64_t expected = checksum_of(rows[i].workers, words);
		size_t count = 0;
		while (strcmp(words[count], "--algorithm") != 0)
			count++;
		if (rows[i].algorithm)
			words[++count] = rows[i].algorithm, count++;
		words[count++] = "--strategy";
		words[count++] = rows[i].name;
		words[count++] = rows[i].more[0];
		words[count++] = rows[i].more[0] ? rows[i].more[1] : NULL;
		words[count] = NULL;
		const uint64_t seen = checksum_of(rows[i].ranks, words);
		if (seen != expected)
			fail_msg("%s of %u ranks, %s: other bits", rows[i].name, rows[i].ranks, rows[i].optimiser);
	}
}

static void clipping_and_accumulation_go_with_whole_gradients(void **state)
{
	const char *const clip[] = { "--clip", "0.5" }, *const more[] = { "--accumulate", "2" };
	struct run *plain = run_alike(2, (const char *const[]){ SHORT, NULL });
	for (int option = 0; option < 2; option++) {
		const char *const *extra = option == 0 ? clip : more;
		struct run *first = run_alike(2, (const char *const[]){ SHORT, extra[0], extra[1], NULL });
		assert_true(first->epochs[0][1].checksum != plain->epochs[0][1].checksum);
		static const char *const others[] = { "gather", "sharded", "data-parallel", "parameter-server" };
		for (int i = 0; i < 3 + option; i++) {
			if (option == 1 && i == 2)
				continue;  /* data-parallel deals out one batch a step */
			struct run *other = run_alike(2 + (i == 3),
				(const char *const[]){ SHORT, extra[0], extra[1], "--strategy", others[i], NULL });
			/* Norms are added up in other orders; everything else is the same. */
			assert_near(first->epochs[0][1].loss, other->epochs[0][1].loss, option == 0 ? 1e-5 : 0);
			free(other);
		}
		free(first);
	}
	free(plain);
}

static void staleness_stays_within_its_bound(void **state)
{
	static const char *const bounds[] = { "0", "1", "4" };
	struct run *in_step = run_alike(3, (const char *const[]){ SHORT, "--strategy", "parameter-server", NULL });
	for (size_t i = 0; i < 3; i++) {
		struct run *run = run_alike(
			4, (const char *const[]){ SHORT, "--strategy", "async", "--staleness", bounds[i], NULL });
		const struct trainer_epoch *epoch = &run->epochs[0][1];
		assert_int_equal(epoch->staleness_bound, atoi(bounds[i]));
		assert_in_range(epoch->staleness_most, 0, epoch->staleness_bound);
		assert_true(epoch->staleness_mean <= (double)epoch->staleness_most);
		free(run);
	}
	/* With bound 0 it is the synchronous one, with sums in another order. */
	struct run *run = run_alike(
		3, (const char *const[]){ SHORT, "--strategy", "async", "--staleness", "0", NULL });
	assert_int_equal(run->epochs[0][1].staleness_most, 0);
	for (int epoch = 0; epoch < EPOCHS; epoch++)
		assert_near(run->epochs[0][epoch].loss, in_step->epochs[0][epoch].loss, 1e-3);
	free(run);
	free(in_step);
}

/* With a rate of 0 in the second epoch nothing but mixing happens in it. The matrix of (w_(i-1) + w_i + w_(i+1)) / 3
 * has, beside 1, the eigenvalues -1/3 (2 ranks), 0 (3 ranks), 1/3 and -1/3 (4 ranks). */
static void mixing_brings_neighbours_together(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *steps;   /* an epoch's, and three */
		double least, most;  /* of what is left of the difference after them */
	} rows[] = { { 2, "12", 0.9 / 27, 1.1 / 27 }, { 3, "9", 0, 1e-4 }, { 4, "8", 0.2 / 27, 5.0 / 27 } };
	for (size_t i = 0; i < 3; i++) {
		struct run *run = run_alike(rows[i].ranks,
			(const char *const[]){ SHORT, "--strategy", "gossip", "--schedule", "step", "--decay-every",
				"1", "--decay-factor", "0", "--momentum", "0", "--steps", rows[i].steps, NULL });
		const double first = run->epochs[0][0].apart, second = run->epochs[0][1].apart;
		assert_true(first > 1e-4 && first < 0.5);
		assert_true(second >= rows[i].least * first && second <= rows[i].most * first);
		free(run);
	}
}

/* Where all start alike, one step without momentum ends, in the mean, where all-reduce ends. */
static void one_step_is_the_same_for_all_in_the_mean(void **state)
{
	static const char *const others[] = { "gossip", "local-sgd" };
	struct run *run = run_alike(3, (const char *const[]){ SHORT, "--steps", "1", "--momentum", "0", NULL });
	for (int i = 0; i < 2; i++) {
		struct run *other = run_alike(3, (const char *const[]){ SHORT, "--steps", "1", "--momentum", "0",
						     "--strategy", others[i], NULL });
		assert_true(run->epochs[0][0].test_accuracy == other->epochs[0][0].test_accuracy);
		assert_true(run->epochs[0][0].loss == other->epochs[0][0].loss);
		free(other);
	}
	free(run);
}

/* Nine steps an epoch: averages after the fourth, the eighth and the last; in the second after 12, 16 and 18. */
static void local_steps_move_nothing(void **state)
{
	struct run *every = run_alike(
		2, (const char *const[]){ SHORT, "--strategy", "local-sgd", "--local-steps", "1", NULL });
	struct run *fourth = run_alike(
		2, (const char *const[]){ SHORT, "--strategy", "local-sgd", "--local-steps", "4", NULL });
	assert_near(fourth->epochs[0][1].bytes_per_step * 18, every->epochs[0][1].bytes_per_step * 6, 1);
	free(every);
	free(fourth);
}

/* AdamW keeps two numbers a parameter. As many bytes are sent: by rings, whatever is chosen otherwise, since what is
 * fast where ranks share cores may send more. */
static void shards_of_the_optimiser_need_less_memory(void **state)
{
	setenv("COLLET_ALGORITHM", "allreduce:ring,reduce_scatter:ring,allgather:ring", 1);
	struct run *whole = run_alike(4, (const char *const[]){ SHORT, "--optimizer", "adamw", NULL });
	struct run *sharded = run_alike(
		4, (const char *const[]){ SHORT, "--optimizer", "adamw", "--strategy", "sharded", NULL });
	unsetenv("COLLET_ALGORITHM");
	/* (2 + 2/4) / (2 + 2), and some padding. */
	assert_near(
		(double)sharded->epochs[0][1].memory_bytes / (double)whole->epochs[0][1].memory_bytes, 0.625, 0.01);
	assert_true(sharded->epochs[0][1].bytes_per_step < 1.02 * whole->epochs[0][1].bytes_per_step);
	free(whole);
	free(sharded);
}

/* ---- When a rank dies ---------------------------------------------------------------------------------------- */

struct death {
	struct options options;
	uint32_t rank;
};

static void die_in_the_third_step(void *context, const struct trainer_progress *progress)
{
	const struct rank *rank = context;
	const struct death *death = rank->options->context;
	if (rank->rank == death->rank && progress->step == 3)
		raise(SIGKILL);
}

static void train_until_one_dies(struct rank *rank)
{
	const struct death *death = rank->options->context;
	const struct trainer_watch watch = { die_in_the_third_step, NULL, rank };
	char name[20];
	snprintf(name, sizeof(name), "rank %u", death->rank);
	rank_check(rank, !trainer_run(rank->comm, &death->options, &watch), "training went on");
	const char *sentence = collet_last_error();
	rank_check(rank, strstr(sentence, name) != NULL, "it was told: %s", sentence);
}

/* The others are told, and who it was. A server's death is no different. */
static void a_dead_rank_is_named(void **state)
{
	for (size_t i = 0; i < NAMES; i++) {
		if (!sample_has(300 + i))
			continue;
		const char *const words[] = { "collet-train", SHORT, "--train-samples", "3600",
			"--strategy", names[i] };
		char *arguments[sizeof(words) / sizeof(words[0])];
		struct death death = { .rank = i % 2 ? 2 : 1 };
		memcpy(arguments, words, sizeof(words));
		assert_int_equal(
			options_parse(&death.options, sizeof(words) / sizeof(words[0]), arguments), OPTIONS_RUN);
		const struct ranks_options how = { .mode = RANKS_PROCESSES, .size = 3, .context = &death };
		struct ranks *ranks = ranks_start(&how, train_until_one_dies);
		assert_true(ranks_wait(ranks));
		for (uint32_t rank = 0; rank < 3; rank++) {
			const struct rank_report *report = ranks_report(ranks, rank);
			assert_int_equal(report->end, rank == death.rank ? RANK_KILLED : RANK_RETURNED);
			if (report->failed)
				fail_msg("%s, rank %u: %s", names[i], rank, report->sentence);
		}
		ranks_free(&ranks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_are_no_others),
		cmocka_unit_test(values_are_equal_and_learn_something),
		cmocka_unit_test(the_same_words_give_the_same_bits),
		cmocka_unit_test(the_same_sums_give_the_same_bits),
		cmocka_unit_test(clipping_and_accumulation_go_with_whole_gradients),
		cmocka_unit_test(staleness_stays_within_its_bound),
		cmocka_unit_test(mixing_brings_neighbours_together),
		cmocka_unit_test(one_step_is_the_same_for_all_in_the_mean),
		cmocka_unit_test(local_steps_move_nothing),
		cmocka_unit_test(shards_of_the_optimiser_need_less_memory),
		cmocka_unit_test(a_dead_rank_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
