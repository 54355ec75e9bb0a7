/* How a job ends: by itself, by a rank that fails, by its user, by the death of collet-run. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"
#include "tool.h"

static char folder[64];

static void a_failure_is_named_and_becomes_the_status(void **state)
{
	const struct {
		const char *const *arguments;
		int status;
		const char *sentence;
	} rows[] = {
		{ WORDS("-n", "3", "true"), 0, "" },
		{ WORDS("-n", "1", "sh", "-c", "exit 3"), 3, ") exited with status 3\n" },
		{ WORDS("-n", "1", "sh", "-c", "kill -9 $$"), 137, ") was killed by signal 9 (SIGKILL)" },
		{ WORDS("-n", "1", "sh", "-c", "kill -SEGV $$"), 139, ") was killed by signal 11 (SIGSEGV)" },
		{ WORDS("-n", "2", "--grace", "0", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 600"), 7,
			") exited with status 7; ending the others\n" },
		/* Ranks that have ended well are no reason to end the others. */
		{ WORDS("-n", "2", "sh", "-c", "[ $RANK = 0 ] && exit 0; kill -USR1 $$"), 138, "rank 1 (host " },
		{ WORDS("-n", "2", "/nowhere/at/all"), 127,
			"): cannot run /nowhere/at/all: No such file or directory" },
		{ WORDS("-n", "2", "/etc/passwd"), 126, "cannot run /etc/passwd: Permission denied" },
		{ WORDS("-n", "2", "--timeout", "0.2", "sleep", "600"), 124,
			"2 of 2 ranks still ran after 0.2 s (--timeout)" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const int status = tool_run(&tool, rows[i].arguments);
		if (status != rows[i].status || strstr(tool.error.text, rows[i].sentence) == NULL ||
			occurrences(tool.error.text, "collet-run: ") != (rows[i].status != 0))
			fail_msg("row %zu: expected \"%s\", got status %d: %s", i, rows[i].sentence, status,
				tool.error.text);
		tool_deinit(&tool);
	}
}

static void the_report_names_rank_host_and_process(void **state)
{
	struct tool tool;
	char host[256] = "", expected[512];
	assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--grace", "0", "sh", "-c",
		"[ $RANK = 1 ] || exec sleep 600; echo pid $$; kill -ABRT $$")), 134);
	int pid;
	assert_int_equal(sscanf(tool.out.text, "[1] pid %d", &pid), 1);
	snprintf(expected, sizeof(expected), "collet-run: rank 1 (host %s, pid %d) was killed by signal 6 (SIGABRT)",
		host, pid);
	assert_non_null(strstr(tool.error.text, expected));
	tool_deinit(&tool);
}

/* The survivors learn rank 1's process id, see it gone (which it is only when collet-run has taken note of its end),
 * and take the time to say so. */
static void survivors_have_the_grace_to_report(void **state)
{
	struct tool tool;
	char path[128];
	for (int rank = 0; rank <= 2; rank += 2) {
		snprintf(path, sizeof(path), "%s/fifo%d", folder, rank);
		assert_int_equal(mkfifo(path, 0600), 0);
	}
	setenv("FOLDER", folder, 1);
	assert_int_equal(tool_run(&tool, WORDS("-n", "3", "--grace", "50", "sh", "-c",
		"if [ $RANK = 1 ]; then echo $$ >$FOLDER/fifo0; echo $$ >$FOLDER/fifo2; exit 5; fi\n"
		"read pid <$FOLDER/fifo$RANK; while kill -0 $pid 2>/dev/null; do :; done\n"
		"echo rank $RANK lost its peer >&2; exit 1")), 5);
	assert_non_null(strstr(tool.error.text, "[0] rank 0 lost its peer\n"));
	assert_non_null(strstr(tool.error.text, "[2] rank 2 lost its peer\n"));
	assert_non_null(strstr(tool.error.text, "exited with status 5; the others have 50 s to end by themselves\n"));
	assert_int_equal(occurrences(tool.error.text, ") exited with status 1\n"), 2);
	tool_deinit(&tool);
}

static void who_does_not_end_gets_sigterm_then_sigkill(void **state)
{
	struct tool tool;
	char path[128];
	snprintf(path, sizeof(path), "%s/ready", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	/* Rank 1 fails only when rank 0 is deaf to SIGTERM. Rank 0's helpers are deaf as well. */
	assert_int_equal(tool_run(&tool, WORDS("-n", "2", "--grace", "0.1", "sh", "-c",
		"if [ $RANK = 1 ]; then read line <$FOLDER/ready; exit 9; fi\n"
		"trap 'echo asked to end' TERM; echo ready >$FOLDER/ready; while :; do sleep 600 & wait; done")), 9);
	assert_non_null(strstr(tool.out.text, "[0] asked to end\n"));
	tool_deinit(&tool);
}

/* More ranks than the usual soft limit of open files has room for; they get the limit they would have had. */
static void many_ranks_fit_under_a_small_limit_of_files(void **state)
{
	struct tool tool;
	struct rlimit before, small;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	small = before;
	small.rlim_cur = 64;
	if (before.rlim_max < 256)
		skip_because("the hard limit of open files is below 256");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	const int status = tool_run(&tool, WORDS("-n", "40", "sh", "-c", "ulimit -n"));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(status, 0);
	assert_int_equal(occurrences(tool.out.text, "] 64\n"), 40);
	tool_deinit(&tool);
}

/* ---- Signals ------------------------------------------------------------------------------------------------ */

static void signals_reach_every_rank_once(void **state)
{
	static const struct {
		int number;
		const char *name;
	} rows[] = {
		{ SIGTERM, "TERM" }, { SIGINT, "INT" }, { SIGHUP, "HUP" }, { SIGQUIT, "QUIT" }, { SIGUSR1, "USR1" },
		{ SIGUSR2, "USR2" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const struct tool_setup setup = { .input = "" };
		char script[512], got[64];
		/* The shell takes the signal while it waits for its helper; rank 0 then still has a line to read. */
		snprintf(script, sizeof(script),
			"trap 'echo got %s; got=1' %s; sleep 600 & echo ready; "
			"while [ -z \"$got\" ]; do wait $!; done; kill $! 2>/dev/null; [ $RANK = 1 ] || read line; "
			"exit 0",
			rows[i].name, rows[i].name);
		tool_start(&tool, &setup, WORDS("-n", "2", "sh", "-c", script));
		tool_await(&tool, "[0] ready\n");
		tool_await(&tool, "[1] ready\n");
		assert_int_equal(kill(tool.pid, rows[i].number), 0);
		for (int rank = 0; rank < 2; rank++) {
			snprintf(got, sizeof(got), "[%d] got %s\n", rank, rows[i].name);
			tool_await(&tool, got);
		}
		assert_int_equal(write(tool.input, "go\n", 3), 3);
		assert_int_equal(tool_finish(&tool), 0);
		assert_int_equal(occurrences(tool.out.text, "got "), 2);
		/* The shells may have said that their helpers were killed; collet-run has nothing to say. */
		assert_int_equal(occurrences(tool.error.text, "collet-run: "), 0);
		tool_deinit(&tool);
	}
}

static void a_signal_that_kills_is_the_status(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { 0 };
	tool_start(&tool, &setup, WORDS("-n", "2", "sh", "-c", "echo ready; exec sleep 600"));
	tool_await(&tool, "[0] ready\n");
	tool_await(&tool, "[1] ready\n");
	assert_int_equal(kill(tool.pid, SIGINT), 0);
	assert_int_equal(tool_finish(&tool), 130);
	assert_non_null(strstr(tool.error.text, "was killed by signal 2 (SIGINT)"));
	tool_deinit(&tool);
}

/* ---- Nothing stays behind ----------------------------------------------------------------------------------- */

/* Each rank starts a helper in a session of its own whose parent dies, and one ordinary one; all of them, and
 * everything between, hold descriptor 9, so that its end tells that none is left. */
static const char many_processes[] =
	"trap '' HUP; (setsid sh -c 'trap \"\" TERM HUP; echo deep; sleep 600' &) ; sleep 600 & echo pid $$ $PPID.; ";

static void start_with_lifeline(struct tool *tool, int *lifeline, const char *then)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	char script[1024];
	snprintf(script, sizeof(script), "%s%s", many_processes, then);
	const struct tool_setup setup = { .input = "", .lifeline = ends[1] };
	tool_start(tool, &setup, WORDS("-n", "2", "--grace", "0.1", "sh", "-c", script));
	close(ends[1]);
	*lifeline = ends[0];
	tool_await(tool, "[0] pid ");
	tool_await(tool, "[1] pid ");
	tool_await(tool, "[0] deep\n");
	tool_await(tool, "[1] deep\n");
}

static void killing_collet_run_leaves_no_process(void **state)
{
	struct tool tool;
	int lifeline;
	start_with_lifeline(&tool, &lifeline, "wait");
	assert_int_equal(kill(tool.pid, SIGKILL), 0);
	assert_true(await_end(lifeline));
	assert_int_equal(tool_finish(&tool), 137);
	close(lifeline);
	tool_deinit(&tool);
}

static void killing_its_watcher_leaves_no_process(void **state)
{
	struct tool tool;
	int lifeline, pid, watcher;
	start_with_lifeline(&tool, &lifeline, "wait");
	assert_int_equal(sscanf(strstr(tool.out.text, "[0] pid "), "[0] pid %d %d.", &pid, &watcher), 2);
	assert_int_not_equal(watcher, tool.pid);
	assert_int_equal(kill(watcher, SIGKILL), 0);
	assert_true(await_end(lifeline));
	assert_int_equal(tool_finish(&tool), 137);
	assert_non_null(strstr(tool.error.text, "was killed by signal 9 (SIGKILL); the ranks are ended"));
	close(lifeline);
	tool_deinit(&tool);
}

static void what_ranks_leave_running_is_ended(void **state)
{
	struct tool tool;
	int lifeline;
	start_with_lifeline(&tool, &lifeline, "exit 0");
	assert_int_equal(tool_finish(&tool), 0);
	assert_true(await_end(lifeline));
	close(lifeline);
	tool_deinit(&tool);
}

static void a_failing_job_leaves_no_process(void **state)
{
	struct tool tool;
	int lifeline;
	start_with_lifeline(&tool, &lifeline, "[ $RANK = 1 ] || { read line; exit 6; }; wait");
	assert_int_equal(write(tool.input, "go\n", 3), 3);
	assert_int_equal(tool_finish(&tool), 6);
	assert_true(await_end(lifeline));
	close(lifeline);
	tool_deinit(&tool);
}

int main(void)
{
	make_folder(folder);
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_is_named_and_becomes_the_status),
		cmocka_unit_test(the_report_names_rank_host_and_process),
		cmocka_unit_test(survivors_have_the_grace_to_report),
		cmocka_unit_test(who_does_not_end_gets_sigterm_then_sigkill),
		cmocka_unit_test(many_ranks_fit_under_a_small_limit_of_files),
		cmocka_unit_test(signals_reach_every_rank_once),
		cmocka_unit_test(a_signal_that_kills_is_the_status),
		cmocka_unit_test(killing_collet_run_leaves_no_process),
		cmocka_unit_test(killing_its_watcher_leaves_no_process),
		cmocka_unit_test(what_ranks_leave_running_is_ended),
		cmocka_unit_test(a_failing_job_leaves_no_process),
	};
	const int failed = cmocka_run_group_tests_name("launch/faults", tests, NULL, NULL);
	remove_folder(folder);
	return failed;
}
