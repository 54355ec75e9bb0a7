/* --restarts: a job whose rank fails begins again, as often as was allowed, and with nothing left of the run before. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tool.h"

static char folder[64];

static void a_job_begins_again_after_a_failure(void **state)
{
	static const struct {
		const char *restarts, *script;
		int status;
		const char *sentences[4];
		size_t runs, begun_again;
	} rows[] = {
		{ "3", "[ $COLLET_RESTART = 2 ] || [ $RANK = 0 ] || kill -9 $$", 0,
			{ "collet-run: restart 1 of 3: rank 1 (host ", "collet-run: restart 2 of 3: rank 1 (host ",
				") was killed by signal 9 (SIGKILL)\n" }, 3, 2 },
		{ "1", "[ $COLLET_RESTART = 1 ] || exit 7", 0, { "restart 1 of 1: rank ", ") exited with status 7\n" },
			2, 1 },
		/* No more often; then the last failure is the job's. */
		{ "2", "exit $((4 + COLLET_RESTART))", 6, { "restart 2 of 2: rank ", ") exited with status 6" }, 3, 2 },
		{ "0", "exit 4", 4, { ") exited with status 4" }, 1, 0 },
		/* A job that ends well ends. */
		{ "3", "exit 0", 0, { NULL }, 1, 0 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		char script[256];
		snprintf(script, sizeof(script), "echo run $COLLET_RESTART.; %s", rows[i].script);
		const int status = tool_run(&tool, WORDS("-n", "2", "--grace", "0", "--restarts", rows[i].restarts,
			"sh", "-c", script));
		bool said = status == rows[i].status &&
			occurrences(tool.error.text, "collet-run: restart ") == rows[i].begun_again;
		for (int s = 0; s < 4 && rows[i].sentences[s]; s++)
			said = said && strstr(tool.error.text, rows[i].sentences[s]);
		for (size_t run = 0; run <= rows[i].runs; run++) {
			char line[32];
			snprintf(line, sizeof(line), "] run %zu.\n", run);
			/* --grace 0: in a run that fails the other rank may have been ended before it said so. */
			const size_t count = occurrences(tool.out.text, line);
			said = said && (run < rows[i].runs ? count >= 1 : count == 0);
		}
		if (!said)
			fail_msg("row %zu: status %d: %s%s", i, status, tool.out.text, tool.error.text);
		tool_deinit(&tool);
	}
}

static void what_no_other_try_can_mend_is_not_tried(void **state)
{
	static const struct {
		const char *const words[7];
		int status;
	} rows[] = {
		{ { "-n", "1", "--restarts", "5", "/nowhere/at/all" }, 127 },
		{ { "-n", "1", "--restarts", "5", "/etc/passwd" }, 126 },
	};
	struct tool tool;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(tool_run(&tool, rows[i].words), rows[i].status);
		assert_int_equal(occurrences(tool.error.text, "restart"), 0);
		tool_deinit(&tool);
	}
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--restarts", "5", "--timeout", "0.2", "sleep", "600")), 124);
	assert_int_equal(occurrences(tool.error.text, "restart"), 0);
	tool_deinit(&tool);
	/* Its user ends it. */
	const struct tool_setup setup = { 0 };
	tool_start(&tool, &setup, WORDS("-n", "2", "--restarts", "5", "sh", "-c", "echo ready; exec sleep 600"));
	tool_await(&tool, "[0] ready\n");
	tool_await(&tool, "[1] ready\n");
	assert_int_equal(kill(tool.pid, SIGINT), 0);
	assert_int_equal(tool_finish(&tool), 130);
	assert_int_equal(occurrences(tool.error.text, "restart"), 0);
	tool_deinit(&tool);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--restarts", "-1", "true")), 2);
	assert_non_null(strstr(tool.error.text, "--restarts -1: expected a whole number"));
	tool_deinit(&tool);
}

/* The deadline is the job's, not a run's. */
static void the_timeout_covers_all_runs(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "--restarts", "1", "--timeout", "1", "sh", "-c",
		"[ $COLLET_RESTART = 0 ] && exit 3; exec sleep 600")), 124);
	assert_int_equal(occurrences(tool.error.text, "collet-run: restart 1 of 1"), 1);
	tool_deinit(&tool);
}

/* A helper in a session of its own, deaf to SIGTERM, has its process id in a file. */
static void nothing_of_the_run_before_is_left(void **state)
{
	struct tool tool;
	setenv("FOLDER", folder, 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--grace", "0.1", "--restarts", "1", "sh", "-c",
		"if [ $COLLET_RESTART = 1 ]; then\n"
		"	for rank in 0 1; do kill -0 $(cat $FOLDER/helper$rank) && exit 9; done 2>/dev/null\n"
		"	echo alone; exit 0\n"
		"fi\n"
		"mkfifo $FOLDER/ready$RANK\n"
		"(setsid sh -c 'trap \"\" TERM HUP; echo $$ >$FOLDER/helper$RANK; echo >$FOLDER/ready$RANK\n"
		"	sleep 600' &)\n"
		"read line <$FOLDER/ready$RANK; [ $RANK = 1 ] || exec sleep 600\n"
		"while [ ! -s $FOLDER/helper0 ]; do :; done; kill -KILL $$")), 0);
	assert_int_equal(occurrences(tool.out.text, "] alone\n"), 2);
	tool_deinit(&tool);
}

static void rank_0_reads_on(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .input = "one\ntwo\nthree\n" };
	tool_start(&tool, &setup, WORDS("-n", "2", "--restarts", "1", "sh", "-c",
		"[ $RANK = 0 ] || exit 0; read line; echo got $line; [ $COLLET_RESTART = 1 ] || exit 1; cat"));
	assert_int_equal(tool_finish(&tool), 0);
	assert_non_null(strstr(tool.out.text, "[0] got one\n[0] got two\n[0] three\n"));
	tool_deinit(&tool);
}

static int enter(void **state)
{
	make_folder(folder);
	return 0;
}

static int leave(void **state)
{
	remove_folder(folder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_begins_again_after_a_failure),
		cmocka_unit_test(what_no_other_try_can_mend_is_not_tried),
		cmocka_unit_test(the_timeout_covers_all_runs),
		cmocka_unit_test(nothing_of_the_run_before_is_left),
		cmocka_unit_test(rank_0_reads_on),
	};
	return cmocka_run_group_tests(tests, enter, leave);
}
