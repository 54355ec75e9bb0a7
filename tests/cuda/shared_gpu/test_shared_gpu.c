/* Ranks that share a GPU, or processes that share some of several. The leader's one launch gives the same bytes as the
 * host with the algorithm of the same order of operands. Covers every call, dtype and operation, in place or not, with
 * buffers on the GPU, on the host and on both, and ranks that disagree, die and abort. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <cmocka.h>

#include <collet/tools.h>

#include "program.h"
#include "ranks.h"
#include "row_calls.h"

/* The program's GPU first, so that the communicator knows of it. Without a second GPU, all share the first. */
static bool start_on(struct rank *rank, struct program *program, int gpu)
{
	const bool started = program_start(program, gpu) || (gpu > 0 && program_start(program, 0));
	return rank_check(rank, started, "the driver does not start") && rank_create(rank);
}

static bool start(struct rank *rank, struct program *program)
{
	return start_on(rank, program, 0);
}

static void end(struct rank *rank, struct program *program)
{
	rank_destroy(rank);
	rank_check(rank, program_end(program), "another context is current than before");
}

/* ---- The matrix ---- */

static const uint64_t counts[] = { 1, 3, 16, 257, 1000 };

struct task {
	uint32_t share;              /* one row in `share` is run */
	const char *gpus;            /* one digit per rank: its GPU */
	uint64_t seed;
};

static bool run_row(struct rank *rank, const struct program *program, const struct streams *streams, cu_stream stream,
	const struct row *row, uint64_t mixed)
{
	/* The same on all ranks if all share the GPU, so that both kinds are frequent. */
	const bool all_on_gpu = mixed & 3, reduces = call_infos[row->call].is_reduction;
	const uint64_t own = rows_mix(mixed, rank->rank), before = rank_uses(rank, ":direct");
	/* A call that is staged may use another algorithm. */
	const struct call_mode mode = { .send_on_gpu = all_on_gpu || (own & 1), .recv_on_gpu = all_on_gpu || (own & 2),
		.in_place = own & 4, .request = (own & 24) == 8, .stream = own & 16 ? stream : NULL, .streams = streams,
		.algorithm = !all_on_gpu && reduces ? "direct" : NULL };
	if (!row_matches_host(rank, program, row, &mode))
		return false;
	/* Reductions were also called on the host, with the algorithm of this name. A call on a stream is counted after
	 * the stream has passed it. */
	const uint64_t calls = rank_uses(rank, ":direct") - before;
	return rank_check(rank, !all_on_gpu || mode.stream || calls >= 1 + (uint64_t)reduces, "not done directly: %s",
		rank->report->doing);
}

/* Whatever is drawn, at least one row uses the shared GPU. */
static bool run_certain_row(struct rank *rank, const struct program *program, const struct streams *streams)
{
	static const struct row row = { .call = CALL_ALLREDUCE, .dtype = COLLET_F32, .op = COLLET_SUM,
		.values = VALUES_WILD, .count = 1000, .seed = 1 };
	enum { ALL_ON_GPU = 3 };
	return run_row(rank, program, streams, NULL, &row, ALL_ON_GPU);
}

static void all_rows(struct rank *rank)
{
	const struct task *task = rank->options->context;
	struct program program;
	struct streams streams;
	cu_stream stream;
	if (!start_on(rank, &program, task->gpus[rank->rank] - '0'))
		return;
	bool fine = rank_check(rank, streams_find(&streams, &program) &&
			streams.cuStreamCreate(&stream, CU_NON_BLOCKING_STREAM) == CU_OK, "no stream") &&
		run_certain_row(rank, &program, &streams);
	struct row_walk walk = { .share = task->share, .seed = task->seed, .counts = counts,
		.count_count = sizeof(counts) / sizeof(counts[0]) };
	struct row row;
	uint64_t mixed;
	while (fine && row_next(&walk, rank->size, &row, &mixed))
		fine = run_row(rank, &program, &streams, stream, &row, mixed);
	fine = fine && rank_check(rank, streams.cuStreamDestroy_v2(stream) == CU_OK, "destroying a stream");
	end(rank, &program);
}

static void every_call_gives_what_the_host_gives(void **state)
{
	const bool full = getenv("COLLET_TEST_FULL") != NULL;
	const char *given = getenv("COLLET_TEST_SEED");
	static const struct {
		const char *gpus;
		enum ranks_mode mode;
		bool progress_thread;
		uint32_t share;
	} worlds[] = {
		{ "00", RANKS_THREADS, false, 1 },
		{ "00", RANKS_PROCESSES, false, 2 },
		{ "000", RANKS_PROCESSES, false, 4 },
		{ "0000", RANKS_MIXED, true, 8 },
		{ "00000000", RANKS_THREADS, false, 16 },
		{ "00000000", RANKS_PROCESSES, false, 16 },
		{ "0011", RANKS_PROCESSES, false, 8 },
		{ "10110", RANKS_MIXED, true, 16 },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct task task = { .share = full ? 1 : worlds[w].share * (ranks_are_slow() ? 4 : 1),
			.gpus = worlds[w].gpus, .seed = given ? strtoull(given, NULL, 10) : 1 };
		const struct ranks_options options = { .size = (uint32_t)strlen(worlds[w].gpus), .bare = true,
			.mode = worlds[w].mode, .transport = "shm", .progress_thread = worlds[w].progress_thread,
			.context = &task };
		ranks_must_pass(&options, all_rows);
	}
}

/* ---- Call paths ---- */

enum { ELEMENTS = 5000 };

static collet_status sum(struct rank *rank, const struct buffer *buffer, const collet_how *how)
{
	return collet_allreduce(
		rank->comm, buffer->first, buffer->first, ELEMENTS, COLLET_F32, COLLET_SUM, how);
}

static bool make_ones(struct rank *rank, const struct program *program, bool gpu, struct buffer *buffer)
{
	float *ones = malloc(ELEMENTS * sizeof(float));
	for (int i = 0; i < ELEMENTS; i++)
		ones[i] = 1;
	const bool fine = buffer_make(buffer, program, gpu, ELEMENTS * sizeof(float)) && buffer_write(buffer, ones);
	free(ones);
	return rank_check(rank, fine, "no GPU");
}

static void check_sum(struct rank *rank, const struct buffer *buffer, float expected)
{
	float *values = malloc(ELEMENTS * sizeof(float));
	bool fine = buffer_read(buffer, values);
	for (int i = 0; i < ELEMENTS; i++)
		fine = fine && values[i] == expected;
	rank_check(rank, fine, "the sum is not %g, but %g", (double)expected, (double)values[0]);
	free(values);
}

/* Several calls of each kind in progress at once: those that are deferred keep their order. */
static void choose(struct rank *rank)
{
	struct program program;
	struct buffer gpu[4], host;
	collet_request *requests[7] = { NULL };
	collet_how how[7];
	if (!start(rank, &program))
		return;
	for (int i = 0; i < 7; i++) {
		how[i] = (collet_how)COLLET_HOW_DEFAULT;
		how[i].request = &requests[i];
	}
	bool fine = make_ones(rank, &program, false, &host);
	for (int i = 0; i < 4; i++)
		fine = fine && make_ones(rank, &program, i != 2 || rank->rank, &gpu[i]);
	const uint64_t before = rank_uses(rank, "allreduce:direct");
	how[1].algorithm = "ring";
	fine = fine && rank_ok(rank, sum(rank, &gpu[0], &how[0]), "on the GPU") &&
		rank_ok(rank, sum(rank, &gpu[1], &how[1]), "by the ring") &&
		rank_ok(rank, collet_barrier(rank->comm, &how[2]), "a barrier") &&
		rank_ok(rank, sum(rank, &gpu[2], &how[3]), "one rank's on the host") &&
		rank_ok(rank, sum(rank, &host, &how[4]), "on the host") &&
		rank_ok(rank, sum(rank, &gpu[3], &how[5]), "on the GPU again") &&
		rank_ok(rank, collet_barrier(rank->comm, &how[6]), "a barrier");
	/* Each rank waits in an order of its own. */
	for (uint32_t i = 0; i < 7 && fine; i++)
		fine = rank_ok(rank, collet_request_wait(&requests[(i * (1 + rank->rank % 6)) % 7]), "waiting");
	for (uint32_t i = 0; i < 7; i++)
		fine = rank_ok(rank, collet_request_wait(&requests[i]), "waiting") && fine;
	for (int i = 0; i < 4 && fine; i++)
		check_sum(rank, &gpu[i], (float)rank->size);
	if (fine)
		check_sum(rank, &host, (float)rank->size);
	rank_check(rank, rank_uses(rank, "allreduce:direct") >= before + 2, "what is on the GPU was not done there");
	rank_check(rank, rank_uses(rank, "allreduce:ring") >= 1, "the algorithm that was asked for was not taken");
	for (int i = 0; i < 4; i++)
		buffer_free(&gpu[i]);
	buffer_free(&host);
	end(rank, &program);
}

static void each_call_takes_a_path_that_all_ranks_can(void **state)
{
	static const enum ranks_mode modes[] = { RANKS_PROCESSES, RANKS_THREADS };
	for (uint32_t m = 0; m < 2; m++)
		for (int thread = 0; thread < 2; thread++) {
			const struct ranks_options options = { .size = 3, .mode = modes[m], .bare = true,
				.transport = "shm", .progress_thread = thread };
			ranks_must_pass(&options, choose);
		}
}

/* A rank whose buffers are host memory expects no decision. It runs ahead of a slow leader, further than there is room
 * for its messages. Now and then its own buffer, or the leader's, is GPU memory. */
static void run_ahead(struct rank *rank)
{
	enum { CALLS_AHEAD = 400 };
	struct program program;
	struct buffer gpu;
	float one = 1, got = 0;
	if (!start(rank, &program) || !make_ones(rank, &program, true, &gpu))
		return;
	rank_ok(rank, collet_barrier(rank->comm, NULL), "connections");
	if (rank->rank == 0)
		rank_await(rank, 0, rank->size - 1);
	for (uint32_t i = 0; i < CALLS_AHEAD && !rank->report->failed; i++) {
		const bool on_gpu = i > 20 && i % 40 == rank->rank;
		rank_doing(rank, "call %u", i);
		rank_ok(rank, collet_reduce(rank->comm, on_gpu ? (void *)gpu.first : &one, rank->rank ? NULL : &got, 1,
				      COLLET_F32, COLLET_SUM, 0, NULL), "a sum for the leader");
		rank_check(rank, rank->rank || got == (float)rank->size, "call %u has given %g", i, (double)got);
		if (i == 9)
			rank_post(rank, 0);
	}
	buffer_free(&gpu);
	end(rank, &program);
}

static void calls_on_host_memory_run_ahead_of_the_leader(void **state)
{
	static const enum ranks_mode modes[] = { RANKS_PROCESSES, RANKS_THREADS };
	for (uint32_t m = 0; m < 2; m++) {
		const struct ranks_options options = {
			.size = 3, .mode = modes[m], .bare = true, .transport = "shm" };
		ranks_must_pass(&options, run_ahead);
	}
}

/* Communicators of some of the ranks have leaders of their own. */
static void split(struct rank *rank)
{
	struct program program;
	struct buffer gpu;
	if (!start(rank, &program) || !make_ones(rank, &program, true, &gpu))
		return;
	collet_comm *whole = rank->comm, *part = NULL;
	if (rank_ok(rank, collet_comm_split(whole, rank->rank % 2, rank->size - rank->rank, &part), "split")) {
		rank->comm = part;
		rank_ok(rank, sum(rank, &gpu, NULL), "in a part");
		check_sum(rank, &gpu, (float)collet_comm_size(part));
		rank_check(rank, rank_uses(rank, "allreduce:direct") == 1, "a part's was not done directly");
		rank->comm = whole;
		rank_ok(rank, sum(rank, &gpu, NULL), "in the whole");
		collet_comm_destroy(&part);
		rank_ok(rank, sum(rank, &gpu, NULL), "afterwards");
	}
	buffer_free(&gpu);
	end(rank, &program);
}

static void a_part_of_the_ranks_has_its_own_leader(void **state)
{
	const struct ranks_options options = { .size = 4, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, split);
}

/* ---- Failures ---- */

struct failure {
	const char *fail;            /* FAKE_CUDA_FAIL, of every rank, or of the leader alone */
	bool connecting, leader;
};

/* Whatever the driver refuses, the call is staged, and so is the next one, or it uses the GPU again. */
static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	const bool fails = !failure->leader || rank->rank == 0;
	struct program program;
	struct buffer gpu;
	if (fails && failure->connecting)
		setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	const bool started = start(rank, &program);
	unsetenv("FAKE_CUDA_FAIL");
	if (!started || !make_ones(rank, &program, true, &gpu))
		return;
	if (fails && !failure->connecting)
		setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	/* It has the order of the launch, and counts only if the host executes it. */
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = "two_shot";
	rank_ok(rank, sum(rank, &gpu, &how), failure->fail);
	unsetenv("FAKE_CUDA_FAIL");
	check_sum(rank, &gpu, (float)rank->size);
	rank_check(rank, rank_uses(rank, "allreduce:two_shot") == 1, "it was done directly");
	rank_ok(rank, sum(rank, &gpu, &how), "afterwards");
	check_sum(rank, &gpu, (float)(rank->size * rank->size));
	rank_check(rank, rank_uses(rank, "allreduce:direct") == !failure->connecting,
		"the next one went the wrong way");
	buffer_free(&gpu);
	end(rank, &program);
}

static void what_the_driver_refuses_goes_by_way_of_the_host(void **state)
{
	static const struct failure failures[] = {
		{ "cuMemAlloc:1:2", true, false },
		{ "cuStreamCreateWithPriority:2:2", true, true },
		{ "cuIpcGetMemHandle:1:1", true, false },
		{ "cuIpcOpenMemHandle:1:205", true, true },
		{ "cuLaunchKernel:1:701", true, true },
		{ "cuMemcpyAsync:3:1", true, false },
		{ "cuDeviceGetUuid:1:999", true, false },
		{ "cuIpcOpenMemHandle:2:205", false, true },
		{ "cuLaunchKernel:2:701", false, true },
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .mode = RANKS_PROCESSES, .bare = true,
			.transport = "shm", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

enum { READY };

struct loss {
	uint32_t lost;               /* this rank does something else than call */
	enum { DIES, ABORTS, CALLS_ANOTHER, LEAVES, COMES_LATE } how;
	collet_status status;        /* what the others get */
};

static void lose(struct rank *rank)
{
	const struct loss *loss = rank->options->context;
	struct program program;
	struct buffer gpu;
	collet_status status = COLLET_OK;
	if (!start(rank, &program) || !make_ones(rank, &program, true, &gpu))
		return;
	rank_ok(rank, sum(rank, &gpu, NULL), "before");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	if (rank->rank != loss->lost) {
		collet_request *request = NULL;
		collet_how how = COLLET_HOW_DEFAULT;
		how.request = &request;
		how.timeout_ns = loss->how == COMES_LATE ? 50 * 1000000 : 0;
		status = sum(rank, &gpu, &how);
		if (status == COLLET_OK)
			status = collet_request_wait(&request);
		rank_status(rank, status, loss->status, "a call that not all make");
	} else if (loss->how == DIES) {
		_exit(0);
	} else if (loss->how == ABORTS) {
		collet_comm_abort(rank->comm);
	} else if (loss->how == CALLS_ANOTHER) {
		status = collet_broadcast(rank->comm, gpu.first, gpu.first, ELEMENTS, COLLET_F32, 0, NULL);
		rank_status(rank, status, COLLET_ERR_MISMATCH, "another call");
		rank_check(rank, strstr(collet_last_error(), "allreduce of 5000 f32 sum") != NULL, "%s",
			collet_last_error());
	} else if (loss->how == COMES_LATE) {
		rank_await(rank, READY, 2 * rank->size - 1);
	}
	rank_post(rank, READY);
	buffer_free(&gpu);
	end(rank, &program);
}

static void a_lost_rank_ends_the_call_of_all(void **state)
{
	for (uint32_t lost = 0; lost < 2; lost++) {
		const struct loss losses[] = {
			{ lost, DIES, COLLET_ERR_PEER_LOST },
			{ lost, ABORTS, COLLET_ERR_ABORTED },
			{ lost, CALLS_ANOTHER, COLLET_ERR_MISMATCH },
			{ lost, LEAVES, COLLET_ERR_PEER_LOST },
			{ lost, COMES_LATE, COLLET_ERR_TIMEOUT },
		};
		for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
			const struct ranks_options options = { .size = 3, .mode = RANKS_PROCESSES, .bare = true,
				.transport = "shm", .context = &losses[i] };
			struct ranks *ranks = ranks_start(&options, lose);
			assert_true(ranks_wait(ranks));
			for (uint32_t r = 0; r < 3; r++)
				if ((losses[i].how != DIES || r != lost) && !(ranks_report(ranks, r)->returned &&
						!ranks_report(ranks, r)->failed)) {
					print_error("loss %zu of rank %u: rank %u: %s\n", i, lost, r,
						ranks_report(ranks, r)->sentence);
					fail();
				}
			ranks_free(&ranks);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_takes_a_path_that_all_ranks_can),
		cmocka_unit_test(a_part_of_the_ranks_has_its_own_leader),
		cmocka_unit_test(calls_on_host_memory_run_ahead_of_the_leader),
		cmocka_unit_test(what_the_driver_refuses_goes_by_way_of_the_host),
		cmocka_unit_test(a_lost_rank_ends_the_call_of_all),
		cmocka_unit_test(every_call_gives_what_the_host_gives),
	};
	/* Otherwise threads of one process would launch kernels of their own. */
	setenv("COLLET_CUDA_LEADER", "1", 1);
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
