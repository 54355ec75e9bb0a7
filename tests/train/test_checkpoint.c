/* A run that was stopped goes on bit for bit as if it had not been; on another number of ranks, to within rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "checkpoints.h"
#include "listen.h"
#include "sample.h"

enum { WORDS_MOST = 40 };

static char dumps[2][80];

/* Every second row, which ones the seed says; COLLET_TEST_FULL=1: all. */
static bool is_its_turn(size_t row)
{
	const char *full = getenv("COLLET_TEST_FULL"), *seed = getenv("COLLET_TEST_SEED");
	return ((full && *full) || (row + (seed ? strtoul(seed, NULL, 10) : 0)) % 2 == 0) && sample_has(row);
}

static void stop_and_go_on(size_t row, uint32_t ranks, const char *const *common, const char *const *words)
{
	/* In the middle of the first epoch, of the second, and where one ends. With --accumulate an epoch has 5. */
	static const char *const stops[] = { "3", "12", "10" };
	const char *const stop = stops[row % 3], *all[WORDS_MOST] = { NULL };
	char what[40];
	int count = 0;
	for (int list = 0; list < 2; list++)
		for (const char *const *word = list ? words : common; *word; word++)
			all[count++] = *word;
	const struct run through = run_words(ranks, TELL(PLAIN, "--steps", "14"), all);
	const struct run stopped = run_words(ranks, TELL(PLAIN, "--steps", stop, "--checkpoint", run_path), all);
	const struct run resumed =
		run_words(ranks, TELL(PLAIN, "--steps", "14", "--checkpoint", run_path, "--resume"), all);
	snprintf(what, sizeof(what), "row %zu (%s), stopped after %s", row, common[0], stop);
	expect_alike(what, &through, &resumed, ranks);
	assert_true(stopped.last[0].checksum != through.last[0].checksum);
	remove_checkpoints();
}

static void a_stopped_run_goes_on_bit_for_bit(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *words[9];
	} rows[] = {
		{ 2, { NULL } },
		{ 1, { "--shards", "2" } },
		{ 3, { "--nesterov", "--weight-decay", "0.01", "--warmup", "12" } },
		{ 2, { "--augment", "--workers", "2", "--sync-batch-norm" } },
		{ 2, { "--optimizer", "adamw", "--schedule", "step", "--decay-every", "1" } },
		{ 2, { "--accumulate", "2", "--clip", "0.5", "--no-batch-norm" } },
		{ 2, { "--model", "linear", "--compress", "topk:0.05" } },
		{ 2, { "--model", "linear", "--compress", "randomk:0.1", "--lr", "0.002" } },
		{ 2, { "--model", "linear", "--compress", "qsgd:4", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--compress", "sign", "--lr", "0.002" } },
		{ 3, { "--model", "linear", "--compress", "powersgd:2" } },
		{ 2, { "--precision", "f16", "--lr", "0.02" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_its_turn(i))
			stop_and_go_on(i, rows[i].ranks, TELL("--algorithm", "direct"), rows[i].words);
}

/* Whether all ranks have everything, each a part, or each something of its own. */
static void so_it_does_with_every_strategy(void **state)
{
	static const struct {
		uint32_t ranks;
		const char *words[9];
	} rows[] = {
		{ 3, { "--model", "linear", "--strategy", "gossip", "--precision", "f16", "--lr", "0.02" } },
		{ 2, { "--model", "linear", "--strategy", "local-sgd", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--strategy", "gossip", "--optimizer", "adamw" } },
		{ 3, { "--model", "linear", "--strategy", "local-sgd", "--local-steps", "5" } },
		{ 3, { "--model", "linear", "--strategy", "sharded", "--optimizer", "adamw" } },
		{ 3, { "--model", "linear", "--strategy", "parameter-server" } },
		{ 4, { "--strategy", "parameter-server", "--servers", "2", "--optimizer", "adamw" } },
		{ 2, { "--model", "linear", "--strategy", "data-parallel", "--augment" } },
		{ 2, { "--model", "linear", "--strategy", "gather" } },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_its_turn(i))
			stop_and_go_on(i, rows[i].ranks, TELL("--momentum", "0.8"), rows[i].words);
}

/* What comes then is another run every time; but what was learnt is there. */
static void an_asynchronous_run_goes_on_too(void **state)
{
	const char *const words[] = { "--strategy", "async", "--model", "linear", NULL };
	const struct run stopped = run_words(3, TELL(PLAIN, "--steps", "13", "--checkpoint", run_path), words);
	const struct run resumed =
		run_words(3, TELL(PLAIN, "--steps", "14", "--checkpoint", run_path, "--resume"), words);
	assert_true(stopped.fine[0] && stopped.fine[1] && stopped.fine[2]);
	assert_true(resumed.fine[0] && resumed.fine[1] && resumed.fine[2]);
	assert_true(resumed.last[0].checksum != stopped.last[0].checksum);
	/* 3 steps of the second epoch, and one more. */
	assert_true(fabs(resumed.last[0].loss - stopped.last[0].loss) < 0.2 * stopped.last[0].loss);
	remove_checkpoints();
}

static void what_ranks_keep_for_themselves_is_theirs(void **state)
{
	const char *const compressed[] = { "--compress", "topk:0.05", NULL };
	/* Of another number of ranks, or of another hook, it means nothing: that is said, and training goes on. */
	static const struct {
		uint32_t ranks;
		const char *words[3];
		bool left_out;
	} rows[] = {
		{ 2, { "--compress", "topk:0.05" }, false },
		{ 3, { "--compress", "topk:0.05" }, true },
		{ 2, { NULL }, true },
		{ 2, { "--compress", "topk:0.1" }, true },
	};
	struct tensor_file file;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[8000];
		assert_true(run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", run_path),
			compressed).fine[0]);
		assert_true(safetensors_read(&file, run_path));
		assert_non_null(safetensors_tensor(&file, "ranks.own"));
		safetensors_deinit(&file);
		listen_begin();
		const struct run run = run_words(rows[i].ranks,
			TELL("--model", "linear", SHORT, "--steps", "4", "--checkpoint", run_path, "--resume"),
			rows[i].words);
		listen_end(text, sizeof(text));
		if (!run.fine[0] || !strstr(text, "goes on from ") || !strstr(text, "left out") == rows[i].left_out)
			fail_msg("row %zu: %s", i, text);
	}
	/* Where there is nothing of the kind, nothing is said. */
	assert_true(run_words(2, TELL("--model", "linear", SHORT, "--steps", "3", "--checkpoint", run_path), NULL)
			    .fine[0]);
	assert_true(safetensors_read(&file, run_path));
	assert_null(safetensors_tensor(&file, "ranks.own"));
	safetensors_deinit(&file);
	remove_checkpoints();
}

/* One that is not there yet is no mistake: a job can be told the same words every time. */
static void without_a_checkpoint_a_run_begins(void **state)
{
	const struct run through = run_words(2, TELL(SHORT, "--steps", "4"), NULL);
	const struct run begun = run_words(2, TELL(SHORT, "--steps", "4", "--checkpoint", run_path, "--resume"), NULL);
	expect_alike("from nothing", &through, &begun, 2);
	/* Nor is one with which there is nothing left to do. */
	const struct run done = run_words(2, TELL(SHORT, "--steps", "4", "--checkpoint", run_path, "--resume"), NULL);
	assert_true(done.fine[0] && done.fine[1] && done.epochs == 0);
	remove_checkpoints();
}

/* ---- Other ranks ------------------------------------------------------------------------------------------------ */

/* One rank that does two ranks' shares in turn computes the same bits: it may take up their run. */
static void shards_go_on_with_what_ranks_began(void **state)
{
	const struct run through = run_words(2, TELL(SHORT, "--steps", "16"), NULL);
	assert_true(run_words(2, TELL(SHORT, "--steps", "13", "--checkpoint", run_path), NULL).fine[0]);
	const struct run resumed = run_words(
		1, TELL(SHORT, "--steps", "16", "--shards", "2", "--checkpoint", run_path, "--resume"), NULL);
	expect_alike("by shards", &through, &resumed, 1);
	remove_checkpoints();
}

static void read_floats(const char *from, float *values, size_t count)
{
	FILE *file = fopen(from, "rb");
	assert_non_null(file);
	assert_int_equal(fread(values, sizeof(float), count, file), count);
	fclose(file);
	unlink(from);
}

/* The same images make each step, in another order of adding. 600 images divide by all there are. */
#define EVEN \
	"--dataset", "digits", "--train-samples", "600", "--test-samples", "100", "--no-batch-norm", "--lr", "0.002", \
		"--epochs", "2"

static void another_number_of_ranks_goes_on_to_within_rounding(void **state)
{
	enum { PARAMETERS = 16 * 25 + 16 + 32 * 16 * 25 + 32 + 10 * 1568 + 10 };
	static const struct {
		uint32_t before, after;
		const char *batches[2], *words[3];
	} rows[] = {
		{ 2, 1, { "30", "60" }, { NULL } },
		{ 1, 3, { "60", "20" }, { NULL } },
		{ 3, 2, { "20", "30" }, { NULL } },
		/* What the optimiser remembers lies in other parts then. */
		{ 2, 3, { "30", "20" }, { "--strategy", "sharded" } },
		{ 3, 4, { "30", "20" }, { "--strategy", "parameter-server" } },
	};
	float *values[2] = { calloc(PARAMETERS, sizeof(float)), calloc(PARAMETERS, sizeof(float)) };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!is_its_turn(i))
			continue;
		const struct run through = run_words(rows[i].before,
			TELL(EVEN, "--batch-size", rows[i].batches[0], "--dump-parameters", dumps[0]), rows[i].words);
		const struct run stopped = run_words(rows[i].before,
			TELL(EVEN, "--batch-size", rows[i].batches[0], "--steps", "14", "--checkpoint", run_path),
			rows[i].words);
		const struct run resumed = run_words(rows[i].after,
			TELL(EVEN, "--batch-size", rows[i].batches[1], "--checkpoint", run_path, "--resume",
				"--dump-parameters", dumps[1]),
			rows[i].words);
		assert_true(through.fine[0] && stopped.fine[0] && resumed.fine[0]);
		assert_int_equal(resumed.epochs, 1);
		/* All of the epoch's images count, those before the stop too. */
		assert_float_equal(through.last[0].loss, resumed.last[0].loss, 1e-4);
		for (int d = 0; d < 2; d++)
			read_floats(dumps[d], values[d], PARAMETERS);
		for (size_t v = 0; v < PARAMETERS; v++)
			assert_float_equal(values[0][v], values[1][v], 1e-4);
		remove_checkpoints();
	}
	free(values[0]);
	free(values[1]);
}

/* 150 images are two steps of 64, and a rest that is seen again: the epoch's loss is the mean over all that were seen.
 * Without a step every image has one loss, whenever it is seen. */
static void a_step_that_does_not_divide_begins_before(void **state)
{
	const char *const still[] = { "--lr", "0", "--model", "linear", "--dataset", "digits", "--train-samples",
		"610", "--test-samples", "41", "--checkpoint", run_path, NULL };
	struct tensor_file file;
	const struct run through = run_words(1, TELL("--batch-size", "50"), still);
	assert_true(run_words(1, TELL("--batch-size", "50", "--steps", "3"), still).fine[0]);
	const struct run resumed = run_words(2, TELL("--batch-size", "32", "--resume"), still);
	assert_true(through.fine[0] && resumed.fine[0] && resumed.fine[1]);
	assert_int_equal(resumed.last[0].epoch, 1);
	assert_true(fabs(resumed.last[0].loss / through.last[0].loss - 1) < 0.01);
	/* An epoch has 305 images a rank: 2 + 8 steps. */
	assert_true(safetensors_read(&file, run_path));
	assert_string_equal(safetensors_note(&file, "steps"), "11");
	assert_string_equal(safetensors_note(&file, "epochs"), "1");
	safetensors_deinit(&file);
	remove_checkpoints();
}

static int enter(void **state)
{
	if (checkpoints_enter(state))
		return -1;
	for (int d = 0; d < 2; d++)
		snprintf(dumps[d], sizeof(dumps[d]), "%s.dump%d", run_path, d);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_run_goes_on_bit_for_bit),
		cmocka_unit_test(so_it_does_with_every_strategy),
		cmocka_unit_test(an_asynchronous_run_goes_on_too),
		cmocka_unit_test(what_ranks_keep_for_themselves_is_theirs),
		cmocka_unit_test(without_a_checkpoint_a_run_begins),
		cmocka_unit_test(shards_go_on_with_what_ranks_began),
		cmocka_unit_test(another_number_of_ranks_goes_on_to_within_rounding),
		cmocka_unit_test(a_step_that_does_not_divide_begins_before),
	};
	return cmocka_run_group_tests(tests, enter, checkpoints_leave);
}
