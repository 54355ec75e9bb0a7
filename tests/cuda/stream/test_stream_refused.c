/* A driver that refuses a call on a stream in the middle, and also the signal that the stream has passed it. Then
 * nobody knows when it has. Still the communicator is destroyed at once. The stream reaches the call afterwards, finds
 * all that it uses, and continues. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "gpu.h"

enum { COUNT = 3000, RANKS = 2, CREATED = 0, CALLED = 1, GONE = 2 };
static const int64_t SOON_NS = INT64_C(5) * 1000 * 1000 * 1000;

struct refusal {
	const char *failure;         /* as FAKE_CUDA_FAIL, of the last rank */
	bool own;                    /* each rank has a GPU of its own; otherwise they share one */
	bool on_host;                /* the buffer is host memory */
};

static void refuse(struct rank *rank)
{
	const struct refusal *refusal = rank->options->context;
	const bool refused = rank->rank == RANKS - 1;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	uint32_t values[COUNT] = { 0 };
	if (refused)
		setenv("FAKE_CUDA_FAIL", refusal->failure, 1);
	if (!gpu_start_on(&gpu, rank, refusal->own ? (int)rank->rank : 0) || !rank_create(rank) ||
		(!refusal->on_host && !gpu_make(&gpu, &buffer, COUNT, 1)))
		return;
	if (refusal->on_host)
		buffer = (struct buffer){ .first = (char *)values, .bytes = sizeof(values) };
	/* A rank that fails ends the others, which may still be in the creation, or may not have called. */
	rank_post(rank, CREATED);
	rank_await(rank, CREATED, RANKS);
	if (refused)
		gpu_hold(&gpu, 0, 0);
	const collet_status status = gpu_allreduce(&gpu, 0, &buffer);
	rank_check(rank, !refused || status == COLLET_ERR_MEMORY, "the call has come to %s", collet_last_error());
	rank_post(rank, CALLED);
	rank_await(rank, CALLED, RANKS);
	const int64_t began_ns = collet_clock_ns();
	rank_destroy(rank);
	const int64_t took_ms = (collet_clock_ns() - began_ns) / 1000000;
	rank_check(rank, took_ms * 1000000 < SOON_NS, "destroying took %lld ms", (long long)took_ms);
	gpu_open(&gpu, 0);
	gpu_synchronize(&gpu, 0);
	/* Other ranks' GPUs must not fault on memory that was freed. */
	rank_post(rank, GONE);
	rank_await(rank, GONE, RANKS);
	if (!refusal->on_host)
		buffer_free(&buffer);
	gpu_end(&gpu);
}

static void memory_of_a_refused_call_stays(void **state)
{
	static const struct refusal rows[] = {
		{ "cuStreamWriteValue32:0:2", false, false },
		{ "cuStreamWriteValue32:0:2", false, true },
		{ "cuLaunchHostFunc:2+:2", true, true },
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		const struct ranks_options options = { .size = RANKS, .mode = RANKS_PROCESSES, .transport = "shm",
			.bare = true, .context = &rows[r] };
		print_message("%s, %s\n", rows[r].failure, rows[r].own ? "on GPUs of their own" : "on one GPU");
		ranks_must_pass(&options, refuse);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_a_refused_call_stays),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
