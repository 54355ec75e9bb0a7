/* Ranks with GPUs of their own, on streams. A call is a launch, and launches run one after the other, whatever streams
 * they are on. Graphs repeat their calls, between calls of other kinds. Whatever ends the communicator does not block
 * streams and graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu.h"
#include "losses.h"

enum { COUNT = 3000, LAUNCHES = 1000, BRANCHED = 20, DEVICES = 4, READY = 0 };

static bool allreduce_host(struct gpu *gpu, uint32_t *values, bool on_stream)
{
	const collet_how how = { .stream = on_stream ? gpu->stream[0] : NULL };
	return rank_ok(gpu->rank,
		collet_allreduce(gpu->rank->comm, values, values, COUNT, COLLET_U32, COLLET_SUM, &how),
		"a sum of the host's memory");
}

/* A graph of two sums on GPU memory, and one of a sum on host memory and a barrier. They alternate, with a call outside
 * both now and then, on the same stream or on none. */
static void replay(struct rank *rank)
{
	const uint32_t launches = ranks_are_slow() ? LAUNCHES / 5 : LAUNCHES;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec[2] = { NULL, NULL };
	uint32_t *host = calloc(COUNT, sizeof(*host)), calls = 0, host_calls = 0;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec[0]);
	gpu_begin_capture(&gpu, 0);
	allreduce_host(&gpu, host, true);
	rank_ok(rank, collet_barrier(rank->comm, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec[1]);
	gpu_holds(&gpu, &buffer, 1, "while it was captured");
	for (uint32_t i = 0; i < COUNT; i++)
		host[i] = i;
	for (uint32_t i = 0; i < launches && !rank->report->failed; i++) {
		if (i % 7 == 0) {
			rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "in no graph");
			calls++;
		}
		gpu_launch(&gpu, exec[i % 2], 0);
		calls += 2 - i % 2 * 2;
		host_calls += i % 2;
		if (i % 100 != 99)
			continue;
		rank_doing(rank, "launch %u", i);
		gpu_synchronize(&gpu, 0);
		gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls, 1), "after some launches");
		for (uint32_t e = 0; e < COUNT && !rank->report->failed; e++)
			rank_check(rank, host[e] == gpu_power(rank->size, host_calls, e),
				"on the host element %u is %u", e, host[e]);
		allreduce_host(&gpu, host, false);
		host_calls++;
	}
	gpu_synchronize(&gpu, 0);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	for (int g = 0; g < 2; g++)
		rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec[g]) == CU_OK, "destroying a graph");
	buffer_free(&buffer);
	free(host);
	gpu_end(&gpu);
}

static void graphs_are_launched_again_and_again(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 2, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], replay);
}

/* On two streams, of which the first is held up; in a capture, and outside. */
static void take_turns(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	uint32_t value = 1;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	/* Rank 0 comes last. */
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "on the first");
	rank_ok(rank, gpu_allreduce(&gpu, 1, &buffer), "on the second");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "on the first again");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	rank_check(rank, gpu.cuda.cuStreamQuery(gpu.stream[1]) == CU_NOT_READY, "the second has overtaken the first");
	gpu_open(&gpu, 0);
	rank_ok(rank, collet_allreduce(rank->comm, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL), "on none");
	rank_check(rank, value == rank->size, "a blocking call has given %u", value);
	rank_check(rank, gpu.cuda.cuStreamQuery(gpu.stream[0]) == CU_OK, "a call on none has overtaken the streams");
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 3, 1), "after three calls");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void calls_run_in_order_on_any_streams(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 3, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], take_turns);
}

/* A graph of two branches with a call or two of this communicator in each. They run in the order of the capture,
 * although the program does not order them. */
static void branch_out(struct rank *rank)
{
	struct gpu gpu;
	struct buffer sums = { 0 }, largest = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &sums, COUNT, 1) || !gpu_make(&gpu, &largest, 8, rank->rank))
		return;
	const collet_how how = { .stream = gpu.stream[1] };
	gpu_begin_capture(&gpu, 0);
	gpu_follow(&gpu, 1, 0);
	for (int i = 0; i < 2; i++) {
		rank_ok(rank, gpu_allreduce(&gpu, 0, &sums), "in one branch");
		rank_ok(rank,
			collet_allreduce(
				rank->comm, largest.first, largest.first, 8, COLLET_U32, COLLET_MAX, &how),
			"in the other");
	}
	gpu_follow(&gpu, 0, 1);
	gpu_end_capture(&gpu, 0, &exec);
	for (uint32_t i = 1; i <= BRANCHED && !rank->report->failed; i++) {
		gpu_launch(&gpu, exec, 0);
		if (i % 5 == 0)
			rank_ok(rank, gpu_allreduce(&gpu, 0, &sums), "in none");
	}
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &sums, gpu_power(rank->size, 2 * BRANCHED + BRANCHED / 5, 1), "of sums");
	gpu_holds(&gpu, &largest, rank->size - 1, "of the largest");
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	buffer_free(&sums);
	buffer_free(&largest);
	gpu_end(&gpu);
}

static void calls_in_branches_of_a_graph_are_made_in_order(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 2, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], branch_out);
}

/* Nothing that is done while the thread, or another one, captures a stream becomes part of the capture. */
static void do_all_meanwhile(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	collet_comm *whole, *part = NULL;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	whole = rank->comm;
	rank_ok(rank, collet_comm_split(whole, 0, rank->rank, &part), "a communicator that is made meanwhile");
	rank->comm = part;
	rank_ok(rank, gpu_allreduce(&gpu, 1, &buffer), "a first call on a stream");
	gpu_synchronize_relaxed(&gpu, 1);
	rank_ok(rank, collet_allreduce(part, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM, NULL), "one");
	rank_ok(rank, collet_comm_destroy(&part), "destroyed meanwhile");
	rank->comm = whole;
	rank_ok(rank, collet_allreduce(whole, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM, NULL), "more");
	gpu_end_capture(&gpu, 0, &exec);
	gpu_launch(&gpu, exec, 0);
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 4, 1), "after four");
	rank_destroy(rank);
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

/* The buffer is on another GPU than the rank's: copied by the stream, or for the call. */
static void work_beyond(struct rank *rank)
{
	struct gpu gpu;
	struct program beyond;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	uint32_t calls = 0;
	if (!gpu_start_own(&gpu, rank) ||
		!rank_check(rank, program_start(&beyond, (int)(rank->rank + 1) % DEVICES), "another GPU"))
		return;
	uint32_t ones[COUNT];
	for (int i = 0; i < COUNT; i++)
		ones[i] = 1;
	rank_check(rank, buffer_make(&buffer, &beyond, true, sizeof(ones)) && buffer_write(&buffer, ones), "a buffer");
	rank_check(rank, beyond.cuCtxPopCurrent_v2(NULL) == CU_OK, "its own GPU");
	for (int i = 0; i < 3; i++, calls += 2) {
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM,
				      NULL), "on no stream");
		rank_ok(rank, gpu_allreduce(&gpu, i % 2, &buffer), "on a stream");
		gpu_synchronize(&gpu, i % 2);
	}
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	for (int i = 0; i < 5; i++, calls++)
		gpu_launch(&gpu, exec, 0);
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls, 1), "after all of them");
	rank_destroy(rank);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	rank_check(rank, beyond.cuCtxPushCurrent_v2(beyond.context) == CU_OK, "the other's context");
	buffer_free(&buffer);
	rank_check(rank, program_end(&beyond), "another context is current");
	gpu_end(&gpu);
}

static void buffers_may_be_another_gpus(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 3, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], work_beyond);
}

/* A child process knows the communicator, and destroys it, while the parent's kernels wait. */
static void fork_one(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	int status = -1;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "before");
	gpu_launch(&gpu, exec, 0);
	const pid_t child = fork();
	if (child == 0) {
		uint32_t value = 1;
		const collet_status refused =
			collet_allreduce(rank->comm, &value, &value, 1, COLLET_U32, COLLET_SUM, NULL);
		const collet_status on_stream = gpu_allreduce(&gpu, 0, &buffer);
		_exit(refused == COLLET_OK || on_stream == COLLET_OK ? 1 :
			collet_comm_destroy(&rank->comm) == COLLET_OK ? 0 : 2);
	}
	rank_check(rank, child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
	gpu_open(&gpu, 0);
	gpu_launch(&gpu, exec, 0);
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "afterwards");
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 4, 1), "the parent's four");
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_forked_child_leaves_kernels_alone(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .bare = true };
	ranks_must_pass(&options, fork_one);
}

/* ---- Failures ---- */

/* Rank 2 dies during the launches; the others' launches complete. */
static void lose_one(struct rank *rank)
{
	struct gpu gpu;
	if (gpu_start_own(&gpu, rank))
		losses_in_graphs(&gpu, COUNT);
}

static void a_rank_that_dies_leaves_no_graph_stuck(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	losses_must_spare(&options, lose_one, 2);
}

/* The last rank never calls. The kernels of the others end, and report whom they waited for. */
static void wait_in_vain(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	const uint32_t last = rank->size - 1;
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	gpu.timeout_ns = 50 * 1000000;
	if (rank->rank != last) {
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "put on the stream");
		gpu_synchronize(&gpu, 0);
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TIMEOUT, "the error");
	}
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_kernel_that_waits_in_vain_ends(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, wait_in_vain);
}

/* Rank 1 takes a sum for a maximum: nobody waits in vain, and yet it is detected. */
static void disagree(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "alike");
	rank_ok(rank,
		collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32,
			rank->rank == 1 ? COLLET_MAX : COLLET_SUM, &how),
		"not alike");
	gpu_synchronize(&gpu, 0);
	/* A rank that has detected it tells the others as soon as it polls. */
	rank_status(rank, collet_barrier(rank->comm, NULL), COLLET_ERR_MISMATCH, "what comes after");
	rank_check(rank, strstr(collet_last_error(), "has called something else") != NULL, "%s", collet_last_error());
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_rank_that_calls_something_else_is_found_out(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, disagree);
}

/* Destroyed, or aborted, while a rank's stream has not reached its call. */
static void leave_early(struct rank *rank)
{
	const bool aborts = *(const bool *)rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!gpu_start_own(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	if (rank->rank != 0)
		rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "that rank 0 does not make");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	if (aborts && rank->rank == 0)
		collet_comm_abort(rank->comm);
	if (aborts && rank->rank != 0) {
		gpu_synchronize(&gpu, 0);
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_ABORTED, "the error");
	}
	rank_destroy(rank);
	gpu_synchronize(&gpu, 0);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void the_end_of_a_communicator_leaves_streams_going(void **state)
{
	for (int aborts = 0; aborts < 2; aborts++) {
		const bool context = aborts;
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &context };
		ranks_must_pass(&options, leave_early);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(graphs_are_launched_again_and_again),
		cmocka_unit_test(calls_run_in_order_on_any_streams),
		cmocka_unit_test(calls_in_branches_of_a_graph_are_made_in_order),
		cmocka_unit_test(other_work_invalidates_no_capture),
		cmocka_unit_test(buffers_may_be_another_gpus),
		cmocka_unit_test(a_forked_child_leaves_kernels_alone),
		cmocka_unit_test(a_rank_that_dies_leaves_no_graph_stuck),
		cmocka_unit_test(a_kernel_that_waits_in_vain_ends),
		cmocka_unit_test(a_rank_that_calls_something_else_is_found_out),
		cmocka_unit_test(the_end_of_a_communicator_leaves_streams_going),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
