/* A rank that destroys a communicator and lives on. Ranks that wait for it are told soon who has left, whether the host
 * waits or a kernel. All continue together in another communicator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "gpu.h"

enum { COUNT = 300, RANKS = 3, CALLED = 0, TOLD = 1 };
static const int64_t SOON_NS = INT64_C(10) * 1000 * 1000 * 1000;

/* How a rank calls. */
enum calling { BLOCKING, REQUEST, STREAM };

struct waiting {
	const char *name;
	enum ranks_mode mode;
	uint32_t gpus;               /* GPUs that the ranks share; 0: buffers are host memory */
	enum calling by;
	bool leaves_first;           /* before the others call */
};

/* On rank->comm, in place; returns the call's final status. */
static collet_status sum(struct rank *rank, struct gpu *gpu, void *buffer, enum calling by)
{
	collet_request *request = NULL;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = by == REQUEST ? &request : NULL;
	how.stream = by == STREAM ? gpu->stream[0] : NULL;
	collet_status status = collet_allreduce(rank->comm, buffer, buffer, COUNT, COLLET_U32, COLLET_SUM, &how);
	if (by != BLOCKING)
		rank_post(rank, CALLED);
	if (status != COLLET_OK || by == BLOCKING)
		return status;
	if (by == REQUEST)
		return collet_request_wait(&request);
	gpu_synchronize(gpu, 0);
	return collet_comm_error(rank->comm);
}

static void wait_for_one_that_leaves(struct rank *rank, struct gpu *gpu, void *buffer)
{
	const struct waiting *waiting = rank->options->context;
	const bool leaves = rank->rank == RANKS - 1;
	collet_comm *whole = rank->comm, *part = NULL;
	if (!rank_ok(rank, collet_comm_split(whole, 0, rank->rank, &part), "a split"))
		return;
	rank->comm = part;
	rank_ok(rank, sum(rank, gpu, buffer, BLOCKING), "before");
	if (leaves) {
		if (!waiting->leaves_first && waiting->by != BLOCKING)
			rank_await(rank, CALLED, RANKS - 1);
		rank_ok(rank, collet_comm_destroy(&part), "leaving");
		if (waiting->leaves_first)
			rank_post(rank, TOLD);
	} else {
		if (waiting->leaves_first)
			rank_await(rank, TOLD, 1);
		const int64_t began_ns = collet_clock_ns();
		rank_status(rank, sum(rank, gpu, buffer, waiting->by), COLLET_ERR_PEER_LOST, "a call without the last");
		rank_check(rank, collet_clock_ns() - began_ns < SOON_NS, "it was told after %lld ms",
			(long long)(collet_clock_ns() - began_ns) / 1000000);
		rank_check(rank, strstr(collet_last_error(), "rank 2 on ") != NULL, "%s", collet_last_error());
		if (waiting->gpus)
			rank_check(rank, strstr(collet_last_error(), "has left this communicator, of 3 ranks") != NULL,
				"%s", collet_last_error());
		collet_comm_destroy(&part);
	}
	rank->comm = whole;
	rank_ok(rank, sum(rank, gpu, buffer, BLOCKING), "in the whole, which nobody has left");
}

static void leave(struct rank *rank)
{
	const struct waiting *waiting = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!waiting->gpus) {
		uint32_t values[COUNT] = { 0 };
		if (rank_create(rank))
			wait_for_one_that_leaves(rank, NULL, values);
		return;
	}
	if (!gpu_start_on(&gpu, rank, (int)(rank->rank % waiting->gpus)) || !rank_create(rank) ||
		!gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	wait_for_one_that_leaves(rank, &gpu, buffer.first);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_rank_that_waits_for_one_that_leaves_is_told(void **state)
{
	static const struct waiting rows[] = {
		{ "host/blocking", RANKS_PROCESSES, 0, BLOCKING, false },
		{ "host/request", RANKS_PROCESSES, 0, REQUEST, false },
		{ "gpu each/blocking", RANKS_PROCESSES, RANKS, BLOCKING, false },
		{ "gpu each/request", RANKS_PROCESSES, RANKS, REQUEST, false },
		{ "gpu each/stream", RANKS_PROCESSES, RANKS, STREAM, false },
		{ "gpu each/stream, after", RANKS_PROCESSES, RANKS, STREAM, true },
		{ "gpu each/threads, after", RANKS_THREADS, RANKS, BLOCKING, true },
		{ "one gpu/blocking", RANKS_THREADS, 1, BLOCKING, false },
		{ "one gpu/request", RANKS_THREADS, 1, REQUEST, false },
		{ "one gpu/stream", RANKS_THREADS, 1, STREAM, false },
		{ "one gpu/stream, after", RANKS_THREADS, 1, STREAM, true },
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const struct ranks_options options = {
			.size = RANKS, .mode = rows[r].mode, .transport = "shm", .bare = true, .context = &rows[r] };
		print_message("%s\n", rows[r].name);
		ranks_must_pass(&options, leave);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rank_that_waits_for_one_that_leaves_is_told),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
