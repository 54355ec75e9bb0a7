/* What a run leaves to be looked at: a log of steps and epochs, a plot, a summary; of all of a run, also where it was
 * stopped and went on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"
#include "tool.h"

/* Ten steps an epoch. */
#define SHORT                                                                                                          \
	"--dataset", "digits", "--model", "linear", "--train-samples", "610", "--test-samples", "41", "--batch-size",  \
		"32", "--schedule", "cosine", "--epochs", "2"

static const char *train;  /* the program */
static char folder[64], path[80], checkpoint[80];

static void read_text(const char *from, char *text, size_t capacity)
{
	FILE *file = fopen(from, "rb");
	assert_non_null(file);
	text[fread(text, 1, capacity - 1, file)] = '\0';
	fclose(file);
}

struct line {
	double time, loss, accuracy, images_per_s, rate;
	unsigned epoch, step;
	char kind[20];
};

/* Fails the test if a line is not as all are. */
static size_t read_log(struct line *lines, size_t most)
{
	char text[8000];
	size_t count = 0;
	read_text(path, text, sizeof(text));
	for (char *at = text; *at; count++) {
		int length = 0;
		assert_true(count < most);
		struct line *line = &lines[count];
		sscanf(at, "{\"time\": %lf, \"epoch\": %u, \"step\": %u, \"loss\": %lf, \"%19[a-z_]\": %lf, "
			"\"images_per_s\": %lf, \"rate\": %lf}\n%n", &line->time, &line->epoch, &line->step,
			&line->loss, line->kind, &line->accuracy, &line->images_per_s, &line->rate, &length);
		if (length == 0)
			fail_msg("%s", at);
		at += length;
	}
	return count;
}

static void the_log_has_steps_and_epochs(void **state)
{
	static const unsigned steps[] = { 4, 8, 10, 12, 16, 20, 20 };
	struct line lines[7];
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, "--log", path, "--log-every", "4")), 0);
	assert_non_null(strstr(tool.out.text, "2 epochs, 20 steps: test accuracy "));
	tool_deinit(&tool);
	assert_int_equal(read_log(lines, 7), 7);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(lines[i].step, steps[i]);
		assert_int_equal(lines[i].epoch, 1 + (steps[i] > 10));
		assert_string_equal(lines[i].kind, i == 2 || i == 6 ? "test_accuracy" : "accuracy");
		assert_true(lines[i].time > 1.6e9 && lines[i].loss > 0 && lines[i].loss < 4);
		assert_true(lines[i].accuracy >= 0 && lines[i].accuracy <= 1 && lines[i].images_per_s > 1);
		/* Down half a cosine from 0.01. */
		assert_true(lines[i].rate > 0 && lines[i].rate < (i ? lines[i - 1].rate + 1e-9 : 0.01));
	}
	/* A resumed run adds to it, a new one begins it. */
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", train, SHORT, "--steps", "5", "--log", path, "--checkpoint",
		checkpoint)), 0);
	tool_deinit(&tool);
	assert_int_equal(read_log(lines, 7), 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", train, SHORT, "--steps", "6", "--log", path, "--checkpoint",
		checkpoint, "--resume")), 0);
	tool_deinit(&tool);
	assert_int_equal(read_log(lines, 7), 2);
	assert_int_equal(lines[0].step, 5);
	assert_int_equal(lines[1].step, 6);
	unlink(checkpoint);
	unlink(path);
}

/* What was logged after the checkpoint, and half of a line besides, is gone when the run goes on; and all of it when
 * there was no checkpoint yet. */
static void the_log_reads_as_if_no_rank_had_died(void **state)
{
	enum { LINES = 7 };
	static const char *const names[] = { "step-0000000008", "step-0000000010", "step-0000000016",
		"step-0000000020" };
	struct line expected[LINES], lines[LINES];
	struct tool tool;
	char saved[4][120], text[8000];
	assert_int_equal(mkdir(checkpoint, 0777), 0);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, "--log", path, "--log-every", "4",
		"--checkpoint", checkpoint, "--checkpoint-every", "8")), 0);
	tool_deinit(&tool);
	assert_int_equal(read_log(expected, LINES), LINES);
	for (size_t first = 1;; first--) {
		for (size_t i = 0; i < 4; i++) {
			snprintf(saved[i], sizeof(saved[i]), "%s/%s.safetensors", checkpoint, names[i]);
			if (i >= first)
				unlink(saved[i]);
		}
		read_text(path, text, sizeof(text));
		const char *torn = strstr(text, "\"step\": 16");
		assert_non_null(torn);
		assert_int_equal(truncate(path, torn - text), 0);
		assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, "--log", path, "--log-every", "4",
			"--checkpoint", checkpoint, "--resume")), 0);
		assert_int_equal(occurrences(tool.error.text, "goes on from "), first);
		tool_deinit(&tool);
		assert_int_equal(read_log(lines, LINES), LINES);
		for (size_t i = 0; i < LINES; i++) {
			assert_int_equal(lines[i].step, expected[i].step);
			assert_string_equal(lines[i].kind, expected[i].kind);
			assert_true(lines[i].loss == expected[i].loss && lines[i].accuracy == expected[i].accuracy);
		}
		if (first == 0)
			break;
	}
	for (size_t i = 0; i < 4; i++)
		unlink(saved[i]);
	rmdir(checkpoint);
	unlink(path);
}

/* With --resume nothing is left to do, which looks like success and is: it must be said. */
static void a_finished_run_says_so(void **state)
{
	static const struct {
		const char *limit[2], *sentence;  /* the words of both runs; the second run's line */
	} rows[] = {
		{ { "--epochs", "2" }, ": this run has finished: 20 steps, 2 of 2 epochs; a larger --epochs would" },
		{ { "--steps", "5" }, ": this run has finished: 5 steps, 0 of 2 epochs; a larger --steps would go" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		for (int run = 0; run < 2; run++) {
			assert_int_equal(tool_run(&tool, WORDS("-n", "2", train, SHORT, rows[i].limit[0],
				rows[i].limit[1], "--checkpoint", checkpoint, "--resume")), 0);
			if (occurrences(tool.error.text, rows[i].sentence) != (size_t)run ||
				strstr(tool.error.text, "goes on from") != NULL)
				fail_msg("row %zu, run %d: %s", i, run, tool.error.text);
			tool_deinit(&tool);
		}
		unlink(checkpoint);
	}
}

static void the_plot_has_all_epochs(void **state)
{
	static char text[1 << 20];
	struct tool tool;
	if (system("command -v gnuplot >/dev/null") != 0)
		skip_because("there is no gnuplot");
	/* The first epoch is another run's, and the checkpoint's to tell. */
	assert_int_equal(
		tool_run(&tool, WORDS("-n", "2", train, SHORT, "--steps", "10", "--checkpoint", checkpoint)), 0);
	tool_deinit(&tool);
	assert_int_equal(
		tool_run(&tool, WORDS("-n", "2", train, SHORT, "--checkpoint", checkpoint, "--resume", "--plot", path)),
		0);
	assert_non_null(strstr(tool.out.text, "2 epochs, 20 steps: "));
	tool_deinit(&tool);
	read_text(path, text, sizeof(text));
	assert_non_null(strstr(text, "<svg"));
	assert_non_null(strstr(text, "</svg>"));
	assert_non_null(strstr(text, ">linear on digits, 2 ranks, batch 32 a rank<"));
	static const char *const names[] = { ">loss<", ">test accuracy, %<", ">images/s<" };
	for (size_t n = 0; n < 3; n++)
		assert_non_null(strstr(text, names[n]));
	/* A point an epoch in each of the three. */
	assert_int_equal(occurrences(text, "xlink:href='#gpPt6'"), 6);
	unlink(checkpoint);
	unlink(path);
}

static void what_cannot_be_had_is_said_before_training(void **state)
{
	static const struct {
		const char *words[6];
		const char *path, *sentence;
		int status;
	} rows[] = {
		{{"--dataset", "digits", "--log", "/nowhere/at/all"}, NULL, "--log /nowhere/at/all: No such file", 1},
		{{"--dataset", "digits", "--plot", "p.svg"}, "/nowhere",
			"--plot p.svg: gnuplot is not installed; install it by scripts/install-deps plot", 1},
		{{"--log-every", "0"}, NULL, "--log-every 0: not a whole number from 1", 2},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		char *before = strdup(getenv("PATH"));
		const struct tool_setup setup = { .program = train };
		if (rows[i].path)
			setenv("PATH", rows[i].path, 1);
		tool_start(&tool, &setup, rows[i].words);
		const int status = tool_finish(&tool);
		setenv("PATH", before, 1);
		free(before);
		if (status != rows[i].status || !strstr(tool.error.text, rows[i].sentence))
			fail_msg("row %zu: status %d: %s", i, status, tool.error.text);
		tool_deinit(&tool);
	}
}

int main(void)
{
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/shown", folder);
	snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint", folder);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_log_has_steps_and_epochs),
		cmocka_unit_test(the_log_reads_as_if_no_rank_had_died),
		cmocka_unit_test(a_finished_run_says_so),
		cmocka_unit_test(the_plot_has_all_epochs),
		cmocka_unit_test(what_cannot_be_had_is_said_before_training),
	};
	train = getenv("COLLET_TRAIN");
	const int failed = train ? cmocka_run_group_tests(tests, NULL, NULL) : 2;
	remove_folder(folder);
	return failed;
}
