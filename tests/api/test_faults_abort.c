/* Tests collet_comm_abort(): it is local, idempotent, and callable by any thread. Every rank's pending and later
 * calls return COLLET_ERR_ABORTED in bounded time. Destroy after any end leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "entries.h"
#include "ranks.h"

enum { COUNT = 1 << 18, REQUESTS = 5, ABORTS = 50 };
enum { EVENT_WAITING, EVENT_ABORTED };
#define PATIENCE_MS (ranks_are_slow() ? 20000.0 : 5000.0)

static const char *const transports[] = {"shm", "tcp"};

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- Abort ---- */

/* Aborts again and again from a second thread while the first one is inside a call. */
static void *abort_often(void *argument)
{
	struct rank *rank = argument;
	rank_post(rank, EVENT_WAITING);
	for (int i = 0; i < ABORTS; i++)
		collet_comm_abort(rank->comm);
	rank_post(rank, EVENT_ABORTED);
	return NULL;
}

static void check_aborted(struct rank *rank, collet_status status, const char *what)
{
	rank_status(rank, status, COLLET_ERR_ABORTED, what);
	rank_check(rank, strstr(collet_last_error(), "collet_comm_abort()") != NULL, "%s: nobody says who aborted: %s",
		what, collet_last_error());
}

static void block_until_aborted(struct rank *rank, float *data)
{
	check_aborted(
		rank, collet_allreduce(rank->comm, data, data, COUNT, COLLET_F32, COLLET_SUM, NULL), "a blocking call");
}

/* Starts requests of all kinds, and one that this rank never waits for. */
static void request_until_aborted(struct rank *rank, float *data)
{
	collet_request *requests[REQUESTS] = {NULL};
	uint32_t message;
	collet_status status = COLLET_OK;
	for (int i = 0; i < REQUESTS && status == COLLET_OK; i++) {
		const collet_how how = { .request = &requests[i] };
		if (i == 0)
			status = collet_recv(rank->comm, &message, 1, COLLET_U32, COLLET_ANY_SOURCE, 7, NULL, &how);
		else
			status = collet_allreduce(rank->comm, data + i * COUNT / REQUESTS, data + i * COUNT / REQUESTS,
				COUNT / REQUESTS, COLLET_F32, COLLET_SUM, &how);
	}
	if (status == COLLET_OK)
		status = collet_request_wait_all(requests, REQUESTS - 1);
	check_aborted(rank, status, "requests");
}

struct abort_row {
	bool requests;
	uint32_t aborter; /* never joins the call */
};

static void be_aborted(struct rank *rank)
{
	const struct abort_row *row = rank->options->context;
	float *data = calloc(COUNT, sizeof(*data));
	pthread_t thread;
	const double before = now_ms();
	if (rank->rank == row->aborter) {
		if (!rank_check(rank, pthread_create(&thread, NULL, abort_often, rank) == 0, "no thread"))
			return;
		/* Block in a call of another kind, which no rank answers. */
		uint32_t message;
		check_aborted(rank,
			collet_recv(rank->comm, &message, 1, COLLET_U32, (rank->rank + 1) % rank->size, 9, NULL, NULL),
			"the call of the rank that aborts");
		pthread_join(thread, NULL);
	} else if (row->requests) {
		request_until_aborted(rank, data);
	} else {
		block_until_aborted(rank, data);
	}
	rank_check(rank, now_ms() - before < PATIENCE_MS, "it took %.0f ms", now_ms() - before);
	check_aborted(rank, collet_barrier(rank->comm, NULL), "a later call");
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_ABORTED, "collet_comm_error");
	collet_comm_abort(rank->comm);
	rank_destroy(rank);
	free(data);
}

static void abort_ends_every_ranks_call(void **state)
{
	for (size_t t = 0; t < 2; t++) {
		for (uint32_t i = 0; i < 8; i++) {
			const struct abort_row row = { .requests = i & 1, .aborter = i & 2 ? 2 : 0 };
			const struct ranks_options options = { .mode = i & 4 ? RANKS_PROCESSES : RANKS_THREADS,
				.size = 3,
				.transport = transports[t],
				.context = &row };
			ranks_must_pass(&options, be_aborted);
		}
	}
}

/* Every rank aborts at the same time, during calls. */
static void all_abort(struct rank *rank)
{
	float *data = calloc(COUNT, sizeof(*data));
	pthread_t thread;
	if (rank_check(rank, pthread_create(&thread, NULL, abort_often, rank) == 0, "no thread")) {
		collet_status status = COLLET_OK;
		while (status == COLLET_OK)
			status = collet_allreduce(rank->comm, data, data, COUNT, COLLET_F32, COLLET_SUM, NULL);
		check_aborted(rank, status, "a call amidst others");
		pthread_join(thread, NULL);
	}
	free(data);
}

static void all_ranks_may_abort_at_once(void **state)
{
	for (uint32_t i = 0; i < 8; i++) {
		const struct ranks_options options = {
			.mode = i & 1 ? RANKS_PROCESSES : RANKS_THREADS, .size = 3, .transport = transports[i / 2 % 2]};
		ranks_must_pass(&options, all_abort);
	}
}

/* An abort of one communicator does not affect the context's others. */
static void abort_a_part(struct rank *rank)
{
	collet_comm *part = NULL;
	if (!rank_ok(rank, collet_comm_split(rank->comm, 0, 0, &part), "split"))
		return;
	if (rank->rank == 0)
		collet_comm_abort(part);
	check_aborted(rank, collet_barrier(part, NULL), "the part's barrier");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "the whole's barrier");
	rank_ok(rank, collet_comm_destroy(&part), "destroy");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "the whole's barrier after the part is gone");
}

static void other_communicators_live_on(void **state)
{
	for (size_t t = 0; t < 2; t++)
		ranks_must_pass(&(struct ranks_options){ .mode = RANKS_THREADS, .size = 3, .transport = transports[t] },
			abort_a_part);
}

/* ---- What is left after an end ---- */

struct held {
	unsigned descriptors, threads, mappings;
};

/* Counts shared mappings only: the allocator and the sanitizers have private ones too. */
static unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned shared = 0;
	while (maps && fgets(line, sizeof(line), maps))
		shared += strstr(line, "memfd:") != NULL;
	if (maps)
		fclose(maps);
	return shared;
}

static struct held count_held(void)
{
	return (struct held){ count_entries("/proc/self/fd"), count_entries("/proc/self/task"), count_mappings() };
}

enum end { BY_ABORT, BY_MISMATCH, BY_TIMEOUT, BY_LEAVING, ENDS };

static void end_and_destroy(struct rank *rank)
{
	const enum end end = *(const enum end *)rank->options->context;
	float *data = calloc(COUNT, sizeof(*data));
	void *buffer = NULL;
	const collet_how how = { .timeout_ns = end == BY_TIMEOUT ? INT64_C(50000000) : 0 };
	const bool odd = rank->rank == 1;
	collet_request *request = NULL;
	const collet_how later = { .request = &request };
	collet_status status = collet_allreduce(rank->comm, data, data, COUNT, COLLET_F32, COLLET_SUM, NULL);
	rank_ok(rank, status, "a good call");
	rank_ok(rank, collet_mem_alloc(rank->comm, &buffer, 1 << 20), "collet_mem_alloc");
	/* No call waits for it: destroy ends it. */
	if (!odd)
		rank_ok(rank, collet_recv(rank->comm, data, 1, COLLET_F32, 1, 3, NULL, &later), "a request");
	/* Synchronise without a barrier, in which a rank could still be when another ends the communicator. */
	rank_post(rank, EVENT_WAITING);
	rank_await(rank, EVENT_WAITING, rank->size);
	if (end == BY_ABORT && odd)
		collet_comm_abort(rank->comm);
	if (end == BY_LEAVING && odd)
		rank_destroy(rank);
	else if (end == BY_TIMEOUT && odd)
		rank_await(rank, EVENT_ABORTED, rank->size - 1);
	else
		status = collet_allreduce(rank->comm, data, data, end == BY_MISMATCH && odd ? COUNT - 1 : COUNT,
			COLLET_F32, COLLET_SUM, &how);
	static const collet_status wanted[] = {
		COLLET_ERR_ABORTED, COLLET_ERR_MISMATCH, COLLET_ERR_TIMEOUT, COLLET_ERR_PEER_LOST};
	if (rank->comm && !(end == BY_TIMEOUT && odd))
		rank_status(rank, status, wanted[end], "the call that cannot end well");
	rank_post(rank, EVENT_ABORTED);
	rank_destroy(rank);
	free(data);
}

static void nothing_is_left_after_an_end(void **state)
{
	static const char *const names[] = {"abort", "mismatch", "timeout", "leaving"};
	for (size_t t = 0; t < 2; t++) {
		enum end end = BY_ABORT;
		const struct ranks_options options = {
			.mode = RANKS_THREADS, .size = 3, .transport = transports[t], .context = &end};
		ranks_must_pass(&options, end_and_destroy); /* libraries open their files once */
		for (end = 0; end < ENDS; end++) {
			const struct held before = count_held();
			ranks_must_pass(&options, end_and_destroy);
			/* A joined thread may still be listed for a moment. */
			const double deadline = now_ms() + PATIENCE_MS;
			struct held after = count_held();
			while (memcmp(&before, &after, sizeof(before)) != 0 && now_ms() < deadline)
				after = count_held();
			if (memcmp(&before, &after, sizeof(before)) != 0)
				fail_msg("%s, %s: %u descriptors, %u threads, %u mappings before; %u, %u, %u after",
					transports[t], names[end], before.descriptors, before.threads, before.mappings,
					after.descriptors, after.threads, after.mappings);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(abort_ends_every_ranks_call),
		cmocka_unit_test(all_ranks_may_abort_at_once),
		cmocka_unit_test(other_communicators_live_on),
		cmocka_unit_test(nothing_is_left_after_an_end),
	};
	return cmocka_run_group_tests_name("abort", tests, NULL, NULL);
}
