/* Threads of one process that share a GPU. Short calls are a kernel of each rank, long ones are the leader's, and both
 * give what the host gives, however ranks call. If kernels cannot run side by side, the leader does all calls. A rank
 * that calls late, calls something else, or frees memory first leaves no kernel stuck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <collet/tools.h>

#include "cuda/peer_gpus/co_resident.h"
#include "engine/recorder.h"
#include "gpu.h"
#include "row_calls.h"

enum { COUNT = 300, LONG_COUNT = 100000, LAUNCHES = 1000, READY = 0 };

/* Ranks r, r + gpus, ... are on GPU r. */
static bool start(struct gpu *gpu, struct rank *rank, uint32_t gpus)
{
	return gpu_start_on(gpu, rank, (int)(rank->rank % gpus)) && rank_create(rank);
}

/* A rank's own kernel counts for the planned algorithm, the leader's launch for "direct". */
static collet_status sum(struct gpu *gpu, const struct buffer *buffer, const collet_how *given)
{
	collet_how how = COLLET_HOW_DEFAULT;
	if (given)
		how = *given;
	how.algorithm = "two_shot";
	return collet_allreduce(gpu->rank->comm, buffer->first, buffer->first, buffer->bytes / sizeof(uint32_t),
		COLLET_U32, COLLET_SUM, &how);
}

static bool has_own_kernels(struct gpu *gpu, const struct buffer *buffer)
{
	struct rank *rank = gpu->rank;
	const uint64_t before = rank_uses(rank, "allreduce:two_shot");
	rank_ok(rank, sum(gpu, buffer, NULL), "a sum");
	return rank_uses(rank, "allreduce:two_shot") != before;
}

/* ---- The matrix ---- */

static const uint64_t counts[] = { 0, 1, 16, 257, 1000, 5003, 40000 };

struct task {
	uint32_t gpus, share; /* one row in `share` is run */
};

static bool run_row(struct gpu *gpu, collet_comm *host, const struct row *row, uint64_t mixed)
{
	static const char *const algorithms[] = { NULL, "direct", "tree", "two_shot" };
	const bool all_on_gpu = mixed & 3;
	const uint64_t own = rows_mix(mixed, gpu->rank->rank);
	const struct call_mode mode = { .send_on_gpu = all_on_gpu || (own & 1),
		.recv_on_gpu = all_on_gpu || (own & 2),
		.in_place = own & 4,
		.request = (own & 24) == 8,
		.stream = own & 16 ? gpu->stream[0] : NULL,
		.streams = &gpu->cuda,
		.host = host,
		.algorithm = call_infos[row->call].is_reduction
				     ? row->call == CALL_ALLREDUCE ? algorithms[mixed >> 2 & 3] : "direct"
				     : NULL };
	return row_matches_host(gpu->rank, &gpu->program, row, &mode);
}

static void all_rows(struct rank *rank)
{
	const struct task *task = rank->options->context;
	collet_options options;
	char store[64];
	collet_comm *host = NULL;
	struct gpu gpu;
	rank_fill_options(rank, 1, &options, store);
	/* Before this thread has a GPU. */
	bool fine = rank_ok(rank, collet_comm_create(&host, &options), "the host's") && start(&gpu, rank, task->gpus);
	if (!fine)
		return;
	struct row_walk walk = { .share = task->share, .seed = 1, .counts = counts,
		.count_count = sizeof(counts) / sizeof(counts[0]), .barriers = true };
	struct row row;
	uint64_t mixed;
	while (fine && row_next(&walk, rank->size, &row, &mixed))
		fine = run_row(&gpu, host, &row, mixed);
	collet_comm_destroy(&host);
	gpu_end(&gpu);
}

static void every_call_gives_what_the_host_gives(void **state)
{
	static const struct {
		uint32_t size, gpus, share;
		bool progress_thread;
	} worlds[] = {
		{ 2, 1, 6, false },
		{ 4, 1, 24, true },
		{ 4, 2, 24, false },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct task task = { worlds[w].gpus, worlds[w].share * (ranks_are_slow() ? 4 : 1) };
		const struct ranks_options options = { .size = worlds[w].size, .mode = RANKS_THREADS, .bare = true,
			.transport = "shm", .progress_thread = worlds[w].progress_thread, .context = &task };
		ranks_must_pass(&options, all_rows);
	}
}

/* ---- Graphs ---- */

/* A graph of two short sums, and one of a long sum and a barrier, done by the leader and the host. They alternate, with
 * calls outside both now and then: on the stream, blocking and by a request. */
static void replay(struct rank *rank)
{
	const uint32_t launches = ranks_are_slow() || rank->size > 2 ? LAUNCHES / 10 : LAUNCHES;
	struct gpu gpu;
	struct buffer buffer = { 0 }, large = { 0 };
	cu_graph_exec exec[2] = { NULL, NULL };
	uint32_t calls = 0, large_calls = 0;
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1) || !gpu_make(&gpu, &large, LONG_COUNT, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	rank_check(rank, has_own_kernels(&gpu, &buffer), "no kernels of the ranks' own");
	calls++;
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &buffer, &how), "captured");
	rank_ok(rank, sum(&gpu, &buffer, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec[0]);
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, sum(&gpu, &large, &how), "captured");
	rank_ok(rank, collet_barrier(rank->comm, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec[1]);
	for (uint32_t i = 0; i < launches && !rank->report->failed; i++) {
		const bool long_one = i % 10 == 9;
		gpu_launch(&gpu, exec[long_one], 0);
		calls += long_one ? 0 : 2;
		large_calls += long_one;
		if (i % 7 == 0) {
			rank_ok(rank, sum(&gpu, &buffer, &how), "in no graph");
			calls++;
		}
		if ((i + 1) % gpu_launches_ahead(&gpu))
			continue;
		rank_doing(rank, "launch %u", i);
		gpu_synchronize(&gpu, 0);
		gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls, 1), "after some launches");
		gpu_holds(&gpu, &large, gpu_power(rank->size, large_calls, 1), "the long one");
		collet_request *request = NULL;
		const collet_how later = { .request = &request };
		if (rank_ok(rank, sum(&gpu, &buffer, &later), "by a request"))
			rank_ok(rank, collet_request_wait(&request), "by a request");
		rank_ok(rank, sum(&gpu, &buffer, NULL), "blocking");
		rank_ok(rank, sum(&gpu, &large, NULL), "blocking, long");
		calls += 2;
		large_calls++;
	}
	gpu_synchronize(&gpu, 0);
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, calls, 1), "after all launches");
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_check(rank, rank_uses(rank, "allreduce:direct") == large_calls, "%llu calls were the leader's, of %u",
		(unsigned long long)rank_uses(rank, "allreduce:direct"), large_calls);
	rank_destroy(rank);
	for (int g = 0; g < 2; g++)
		rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec[g]) == CU_OK, "destroying a graph");
	buffer_free(&buffer);
	buffer_free(&large);
	gpu_end(&gpu);
}

static void graphs_are_launched_again_and_again(void **state)
{
	for (uint32_t size = 2; size <= 4; size += 2) {
		const struct ranks_options options = {
			.size = size, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
		ranks_must_pass(&options, replay);
	}
}

/* ---- Call paths and room for kernels ---- */

static void check_plan(struct rank *rank, uint64_t count, const char *call_path)
{
	collet_plan plan;
	if (rank_ok(rank, collet_comm_plan(rank->comm, "allreduce", count, COLLET_U32, COLLET_SUM, 0, NULL, &plan),
		    "plan"))
		rank_check(rank, plan.gpu_path && strcmp(plan.gpu_path, call_path) == 0, "%llu take the path \"%s\"",
			(unsigned long long)count, plan.gpu_path ? plan.gpu_path : "none");
}

/* Checks the calls of the flight recorder, by the text of their kind. */
static void check_recorded(struct rank *rank, const char *calls)
{
	char text[16384] = "";
	FILE *file = tmpfile();
	if (!rank_check(rank, file != NULL, "no file") ||
		!rank_ok(rank, collet_comm_dump(rank->comm, fileno(file)), "dumping"))
		return;
	rewind(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	rank_check(rank, strstr(text, calls) != NULL, "no \"%s\" in:\n%s", calls, text);
}

/* Calls of one kind run although the streams have not reached an earlier call of another kind. */
static void overtake(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 }, large = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1) || !gpu_make(&gpu, &large, LONG_COUNT, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	check_plan(rank, COUNT, "peer_gpus");
	check_plan(rank, LONG_COUNT, "shared_gpu");
	if (rank->rank == 0)
		gpu_hold(&gpu, 0, 0);
	for (int i = 0; i < 3; i++) {
		rank_ok(rank, sum(&gpu, &large, &how), "long, on a stream that is held up");
		rank_ok(rank, sum(&gpu, &buffer, NULL), "short, blocking");
	}
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 3, 1), "the short ones");
	gpu_open(&gpu, 0);
	gpu_synchronize(&gpu, 0);
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	gpu_holds(&gpu, &large, gpu_power(rank->size, 3, 1), "the long ones");
	check_recorded(rank, "allreduce of 300 u32 sum (call 2, algorithm two_shot), among kernels of the rank's own");
	buffer_free(&buffer);
	buffer_free(&large);
	gpu_end(&gpu);
}

static void short_calls_wait_for_no_long_ones(void **state)
{
	const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, overtake);
}

static void no_kernels(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	rank_check(rank, !has_own_kernels(&gpu, &buffer), "%s: not the leader's", (const char *)rank->options->context);
	gpu_holds(&gpu, &buffer, rank->size, "the leader's sum");
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void kernels_that_cannot_run_together_are_the_leaders(void **state)
{
	static const struct {
		const char *name, *value;
		uint32_t size;
	} settings[] = {
		{ "FAKE_CUDA_MULTIPROCESSORS", "4", 4 },
		{ "CUDA_LAUNCH_BLOCKING", "1", 2 },
		{ "CUDA_DEVICE_MAX_CONNECTIONS", "2", 2 },
		{ "NV_SANITIZER_INJECTION_PORT_BASE", "49152", 2 },
		{ "COLLET_CUDA_LEADER", "1", 2 },
	};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const char *before = getenv(settings[i].name);
		setenv(settings[i].name, settings[i].value, 1);
		const struct ranks_options options = { .size = settings[i].size, .mode = RANKS_THREADS, .bare = true,
			.transport = "shm", .context = settings[i].name };
		ranks_must_pass(&options, no_kernels);
		if (before)
			setenv(settings[i].name, before, 1);
		else
			unsetenv(settings[i].name);
	}
}

/* One communicator fills the GPU; another finds no room until that one is destroyed. */
static void fill_up(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	collet_comm *comms[3] = { NULL };
	static const bool own[3] = { true, false, true };
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	for (uint32_t c = 0; c < 3; c++) {
		collet_options options;
		char store[64];
		if (c == 2)
			collet_comm_destroy(&comms[0]);
		/* Until all have released their blocks. */
		rank_post(rank, c);
		rank_await(rank, c, rank->size);
		rank_fill_options(rank, c + 1, &options, store);
		if (!rank_ok(rank, collet_comm_create(&comms[c], &options), "a communicator"))
			return;
		rank->comm = comms[c];
		rank_check(rank, has_own_kernels(&gpu, &buffer) == own[c], "communicator %u has %s", c,
			own[c] ? "no kernels of its own" : "room");
	}
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, 3, 1), "after three sums");
	rank->comm = NULL;
	for (uint32_t c = 1; c < 3; c++)
		collet_comm_destroy(&comms[c]);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void there_is_room_for_so_many_kernels(void **state)
{
	/* Eight blocks run at a time: for two ranks, with two parts, two channels each. */
	setenv("FAKE_CUDA_MULTIPROCESSORS", "4", 1);
	const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, fill_up);
	setenv("FAKE_CUDA_MULTIPROCESSORS", "32", 1);
}

static void on_the_legacy_stream(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 }, large = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1) || !gpu_make(&gpu, &large, LONG_COUNT, 1))
		return;
	/* Filling a buffer waits for the legacy stream, and so for earlier work of others' blocking streams. */
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	const collet_how legacy = { .stream = (void *)(uintptr_t)CU_LEGACY_STREAM },
			 own = { .stream = (void *)(uintptr_t)CU_PER_THREAD_STREAM };
	rank_status(rank, sum(&gpu, &buffer, &legacy), COLLET_ERR_UNSUPPORTED, "a short call");
	rank_check(rank, strstr(collet_last_error(), "legacy default stream") != NULL, "%s", collet_last_error());
	rank_ok(rank, sum(&gpu, &buffer, &own), "on the thread's");
	rank_check(rank, gpu.cuda.cuStreamSynchronize(own.stream) == CU_OK, "the thread's stream");
	/* A stream that does not wait for the legacy one, as the thread's does. */
	const collet_how apart = { .stream = gpu.stream[0] };
	rank_ok(rank, sum(&gpu, &large, rank->rank ? &apart : &legacy), "a long call, on one rank's");
	gpu_holds(&gpu, &buffer, rank->size, "on the thread's");
	rank_ok(rank, sum(&gpu, &buffer, NULL), "afterwards");
	buffer_free(&buffer);
	rank_destroy(rank);
	buffer_free(&large);
	gpu_end(&gpu);
}

static void short_calls_are_refused_the_legacy_stream(void **state)
{
	const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, on_the_legacy_stream);
}

/* Each call waits for the other's stream before it begins, and that stream for the call: streams that wait for each
 * other. */
static void tie_streams(struct rank *rank)
{
	struct gpu gpu;
	struct buffer large = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &large, LONG_COUNT, 1))
		return;
	collet_how how = { .stream = (void *)(uintptr_t)(rank->rank ? CU_PER_THREAD_STREAM : CU_LEGACY_STREAM),
			   .timeout_ns = 200 * 1000000 };
	rank_post(rank, READY);
	/* The second one, when the first one's is on its stream. If both had reached their calls before either stream
	 * waited for their results, the calls would begin, and end. */
	rank_await(rank, READY, rank->size + rank->rank);
	collet_status status = sum(&gpu, &large, &how);
	rank_post(rank, READY);
	rank_check(rank, gpu.cuda.cuStreamSynchronize(how.stream) == CU_OK, "the stream");
	if (status == COLLET_OK)
		status = collet_comm_error(rank->comm);
	rank_status(rank, status, COLLET_ERR_TIMEOUT, "streams that wait for each other");
	rank_destroy(rank);
	buffer_free(&large);
	gpu_end(&gpu);
}

static void streams_that_wait_for_each_other_end_at_the_deadline(void **state)
{
	const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, tie_streams);
}

/* ---- Ranks that do not come together ---- */

struct loss {
	enum { ABORTS, CALLS_ANOTHER, COMES_LATE } how; /* what the last rank does instead of calling */
	bool on_stream;
	collet_status status;                           /* what the others get */
};

static void lose(struct rank *rank)
{
	const struct loss *loss = rank->options->context;
	const bool is_last = rank->rank == rank->size - 1;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	rank_ok(rank, sum(&gpu, &buffer, NULL), "before");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	collet_how how = COLLET_HOW_DEFAULT;
	how.stream = loss->on_stream ? gpu.stream[0] : NULL;
	if (loss->how == COMES_LATE)
		how.timeout_ns = 50 * 1000000;
	if (!is_last || loss->how == CALLS_ANOTHER) {
		collet_status status = is_last ? collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT,
							 COLLET_U32, COLLET_MAX, &how) :
						 sum(&gpu, &buffer, &how);
		if (loss->on_stream && status == COLLET_OK) {
			gpu_synchronize(&gpu, 0);
			status = collet_comm_error(rank->comm);
		}
		/* A rank that detects a mismatch tells the others as soon as it polls. */
		if (loss->how == CALLS_ANOTHER)
			status = collet_barrier(rank->comm, NULL);
		rank_status(rank, status, loss->status, "a call that not all make");
		const char *said = collet_last_error();
		rank_check(rank, loss->how != CALLS_ANOTHER || (strstr(said, "allreduce of 300 u32 sum") &&
			strstr(said, "allreduce of 300 u32 max")), "not both calls are named: %s", said);
	} else if (loss->how == ABORTS) {
		collet_comm_abort(rank->comm);
	} else {
		rank_await(rank, READY, 2 * rank->size - 1);
	}
	rank_post(rank, READY);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_lost_rank_ends_the_call_of_all(void **state)
{
	static const struct loss losses[] = {
		{ ABORTS, false, COLLET_ERR_ABORTED },
		{ ABORTS, true, COLLET_ERR_ABORTED },
		{ CALLS_ANOTHER, false, COLLET_ERR_MISMATCH },
		{ CALLS_ANOTHER, true, COLLET_ERR_MISMATCH },
		{ COMES_LATE, false, COLLET_ERR_TIMEOUT },
		{ COMES_LATE, true, COLLET_ERR_TIMEOUT },
	};
	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true,
			.transport = "shm", .context = &losses[i] };
		ranks_must_pass(&options, lose);
	}
}

/* Freeing memory waits for all running kernels, another rank's too, if it was launched already. */
static void free_first(struct rank *rank)
{
	const int rounds = 60;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, 1) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	for (int i = 0; i < rounds && !rank->report->failed; i++) {
		struct buffer other = { 0 };
		collet_request *request = NULL;
		const collet_how how = { .request = &request, .timeout_ns = INT64_C(20) * 1000000000 };
		rank_doing(rank, "round %d", i);
		if (rank->rank == 0 && gpu_make(&gpu, &other, COUNT, 0))
			buffer_free(&other);
		if (rank_ok(rank, sum(&gpu, &buffer, &how), "after another's"))
			rank_ok(rank, collet_request_wait(&request), "after another's");
	}
	gpu_holds(&gpu, &buffer, gpu_power(rank->size, (uint32_t)rounds, 1), "after all");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void no_kernel_keeps_another_rank_from_calling(void **state)
{
	setenv("FAKE_CUDA_FREE_WAITS", "1", 1);
	const struct ranks_options options = { .size = 2, .mode = RANKS_THREADS, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, free_first);
	unsetenv("FAKE_CUDA_FREE_WAITS");
}

/* Others may detect only then that they have called something else. */
static void what_a_rank_called_is_known_when_it_has_left(void **state)
{
	struct collet_recorder recorders[2];
	struct collet_co_resident *together = NULL;
	struct collet_call own, others;
	for (uint32_t r = 0; r < 2; r++) {
		const struct collet_call call = { .count = 5 + r };
		const uint64_t signature = collet_call_signature(&call);
		assert_int_equal(collet_recorder_init(&recorders[r]), COLLET_OK);
		together = collet_co_resident_join(1, r, 2);
		assert_non_null(together);
		assert_false(collet_co_resident_has_left(together, r));
		collet_co_resident_set_recorder(together, r, &recorders[r]);
		assert_false(collet_co_resident_find_mismatch(together, 0, 1, &own, &others));
		collet_recorder_start(&recorders[r], &call, signature, collet_call_history_hash(signature, 0), 1);
	}
	collet_co_resident_leave(together, 1);
	collet_recorder_deinit(&recorders[1]);
	assert_true(collet_co_resident_has_left(together, 1));
	assert_true(collet_co_resident_find_mismatch(together, 0, 1, &own, &others));
	assert_int_equal(own.count, 5);
	assert_int_equal(others.count, 6);
	collet_co_resident_leave(together, 0);
	collet_recorder_deinit(&recorders[0]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(graphs_are_launched_again_and_again),
		cmocka_unit_test(short_calls_wait_for_no_long_ones),
		cmocka_unit_test(kernels_that_cannot_run_together_are_the_leaders),
		cmocka_unit_test(there_is_room_for_so_many_kernels),
		cmocka_unit_test(short_calls_are_refused_the_legacy_stream),
		cmocka_unit_test(streams_that_wait_for_each_other_end_at_the_deadline),
		cmocka_unit_test(what_a_rank_called_is_known_when_it_has_left),
		cmocka_unit_test(a_lost_rank_ends_the_call_of_all),
		cmocka_unit_test(no_kernel_keeps_another_rank_from_calling),
		cmocka_unit_test(every_call_gives_what_the_host_gives),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
