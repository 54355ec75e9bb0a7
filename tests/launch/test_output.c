/* What comes out of the ranks, and what goes into them. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tool.h"

static char folder[64];

static void lines_get_their_rank_in_front(void **state)
{
	const struct {
		const char *option, *script, *out, *error;
	} rows[] = {
		{ "--prefix=always", "echo one; echo two >&2; echo three", "[0] one\n[0] three\n", "[0] two\n" },
		{ "--prefix=always", "printf 'no newline'; printf half >&2", "[0] no newline\n", "[0] half\n" },
		{ "--prefix=always", "printf '\\n\\n'", "[0] \n[0] \n", "" },
		{ "--prefix=always", "true", "", "" },
		{ "--prefix=always", "printf 'a\\rb\\r\\n'", "[0] a\rb\r\n", "" },
		{ "--prefix=always", "printf 'in '; printf 'pieces'; echo", "[0] in pieces\n", "" },
		{ "--prefix=auto", "echo one; echo two >&2; printf three", "one\nthree\n", "[0] two\n" },
		{ "--prefix=never", "printf 'as it is'; echo too >&2", "as it is", "too\n" },
		{ "--no-prefix", "printf 'as it is'; echo too >&2", "as it is", "too\n" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		assert_int_equal(tool_run(&tool, WORDS("-n", "1", rows[i].option, "sh", "-c", rows[i].script)), 0);
		assert_string_equal(tool.out.text, rows[i].out);
		assert_string_equal(tool.error.text, rows[i].error);
		tool_deinit(&tool);
	}
}

/* What rank 0 prints goes into a pipe as it is, for a parser of JSON, say. Others' lines still tell their rank. */
static void a_pipe_gets_rank_0s_lines_without_a_prefix(void **state)
{
	const struct {
		const char *option, *script, *out;
		bool is_on_terminal;
	} rows[] = {
		{ NULL, "[ $RANK = 1 ] || echo '{\"a\": 1}'", "{\"a\": 1}\n", false },
		{ "--prefix=auto", "[ $RANK = 1 ] || echo '{\"a\": 1}'", "{\"a\": 1}\n", false },
		{ "--prefix=always", "[ $RANK = 1 ] || echo '{\"a\": 1}'", "[0] {\"a\": 1}\n", false },
		{ NULL, "[ $RANK = 0 ] || echo second", "[1] second\n", false },
		{ NULL, "[ $RANK = 1 ] || echo first", "[0] first\r\n", true },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool tool;
		const struct tool_setup setup = { .no_prefix_option = true, .terminal = rows[i].is_on_terminal };
		tool_start(&tool, &setup, rows[i].option != NULL
			? WORDS(rows[i].option, "-n", "2", "sh", "-c", rows[i].script)
			: WORDS("-n", "2", "sh", "-c", rows[i].script));
		assert_int_equal(tool_finish(&tool), 0);
		assert_string_equal(tool.out.text, rows[i].out);
		tool_deinit(&tool);
	}
}

static void every_byte_passes(void **state)
{
	struct tool tool;
	const char *script =
		"i=0; while [ $i -lt 256 ]; do [ $i = 10 ] || printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done";
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "sh", "-c", script)), 0);
	char expected[4 + 255 + 1] = "[0] ";
	size_t bytes = 4;
	for (int value = 0; value < 256; value++) {
		if (value != '\n')
			expected[bytes++] = (char)value;
	}
	expected[bytes++] = '\n';
	assert_int_equal(tool.out.bytes, bytes);
	assert_memory_equal(tool.out.text, expected, bytes);
	tool_deinit(&tool);
}

/* 10 MiB from each of three ranks, to both files at once, which are one: no line is lost or cut. */
static void a_flood_from_all_ranks_comes_through_in_whole_lines(void **state)
{
	enum { LINES = 80000 };
	struct tool tool;
	const struct tool_setup setup = { .merged = true };
	/* 131 bytes a line with its newline. */
	tool_start(&tool, &setup, WORDS("-n", "3", "awk", "-v", "n=80000",
		"BEGIN { r = ENVIRON[\"RANK\"]; for (i = 0; i < n; i++) "
		"printf \"%0129d%d\\n\", i, r > (i % 2 ? \"/dev/stderr\" : \"/dev/stdout\") }"));
	assert_int_equal(tool_finish(&tool), 0);
	assert_int_equal(tool.out.bytes, (size_t)3 * LINES * (131 + 4));
	size_t seen[3] = { 0 };
	for (const char *line = tool.out.text; *line != '\0'; line += 135) {
		const int rank = line[1] - '0';
		assert_in_range(rank, 0, 2);
		assert_true(line[0] == '[' && line[2] == ']' && line[133] == line[1] && line[134] == '\n');
		seen[rank]++;
	}
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(seen[rank], LINES);
	tool_deinit(&tool);
}

/* One line of 3 MiB: in pieces of 1 MiB, and nothing of it is lost. */
static void a_line_without_an_end_is_broken_up(void **state)
{
	struct tool tool;
	assert_int_equal(tool_run(&tool, WORDS("-n", "1", "sh", "-c", "head -c 3145729 /dev/zero")), 0);
	assert_int_equal(tool.out.bytes, 3145729 + 4 * 5);
	assert_memory_equal(tool.out.text, "[0] ", 4);
	assert_memory_equal(tool.out.text + 4 + (1 << 20), "\n[0] ", 5);
	tool_deinit(&tool);
}

/* As in a pipeline without collet-run: who writes to a reader that has gone is told by SIGPIPE. */
static void ranks_learn_that_nobody_reads_any_more(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { 0 };
	tool_start(&tool, &setup, WORDS("-n", "2", "yes"));
	tool_await(&tool, "[0] y\n");
	close(tool.files[0]);
	tool.files[0] = -1;
	assert_int_equal(tool_finish(&tool), 128 + SIGPIPE);
	tool_deinit(&tool);
}

/* Nobody reads and the pipes are full. A signal ends the rank all the same; once it has, a second one also ends the
 * wait for the reader. When that is cannot be seen from here, so it is sent until it does. */
static void collet_run_ends_while_its_output_waits(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { 0 };
	tool_start(&tool, &setup, WORDS("-n", "1", "--grace", "0", "yes"));
	tool_await(&tool, "[0] y\n");
	int status, waited_ms = 0;
	while (waitpid(tool.pid, &status, WNOHANG) == 0 && waited_ms < TOOL_DEADLINE_MS) {
		assert_int_equal(kill(tool.pid, SIGTERM), 0);
		waited_ms += 20;
		poll(NULL, 0, 20);
	}
	assert_true(waited_ms < TOOL_DEADLINE_MS);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
	tool_deinit(&tool);
}

/* ---- Input -------------------------------------------------------------------------------------------------- */

static void rank_0_reads_the_input_and_the_others_nothing(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .input = "first\nsecond\n" };
	tool_start(&tool, &setup, WORDS("-n", "3", "sh", "-c", "echo \"$(wc -l) lines\""));
	assert_int_equal(tool_finish(&tool), 0);
	assert_int_equal(occurrences(tool.out.text, "[0] 2 lines\n"), 1);
	assert_int_equal(occurrences(tool.out.text, "[1] 0 lines\n"), 1);
	assert_int_equal(occurrences(tool.out.text, "[2] 0 lines\n"), 1);
	tool_deinit(&tool);

	tool_start(&tool, &setup, WORDS("-n", "1", "--no-stdin", "wc", "-l"));
	assert_int_equal(tool_finish(&tool), 0);
	assert_string_equal(tool.out.text, "[0] 0\n");
	tool_deinit(&tool);
}

/* ---- Terminals ---------------------------------------------------------------------------------------------- */

static void a_prompt_is_seen_and_answered_on_a_terminal(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .terminal = true };
	tool_start(&tool, &setup, WORDS("-n", "2", "sh", "-c",
		"[ $RANK = 0 ] || exit 0; printf 'Name? '; read name; echo \"Hello $name\"; cat; echo end of input"));
	tool_await(&tool, "[0] Name? ");
	assert_int_equal(write(tool.input, "Ada\n", 4), 4);
	/* The line still is one: the prompt had no newline, and what was typed is the terminal's. */
	tool_await(&tool, "[0] Name? Hello Ada\r\n");
	assert_int_equal(write(tool.input, "\004", 1), 1);
	tool_await(&tool, "[0] end of input\r\n");
	assert_int_equal(tool_finish(&tool), 0);
	tool_deinit(&tool);
}

static void control_c_reaches_every_rank_once(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .terminal = true };
	tool_start(&tool, &setup, WORDS("-n", "2", "sh", "-c",
		"trap 'echo interrupted; got=1' INT; sleep 600 & echo ready; "
		"while [ -z \"$got\" ]; do wait $!; done; kill $!; exit 0"));
	tool_await(&tool, "[0] ready");
	tool_await(&tool, "[1] ready");
	assert_int_equal(write(tool.input, "\003", 1), 1);
	assert_int_equal(tool_finish(&tool), 0);
	assert_int_equal(occurrences(tool.out.text, "[0] interrupted"), 1);
	assert_int_equal(occurrences(tool.out.text, "[1] interrupted"), 1);
	tool_deinit(&tool);
}

static char process_state(int pid)
{
	char path[64], state = '?';
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state;
}

static void control_z_stops_the_ranks_too(void **state)
{
	struct tool tool;
	const struct tool_setup setup = { .terminal = true };
	tool_start(&tool, &setup, WORDS("-n", "1", "sh", "-c", "echo rank $$.; read line; echo goes on"));
	tool_await(&tool, ".\r\n");
	int rank, status, waited_ms = 0;
	assert_int_equal(sscanf(strstr(tool.out.text, "[0] rank "), "[0] rank %d", &rank), 1);
	assert_int_equal(write(tool.input, "\032", 1), 1);
	assert_int_equal(waitpid(tool.pid, &status, WUNTRACED), tool.pid);
	assert_true(WIFSTOPPED(status));
	/* The rank is told at about the same time; its stopping can only be looked for. */
	for (; process_state(rank) != 'T' && waited_ms < TOOL_DEADLINE_MS; waited_ms += 5)
		poll(NULL, 0, 5);
	assert_int_equal(process_state(rank), 'T');
	assert_int_equal(kill(tool.pid, SIGCONT), 0);
	assert_int_equal(write(tool.input, "\n", 1), 1);
	tool_await(&tool, "[0] goes on");
	assert_int_equal(tool_finish(&tool), 0);
	tool_deinit(&tool);
}

/* Rank 0 draws 10% and 20%; rank 1's line comes between, above what rank 0 has drawn. */
static void a_bar_stays_below_what_others_print(void **state)
{
	struct tool tool;
	char path[128];
	snprintf(path, sizeof(path), "%s/turn", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	setenv("FOLDER", folder, 1);
	const struct tool_setup setup = { .terminal = true };
	tool_start(&tool, &setup, WORDS("-n", "2", "sh", "-c",
		"if [ $RANK = 1 ]; then read line <$FOLDER/turn; echo $line; exit 0; fi\n"
		"printf \"\\r10%% $COLUMNS $COLLET_RUN_TERMINAL\"; "
		"read line; echo hello >$FOLDER/turn; read line; printf '\\r20%%\\n'"));
	tool_await(&tool, "[0] 10% 76 1");
	assert_int_equal(write(tool.input, "\n", 1), 1);
	tool_await(&tool, "\r\033[K[1] hello\r\n[0] 10% 76 1");
	assert_int_equal(write(tool.input, "\n", 1), 1);
	assert_int_equal(tool_finish(&tool), 0);
	assert_non_null(strstr(tool.out.text, "\r\033[K[0] 20%\r\n"));
	tool_deinit(&tool);
}

/* The bar is on standard error, the summary on standard output: they come through two pipes. */
static void what_follows_a_bar_stays_below_it(void **state)
{
	for (int run = 0; run < 20; run++) {
		struct tool tool;
		const struct tool_setup setup = { .terminal = true };
		tool_start(&tool, &setup, WORDS("-n", "1", "sh", "-c",
			"printf '\\r50%%' >&2; printf '\\r100%%\\n' >&2; echo summary"));
		assert_int_equal(tool_finish(&tool), 0);
		const char *bar = strstr(tool.out.text, "[0] 100%\r\n");
		if (bar == NULL || strstr(bar, "[0] summary\r\n") == NULL)
			fail_msg("%s", tool.out.text);
		tool_deinit(&tool);
	}
}

int main(void)
{
	make_folder(folder);
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_get_their_rank_in_front),
		cmocka_unit_test(a_pipe_gets_rank_0s_lines_without_a_prefix),
		cmocka_unit_test(every_byte_passes),
		cmocka_unit_test(a_flood_from_all_ranks_comes_through_in_whole_lines),
		cmocka_unit_test(a_line_without_an_end_is_broken_up),
		cmocka_unit_test(ranks_learn_that_nobody_reads_any_more),
		cmocka_unit_test(collet_run_ends_while_its_output_waits),
		cmocka_unit_test(rank_0_reads_the_input_and_the_others_nothing),
		cmocka_unit_test(a_prompt_is_seen_and_answered_on_a_terminal),
		cmocka_unit_test(control_c_reaches_every_rank_once),
		cmocka_unit_test(control_z_stops_the_ranks_too),
		cmocka_unit_test(a_bar_stays_below_what_others_print),
		cmocka_unit_test(what_follows_a_bar_stays_below_it),
	};
	const int failed = cmocka_run_group_tests_name("launch/output", tests, NULL, NULL);
	remove_folder(folder);
	return failed;
}
