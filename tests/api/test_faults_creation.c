/* Tests faults at creation and destruction: a missing rank, settings that differ, a rank that leaves early, a fork. */
#include <errno.h>
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
	/* The others wait until rank 0 reports the missing rank. Where opening a device takes long, they come later. */
	const int64_t patience_ns = getenv("COLLET_TEST_SLOW") ? INT64_C(10000000000) : INT64_C(500000000);
	options.rendezvous_timeout_ns = rank->rank == 0 ? patience_ns : patience_ns + INT64_C(20000000000);
	if (rank->rank == 2)
		return;
	if (rank->rank != 0)
		rank_post(rank, 0);
	else if (!rank_await(rank, 0, 2))  /* on a busy machine they may come late */
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
		ranks_must_pass(&(struct ranks_options){ .mode = mode, .size = 4, .bare = true }, one_never_comes);
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
		ranks_must_pass(&(struct ranks_options){ .mode = mode, .size = 3, .bare = true }, one_differs);
}

/* Rank 0 sends and leaves; its messages reach ranks that receive them later. */
static void give_and_go(struct rank *rank)
{
	/* Send so little that no transport asks the receiver first. */
	enum { MOST = 3000 };
	const int count = getenv("COLLET_TEST_INSTEAD") ? 200 : MOST;
	float data[MOST];
	for (int i = 0; i < count; i++)
		data[i] = rank->rank == 0 ? (float)i : -1;
	if (rank->rank != 0 && !rank_await(rank, 0, 1))
		return;
	rank_ok(rank, collet_broadcast(rank->comm, data, data, (uint64_t)count, COLLET_F32, 0, NULL), "broadcast");
	if (rank->rank == 0)
		rank_destroy(rank);
	rank_post(rank, 0);
	for (int i = 0; i < count; i++)
		if (!rank_check(rank, data[i] == (float)i, "element %d is %g", i, (double)data[i]))
			return;
}

static void start_giving(struct rank *rank)
{
	/* Connect first: connecting needs both ends, and is not tested here. */
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

/* Counts descriptors that only a communicator opens: sockets, events, anonymous memory. */
static uint32_t count_connections(void)
{
	uint32_t count = 0;
	for (int fd = 0; fd < 1024; fd++) {
		char path[40], what[64] = "";
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, what, sizeof(what) - 1) > 0)
			count += strncmp(what, "socket:", 7) == 0 || strncmp(what, "anon_inode:", 11) == 0 ||
				strncmp(what, "/memfd:", 7) == 0;
	}
	return count;
}

enum { CHILD_KEPT_SOME = 77, CHILD_DEADLINE_S = 60 };

/* Runs in the child and returns its exit status. before: connections that existed without a communicator. */
static int use_in_child(collet_comm **comm, collet_request *request, uint32_t before)
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
	collet_request *const pending = request;
	size_t which;
	if (collet_request_wait(&request) != COLLET_ERR_FORKED || collet_request_test(&request) != COLLET_ERR_FORKED ||
		collet_request_wait_all(&request, 1) != COLLET_ERR_FORKED ||
		collet_request_wait_any(&request, 1, &which) != COLLET_ERR_FORKED || request != pending)
		return 5;
	collet_comm_abort(*comm);
	if (collet_comm_destroy(comm) != COLLET_OK || *comm)
		return 6;
	return count_connections() == before ? 0 : CHILD_KEPT_SOME;
}

/* Waits in a thread of the rank while the rank forks: the second sleeping thread beside a progress thread. */
struct waiting_thread {
	struct rank *rank;
	collet_request *request;
};

static void *wait_for_request(void *argument)
{
	struct waiting_thread *waiting = argument;
	rank_ok(waiting->rank, collet_request_wait(&waiting->request), "wait in a thread");
	return NULL;
}

static void fork_amidst(struct rank *rank)
{
	enum { FORKS = 6, FORKS_MOST = 300 };
	int forks = 0, kept = 0;
	const uint32_t before = count_connections();
	const uint32_t to = (rank->rank + rank->size - 1) % rank->size, from = (rank->rank + 1) % rank->size;
	if (!rank_create(rank))
		return;
	int32_t value = 1, late[2];
	collet_request *request = NULL;
	struct waiting_thread waiting = { .rank = rank };
	collet_comm *second = NULL;
	const collet_how own = { .request = &request }, threads = { .request = &waiting.request };
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, NULL), "before the fork");
	rank_ok(rank, collet_comm_split(rank->comm, 0, rank->rank, &second), "split");
	/* Keep a pending request, with a waiting thread, while the children are made. */
	rank_ok(rank, collet_recv(rank->comm, &late[0], 1, COLLET_I32, from, 5, NULL, &own), "recv");
	rank_ok(rank, collet_recv(rank->comm, &late[1], 1, COLLET_I32, from, 6, NULL, &threads), "recv for a thread");
	pthread_t thread;
	if (!rank_check(rank, pthread_create(&thread, NULL, wait_for_request, &waiting) == 0, "no thread"))
		return;
	/* The control thread may hold a new descriptor during a fork, unknown to the child. It may get no processor
	 * during several forks, but not during all. */
	for (; forks < FORKS || (kept == forks && forks < FORKS_MOST); forks++) {
		const pid_t child = fork();
		if (child == 0) {
			alarm(CHILD_DEADLINE_S);
			const collet_status status = collet_comm_destroy(&second);
			_exit(status == COLLET_OK ? use_in_child(&rank->comm, request, before) : 8);
		}
		if (!rank_check(rank, child > 0, "fork: %s", strerror(errno)))
			break;
		int status;
		if (!rank_check(rank, waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno)))
			break;
		rank_check(rank,
			WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == CHILD_KEPT_SOME),
			"child %d ended with %x", forks, (unsigned)status);
		kept += WEXITSTATUS(status) == CHILD_KEPT_SOME;
	}
	rank_check(rank, kept < forks, "every child was left with descriptors of the parent's");
	value = 1;
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_I32, COLLET_SUM, NULL), "after the fork");
	rank_check(rank, value == (int32_t)rank->size, "the sum is %d", value);
	for (uint32_t tag = 5; tag <= 6; tag++)
		rank_ok(rank, collet_send(rank->comm, &value, 1, COLLET_I32, to, tag, NULL), "send");
	rank_ok(rank, collet_request_wait(&request), "what was pending");
	pthread_join(thread, NULL);
	rank_check(rank, late[0] == value && late[1] == value, "%d and %d came", late[0], late[1]);
	rank_ok(rank, collet_comm_destroy(&second), "destroy");
}

static void a_fork_is_detected_and_harmless(void **state)
{
	for (size_t t = 0; t < 2; t++)
		for (uint32_t thread = 0; thread < 2; thread++)
			ranks_must_pass(
				&(struct ranks_options){
					.size = 3, .transport = transports[t], .progress_thread = thread, .bare = true},
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
