/* Tests the ways to make progress of clients with an event loop: collet_progress(), the descriptor,
 * collet_request_wait_for(). */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "told_sums.h"

enum {
	SMALL = 10,
	LARGE = 300000               /* floats: more than any ring or socket buffers */
};

static void make_mistakes(struct rank *rank)
{
	rank_status(rank, collet_progress(rank->comm, 0), COLLET_PENDING, "progress of nothing");
	rank_status(rank, collet_progress(rank->comm, 1000 * 1000), COLLET_PENDING, "progress of nothing for a time");
	rank_status(rank, collet_progress(NULL, 0), COLLET_ERR_ARGUMENT, "progress of no communicator");
	rank_status(rank, collet_progress(rank->comm, -2), COLLET_ERR_ARGUMENT, "progress for a negative time");
	rank_status(rank, collet_comm_descriptor(rank->comm, NULL), COLLET_ERR_ARGUMENT, "a descriptor for nobody");
	rank_status(rank, collet_request_wait_for(NULL, 0), COLLET_ERR_ARGUMENT, "a wait for no request");
}

static void mistakes_are_refused(void **state)
{
	ranks_must_pass(&(struct ranks_options){ .size = 2 }, make_mistakes);
}

static void wait_for_a_late_rank(struct rank *rank)
{
	static const int64_t times_ns[] = { 0, 1, 1000 * 1000, 60 * 1000 * 1000 };
	for (uint32_t i = 0; i < 4; i++) {
		struct sum sum;
		if (!sum_make(rank, &sum, i % 2 ? SMALL : LARGE))
			return;
		if (rank->rank == 1 && !rank_await(rank, 0, (i + 1) * (rank->size - 1)))
			return;
		if (!rank_ok(rank, sum_start(rank->comm, &sum, true), "start"))
			return;
		if (rank->rank != 1) {
			rank_status(rank, collet_request_wait_for(&sum.request, times_ns[i]), COLLET_PENDING,
				"too short a wait");
			rank_check(rank, sum.request != NULL, "a pending request is NULL");
			rank_post(rank, 0);
		}
		rank_ok(rank, collet_request_wait_for(&sum.request, INT64_C(20) * 1000 * 1000 * 1000), "a longer wait");
		rank_check(rank, !sum.request, "an ended request is not NULL");
		rank_ok(rank, collet_request_wait_for(&sum.request, 0), "a wait for nothing");
		sum_was_told_once(rank, &sum, COLLET_OK);
		free(sum.values);
	}
}

static void a_wait_for_a_time_changes_nothing(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, wait_for_a_late_rank);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2, .progress_thread = true }, wait_for_a_late_rank);
}

static void *start_in_a_thread(void *context)
{
	struct sum *sum = context;
	rank_ok(sum->rank, sum_start(sum->rank->comm, sum, false), "start");
	return NULL;
}

/* Another thread starts a call while this one polls, with nothing under way. */
static void poll_for_a_threads_call(struct rank *rank)
{
	struct pollfd polled = { .events = POLLIN };
	struct sum sum;
	pthread_t thread;
	rank_ok(rank, collet_comm_descriptor(rank->comm, &polled.fd), "the descriptor");
	for (uint32_t i = 0; i < 10; i++) {
		if (!sum_make(rank, &sum, i % 2 ? SMALL : LARGE))
			return;
		while (collet_progress(rank->comm, 0) == COLLET_OK)
			;
		if (!rank_check(rank, !pthread_create(&thread, NULL, start_in_a_thread, &sum), "no thread"))
			return;
		rank_check(rank, poll(&polled, 1, SUM_POLL_MS) == 1, "a call does not make it readable");
		if (sum_poll(rank, &sum))
			sum_was_told_once(rank, &sum, COLLET_OK);
		pthread_join(thread, NULL);
		free(sum.values);
	}
}

static void a_threads_call_makes_the_descriptor_readable(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, poll_for_a_threads_call);
}

/* A deadline passes while the caller polls. */
static void poll_until_a_deadline(struct rank *rank)
{
	if (rank->rank == 1) {
		rank_await(rank, 0, 1);
		return;
	}
	struct sum sum = { .rank = rank };
	uint32_t value;
	const collet_how how = { .on_end = sum_note, .on_end_context = &sum, .timeout_ns = 100 * 1000 * 1000 };
	if (rank_ok(rank, collet_recv(rank->comm, &value, 1, COLLET_U32, 1, 0, NULL, &how), "recv") &&
		sum_poll(rank, &sum))
		sum_was_told_once(rank, &sum, COLLET_ERR_TIMEOUT);
	rank_post(rank, 0);
}

static void a_deadline_makes_the_descriptor_readable(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, poll_until_a_deadline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mistakes_are_refused),
		cmocka_unit_test(a_wait_for_a_time_changes_nothing),
		cmocka_unit_test(a_threads_call_makes_the_descriptor_readable),
		cmocka_unit_test(a_deadline_makes_the_descriptor_readable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
