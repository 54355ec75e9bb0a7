/* Ranks are told who they are, and the end of one is the end of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "ranks/process.h"

static int run_shell(const char *script, uint32_t ranks, const char *const *env)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	const struct bench_program program = {
		.argv = argv, .env = env, .ranks = ranks, .job = "test-job", .output = -1
	};
	return bench_ranks_run(&program);
}

static void ranks_are_told_by_torchruns_names(void **state)
{
	static const char *const env[] = { "EXTRA=yes", NULL };
	assert_int_equal(
		run_shell("test $WORLD_SIZE = 3 && test $RANK -lt 3 && test $LOCAL_RANK = $RANK && test $EXTRA = yes",
			3, env),
		0);
	assert_int_equal(run_shell("test $COLLET_STORE = unix:test-job && test $COLLET_JOB = test-job", 1, NULL), 0);
}

static void another_launchers_variables_do_not_reach_them(void **state)
{
	setenv("OMPI_COMM_WORLD_RANK", "7", 1);
	setenv("MASTER_ADDR", "elsewhere", 1);
	assert_int_equal(run_shell("test -z \"$OMPI_COMM_WORLD_RANK$MASTER_ADDR\"", 2, NULL), 0);
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("MASTER_ADDR");
}

static void one_failure_ends_the_others_and_is_the_status(void **state)
{
	const time_t before = time(NULL);
	assert_int_equal(run_shell("if test $RANK = 1; then exit 9; fi; exec sleep 60", 3, NULL), 9);
	assert_true(time(NULL) - before < 30);
	assert_int_equal(run_shell("if test $RANK = 0; then kill -9 $$; fi; exec sleep 60", 2, NULL), 128 + 9);
}

static void a_program_that_is_not_there_is_127(void **state)
{
	const char *const argv[] = { "/nowhere/at/all", NULL };
	const struct bench_program program = { .argv = argv, .ranks = 1, .job = "test-job", .output = -1 };
	assert_int_equal(bench_ranks_run(&program), 127);
}

static void a_launcher_is_recognised_by_its_variables(void **state)
{
	static const struct {
		const char *rank, *size;
	} rows[] = { { "RANK", "WORLD_SIZE" }, { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
		{ "PMI_RANK", "PMI_SIZE" }, { "SLURM_PROCID", "SLURM_NTASKS" } };
	const char *launcher;
	assert_int_equal(bench_launcher_size(&launcher), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv(rows[i].rank, "1", 1);
		setenv(rows[i].size, "5", 1);
		assert_int_equal(bench_launcher_size(&launcher), 5);
		assert_non_null(launcher);
		unsetenv(rows[i].rank);
		unsetenv(rows[i].size);
	}
}

int main(void)
{
	static const char *const names[] = { "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
		"PAI_TASK_INDEX" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);   /* the tests may run inside a job */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_are_told_by_torchruns_names),
		cmocka_unit_test(another_launchers_variables_do_not_reach_them),
		cmocka_unit_test(one_failure_ends_the_others_and_is_the_status),
		cmocka_unit_test(a_program_that_is_not_there_is_127),
		cmocka_unit_test(a_launcher_is_recognised_by_its_variables),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
