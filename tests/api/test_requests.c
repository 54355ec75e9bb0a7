/* Tests requests: waited for in any order, many at the same time, on several communicators, and without a waiter. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks.h"

enum {
	SMALL = 100,
	LARGE = 300000,              /* floats: more than any ring or socket buffers */
	MANY = 150
};

/* A pending sum and its buffer. */
struct sum {
	float *values;
	uint64_t count;
	float first;
	collet_request *request;
};

static bool start(struct rank *rank, collet_comm *comm, struct sum *sum, uint64_t count, float first)
{
	sum->values = malloc(count * sizeof(float));
	sum->count = count;
	sum->first = first;
	sum->request = NULL;
	if (!rank_check(rank, sum->values != NULL, "no memory"))
		return false;
	for (uint64_t i = 0; i < count; i++)
		sum->values[i] = first + (float)(i % 7) + (float)rank->rank;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = &sum->request;
	return rank_ok(
		rank, collet_allreduce(comm, sum->values, sum->values, count, COLLET_F32, COLLET_SUM, &how), "start");
}

/* Checks a completed request. */
static bool is_right(struct rank *rank, struct sum *sum)
{
	const float ranks = (float)rank->size, of_ranks = ranks * (ranks - 1) / 2;
	bool right = rank_check(rank, sum->request == NULL, "an ended request is not NULL");
	for (uint64_t i = 0; i < sum->count && right; i++)
		right = rank_check(rank, sum->values[i] == ranks * (sum->first + (float)(i % 7)) + of_ranks,
			"the sum starting at %g is wrong at %llu", (double)sum->first, (unsigned long long)i);
	free(sum->values);
	sum->values = NULL;
	return right;
}

static bool finish(struct rank *rank, struct sum *sum)
{
	return rank_ok(rank, collet_request_wait(&sum->request), "wait") && is_right(rank, sum);
}

/* Runs start A; start B; wait A; wait B on even ranks, and start A; wait A; start B; wait B on odd ones. */
static void interleave(struct rank *rank, collet_comm *a, collet_comm *b, uint64_t count)
{
	struct sum first = { 0 }, second = { 0 };
	if (rank->rank % 2 == 0) {
		if (start(rank, a, &first, count, 1) && start(rank, b, &second, count, 2))
			(void)(finish(rank, &first) && finish(rank, &second));
	} else if (start(rank, a, &first, count, 1) && finish(rank, &first) && start(rank, b, &second, count, 2)) {
		finish(rank, &second);
	}
}

static void interleave_on_one_communicator(struct rank *rank)
{
	interleave(rank, rank->comm, rank->comm, SMALL);
	interleave(rank, rank->comm, rank->comm, LARGE);
}

static void interleave_on_two_communicators(struct rank *rank)
{
	collet_comm *other;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, rank->rank, &other), "split"))
		return;
	interleave(rank, rank->comm, other, SMALL);
	interleave(rank, rank->comm, other, LARGE);
	interleave(rank, other, rank->comm, LARGE);
	rank_ok(rank, collet_comm_destroy(&other), "destroy");
}

/* Starts two requests in one order; rank 0 waits for the first one first, the others for the second. */
static void wait_in_opposite_order(struct rank *rank)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct sum first, second;
		const uint64_t count = i ? LARGE : SMALL;
		if (!start(rank, rank->comm, &first, count, 3) || !start(rank, rank->comm, &second, count, 4))
			return;
		const bool straight = rank->rank == 0;
		if (!finish(rank, straight ? &first : &second) || !finish(rank, straight ? &second : &first))
			return;
	}
}

static void sequences_end_on_one_communicator(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, interleave_on_one_communicator);
}

static void sequences_end_on_two_communicators(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, interleave_on_two_communicators);
}

static void requests_may_be_waited_for_in_opposite_orders(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, wait_in_opposite_order);
}

/* Rank 1 starts a request and then blocks in a read until rank 0 has finished it: only the progress thread can help. */
static void sleep_with_a_request(struct rank *rank)
{
	int *pipes = rank->shared;
	struct sum sum;
	char byte = 0;
	if (!start(rank, rank->comm, &sum, LARGE, 5))
		return;
	if (rank->rank == 1)
		rank_check(rank, read(pipes[0], &byte, 1) == 1, "read");
	if (!finish(rank, &sum))
		return;
	if (rank->rank == 0)
		rank_check(rank, write(pipes[1], &byte, 1) == 1, "write");
}

static void the_progress_thread_takes_what_nobody_waits_for(void **state)
{
	static const enum ranks_mode modes[] = { RANKS_PROCESSES, RANKS_THREADS, RANKS_MIXED };
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t i = 0; i < 6; i++) {
		int pipes[2];
		assert_int_equal(pipe(pipes), 0);
		const struct ranks_options options = { .mode = modes[i / 2], .transport = transports[i % 2], .size = 2,
			.progress_thread = true, .shared_bytes = sizeof(pipes), .initial_shared = pipes };
		ranks_must_pass(&options, sleep_with_a_request);
		close(pipes[0]);
		close(pipes[1]);
	}
}

/* Rank 1 has a thread that waits for another communicator's sum, which pauses the progress thread. A request that
 * its first thread starts meanwhile must continue after that sum. */
static void *sum_one(void *argument)
{
	uint32_t one = 1;
	const bool right = collet_allreduce(argument, &one, &one, 1, COLLET_U32, COLLET_SUM, NULL) == COLLET_OK;
	return (void *)(uintptr_t)(right && one == 2);
}

static bool sleep_beside_a_thread_that_waits(struct rank *rank, collet_comm *other, const int *pipes)
{
	struct sum sum;
	pthread_t thread;
	void *right;
	char byte = 0;
	if (rank->rank == 0)
		return rank_check(rank, read(pipes[0], &byte, 1) == 1, "read") &&
			rank_check(rank, sum_one(other) != NULL, "rank 0's sum of ones") &&
			start(rank, rank->comm, &sum, LARGE, 6) && finish(rank, &sum) &&
			rank_check(rank, write(pipes[3], &byte, 1) == 1, "write");
	if (!rank_check(rank, pthread_create(&thread, NULL, sum_one, other) == 0, "pthread_create"))
		return false;
	const bool started = start(rank, rank->comm, &sum, LARGE, 6) &&
		rank_check(rank, write(pipes[1], &byte, 1) == 1, "write");
	pthread_join(thread, &right);
	return started && rank_check(rank, right != NULL, "rank 1's sum of ones") &&
		rank_check(rank, read(pipes[2], &byte, 1) == 1, "read") && finish(rank, &sum);
}

static void sleep_beside_threads_that_wait(struct rank *rank)
{
	collet_comm *other;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, rank->rank, &other), "split"))
		return;
	for (uint32_t i = 0; i < 20 && sleep_beside_a_thread_that_waits(rank, other, rank->shared); i++)
		;
	rank_ok(rank, collet_comm_destroy(&other), "destroy");
}

static void a_thread_that_has_waited_leaves_the_rest_to_the_progress_thread(void **state)
{
	static const char *const transports[] = { "shm", "tcp" };
	for (size_t i = 0; i < 2; i++) {
		int pipes[4];
		assert_int_equal(pipe(pipes), 0);
		assert_int_equal(pipe(pipes + 2), 0);
		const struct ranks_options options = { .mode = RANKS_PROCESSES, .transport = transports[i], .size = 2,
			.progress_thread = true, .shared_bytes = sizeof(pipes), .initial_shared = pipes };
		ranks_must_pass(&options, sleep_beside_threads_that_wait);
		for (size_t end = 0; end < 4; end++)
			close(pipes[end]);
	}
}

static void wait_with_a_progress_thread(struct rank *rank)
{
	interleave_on_one_communicator(rank);
	interleave_on_two_communicators(rank);
	wait_in_opposite_order(rank);
}

static void callers_and_the_progress_thread_get_along(void **state)
{
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 3, .progress_thread = true }, wait_with_a_progress_thread);
}

/* Completes requests by wait, wait_any, wait_all and test, in turn. */
static bool end_many(struct rank *rank, struct sum *sums, collet_request **requests, uint32_t how)
{
	uint32_t left = MANY;
	size_t index;
	switch (how) {
	case 0:
		for (uint32_t i = MANY; i-- > 0;)
			if (!rank_ok(rank, collet_request_wait(&requests[i]), "wait"))
				return false;
		return true;
	case 1:
		for (; left; left--) {
			if (!rank_ok(rank, collet_request_wait_any(requests, MANY, &index), "wait_any") ||
				!rank_check(rank, index < MANY && !requests[index], "wait_any says %zu", index))
				return false;
		}
		return rank_ok(rank, collet_request_wait_any(requests, MANY, &index), "wait_any of none") &&
			rank_check(rank, index == MANY, "wait_any of none says %zu", index);
	case 2: return rank_ok(rank, collet_request_wait_all(requests, MANY), "wait_all");
	default:
		while (left) {
			for (uint32_t i = 0; i < MANY; i++) {
				if (!requests[i])
					continue;
				const collet_status status = collet_request_test(&requests[i]);
				if (status != COLLET_PENDING && !rank_ok(rank, status, "test"))
					return false;
				left -= status == COLLET_OK;
			}
		}
		return rank_ok(rank, collet_request_test(&requests[0]), "test of none");
	}
}

static void start_many(struct rank *rank)
{
	static const uint64_t counts[] = { 1, 0, 100, 5000, 20000 };
	for (uint32_t how = 0; how < 4; how++) {
		struct sum sums[MANY];
		collet_request *requests[MANY];
		for (uint32_t i = 0; i < MANY; i++) {
			if (!start(rank, rank->comm, &sums[i], counts[i % 5], (float)i))
				return;
			requests[i] = sums[i].request;
			sums[i].request = NULL;
		}
		rank_doing(rank, "ending many requests, way %u", how);
		/* Ranks need not complete them alike. */
		if (!end_many(rank, sums, requests, (how + rank->rank) % 4))
			return;
		for (uint32_t i = 0; i < MANY; i++)
			if (!is_right(rank, &sums[i]))
				return;
	}
}

static void many_requests_overlap(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, start_many);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3, .progress_thread = true }, start_many);
}

/* Rank 0 destroys with pending requests that rank 1 never matches: they end, and are freed. */
static void destroy_while_pending(struct rank *rank)
{
	static float values[LARGE];
	struct sum sums[4];
	collet_request *receive = NULL;
	if (rank->rank == 0) {
		for (uint32_t i = 0; i < 4; i++)
			if (!start(rank, rank->comm, &sums[i], i % 2 ? LARGE : SMALL, 1))
				return;
		rank_ok(rank,
			collet_recv(
				rank->comm, values, SMALL, COLLET_F32, 1, 0, NULL,
				&(collet_how){ .request = &receive }),
			"recv");
		rank_post(rank, 0);
		rank_destroy(rank);
		for (uint32_t i = 0; i < 4; i++)
			free(sums[i].values);
	} else {
		rank_await(rank, 0, 1);
	}
}

static void destroy_ends_what_is_pending(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, destroy_while_pending);
}

/* A request's own deadline ends it, and with it the communicator, on both ranks. */
static void time_out(struct rank *rank)
{
	if (rank->rank == 1) {
		rank_await(rank, 0, 1);
		/* Rank 0 did call a barrier, so one may succeed; a second one cannot. */
		collet_status status = collet_barrier(rank->comm, NULL);
		if (status == COLLET_OK)
			status = collet_barrier(rank->comm, NULL);
		rank_check(rank, status == COLLET_ERR_TIMEOUT || status == COLLET_ERR_PEER_LOST,
			"the other's next call is %s", collet_status_name(status));
		return;
	}
	collet_request *request = NULL;
	const collet_how how = { .request = &request, .timeout_ns = 50 * 1000 * 1000 };
	rank_ok(rank, collet_barrier(rank->comm, &how), "start of a barrier");
	rank_status(rank, collet_request_wait(&request), COLLET_ERR_TIMEOUT, "wait");
	rank_check(rank, request == NULL, "an ended request is not NULL");
	rank_check(rank, strstr(collet_last_error(), "1 on ") != NULL, "the sentence does not name rank 1: %s",
		collet_last_error());
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TIMEOUT, "the communicator's error");
	rank_status(rank, collet_barrier(rank->comm, NULL), COLLET_ERR_TIMEOUT, "the next call");
	rank_post(rank, 0);
}

static void a_deadline_ends_the_communicator(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, time_out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequences_end_on_one_communicator),
		cmocka_unit_test(sequences_end_on_two_communicators),
		cmocka_unit_test(requests_may_be_waited_for_in_opposite_orders),
		cmocka_unit_test(the_progress_thread_takes_what_nobody_waits_for),
		cmocka_unit_test(a_thread_that_has_waited_leaves_the_rest_to_the_progress_thread),
		cmocka_unit_test(callers_and_the_progress_thread_get_along),
		cmocka_unit_test(many_requests_overlap),
		cmocka_unit_test(destroy_ends_what_is_pending),
		cmocka_unit_test(a_deadline_ends_the_communicator),
	};
	return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
