/* What is learnt: digits is too hard for a linear model and not for the convnet; MNIST comes out as with PyTorch.
 * "mnist" or "cifar10" as argument runs those, on the files that $COLLET_DATA holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "options.h"
#include "thread_ranks.h"
#include "trainer.h"

struct run {
	struct options options;
	double best_accuracy;  /* rank 0's */
	bool fine;
};

static bool note_epoch(void *context, const struct trainer_epoch *epoch)
{
	struct run *run = context;
	if (epoch->test_accuracy > run->best_accuracy)
		run->best_accuracy = epoch->test_accuracy;
	return true;
}

static bool note_nothing(void *context, const struct trainer_epoch *epoch)
{
	return true;
}

static void train(collet_comm *comm, void *context)
{
	struct run *run = context;
	const bool root = collet_comm_rank(comm) == 0;
	const struct trainer_watch watch = { NULL, root ? note_epoch : note_nothing, run };
	const bool fine = trainer_run(comm, &run->options, &watch);
	if (root)
		run->fine = fine;
}

static struct options defaults(void)
{
	char name[] = "collet-train", *arguments[] = { name, NULL };
	struct options options;
	assert_int_equal(options_parse(&options, 1, arguments), OPTIONS_RUN);
	return options;
}

static void digits_are_too_hard_for_a_linear_model(void **state)
{
	/* The best of rates and epochs, so that it is the model that fails. */
	static const float rates[] = { 0.001F, 0.01F };
	for (size_t i = 0; i < 2; i++) {
		struct run run = { .options = defaults() };
		run.options.dataset = "digits";
		run.options.model = "linear";
		run.options.learning_rate = rates[i];
		run.options.epochs = 5;
		thread_ranks_run(1, train, &run);
		assert_true(run.fine);
		assert_in_range((uint64_t)(run.best_accuracy * 1e4), 7000, 9499);
	}
}

static void digits_are_not_too_hard_for_the_convnet(void **state)
{
	struct run run = { .options = defaults() };
	run.options.dataset = "digits";
	run.options.train_samples = 12000;
	run.options.test_samples = 2000;
	thread_ranks_run(2, train, &run);
	assert_true(run.fine);
	assert_in_range((uint64_t)(run.best_accuracy * 1e4), 9550, 10000);
}

static void mnist_reaches_98_percent_in_one_epoch_on_two_ranks(void **state)
{
	struct run run = { .options = defaults() };
	thread_ranks_run(2, train, &run);
	assert_true(run.fine);
	printf("test accuracy %.2f %%\n", 100 * run.best_accuracy);
	assert_in_range((uint64_t)(run.best_accuracy * 1e4), 9800, 10000);
}

static void cifar10_is_learnt_by_lenet_on_two_ranks(void **state)
{
	struct run run = { .options = defaults() };
	run.options.dataset = "cifar10";
	run.options.model = "lenet";
	run.options.epochs = 2;
	thread_ranks_run(2, train, &run);
	assert_true(run.fine);
	printf("test accuracy %.2f %%\n", 100 * run.best_accuracy);
	assert_in_range((uint64_t)(run.best_accuracy * 1e4), 4000, 10000);
}

static bool is_here(const char *set_folder, const char *name)
{
	const char *folder = getenv("COLLET_DATA");
	char path[4096];
	for (int place = 0; folder && *folder && place < 4; place++) {
		snprintf(path, sizeof(path), "%s/%s%s%s%s", folder, place % 2 ? set_folder : "", place % 2 ? "/" : "",
			name, place / 2 ? ".gz" : "");
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest digits[] = {
		cmocka_unit_test(digits_are_too_hard_for_a_linear_model),
		cmocka_unit_test(digits_are_not_too_hard_for_the_convnet),
	};
	const struct CMUnitTest mnist[] = { cmocka_unit_test(mnist_reaches_98_percent_in_one_epoch_on_two_ranks) };
	const struct CMUnitTest cifar10[] = { cmocka_unit_test(cifar10_is_learnt_by_lenet_on_two_ranks) };
	if (argc == 1)
		return cmocka_run_group_tests(digits, NULL, NULL);
	const bool wants_mnist = strcmp(argv[1], "mnist") == 0;
	if (!wants_mnist && strcmp(argv[1], "cifar10") != 0)
		return 2;
	if (wants_mnist ? !is_here("mnist", "train-images-idx3-ubyte") : !is_here("cifar-10", "data_batch_1.bin")) {
		printf("skipped: COLLET_DATA names no folder with %s in it\n", argv[1]);
		return 77;
	}
	return wants_mnist ? cmocka_run_group_tests(mnist, NULL, NULL) : cmocka_run_group_tests(cifar10, NULL, NULL);
}
