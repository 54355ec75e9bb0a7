/* collet-train as its users run it: processes under collet-run, options, files, exit status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tool.h"

#define SHORT                                                                                                          \
	"--dataset", "digits", "--train-samples", "610", "--test-samples", "203", "--batch-size", "32", "--epochs", "2"

static const char *train;  /* the program */

static int run_train(struct tool *tool, const char *const *arguments)
{
	const struct tool_setup setup = { .program = train };
	tool_start(tool, &setup, arguments);
	return tool_finish(tool);
}

static size_t read_file(const char *path, char *bytes, size_t capacity)
{
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	const size_t count = fread(bytes, 1, capacity - 1, file);
	assert_in_range(count, 1, capacity - 2);
	fclose(file);
	bytes[count] = 0;
	return count;
}

enum { PARAMETER_BYTES = 4 * (16 * 25 + 16 + 16 + 16 + 32 * 16 * 25 + 32 + 32 + 32 + 10 * 1568 + 10) };

/* The proof of test_proof.c once more, across processes and transports, on the bytes that are left behind. */
static void processes_equal_one_rank_over_every_transport(void **state)
{
	static const struct {
		const char *ranks, *transport;
	} rows[] = { { "2", "shm" }, { "2", "tcp" }, { "3", "shm" }, { "3", "tcp" } };
	char folder[64], alone[80], together[80];
	make_folder(folder);
	snprintf(alone, sizeof(alone), "%s/alone", folder);
	snprintf(together, sizeof(together), "%s/together", folder);
	char *bytes[2] = { calloc(1, PARAMETER_BYTES + 2), calloc(1, PARAMETER_BYTES + 2) };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		assert_int_equal(
			run_train(&tool, WORDS(SHORT, "--shards", rows[i].ranks, "--dump-parameters", alone)), 0);
		tool_deinit(&tool);
		assert_int_equal(
			tool_run(&tool, WORDS("-n", rows[i].ranks, train, SHORT, "--algorithm", "direct", "--transport",
						rows[i].transport, "--dump-parameters", together)),
			0);
		assert_non_null(strstr(tool.out.text, "epoch 2/2: loss "));
		tool_deinit(&tool);
		assert_int_equal(read_file(alone, bytes[0], PARAMETER_BYTES + 2), PARAMETER_BYTES);
		assert_int_equal(read_file(together, bytes[1], PARAMETER_BYTES + 2), PARAMETER_BYTES);
		assert_memory_equal(bytes[0], bytes[1], PARAMETER_BYTES);
	}
	free(bytes[0]);
	free(bytes[1]);
	remove_folder(folder);
}

/* One process, as data-parallel training was before there was a process a GPU. */
static void ranks_may_be_threads_of_one_process(void **state)
{
	char folder[64], paths[2][80], *bytes[2] = { calloc(1, PARAMETER_BYTES + 2), calloc(1, PARAMETER_BYTES + 2) };
	struct tool tool;
	make_folder(folder);
	for (int i = 0; i < 2; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%d", folder, i);
	assert_int_equal(run_train(&tool, WORDS(SHORT, "--threads", "2", "--strategy", "data-parallel",
						"--dump-parameters", paths[0])),
		0);
	assert_non_null(strstr(tool.out.text, " images/s on 2 ranks"));
	tool_deinit(&tool);
	assert_int_equal(run_train(&tool, WORDS(SHORT, "--shards", "2", "--dump-parameters", paths[1])), 0);
	tool_deinit(&tool);
	for (int i = 0; i < 2; i++)
		assert_int_equal(read_file(paths[i], bytes[i], PARAMETER_BYTES + 2), PARAMETER_BYTES);
	assert_memory_equal(bytes[0], bytes[1], PARAMETER_BYTES);
	for (int i = 0; i < 2; i++)
		free(bytes[i]);
	remove_folder(folder);
	assert_int_not_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, "--threads", "2")), 0);
	assert_non_null(strstr(tool.error.text, "--threads 2: this is one of 2 ranks already"));
	tool_deinit(&tool);
}

static void json_is_one_object_an_epoch(void **state)
{
	char folder[64], path[80], text[4000];
	struct tool tool;
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/json", folder);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, "--json", path)), 0);
	tool_deinit(&tool);
	read_file(path, text, sizeof(text));
	char *line = text;
	for (int expected = 1; expected <= 2; expected++) {
		int epoch, length = 0;
		double loss, accuracy, rate, transfer, hidden;
		assert_int_equal(
			sscanf(line,
				"{\"epoch\": %d, \"loss\": %lf, \"test_accuracy\": %lf, \"images_per_s\": %lf, "
				"\"step_s\": %*f, \"load_s\": %*f, \"forward_s\": %*f, \"backward_s\": %*f, "
				"\"communicate_s\": %*f, \"optimise_s\": %*f, \"evaluate_s\": %*f, "
				"\"travel_s\": %lf, \"hidden_s\": %lf, "
				"\"strategy\": \"allreduce\", \"ranks\": 2, %*[^}]}\n%n",
				&epoch, &loss, &accuracy, &rate, &transfer, &hidden, &length),
			6);
		assert_true(transfer > 0 && hidden >= 0 && hidden <= transfer);
		assert_int_equal(epoch, expected);
		assert_true(loss > 0 && loss < 3 && accuracy >= 0 && accuracy <= 1 && rate > 1);
		line += length;
	}
	assert_int_equal(*line, 0);
	/* On standard output, nothing stands between. */
	assert_int_equal(run_train(&tool, WORDS(SHORT, "--steps", "3", "--json", "-")), 0);
	assert_int_equal(tool.out.text[0], '{');
	assert_int_equal(occurrences(tool.out.text, "\n"), 1);
	tool_deinit(&tool);
	remove_folder(folder);
}

/* collet-bench training runs this very program. */
static void the_benchmark_has_a_row_for_each_strategy(void **state)
{
	static const char *const rows[] = { "\"allreduce\",\"ranks\":1,\"workers\":1,\"predicted\":false",
		"\"allreduce\",\"ranks\":2,\"workers\":2,\"predicted\":false",
		"\"async\",\"ranks\":2,\"workers\":1,\"predicted\":false",
		"\"allreduce\",\"ranks\":64,\"workers\":64,\"predicted\":true",
		"\"async\",\"ranks\":64,\"workers\":63,\"predicted\":true" };
	const struct tool_setup setup = { .program = getenv("COLLET_BENCH") };
	struct tool tool;
	tool_start(&tool, &setup, WORDS("training", "-n", "2", "--strategies", "allreduce,async", "--predict", "64",
					  "--json", "-", "--", "--dataset", "digits", "--model", "linear",
					  "--train-samples", "200", "--test-samples", "100", "--batch-size", "20",
					  "--staleness=0", "--servers", "1"));
	assert_int_equal(tool_finish(&tool), 0);
	assert_int_equal(occurrences(tool.out.text, "\n"), 5);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(occurrences(tool.out.text, rows[i]), 1);
	tool_deinit(&tool);
	/* What the program says goes on to the user. */
	tool_start(&tool, &setup, WORDS("training", "-n", "2", "--", "--dataset", "letters"));
	assert_int_not_equal(tool_finish(&tool), 0);
	assert_non_null(strstr(tool.error.text, "there is no data set letters"));
	tool_deinit(&tool);
	tool_start(&tool, &setup, WORDS("training", "--strategies", "hope"));
	assert_int_equal(tool_finish(&tool), 2);
	assert_non_null(strstr(tool.error.text, "--strategies: there is no strategy 'hope'"));
	tool_deinit(&tool);
}

static void what_makes_no_sense_is_refused(void **state)
{
	static const struct {
		const char *words[3];
		int status;
		const char *sentence;
	} rows[] = {
		{{"--epochs", "0"}, 2, "--epochs 0: not a whole number from 1"},
		{{"--batch-size", "1e3"}, 2, "--batch-size 1e3"},
		{{"--batch-size", "-1"}, 2, "--batch-size -1"},
		{{"--seed", "18446744073709551616"}, 2, "--seed 18446744073709551616"},
		{{"--lr", "fast"}, 2, "--lr fast"},
		{{"--lr", "nan"}, 2, "--lr nan"},
		{{"--bucket-bytes", "1G"}, 2, "--bucket-bytes 1G: not a number of bytes"},
		{{"--bucket-bytes", "0"}, 2, "--bucket-bytes 0"},
		{{"--dataset=digits", "--trace", "/nowhere/at/all"}, 1, "--trace /nowhere/at/all: No such file"},
		{{"--momentum", "1.5"}, 2, "--momentum 1.5"},
		{{"--fast"}, 2, "--help"},
		{{"--precision", "f8"}, 2, "--precision f8"},
		{{"--shards", "2", "--precision=bf16"}, 2, "--shards goes with --precision f32 only"},
		{{"--shards", "2", "--sync-batch-norm"}, 2, "not with --shards"},
		{{"digits"}, 2, "digits: not an option"},
		{{"--strategy", "hope"}, 2, "there is no strategy hope; allreduce, gather, data-parallel, "},
		{{"--strategy", "all-reduce"}, 2, "no strategy all-reduce (did you mean \"allreduce\"?); "},
		{{"--compress", "tokp:0.1"}, 2, "--compress: collet_ddp_hook_create: 'tokp:0.1' is none of f16, "},
		{{"--strategy=gossip", "--compress", "f16"}, 2, "--compress does not go with --strategy gossip:"},
		{{"--strategy=gossip", "--clip", "1"}, 2, "--clip does not go with --strategy gossip"},
		{{"--strategy=async", "--algorithm", "ring"}, 2, "--algorithm does not go with --strategy async"},
		{{"--strategy=sharded", "--shards", "2"}, 2, "--shards does not go with --strategy sharded"},
		{{"--strategy=data-parallel", "--accumulate", "2"}, 2, "--accumulate does not go with --strategy"},
		{{"--strategy=async", "--sync-batch-norm"}, 2, "--sync-batch-norm does not go with"},
		{{"--strategy=gather", "--no-overlap"}, 2, "--no-overlap does not go with --strategy gather"},
		{{"--servers", "1"}, 2, "--servers does not go with --strategy allreduce: it has none"},
		{{"--strategy=parameter-server", "--staleness", "1"}, 2, "--staleness does not go with"},
		{{"--strategy=sharded", "--local-steps", "4"}, 2, "--local-steps does not go with"},
		{{"--dataset=digits", "--strategy", "async"}, 1, "async with 1 server needs more than 1 rank: the"},
		{{"--dataset", "letters"}, 2, "there is no data set letters; mnist, cifar10 and digits are known"},
		{{"--dataset", "mnits"}, 2, "there is no data set mnits (did you mean \"mnist\"?); mnist, "},
		{{"--dataset", "mnist"}, 1, "--dataset digits needs no files"},
		{{"--data", "/nowhere"}, 1, "scripts/get-data mnist /nowhere"},
		{{"--dataset=digits", "--model", "large"}, 2, "there is no model large; convnet, "},
		{{"--dataset=digits", "--model", "resnet-20"}, 2, "(did you mean \"resnet20\"?)"},
		{{"--dataset=digits", "--json", "/nowhere/at/all"}, 1, "--json /nowhere/at/all: No such file"},
		{{"--dataset=digits", "--dump-parameters", "/nowhere/at/all"}, 1,
			"--dump-parameters /nowhere/at/all: No such file"},
	};
	unsetenv("COLLET_DATA");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *const words[] = { rows[i].words[0], rows[i].words[1], rows[i].words[2], NULL };
		struct tool tool;
		assert_int_equal(run_train(&tool, words), rows[i].status);
		if (!strstr(tool.error.text, rows[i].sentence))
			fail_msg("%s %s: %s", words[0], words[1] ? words[1] : "", tool.error.text);
		tool_deinit(&tool);
	}
}

/* Ranks that were told different things do not train on in silence, nor wait for each other. */
static void ranks_that_disagree_are_told(void **state)
{
	static const char script[] =
		"[ $RANK = 1 ] && more=$1; exec \"$0\" --dataset digits --train-samples 100 $more";
	static const struct {
		const char *words, *sentence;
	} rows[] = {
		{ "--no-batch-norm", "--no-batch-norm is given on rank 1 and not given on rank 0" },
		{ "--strategy gossip", "--strategy is gossip on rank 1 and allreduce on rank 0" },
		{ "--batch-size 50", "--batch-size is 50 on rank 1 and 100 on rank 0" },
		{ "--lr 0.5", "--lr is 0.5 on rank 1 and 0.01 on rank 0" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		assert_int_not_equal(tool_run(&tool, WORDS("-n", "2", "sh", "-c", script, train, rows[i].words)), 0);
		assert_non_null(strstr(tool.error.text, rows[i].sentence));
		tool_deinit(&tool);
	}
}

static void help_and_version_are_printed(void **state)
{
	struct tool tool;
	assert_int_equal(run_train(&tool, WORDS("--help")), 0);
	assert_non_null(strstr(tool.out.text, "--batch-size"));
	tool_deinit(&tool);
	assert_int_equal(run_train(&tool, WORDS("--version")), 0);
	assert_int_equal(strncmp(tool.out.text, "collet-train 0.", 15), 0);
	tool_deinit(&tool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_equal_one_rank_over_every_transport),
		cmocka_unit_test(ranks_may_be_threads_of_one_process),
		cmocka_unit_test(json_is_one_object_an_epoch),
		cmocka_unit_test(the_benchmark_has_a_row_for_each_strategy),
		cmocka_unit_test(what_makes_no_sense_is_refused),
		cmocka_unit_test(ranks_that_disagree_are_told),
		cmocka_unit_test(help_and_version_are_printed),
	};
	train = getenv("COLLET_TRAIN");
	return train ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
}
