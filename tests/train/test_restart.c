/* Jobs that are killed while they train, by processes: begun again, they end with the bytes of a job that was left
 * alone. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "tool.h"

#define LONG                                                                                                           \
	"--dataset", "digits", "--train-samples", "610", "--test-samples", "41", "--batch-size", "16", "--epochs",     \
		"3", "--optimizer", "adamw", "--lr", "0.001", "--schedule", "cosine", "--compress", "topk:0.1"

static const char *train;  /* the program */
static char folder[64], checkpoint[80], dump[80];

static char *read_dump(size_t *count)
{
	FILE *file = fopen(dump, "rb");
	assert_non_null(file);
	char *bytes = malloc(1 << 20);
	*count = fread(bytes, 1, 1 << 20, file);
	assert_in_range(*count, 1000, (1 << 20) - 1);
	fclose(file);
	unlink(dump);
	return bytes;
}

static char *left_alone(size_t *count)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, LONG, "--dump-parameters", dump)), 0);
	tool_deinit(&tool);
	return read_dump(count);
}

static void expect_same(const char *expected, size_t count)
{
	size_t again;
	char *bytes = read_dump(&again);
	assert_int_equal(again, count);
	assert_memory_equal(bytes, expected, count);
	free(bytes);
}

/* Rank 1 is killed as soon as there is a checkpoint that was not there before, in the first run and in the second. It
 * is collet-run's own child that is: were it another's, rank 0 could miss it, and be gone, before collet-run knows. */
static const char kill_a_rank[] =
	"[ $RANK = 1 ] && [ $COLLET_RESTART -lt 2 ] || exec \"$0\" \"$@\"\n"
	"before=$(ls -i $CHECKPOINT 2>/dev/null)\n"
	"{ while [ \"$(ls -i $CHECKPOINT)\" = \"$before\" ]; do kill -0 $$ || exit; done; kill -KILL $$; } "
	">/dev/null 2>&1 </dev/null &\n"
	"exec \"$0\" \"$@\"";

static void a_job_whose_rank_dies_ends_as_if_it_had_not(void **state)
{
	struct tool tool;
	size_t count;
	char *expected = left_alone(&count);
	setenv("CHECKPOINT", checkpoint, 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--restarts", "3", "sh", "-c", kill_a_rank, train, LONG,
		"--checkpoint", checkpoint, "--checkpoint-every", "1", "--resume", "--dump-parameters", dump)), 0);
	if (occurrences(tool.error.text, "collet-run: restart ") != 2 ||
		occurrences(tool.error.text, "goes on from ") != 2 ||
		!strstr(tool.error.text, "restart 2 of 3: rank 1 (host ") ||
		!strstr(tool.error.text, "was killed by signal 9 (SIGKILL)"))
		fail_msg("%s", tool.error.text);
	tool_deinit(&tool);
	expect_same(expected, count);
	free(expected);
}

/* How far the checkpoint is; 0: there is none. It is whole whenever it is looked at. */
static unsigned steps_saved(void)
{
	struct tensor_file file;
	if (access(checkpoint, F_OK) != 0)
		return 0;
	assert_true(safetensors_read(&file, checkpoint));
	assert_true(file.checked);
	const unsigned steps = (unsigned)strtoul(safetensors_note(&file, "steps"), NULL, 10);
	safetensors_deinit(&file);
	return steps;
}

static void a_job_that_is_killed_again_and_again_ends_as_if_it_had_not(void **state)
{
	struct tool tool;
	size_t count;
	char *expected = left_alone(&count);
	unsigned steps = 0;
	unlink(checkpoint);
	for (int kills = 0; kills < 3; kills++) {
		const struct tool_setup setup = { 0 };
		tool_start(&tool, &setup, WORDS("-n", "2", train, LONG, "--checkpoint", checkpoint,
			"--checkpoint-every", "1", "--resume"));
		const unsigned before = steps;
		while ((steps = steps_saved()) <= before + 1) {
			siginfo_t ended = { 0 };
			assert_int_equal(waitid(P_PID, (id_t)tool.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
			assert_int_equal(ended.si_pid, 0);
		}
		assert_int_equal(kill(tool.pid, SIGKILL), 0);
		assert_int_equal(tool_finish(&tool), 137);
		tool_deinit(&tool);
		/* Nothing older is lost. */
		assert_true(steps_saved() >= steps);
		steps = steps_saved();
	}
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, LONG, "--checkpoint", checkpoint, "--resume",
		"--dump-parameters", dump)), 0);
	assert_non_null(strstr(tool.out.text, "epoch 3/3: "));
	tool_deinit(&tool);
	expect_same(expected, count);
	free(expected);
}

static void what_cannot_be_written_is_said_at_once(void **state)
{
	static const struct {
		const char *words[4];
		int status;
		const char *sentence;
	} rows[] = {
		{ { "--resume" }, 2, "--resume: say where with --checkpoint" },
		{ { "--checkpoint-every", "3" }, 2, "--checkpoint-every: say where with --checkpoint" },
		{ { "--checkpoint", "/nowhere/at/all" }, 1, "--checkpoint /nowhere/at/all: /nowhere/at: No such file" },
		{ { "--checkpoint", "/dev/null/" }, 1, "--checkpoint /dev/null/: " },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const struct tool_setup setup = { .program = train };
		tool_start(&tool, &setup, rows[i].words);
		assert_int_equal(tool_finish(&tool), rows[i].status);
		if (!strstr(tool.error.text, rows[i].sentence))
			fail_msg("row %zu: %s", i, tool.error.text);
		tool_deinit(&tool);
	}
}

int main(void)
{
	make_folder(folder);
	snprintf(checkpoint, sizeof(checkpoint), "%s/run", folder);
	snprintf(dump, sizeof(dump), "%s/dump", folder);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_whose_rank_dies_ends_as_if_it_had_not),
		cmocka_unit_test(a_job_that_is_killed_again_and_again_ends_as_if_it_had_not),
		cmocka_unit_test(what_cannot_be_written_is_said_at_once),
	};
	train = getenv("COLLET_TRAIN");
	const int failed = train ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
	remove_folder(folder);
	return failed;
}
