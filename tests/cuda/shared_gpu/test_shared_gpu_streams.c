/* Ranks that share a GPU, on streams. The leader executes a call in one launch, no stream copies anything, and graphs
 * repeat it. Calls that cannot be done so are staged, and whatever ends the communicator does not block the streams. */
#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "gpu.h"
#include "losses.h"

/* AHEAD: launches of two calls each that a rank queues before it synchronises: collet/cuda.h, Graphs. */
enum { COUNT = 3000, LAUNCHES = 1000, DEATH = 30, AHEAD = 20 };

/* The GPU first, so that the communicator knows of it. */
static bool start(struct rank *rank, struct gpu *gpu, struct buffer *buffer)
{
	return gpu_start(gpu, rank) && rank_create(rank) && gpu_make(gpu, buffer, COUNT, 1);
}

static void end(struct gpu *gpu, struct buffer *buffer, cu_graph_exec exec)
{
	rank_destroy(gpu->rank);
	if (exec)
		(void)gpu->cuda.cuGraphExecDestroy(exec);
	buffer_free(buffer);
	gpu_end(gpu);
}

/* In place, on the stream, with an algorithm that counts only if the host executes it. */
static collet_status sum(struct gpu *gpu, const struct buffer *buffer)
{
	const collet_how how = { .stream = gpu->stream[0], .algorithm = "two_shot" };
	return collet_allreduce(gpu->rank->comm, buffer->first, buffer->first, COUNT, COLLET_U32, COLLET_SUM, &how);
}

/* Hosts learn of a completed launch a moment after their streams; a barrier comes behind that. */
static uint64_t uses_directly(struct rank *rank)
{
	rank_ok(rank, collet_barrier(rank->comm, NULL), "a barrier");
	return rank_uses(rank, "allreduce:direct");
}

/* ---- Replays ---- */

/* The driver copies nothing meanwhile. */
static void replay(struct rank *rank)
{
	const uint32_t launches = ranks_are_slow() ? LAUNCHES / 5 : LAUNCHES;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec[2] = { NULL, NULL };
	uint32_t calls = 0, eager = 0;
	if (!start(rank, &gpu, &buffer))
		return;
	if (rank->options->mode == RANKS_PROCESSES)
		setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:0:1", 1);
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec[0]);
	for (uint32_t i = 0; i < launches && !rank->report->failed; i++) {
		rank_doing(rank, "launch %u", i);
		if (i % 7 == 0) {
			rank_ok(rank, sum(&gpu, &buffer), "in no graph");
			eager++;
		}
		gpu_launch(&gpu, exec[i % 2 && exec[1] ? 1 : 0], 0);
		calls += 2;
		if (i == 10) {
			gpu_begin_capture(&gpu, 0);
			rank_ok(rank, sum(&gpu, &buffer), "captured when others have been launched");
			rank_ok(rank, sum(&gpu, &buffer), "likewise");
			gpu_end_capture(&gpu, 0, &exec[1]);
		}
		if ((i + 1) % AHEAD)
			continue;
		gpu_synchronize(&gpu, 0);
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM,
				      NULL), "on no stream");
		eager++;
	}
	gpu_synchronize(&gpu, 0);
	unsetenv("FAKE_CUDA_FAIL");
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls + eager, 1), "after all launches");
	const uint64_t direct = uses_directly(rank);
	rank_check(rank, direct == calls + eager, "%u calls, of which %llu were done directly", calls + eager,
		(unsigned long long)direct);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	if (exec[1])
		(void)gpu.cuda.cuGraphExecDestroy(exec[1]);
	end(&gpu, &buffer, exec[0]);
}

static void graphs_use_the_shared_gpu_at_each_launch(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 2, .transport = "shm", .bare = true, .mode = RANKS_THREADS, .progress_thread = true },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], replay);
}

/* One stream is being captured while a call on another is made, on the shared GPU and staged. */
static void capture_beside(struct rank *rank)
{
	static const char *const algorithms[] = { "two_shot", "ring" };
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!start(rank, &gpu, &buffer))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	for (int i = 0; i < 2; i++) {
		const collet_how how = { .stream = gpu.stream[1], .algorithm = algorithms[i] };
		rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_F32, COLLET_SUM,
				      &how), "on the other stream");
		rank_check(rank, gpu.cuda.cuStreamWriteValue32_v2(gpu.stream[1], gpu_gate(&gpu, i), 1, 0) ==
				CU_OK, "a word");
		while (!atomic_load(&gpu.gates[i]) && collet_comm_error(rank->comm) == COLLET_OK)
			sched_yield();
	}
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	gpu_end_capture(&gpu, 0, &exec);
	end(&gpu, &buffer, exec);
}

static void the_library_invalidates_no_capture(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, capture_beside);
}

/* Elements that rank `from` sends `to`, as many as the other way; each block has a gap before it. */
static uint64_t block_count(uint32_t from, uint32_t to)
{
	return 40 + 3 * (from + to);
}

static void list_blocks(const struct rank *rank, uint64_t *counts, uint64_t *displacements)
{
	uint64_t end = 0;
	for (uint32_t r = 0; r < rank->size; r++) {
		counts[r] = block_count(rank->rank, r);
		displacements[r] = end + 5;
		end = displacements[r] + counts[r];
	}
}

static uint32_t given(uint32_t from, uint32_t to, uint64_t element)
{
	return 1000000 * (from + 1) + 1000 * to + (uint32_t)element;
}

/* All-to-alls, v-forms too, which are in place on these ranks. The driver copies nothing meanwhile. */
static void change_places(struct rank *rank)
{
	const uint32_t in_place = *(const uint32_t *)rank->options->context;
	struct gpu gpu;
	struct buffer send = { 0 }, recv = { 0 };
	uint32_t values[COUNT];
	uint64_t counts[8], displacements[8];
	if (!start(rank, &gpu, &send) || !gpu_make(&gpu, &recv, COUNT, 0))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	char *to = in_place >> rank->rank & 1 ? send.first : recv.first;
	list_blocks(rank, counts, displacements);
	for (uint32_t r = 0; r < rank->size; r++)
		for (uint64_t i = 0; i < counts[r]; i++)
			values[displacements[r] + i] = given(rank->rank, r, i);
	rank_check(rank, buffer_write(&send, values), "writing");
	setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:0:1", 1);
	rank_ok(rank, collet_alltoallv(rank->comm, send.first, counts, displacements, to, counts, displacements,
			      COLLET_U32, &how), "listed");
	/* And back: what each has received returns to its origin. */
	rank_ok(rank, collet_alltoallv(rank->comm, to, counts, displacements, to, counts, displacements, COLLET_U32,
			      &how), "listed, back");
	rank_ok(rank, collet_alltoallv(rank->comm, to, counts, displacements, to, counts, displacements, COLLET_U32,
			      &how), "listed, again");
	rank_ok(rank, collet_alltoall(rank->comm, to, to, COUNT / rank->size, COLLET_U32, &how), "not listed");
	rank_ok(rank, collet_alltoall(rank->comm, to, to, COUNT / rank->size, COLLET_U32, &how), "and back");
	gpu_synchronize(&gpu, 0);
	unsetenv("FAKE_CUDA_FAIL");
	rank_check(rank, buffer_read(to == send.first ? &send : &recv, values), "reading");
	for (uint32_t r = 0; r < rank->size; r++)
		for (uint64_t i = 0; i < counts[r] && !rank->report->failed; i++)
			rank_check(rank, values[displacements[r] + i] == given(r, rank->rank, i),
				"element %llu from rank %u is %u", (unsigned long long)i, r,
				values[displacements[r] + i]);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	buffer_free(&recv);
	end(&gpu, &send, NULL);
}

static void blocks_are_swapped_in_place(void **state)
{
	static const uint32_t in_place[] = { 7, 5, 2 };
	for (size_t i = 0; i < sizeof(in_place) / sizeof(in_place[0]); i++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .bare = true, .context = &in_place[i] };
		ranks_must_pass(&options, change_places);
	}
}

/* ---- Who signals the streams ---- */

/* As start(), with a function of the fake driver for *slot. */
static bool start_with_fake(struct rank *rank, struct gpu *gpu, struct buffer *buffer, void *slot, const char *name)
{
	if (!start(rank, gpu, buffer))
		return false;
	void *symbol = dlsym(gpu->program.driver, name);
	memcpy(slot, &symbol, sizeof(symbol));
	return rank_check(rank, symbol != NULL, "the driver has no %s", name);
}

enum { TOLD = 60 };

/* If hosts signalled the streams, they would have to poll the driver for each launch. The leader polls now and then,
 * for launches whose end it has not seen. */
static void be_told(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	__typeof__(fakeCallsOf) *calls_of;
	if (!start_with_fake(rank, &gpu, &buffer, &calls_of, "fakeCallsOf"))
		return;
	const unsigned before = calls_of("cuStreamQuery");
	for (int i = 0; i < TOLD; i++) {
		rank_ok(rank, sum(&gpu, &buffer), "on a stream");
		gpu_synchronize(&gpu, 0);
	}
	const unsigned asked = calls_of("cuStreamQuery") - before;
	rank_check(rank, asked < TOLD / 2, "the driver was asked %u times in %d calls", asked, TOLD);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, TOLD, 1), "after all calls");
	rank_check(rank, uses_directly(rank) == TOLD, "they went the wrong way");
	end(&gpu, &buffer, NULL);
}

static void the_gpu_tells_streams_that_a_call_is_done(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, be_told);
}

/* ---- Staged calls ---- */

/* One rank's buffer is host memory, in a graph and without; the others' are GPU memory. Then all use the shared GPU
 * again. */
static void mix(struct rank *rank)
{
	const bool on_host = rank->rank == rank->size - 1;
	struct gpu gpu;
	struct buffer buffer = { 0 }, own = { 0 };
	cu_graph_exec exec = NULL;
	uint32_t calls = 0;
	if (!start(rank, &gpu, &buffer) || !buffer_make(&own, &gpu.program, !on_host, COUNT * sizeof(uint32_t)))
		return;
	uint32_t *ones = malloc(own.bytes);
	for (int i = 0; i < COUNT; i++)
		ones[i] = 1;
	rank_check(rank, buffer_write(&own, ones), "writing a buffer");
	free(ones);
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &own), "captured, mixed");
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	for (; calls < 20 && !rank->report->failed; calls++) {
		gpu_launch(&gpu, exec, 0);
		rank_ok(rank, sum(&gpu, calls % 2 ? &own : &buffer), "in no graph");
	}
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &own, gpu_power(rank->size, calls + calls / 2, 1), "what was mixed");
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls + calls / 2, 1), "what was not");
	const uint64_t direct = uses_directly(rank);
	rank_check(rank, direct == calls + calls / 2, "%llu were done directly", (unsigned long long)direct);
	buffer_free(&own);
	end(&gpu, &buffer, exec);
}

static void calls_with_mixed_memory_are_staged(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 3, .transport = "shm", .bare = true },
		{ .size = 3, .transport = "shm", .bare = true, .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], mix);
}

/* What the leader's driver refuses. */
struct refused {
	const char *fail;
	uint32_t direct;             /* 1: the GPU executes the call anyway, and hosts signal streams */
};

/* The stream reaches the call when all of it is queued: so rank 0's words before it are only the one that it has
 * passed. */
static void call_held(struct gpu *gpu, const struct buffer *buffer, collet_dtype dtype, const char *algorithm,
	const char *what)
{
	const collet_how how = { .stream = gpu->stream[0], .algorithm = algorithm };
	gpu_hold(gpu, 0, 0);
	rank_ok(gpu->rank, collet_allreduce(gpu->rank->comm, buffer->first, buffer->first, COUNT,
			dtype, COLLET_SUM, &how), what);
	gpu_open(gpu, 0);
}

/* What the leader's driver refuses is done by the host. */
static void refuse(struct rank *rank)
{
	const struct refused *refused = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(rank, &gpu, &buffer))
		return;
	if (rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", refused->fail, 1);
	call_held(&gpu, &buffer, COLLET_U32, "two_shot", refused->fail);
	gpu_synchronize(&gpu, 0);
	unsetenv("FAKE_CUDA_FAIL");
	gpu_holds(&gpu, &buffer, rank->size, refused->fail);
	rank_check(rank, uses_directly(rank) == refused->direct, "it went the wrong way");
	rank_ok(rank, sum(&gpu, &buffer), "afterwards");
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, rank->size * rank->size, "afterwards");
	rank_check(rank, uses_directly(rank) == refused->direct + 1,
		"the next one went the wrong way");
	end(&gpu, &buffer, NULL);
}

static void what_the_driver_refuses_goes_by_way_of_the_host(void **state)
{
	static const struct refused failures[] = { { "cuLaunchKernel:0:701", 0 }, { "cuIpcOpenMemHandle:0:205", 0 },
		{ "cuStreamWriteValue32:2:700", 1 } };
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = {
			.size = 2, .transport = "shm", .bare = true, .context = &failures[i] };
		ranks_must_pass(&options, refuse);
	}
}

/* ---- Errors ---- */

/* A staged call. Only the communicator is told, and the streams continue. */
static void fail_late(struct rank *rank)
{
	const char *fail = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(rank, &gpu, &buffer))
		return;
	if (rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", fail, 1);
	call_held(&gpu, &buffer, COLLET_F32, "ring", fail);
	gpu_synchronize(&gpu, 0);
	if (rank->rank == 0)
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_SYSTEM, fail);
	unsetenv("FAKE_CUDA_FAIL");
	end(&gpu, &buffer, NULL);
}

static void what_the_driver_refuses_too_late_ends_the_communicator(void **state)
{
	/* Copying from it fails; and copying to it, after three copies of the test at creation. */
	static const char *const faults[] = { "cuMemcpyAsync:0:700", "cuMemcpyAsync:5:700" };
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .bare = true, .context = faults[i] };
		ranks_must_pass(&options, fail_late);
	}
}

/* The leader's program has freed its buffer when the kernel runs. No host waits for that kernel. */
static void fault_late(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(rank, &gpu, &buffer))
		return;
	/* From here on nothing is mapped at the buffer's address. */
	rank_ok(rank, sum(&gpu, &buffer), "before");
	gpu_synchronize(&gpu, 0);
	if (rank->rank == 0) {
		gpu_hold(&gpu, 0, 0);
		rank_ok(rank, sum(&gpu, &buffer), "the call");
		buffer_free(&buffer);
		gpu_open(&gpu, 0);
		while (collet_comm_error(rank->comm) == COLLET_OK)
			sched_yield();
		rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_SYSTEM, "the leader's");
		rank_destroy(rank);
		rank->leaks = true; /* what the driver does not free any more */
		return;
	}
	rank_ok(rank, sum(&gpu, &buffer), "the call");
	gpu_synchronize(&gpu, 0);
	rank_check(rank, collet_comm_error(rank->comm) != COLLET_OK, "a call of which the GPU did nothing");
	end(&gpu, &buffer, NULL);
}

static void a_fault_after_the_launch_leaves_no_stream_stuck(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, fault_late);
}

struct death {
	uint32_t lost;
	bool quiet;                  /* nothing is in progress then */
};

/* One rank is killed during the launches; the others' launches complete. */
static void lose_one(struct rank *rank)
{
	const struct death *death = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!start(rank, &gpu, &buffer))
		return;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	rank_ok(rank, sum(&gpu, &buffer), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	for (int i = 0; i < 2 * DEATH; i++) {
		if (rank->rank == death->lost && i == DEATH) {
			if (death->quiet)
				gpu_synchronize(&gpu, 0);
			raise(SIGKILL);
		}
		gpu_launch(&gpu, exec, 0);
		if ((i + 1) % AHEAD == 0)
			gpu_synchronize(&gpu, 0);
	}
	gpu_synchronize(&gpu, 0);
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_PEER_LOST, "the error");
	gpu_launch(&gpu, exec, 0);
	gpu_synchronize(&gpu, 0);
	end(&gpu, &buffer, exec);
}

static void a_rank_that_dies_leaves_no_stream_stuck(void **state)
{
	static const struct death deaths[] = { { 0, true }, { 2, true }, { 0, false }, { 2, false } };
	for (size_t d = 0; d < sizeof(deaths) / sizeof(deaths[0]); d++) {
		const struct ranks_options options = {
			.size = 3, .transport = "shm", .bare = true, .context = &deaths[d] };
		losses_must_spare(&options, lose_one, deaths[d].lost);
	}
}

static bool start_alone(struct gpu *gpu, struct rank *rank)
{
	return gpu_start(gpu, rank) && rank_create(rank);
}

static void a_lost_rank_ends_calls_on_streams(void **state)
{
	static const struct loss_call call = {
		.begin = start_alone, .kind = ALLREDUCE, .count = COUNT, .gpu_path = "shared_gpu" };
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	losses_must_be_told(&options, &call, LOSS_ON_STREAM);
}

/* All streams have reached the call, and the leader's GPU never executes it. */
static void hold_the_gpu(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	__typeof__(fakeHold) *hold;
	if (!start_with_fake(rank, &gpu, &buffer, &hold, "fakeHold"))
		return;
	rank_ok(rank, sum(&gpu, &buffer), "before");
	gpu_synchronize(&gpu, 0);
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	hold(true);
	/* Even on a busy machine, all ranks' streams have reached it long before. */
	const collet_how how = { .stream = gpu.stream[0], .timeout_ns = INT64_C(3) * 1000 * 1000 * 1000 };
	rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM, &how),
		"on a stream");
	gpu_synchronize(&gpu, 0);
	rank_status(rank, collet_comm_error(rank->comm), COLLET_ERR_TIMEOUT, "the error");
	rank_check(rank, strstr(collet_last_error(), "has been given it and has not done it") != NULL, "%s",
		collet_last_error());
	hold(false);
	end(&gpu, &buffer, NULL);
}

static void a_gpu_that_never_executes_a_call_is_reported(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, hold_the_gpu);
}

/* Rank 0's stream is held up: its calls return all the same. Others' are destroyed with calls in progress. */
static void go_early(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(rank, &gpu, &buffer))
		return;
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	for (int i = 0; i < 5; i++)
		rank_ok(rank, sum(&gpu, &buffer), "on a stream");
	rank_check(rank, gpu.cuda.cuStreamQuery(gpu.stream[0]) == CU_NOT_READY, "nobody has waited for rank 0");
	rank_post(rank, 0);
	rank_await(rank, 0, rank->size);
	gpu_open(&gpu, 0);
	end(&gpu, &buffer, NULL);
}

static void calls_return_at_once_and_communicators_go_when_streams_have_passed(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	ranks_must_pass(&options, go_early);
}

/* The last rank destroys a communicator with a call in progress that rank 0's stream has not reached. Whichever the
 * others learn of first, the departure or that call's end, they are told who it was and what it called. */
static void leave_with_a_call(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(rank, &gpu, &buffer))
		return;
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	/* When this word is set, the leaving rank's stream has reached the call, or almost. */
	gpu.cuda.cuStreamWriteValue32_v2(gpu.stream[0], gpu_gate(&gpu, 1), 1, 0);
	rank_ok(rank, sum(&gpu, &buffer), "on a stream");
	rank_post(rank, 0);
	if (rank->rank == rank->size - 1) {
		rank_await(rank, 0, rank->size);
		while (!atomic_load(&gpu.gates[1]))
			sched_yield();
		rank_destroy(rank);
		rank_post(rank, 1);
	} else {
		rank_await(rank, 1, 1);
		gpu_open(&gpu, 0);
		while (collet_comm_error(rank->comm) == COLLET_OK)
			sched_yield();
		char last[32];
		snprintf(last, sizeof(last), "rank %u on ", rank->size - 1);
		const char *sentence = collet_last_error();
		const size_t length = strlen(sentence);
		rank_check(rank, strstr(sentence, last) && length && sentence[length - 1] != ' ', "%s", sentence);
	}
	end(&gpu, &buffer, NULL);
}

static void a_rank_that_leaves_with_a_pending_call_is_named(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm", .bare = true };
	for (int i = 0; i < 5; i++)
		ranks_must_pass(&options, leave_with_a_call);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		/* Calls of ranks that are threads count for FAKE_CUDA_FAIL: these come last. */
		cmocka_unit_test(what_the_driver_refuses_too_late_ends_the_communicator),
		cmocka_unit_test(what_the_driver_refuses_goes_by_way_of_the_host),
		cmocka_unit_test(a_fault_after_the_launch_leaves_no_stream_stuck),
		cmocka_unit_test(a_rank_that_dies_leaves_no_stream_stuck),
		cmocka_unit_test(a_lost_rank_ends_calls_on_streams),
		cmocka_unit_test(a_gpu_that_never_executes_a_call_is_reported),
		cmocka_unit_test(the_gpu_tells_streams_that_a_call_is_done),
		cmocka_unit_test(a_rank_that_leaves_with_a_pending_call_is_named),
		cmocka_unit_test(calls_return_at_once_and_communicators_go_when_streams_have_passed),
		cmocka_unit_test(the_library_invalidates_no_capture),
		cmocka_unit_test(blocks_are_swapped_in_place),
		cmocka_unit_test(graphs_use_the_shared_gpu_at_each_launch),
		cmocka_unit_test(calls_with_mixed_memory_are_staged),
	};
	/* Otherwise threads of one process would launch kernels of their own. */
	setenv("COLLET_CUDA_LEADER", "1", 1);
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
