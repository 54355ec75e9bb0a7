/* Calls captured into graphs. Every launch makes them again, mixed with calls outside graphs. Whatever ends the
 * communicator does not block the graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <collet/cuda.h>

#include "gpu.h"
#include "losses.h"

enum { COUNT = 300, LAUNCHES = 1000 };

static void exchange(struct rank *rank, const struct buffer *from, const struct buffer *to, const collet_how *how)
{
	const uint32_t next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
	rank_ok(rank, collet_sendrecv(rank->comm, from->first, COUNT, next, 1, to->first, COUNT, before, 1, COLLET_U32,
			      NULL, how), "sendrecv in a graph");
}

/* Two graphs in turn: one of two all-reduces, one with an exchange and a barrier. Now and then a call outside both, on
 * the same stream or on none. The communicator's first call on a stream is captured. */
static void replay(struct rank *rank)
{
	const uint32_t launches = ranks_are_slow() ? LAUNCHES / 5 : LAUNCHES;
	struct gpu gpu;
	struct buffer first = { 0 }, second = { 0 };
	cu_graph_exec exec[2] = { NULL, NULL };
	uint32_t calls = 0;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &first, COUNT, 1) || !gpu_make(&gpu, &second, COUNT, 7))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &first), "captured");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &first), "captured");
	gpu_end_capture(&gpu, 0, &exec[0]);
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &first), "captured");
	exchange(rank, &first, &second, &how);
	rank_ok(rank, collet_barrier(rank->comm, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec[1]);
	gpu_holds(&gpu, &first, 1, "while it was captured");
	for (uint32_t i = 0; i < launches && !rank->report->failed; i++) {
		if (i % 7 == 0) {
			rank_ok(rank, gpu_allreduce(&gpu, 0, &first), "in no graph");
			calls++;
		}
		gpu_launch(&gpu, exec[i % 2], 0);
		calls += 2 - i % 2;
		if ((i + 1) % gpu_launches_ahead(&gpu))
			continue;
		rank_doing(rank, "launch %u", i);
		gpu_synchronize(&gpu, 0);
		gpu_holds(&gpu, &first, gpu_power(rank->size, calls, 1), "after some launches");
		gpu_holds(&gpu, &second, gpu_power(rank->size, calls, 1), "what the neighbour had");
		uint32_t value = 1;
		rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL), "between");
		rank_check(rank, value == rank->size, "a blocking call has given %u", value);
	}
	gpu_synchronize(&gpu, 0);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	for (int g = 0; g < 2; g++)
		rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec[g]) == CU_OK, "destroying a graph");
	buffer_free(&first);
	buffer_free(&second);
	gpu_end(&gpu);
}

/* Nothing that is done while a stream is captured becomes part of the capture: a communicator created, used and
 * destroyed, on a GPU that all share. */
static void do_all_meanwhile(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	void *own = NULL;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	if (rank_create(rank)) {
		const collet_how staged = { .algorithm = "ring" };
		rank_ok(rank, gpu_allreduce(&gpu, 1, &buffer), "on another stream");
		gpu_synchronize_relaxed(&gpu, 1);
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM,
				      NULL), "a blocking call");
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_F32, COLLET_SUM,
				      &staged), "one by way of the host");
		rank_ok(rank, collet_mem_alloc_device(rank->comm, &own, 1000), "memory");
		rank_ok(rank, collet_mem_free(rank->comm, own), "memory");
		rank_destroy(rank);
	}
	gpu_end_capture(&gpu, 0, &exec);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void other_work_invalidates_no_capture(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 3, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], do_all_meanwhile);
}

static void graphs_are_launched_again_and_again(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm" },
		{ .size = 3, .transport = "shm", .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], replay);
}

/* All launches are queued before the first begins; one more is on another stream. */
static void pile_up(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	gpu_hold(&gpu, 0, 0);
	for (int i = 0; i < 30; i++)
		gpu_launch(&gpu, exec, 0);
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	gpu_open(&gpu, 0);
	/* On the other stream, when the first has passed. */
	gpu_synchronize(&gpu, 0);
	gpu_launch(&gpu, exec, 1);
	gpu_synchronize(&gpu, 1);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 31, 1), "after 31 launches");
	rank_destroy(rank);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void launches_may_pile_up(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "tcp", .mode = RANKS_MIXED };
	ranks_must_pass(&options, pile_up);
}

/* Rank 2 dies during the launches; the others' launches complete. */
static void lose_one(struct rank *rank)
{
	struct gpu gpu;
	if (gpu_start(&gpu, rank))
		losses_in_graphs(&gpu, COUNT);
}

static void a_rank_that_dies_leaves_no_graph_stuck(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm" };
	losses_must_spare(&options, lose_one, 2);
}

struct failure {
	const char *fail;            /* FAKE_CUDA_FAIL */
	bool ends;                   /* the communicator ends */
};

/* In a capture: the call reports the error, the program ends the capture, and nothing leaks. */
static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), COLLET_ERR_SYSTEM, failure->fail);
	unsetenv("FAKE_CUDA_FAIL");
	gpu_end_capture(&gpu, 0, &exec);
	rank_status(rank, collet_comm_error(rank->comm), failure->ends ? COLLET_ERR_SYSTEM : COLLET_OK, failure->fail);
	/* What it contains of the call does no harm. */
	gpu_launch(&gpu, exec, 0);
	gpu_synchronize(&gpu, 0);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), failure->ends ? COLLET_ERR_SYSTEM : COLLET_OK, "afterwards");
	gpu_synchronize(&gpu, 0);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void what_the_driver_refuses_is_an_error_of_the_captured_call(void **state)
{
	static const struct failure failures[] = { { "cuMemcpyAsync:1:1", false }, { "cuLaunchHostFunc:1:1", false },
		{ "cuStreamWaitValue32:1:1", true }, { "cuMemcpyAsync:2:1", true },
		{ "cuStreamWriteValue32:1:1", true } };
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

static void call_in_an_invalidated_capture(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph graph;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_check(rank, gpu.cuda.cuStreamSynchronize(gpu.stream[0]) == CU_CAPTURE_UNSUPPORTED, "not refused");
	rank_status(rank, gpu_allreduce(&gpu, 0, &buffer), COLLET_ERR_ARGUMENT, "in a invalidated capture");
	rank_check(
		rank, gpu.cuda.cuStreamEndCapture(gpu.stream[0], &graph) == CU_CAPTURE_INVALIDATED, "not invalidated");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "afterwards");
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, rank->size, "afterwards");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void an_invalidated_capture_is_refused(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm" };
	ranks_must_pass(&options, call_in_an_invalidated_capture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(graphs_are_launched_again_and_again),
		cmocka_unit_test(other_work_invalidates_no_capture),
		cmocka_unit_test(launches_may_pile_up),
		cmocka_unit_test(a_rank_that_dies_leaves_no_graph_stuck),
		cmocka_unit_test(what_the_driver_refuses_is_an_error_of_the_captured_call),
		cmocka_unit_test(an_invalidated_capture_is_refused),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
