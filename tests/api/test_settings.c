/* Tests settings of the environment.
 *
 * COLLET_DETERMINISTIC: the same call uses the same algorithm on every transport. Without it the transports must
 * differ, or the test would prove nothing. COLLET_PROGRESS_CPU: the thread runs where it is told to. */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "cpus.h"
#include "ranks.h"

static const uint64_t counts[] = { 1, 300, 1000, 3000, 10000, 100000, 1000000, 10000000 };

enum { COUNTS = sizeof(counts) / sizeof(counts[0]), NAME_BYTES = 32 };

static void note_algorithms(struct rank *rank)
{
	char(*names)[NAME_BYTES] = rank->shared;
	for (size_t i = 0; i < COUNTS; i++) {
		collet_plan plan;
		const collet_status status =
			collet_comm_plan(rank->comm, "allreduce", counts[i], COLLET_F32, COLLET_SUM, 0, NULL, &plan);
		if (rank_check(rank, status == COLLET_OK, "%s", collet_last_error()) && rank->rank == 0)
			strncpy(names[i], plan.algorithm, NAME_BYTES - 1);
	}
}

static void algorithms_over(const char *transport, char names[COUNTS][NAME_BYTES])
{
	const struct ranks_options options = { .mode = RANKS_PROCESSES, .size = 2, .transport = transport,
		.shared_bytes = COUNTS * NAME_BYTES };
	struct ranks *ranks = ranks_start(&options, note_algorithms);
	assert_true(ranks_wait(ranks));
	assert_true(ranks_all_passed(ranks));
	memcpy(names, ranks_shared(ranks), COUNTS * NAME_BYTES);
	ranks_free(&ranks);
}

static bool same_over_both(void)
{
	char shm[COUNTS][NAME_BYTES], tcp[COUNTS][NAME_BYTES];
	algorithms_over("shm", shm);
	algorithms_over("tcp", tcp);
	return memcmp(shm, tcp, sizeof(shm)) == 0;
}

static void a_choice_follows_the_transport(void **state)
{
	unsetenv("COLLET_DETERMINISTIC");
	assert_false(same_over_both());
}

static void a_deterministic_choice_does_not(void **state)
{
	setenv("COLLET_DETERMINISTIC", "1", 1);
	assert_true(same_over_both());
	unsetenv("COLLET_DETERMINISTIC");
}

/* Returns the id of the thread of this process with this name; 0 if there is none. */
static pid_t find_thread(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	pid_t found = 0;
	for (const struct dirent *task; tasks && !found && (task = readdir(tasks));) {
		char path[300], comm[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *file = fopen(path, "r");
		if (file && fgets(comm, sizeof(comm), file) && strncmp(comm, name, strlen(name)) == 0)
			found = (pid_t)strtol(task->d_name, NULL, 10);
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

static void look_at_the_thread(struct rank *rank)
{
	const int cpu = ((const int *)rank->options->context)[rank->rank % 2];
	const pid_t thread = find_thread("collet-progress");
	cpu_set_t set;
	CPU_ZERO(&set);
	if (!rank_check(rank, thread && !sched_getaffinity(thread, sizeof(set), &set), "there is no thread"))
		return;
	rank_check(rank, CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)cpu, &set),
		"the thread may run on %d CPUs, not on %d alone", CPU_COUNT(&set), cpu);
}

static void each_rank_of_a_host_has_a_cpu_for_its_thread(void **state)
{
	int cpus[2];
	char list[32];
	if (!test_two_cpus(cpus)) {
		printf("there is one CPU\n");
		skip();
	}
	snprintf(list, sizeof(list), "%d,%d", cpus[1], cpus[0]);
	const int reversed[] = { cpus[1], cpus[0] };
	setenv("COLLET_PROGRESS_CPU", list, 1);
	ranks_must_pass(
		&(struct ranks_options){ .size = 3, .progress_thread = true, .context = reversed }, look_at_the_thread);
	unsetenv("COLLET_PROGRESS_CPU");
}

static void create_in_vain(struct rank *rank)
{
	char store[64];
	collet_options options;
	collet_comm *comm;
	rank_fill_options(rank, 0, &options, store);
	options.progress_thread = 1;
	rank_status(rank, collet_comm_create(&comm, &options), COLLET_ERR_CONFIG, "a CPU that does not exist");
	rank_check(rank, strstr(collet_last_error(), "COLLET_PROGRESS_CPU") && strstr(collet_last_error(), "8191"),
		"not named: %s", collet_last_error());
}

static void a_cpu_that_does_not_exist_is_named(void **state)
{
	setenv("COLLET_PROGRESS_CPU", "8191", 1);
	ranks_must_pass(&(struct ranks_options){ .size = 1, .bare = true }, create_in_vain);
	unsetenv("COLLET_PROGRESS_CPU");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_choice_follows_the_transport),
		cmocka_unit_test(a_deterministic_choice_does_not),
		cmocka_unit_test(each_rank_of_a_host_has_a_cpu_for_its_thread),
		cmocka_unit_test(a_cpu_that_does_not_exist_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
