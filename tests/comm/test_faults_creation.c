/* Faults when communicators come and go: a rank that never comes, settings that differ, one that leaves early, a fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"

static const char *const transports[] = {"shm", "tcp"};

static void one_never_comes(struct rank *rank)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, 0, &options, store);
	/* The others wait for rank 0 to say who is missing. */
	options.rendezvous_timeout_ns = rank->rank == 0 ? INT64_C(300000000) : INT64_C(20000000000);
	if (rank->rank == 2)
		return;
	collet_comm *comm = NULL;
	const collet_status status = collet_comm_create(&comm, &options);
	rank_status(rank, status, COLLET_ERR_RENDEZVOUS, "creation without rank 2");
	rank_check(rank, comm == NULL, "something was made");
	rank_check(rank, strstr(collet_last_error(), "rank 2") || strstr(collet_last_error(), "ranks 2"),
		"rank 2 is not named: %s", collet_last_error());
}

static void who_does_not_come_is_named(void **state)
{
	for (enum ranks_mode mode = RANKS_PROCESSES; mode <= RANKS_THREADS; mode++)
		ranks_must_pass(&(struct ranks_options){.mode = mode, .size = 4, .bare = true}, one_never_comes);
}

static void one_differs(struct rank *rank)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, 0, &options, store);
	options.algorithm = rank->rank == 1 ? "ring" : "tree";
	collet_comm *comm = NULL;
	const collet_status status = collet_comm_create(&comm, &options);
	const char *sentence = collet_last_error();
	rank_status(rank, status, COLLET_ERR_CONFIG, "creation with settings that differ");
	rank_check(rank,
		strstr(sentence, "COLLET_ALGORITHM=ring") && strstr(sentence, "COLLET_ALGORITHM=tree") &&
			strstr(sentence, "rank 1 on ") && strstr(sentence, "rank 0 on "),
		"variable, ranks or values are missing: %s", sentence);
}

static void settings_that_differ_are_refused(void **state)
{
	for (enum ranks_mode mode = RANKS_PROCESSES; mode <= RANKS_THREADS; mode++)
		ranks_must_pass(&(struct ranks_options){.mode = mode, .size = 3, .bare = true}, one_differs);
}

/* Rank 0 gives and goes; what it has given reaches those that take it later. */
static void give_and_go(struct rank *rank)
{
	enum { COUNT = 3000 };
	float data[COUNT];
	for (int i = 0; i < COUNT; i++)
		data[i] = rank->rank == 0 ? (float)i : -1;
	if (rank->rank != 0 && !rank_await(rank, 0, 1))
		return;
	rank_ok(rank, collet_broadcast(rank->comm, data, data, COUNT, COLLET_F32, 0, NULL), "broadcast");
	if (rank->rank == 0)
		rank_destroy(rank);
	rank_post(rank, 0);
	for (int i = 0; i < COUNT; i++)
		if (!rank_check(rank, data[i] == (float)i, "element %d is %g", i, (double)data[i]))
			return;
}

static void start_giving(struct rank *rank)
{
	/* Connections are made when first needed, which takes both ends: not what is looked at here. */
	if (rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier"))
		give_and_go(rank);
}

static void what_was_sent_before_leaving_arrives(void **state)
{
	for (size_t t = 0; t < 2; t++)
		for (uint32_t size = 2; size <= 3; size++)
			ranks_must_pass(
				&(struct ranks_options){
					.size = size, .transport = transports[t], .algorithm = "broadcast:direct"},
				start_giving);
}

/* In the child; returns its exit status. */
static int use_in_child(collet_comm **comm)
{
	int32_t one = 1;
	collet_comm *part = NULL;
	void *memory = NULL;
	if (collet_allreduce(*comm, &one, &one, 1, COLLET_I32, COLLET_SUM, NULL) != COLLET_ERR_FORKED)
		return 1;
	if (collet_comm_split(*comm, 0, 0, &part) != COLLET_ERR_FORKED ||
		collet_mem_alloc(*comm, &memory, 64) != COLLET_ERR_FORKED)
		return 2;
	if (collet_recv(*comm, &one, 1, COLLET_I32, 0, 0, NULL, NULL) != COLLET_ERR_FORKED)
		return 3;
	if (!strstr(collet_last_error(), "fork"))
		return 4;
	collet_comm_abort(*comm);
	return collet_comm_destroy(comm) == COLLET_OK && !*comm ? 0 : 5;
}

static void fork_amidst(struct rank *rank)
{
	int32_t value = 1, late;
	collet_request *request = NULL;
	const collet_how how = {.request = &request};
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, NULL), "before the fork");
	/* Something is pending while the child is made. */
	rank_ok(rank, collet_recv(rank->comm, &late, 1, COLLET_I32, (rank->rank + 1) % rank->size, 5, NULL, &how),
		"recv");
	const pid_t child = fork();
	if (child == 0)
		_exit(use_in_child(&rank->comm));
	int status = -1;
	rank_check(rank,
		child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the child ended with %x", (unsigned)status);
	value = 1;
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, NULL), "after the fork");
	rank_check(rank, value == (int32_t)rank->size, "the sum is %d", value);
	rank_ok(rank,
		collet_send(rank->comm, &value, 1, COLLET_I32, (rank->rank + rank->size - 1) % rank->size, 5, NULL),
		"send");
	rank_ok(rank, collet_request_wait(&request), "what was pending");
}

static void a_fork_is_detected_and_harmless(void **state)
{
	for (size_t t = 0; t < 2; t++)
		for (uint32_t thread = 0; thread < 2; thread++)
			ranks_must_pass(
				&(struct ranks_options){
					.size = 3, .transport = transports[t], .progress_thread = thread},
				fork_amidst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_does_not_come_is_named),
		cmocka_unit_test(settings_that_differ_are_refused),
		cmocka_unit_test(what_was_sent_before_leaving_arrives),
		cmocka_unit_test(a_fork_is_detected_and_harmless),
	};
	return cmocka_run_group_tests_name("creation", tests, NULL, NULL);
}
