/* Tests sends and receives that end alone: at their deadline, or by collet_request_cancel(). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks.h"

enum { DONE }; /* an event: a call of rank 0 has ended that nobody has met */
enum { SMALL = 10, LARGE = 1 << 20, TAG = 3 };
static const int64_t SHORT_NS = INT64_C(50000000);

/* A call that nobody meets. */
enum kind { RECEIVE, RECEIVE_ANY, SEND_LARGE, EXCHANGE };

static const struct vain {
	const char *name, *sentence;
	enum kind kind;
} vains[] = {
	{ "a receive", "recv from rank 1, tag 3", RECEIVE },
	{ "a receive from any rank", "recv from any rank, tag 3", RECEIVE_ANY },
	{ "a large send", "send of 1048576 bytes to rank 1, tag 3", SEND_LARGE },
	{ "a large sendrecv", "sendrecv", EXCHANGE },
};
enum { VAINS = sizeof(vains) / sizeof(vains[0]) };

static collet_status call(struct rank *rank, enum kind kind, unsigned char *data, const collet_how *how)
{
	collet_comm *comm = rank->comm;
	switch (kind) {
	case RECEIVE: return collet_recv(comm, data, LARGE, COLLET_U8, 1, TAG, NULL, how);
	case RECEIVE_ANY: return collet_recv(comm, data, LARGE, COLLET_U8, COLLET_ANY_SOURCE, TAG, NULL, how);
	case SEND_LARGE: return collet_send(comm, data, LARGE, COLLET_U8, 1, TAG, how);
	case EXCHANGE:
		return collet_sendrecv(
			comm, data, LARGE, 1, TAG, data + LARGE, LARGE, 1, TAG, COLLET_U8, NULL, how);
	}
	return COLLET_ERR_ARGUMENT;
}

/* Exchanges a message and makes a collective: what the other ranks see of a communicator that works on. */
static void check_that_all_works(struct rank *rank, unsigned char *data, unsigned char value)
{
	uint32_t sum = 1;
	rank_doing(rank, "exchanging %u", value);
	if (rank->rank == 0) {
		memset(data, value, LARGE);
		rank_ok(rank, collet_send(rank->comm, data, LARGE, COLLET_U8, 1, TAG, NULL), "a later send");
		memset(data, 0, LARGE);
		rank_ok(rank, collet_recv(rank->comm, data, LARGE, COLLET_U8, 1, TAG, NULL, NULL), "a later recv");
	} else {
		rank_ok(rank, collet_recv(rank->comm, data, LARGE, COLLET_U8, 0, TAG, NULL, NULL), "a later recv");
		rank_ok(rank, collet_send(rank->comm, data, LARGE, COLLET_U8, 0, TAG, NULL), "a later send");
	}
	rank_check(rank, data[0] == value && data[LARGE - 1] == value, "a later message has brought %u, not %u",
		data[0], value);
	rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, NULL), "a later allreduce");
	rank_check(rank, sum == rank->size, "the sum is %u", sum);
	rank_ok(rank, collet_comm_error(rank->comm), "the communicator");
}

/* ---- Deadlines ---- */

/* Each kind twice: before the ranks are connected, and after. */
static void time_out(struct rank *rank)
{
	unsigned char *data = calloc(2, LARGE);
	const collet_how how = { .timeout_ns = SHORT_NS };
	for (uint32_t i = 0; i < 2 * VAINS; i++) {
		const struct vain *vain = &vains[i % VAINS];
		if (rank->rank == 0) {
			rank_doing(rank, "%s", vain->name);
			rank_status(rank, call(rank, vain->kind, data, &how), COLLET_ERR_TIMEOUT, vain->name);
			rank_check(rank, strstr(collet_last_error(), vain->sentence), "not \"%s\": %s", vain->sentence,
				collet_last_error());
			rank_post(rank, DONE);
		}
		rank_await(rank, DONE, i + 1);
		check_that_all_works(rank, data, (unsigned char)(i + 1));
	}
	free(data);
}

static void who_is_not_met_ends_alone(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, time_out);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2, .progress_thread = true }, time_out);
}

/* The default of a communicator is this rank's own, and changes for later calls. */
static void change_the_timeout(struct rank *rank)
{
	unsigned char *data = calloc(2, LARGE);
	rank_status(rank, collet_comm_set_timeout(rank->comm, 0), COLLET_ERR_ARGUMENT, "0 ns");
	rank_status(rank, collet_comm_set_timeout(rank->comm, -2), COLLET_ERR_ARGUMENT, "-2 ns");
	rank_status(rank, collet_comm_set_timeout(NULL, 1), COLLET_ERR_ARGUMENT, "no communicator");
	if (rank->rank == 0) {
		rank_ok(rank, collet_comm_set_timeout(rank->comm, SHORT_NS), "a short timeout");
		rank_status(rank, call(rank, RECEIVE, data, NULL), COLLET_ERR_TIMEOUT, "a receive");
	}
	rank_ok(rank, collet_comm_set_timeout(rank->comm, COLLET_NO_TIMEOUT), "no timeout");
	check_that_all_works(rank, data, 1);
	/* A call that peers have to wait for ends the communicator. */
	if (rank->rank == 0) {
		rank_ok(rank, collet_comm_set_timeout(rank->comm, SHORT_NS), "a short timeout");
		rank_status(rank, collet_barrier(rank->comm, NULL), COLLET_ERR_TIMEOUT, "a barrier");
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TIMEOUT, "the communicator");
	}
	rank_barrier(rank);
	free(data);
}

static void a_communicators_timeout_can_be_changed(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, change_the_timeout);
}

/* ---- Cancelling ---- */

static bool progress(struct rank *rank)
{
	const collet_status status = collet_progress(rank->comm, 0);
	return rank_check(rank, status == COLLET_OK || status == COLLET_PENDING, "progress: %s", collet_last_error());
}

static void cancel(struct rank *rank)
{
	unsigned char *data = calloc(2, LARGE);
	for (uint32_t i = 0; i < 2 * VAINS; i++) {
		const struct vain *vain = &vains[i % VAINS];
		collet_request *request = NULL;
		const collet_how how = { .request = &request };
		if (rank->rank == 0 && rank_ok(rank, call(rank, vain->kind, data, &how), vain->name)) {
			rank_ok(rank, collet_request_cancel(request), vain->name);
			rank_ok(rank, collet_request_cancel(request), "again");
			rank_status(rank, collet_request_wait(&request), COLLET_CANCELLED, vain->name);
			rank_check(rank, strstr(collet_last_error(), vain->sentence), "not \"%s\": %s", vain->sentence,
				collet_last_error());
			rank_post(rank, DONE);
		}
		rank_await(rank, DONE, i + 1);
		check_that_all_works(rank, data, (unsigned char)(i + 1));
	}
	rank_ok(rank, collet_request_cancel(NULL), "no request");
	free(data);
}

static void what_is_not_met_can_be_cancelled(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, cancel);
}

static void cancel_too_late(struct rank *rank)
{
	uint32_t sum = 1;
	collet_request *request = NULL;
	const collet_how how = { .request = &request };
	unsigned char *data = calloc(2, LARGE);
	if (rank->rank == 0) {
		rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, &how), "allreduce");
		rank_status(rank, collet_request_cancel(request), COLLET_PENDING, "a collective");
	} else {
		rank_ok(rank, collet_allreduce(rank->comm, &sum, &sum, 1, COLLET_U32, COLLET_SUM, NULL), "allreduce");
	}
	rank_ok(rank, collet_request_wait(&request), "wait");
	/* A request that has ended stays what it is. */
	if (rank->rank == 0) {
		rank_ok(rank, collet_send(rank->comm, data, SMALL, COLLET_U8, 0, TAG, &how), "send to itself");
		rank_ok(rank, collet_recv(rank->comm, data, SMALL, COLLET_U8, 0, TAG, NULL, NULL), "recv from itself");
		while (collet_request_cancel(request) == COLLET_PENDING && progress(rank)) {
		}
		rank_ok(rank, collet_request_wait(&request), "the send");
	}
	check_that_all_works(rank, data, 1);
	free(data);
}

static void what_is_under_way_goes_on(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, cancel_too_late);
}

/* ---- Both ends at a time ---- */

/* Rank 1 has matched a message and asked for it when rank 0 withdraws it. Its second receive, from any rank, is behind
 * the first, so the first gets what comes next. */
static void cancel_what_is_matched(struct rank *rank)
{
	enum { ANNOUNCED = 1, MATCHED };
	unsigned char *data = calloc(2, LARGE), *other = data + LARGE;
	collet_request *request = NULL, *second = NULL;
	const collet_how how = { .request = &request };
	for (uint32_t round = 0; round < 2; round++) {
		/* The small message is behind the announcement, and connects the ranks. */
		if (rank->rank == 0) {
			rank_ok(rank, collet_send(rank->comm, data, LARGE, COLLET_U8, 1, TAG, &how), "send");
			rank_ok(rank, collet_send(rank->comm, data, 1, COLLET_U8, 1, TAG + 1, NULL), "small send");
			rank_post(rank, ANNOUNCED);
			rank_await(rank, MATCHED, round + 1);
			rank_ok(rank, collet_request_cancel(request), "cancel");
			rank_status(rank, collet_request_wait(&request), COLLET_CANCELLED, "wait");
			memset(other, 5, LARGE);
			rank_ok(rank, collet_send(rank->comm, other, LARGE, COLLET_U8, 1, TAG, NULL), "send instead");
			rank_ok(rank, collet_send(rank->comm, other, SMALL, COLLET_U8, 1, TAG, NULL), "second send");
		} else {
			const uint32_t source = round ? COLLET_ANY_SOURCE : 0;
			collet_received received[2] = { { 0 } };
			rank_await(rank, ANNOUNCED, round + 1);
			rank_ok(rank, collet_recv(rank->comm, data, LARGE, COLLET_U8, source, TAG, &received[0], &how),
				"recv");
			rank_ok(rank, collet_recv(rank->comm, other, LARGE, COLLET_U8, COLLET_ANY_SOURCE, TAG,
					&received[1], &(collet_how){ .request = &second }), "second recv");
			rank_ok(rank, collet_recv(rank->comm, data, 1, COLLET_U8, 0, TAG + 1, NULL, NULL),
				"small recv");
			rank_post(rank, MATCHED);
			rank_ok(rank, collet_request_wait(&request), "wait");
			rank_ok(rank, collet_request_wait(&second), "second wait");
			const bool is_right = received[0].count == LARGE && data[LARGE - 1] == 5;
			rank_check(rank, is_right && received[1].count == SMALL,
				"round %u: %llu bytes, then %llu", round, (unsigned long long)received[0].count,
				(unsigned long long)received[1].count);
		}
	}
	free(data);
}

/* Rank 0 announces large messages and cancels them, whatever rank 1 does meanwhile: it posts receives, from rank 0 or
 * any. Those whose message was withdrawn must wait for another, and get what was sent in order. */
static void cancel_while_it_is_matched(struct rank *rank)
{
	enum { ROUNDS = 200 };
	unsigned char *data = calloc(2, LARGE);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		collet_request *request = NULL;
		const collet_how how = { .request = &request };
		const unsigned char value = (unsigned char)(i + 1);
		rank_doing(rank, "round %u", i);
		if (rank->rank == 1) {
			const uint32_t source = i % 2 ? COLLET_ANY_SOURCE : 0;
			rank_ok(rank, collet_recv(rank->comm, data, LARGE, COLLET_U8, source, TAG, NULL, NULL), "recv");
			rank_check(rank, data[0] == value && data[LARGE - 1] == value, "round %u has brought %u", i,
				data[0]);
			continue;
		}
		memset(data, value, LARGE);
		rank_ok(rank, collet_send(rank->comm, data, LARGE, COLLET_U8, 1, TAG, &how), "send");
		for (uint32_t rounds = 0; rounds < i % 7; rounds++)
			progress(rank);
		const bool cancelled = collet_request_cancel(request) == COLLET_OK;
		const collet_status status = collet_request_wait(&request);
		rank_check(rank, status == COLLET_OK || (cancelled && status == COLLET_CANCELLED), "cancelled: %s",
			collet_status_name(status));
		if (status == COLLET_OK)
			continue;
		/* The buffer is this rank's again: what is in it now is not sent. */
		memset(data, 0, LARGE);
		memset(data + LARGE, value, LARGE);
		rank_ok(rank, collet_send(rank->comm, data + LARGE, LARGE, COLLET_U8, 1, TAG, NULL), "send instead");
	}
	check_that_all_works(rank, data, 1);
	free(data);
}

static void a_receive_waits_again_if_its_message_is_withdrawn(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, cancel_what_is_matched);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, cancel_while_it_is_matched);
	ranks_must_pass_everywhere(
		&(struct ranks_options){ .size = 2, .progress_thread = true }, cancel_while_it_is_matched);
}

/* Receives of one tag get messages in the order in which both were made, whichever of them were cancelled. */
static void keep_the_order(struct rank *rank)
{
	enum { CALLS = 12 };
	collet_request *requests[CALLS] = { NULL };
	uint32_t values[CALLS];
	if (rank->rank == 1) {
		for (uint32_t i = 0; i < CALLS; i++)
			rank_ok(rank, collet_recv(rank->comm, &values[i], 1, COLLET_U32,
					i % 3 ? 0 : COLLET_ANY_SOURCE, TAG, NULL,
					&(collet_how){ .request = &requests[i] }), "recv");
		for (uint32_t i = 1; i < CALLS; i += 2)
			rank_ok(rank, collet_request_cancel(requests[i]), "cancel");
	}
	rank_barrier(rank);
	for (uint32_t i = 0; i < CALLS; i += 2) {
		if (rank->rank == 0) {
			rank_ok(rank, collet_send(rank->comm, &i, 1, COLLET_U32, 1, TAG, NULL), "send");
			continue;
		}
		rank_ok(rank, collet_request_wait(&requests[i]), "wait");
		rank_check(rank, values[i] == i, "receive %u has got message %u", i, values[i]);
		rank_status(rank, collet_request_wait(&requests[i + 1]), COLLET_CANCELLED, "cancelled");
	}
	rank_barrier(rank);
}

static void others_keep_their_order(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, keep_the_order);
}

/* ---- Being told ---- */

static void note_status(void *context, collet_status status)
{
	*(collet_status *)context = status;
}

static void *wait_for_end(void *context)
{
	collet_request *request = context;
	return (void *)(uintptr_t)collet_request_wait(&request);
}

/* on_end() is told, and a thread that is asleep in a wait wakes up. */
static void tell(struct rank *rank)
{
	unsigned char byte;
	collet_status told = COLLET_PENDING;
	collet_request *request = NULL, *awaited = NULL;
	pthread_t thread;
	void *status;
	if (rank->rank == 0) {
		const collet_how how = { .request = &request, .on_end = note_status, .on_end_context = &told };
		rank_ok(rank, collet_recv(rank->comm, &byte, 1, COLLET_U8, 1, TAG, NULL, &how), "recv");
		rank_ok(rank, collet_request_cancel(request), "cancel");
		rank_status(rank, collet_request_wait(&request), COLLET_CANCELLED, "wait");
		rank_check(rank, told == COLLET_CANCELLED, "on_end() was told %s", collet_status_name(told));
		rank_ok(rank, collet_recv(rank->comm, &byte, 1, COLLET_U8, 1, TAG, NULL,
				&(collet_how){ .request = &awaited }), "recv");
		if (!rank_check(rank, !pthread_create(&thread, NULL, wait_for_end, awaited), "no thread"))
			return;
		/* It may be cancelled before or after the thread waits. */
		rank_ok(rank, collet_request_cancel(awaited), "cancel for another thread");
		pthread_join(thread, &status);
		rank_check(rank, (collet_status)(uintptr_t)status == COLLET_CANCELLED, "the other thread: %s",
			collet_status_name((collet_status)(uintptr_t)status));
	}
	rank_barrier(rank);
}

static void the_end_is_told(void **state)
{
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2 }, tell);
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 2, .progress_thread = true }, tell);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_not_met_ends_alone),
		cmocka_unit_test(a_communicators_timeout_can_be_changed),
		cmocka_unit_test(what_is_not_met_can_be_cancelled),
		cmocka_unit_test(what_is_under_way_goes_on),
		cmocka_unit_test(a_receive_waits_again_if_its_message_is_withdrawn),
		cmocka_unit_test(others_keep_their_order),
		cmocka_unit_test(the_end_is_told),
	};
	return cmocka_run_group_tests_name("withdraw", tests, NULL, NULL);
}
