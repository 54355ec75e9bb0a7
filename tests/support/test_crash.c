/* Tests that a crash on any thread is reported: what crashed, why, and where. */
#include "crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <cmocka.h>

/* Memory without any access. */
static volatile char *forbidden;

static void *touch(void *ignored)
{
	*forbidden = 1;
	return ignored;
}

static void *give_up(void *ignored)
{
	abort();
	return ignored;
}

/* Returns the output of a process that crashes on its second thread. */
static void check_crash(void *(*crash)(void *), int wanted, const char *name)
{
	char said[16384], line[128];
	size_t used = 0;
	int ends[2], status;
	const struct rlimit no_core = { 0, 0 };
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		pthread_t thread;
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)dup2(ends[1], STDERR_FILENO);
		crash_tell("a test's child");
		if (pthread_create(&thread, NULL, crash, NULL) == 0)
			pthread_join(thread, NULL);
		_exit(0);
	}
	close(ends[1]);
	for (ssize_t got = 1; got > 0 && used < sizeof(said) - 1; used += got > 0 ? (size_t)got : 0)
		got = read(ends[0], said + used, sizeof(said) - 1 - used);
	said[used] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == wanted);
	snprintf(line, sizeof(line), "a test's child has crashed: %s at 0x", name);
	assert_non_null(strstr(said, line));
	assert_non_null(strstr(said, "on another thread than its first\n"));
	assert_non_null(strstr(said, "test_crash"));  /* the stack */
}

static void a_fault_on_another_thread_is_told(void **state)
{
	(void)state;
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(page != MAP_FAILED);
	forbidden = page;
	check_crash(touch, SIGSEGV, "SIGSEGV");
	munmap(page, 4096);
}

static void an_abort_on_another_thread_is_told(void **state)
{
	(void)state;
	check_crash(give_up, SIGABRT, "SIGABRT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fault_on_another_thread_is_told),
		cmocka_unit_test(an_abort_on_another_thread_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
