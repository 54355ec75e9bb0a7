/* Tests collet_options.thread_multiple: several threads of a rank use one communicator at a time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

enum { THREADS = 3, ROUNDS = 20, SMALL = 10, LARGE = 100000 };

static bool create(struct rank *rank)
{
	char store[64];
	collet_options options;
	rank_fill_options(rank, 0, &options, store);
	options.thread_multiple = 1;
	return rank_ok(rank, collet_comm_create(&rank->comm, &options), "create");
}

struct worker {
	struct rank *rank;
	uint32_t number;
	pthread_t thread;
	collet_status status;
};

static bool run_threads(struct rank *rank, struct worker workers[THREADS], void *(*body)(void *))
{
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .rank = rank, .number = i };
		if (!rank_check(rank, !pthread_create(&workers[i].thread, NULL, body, &workers[i]), "no thread"))
			return false;
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	return true;
}

/* Sends around the ring with a tag of its own. Rank 0 receives first in odd rounds, so that each thread waits for
 * messages that only others' calls, in any order, bring about. */
static void *send_around(void *context)
{
	const struct worker *worker = context;
	struct rank *rank = worker->rank;
	const uint32_t next = (rank->rank + 1) % rank->size, last = (rank->rank + rank->size - 1) % rank->size;
	const uint64_t count = worker->number == 1 ? LARGE : SMALL;
	uint32_t *values = calloc(count, sizeof(*values));
	for (uint32_t round = 0; round < ROUNDS && values; round++) {
		const uint32_t starter = round % rank->size;
		const uint32_t tag = worker->number;
		if (rank->rank == starter) {
			values[count - 1] = round + tag;
			rank_ok(rank, collet_send(rank->comm, values, count, COLLET_U32, next, tag, NULL), "send");
		}
		rank_ok(rank, collet_recv(rank->comm, values, count, COLLET_U32, last, tag, NULL, NULL), "recv");
		rank_check(rank, values[count - 1] == round + tag, "round %u has brought %u", round, values[count - 1]);
		if (rank->rank != starter)
			rank_ok(rank, collet_send(rank->comm, values, count, COLLET_U32, next, tag, NULL), "send on");
	}
	free(values);
	return NULL;
}

static void talk_in_threads(struct rank *rank)
{
	struct worker workers[THREADS];
	if (create(rank))
		run_threads(rank, workers, send_around);
}

static void threads_send_and_receive_at_a_time(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .bare = true }, talk_in_threads);
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 2, .bare = true, .progress_thread = true }, talk_in_threads);
}

/* Collectives of all threads: as each is the same call, any order is the same on every rank. */
static void *sum_often(void *context)
{
	struct worker *worker = context;
	struct rank *rank = worker->rank;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t one = 1;
		rank_ok(rank, collet_allreduce(rank->comm, &one, &one, 1, COLLET_U32, COLLET_SUM, NULL), "a sum");
		rank_check(rank, one == rank->size, "the sum is %u", one);
	}
	return NULL;
}

static void sum_in_threads(struct rank *rank)
{
	struct worker workers[THREADS];
	if (create(rank))
		run_threads(rank, workers, sum_often);
}

static void threads_call_collectives_at_a_time(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .bare = true }, sum_in_threads);
}

/* on_end() blocks in the communicator whose blocking call has called it. */
static void sum_again(void *context, collet_status status)
{
	struct worker *worker = context;
	worker->status = status;
	(void)sum_often(worker);
	worker->number = 1;
}

static void call_in_on_end(struct rank *rank)
{
	static uint32_t none;
	struct worker worker = { .rank = rank };
	if (!create(rank))
		return;
	const collet_how how = { .on_end = sum_again, .on_end_context = &worker };
	rank_ok(rank, collet_allreduce(rank->comm, &none, &none, 0, COLLET_U32, COLLET_SUM, &how), "start");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "barrier");
	while (!worker.number && !rank->report->failed)
		rank_ok(rank, collet_progress(rank->comm, COLLET_NO_TIMEOUT), "progress");
	rank_ok(rank, worker.status, "what on_end() was told");
}

static void on_end_takes_turns_too(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true }, call_in_on_end);
	ranks_must_pass(&(struct ranks_options){ .size = 2, .bare = true, .mode = RANKS_THREADS }, call_in_on_end);
}

static void *wait_in_vain(void *context)
{
	struct worker *worker = context;
	uint32_t value;
	rank_post(worker->rank, 0);
	worker->status =
		collet_recv(worker->rank->comm, &value, 1, COLLET_U32, 1, worker->number, NULL, NULL);
	return NULL;
}

/* Destroys while threads wait in calls: they return, and only then does the destruction. */
static void destroy_under_threads(struct rank *rank)
{
	struct worker workers[THREADS];
	if (!create(rank))
		return;
	if (rank->rank == 1) {
		rank_await(rank, 1, 1);
		return;
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .rank = rank, .number = i };
		if (!rank_check(
			    rank, !pthread_create(&workers[i].thread, NULL, wait_in_vain, &workers[i]), "no thread"))
			return;
	}
	rank_await(rank, 0, THREADS);
	/* Each has entered, or will find the communicator's end. */
	collet_comm_abort(rank->comm);
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		rank_status(rank, workers[i].status, COLLET_ERR_ABORTED, "a receive");
	}
	rank_destroy(rank);
	rank_post(rank, 1);
}

static void the_end_reaches_every_thread(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2, .bare = true }, destroy_under_threads);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_send_and_receive_at_a_time),
		cmocka_unit_test(threads_call_collectives_at_a_time),
		cmocka_unit_test(on_end_takes_turns_too),
		cmocka_unit_test(the_end_reaches_every_thread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
