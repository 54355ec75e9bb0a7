/* Ranks with GPUs of their own. Their kernels, each with its rank's part, give the same bytes as the host. Covers every
 * call, dtype and operation, in place or not, blocking, by requests and on streams, with buffers on the GPU, on the
 * host and on both. No message is staged through the host. Also covers ranks that disagree, die and abort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "ranks.h"
#include "row_calls.h"

struct gpu {
	struct rank *rank;
	struct program program;
	struct streams cuda;
	cu_stream stream;
	collet_comm *host; /* created before there was a GPU */
};

/* Rank r has GPU r. */
static bool start(struct gpu *gpu, struct rank *rank, bool host_too)
{
	collet_options options;
	char store[64];
	*gpu = (struct gpu){ .rank = rank };
	rank_fill_options(rank, 1, &options, store);
	if (host_too && !rank_ok(rank, collet_comm_create(&gpu->host, &options), "a communicator of the host's"))
		return false;
	return rank_check(rank,
		       program_start(&gpu->program, (int)rank->rank) && streams_find(&gpu->cuda, &gpu->program) &&
			       gpu->cuda.cuStreamCreate(&gpu->stream, CU_NON_BLOCKING_STREAM) == CU_OK,
		       "the driver does not start") &&
	       rank_create(rank);
}

static void end(struct gpu *gpu)
{
	struct rank *rank = gpu->rank;
	if (gpu->host)
		collet_comm_destroy(&gpu->host);
	rank_destroy(rank);
	rank_check(rank, gpu->cuda.cuStreamDestroy_v2(gpu->stream) == CU_OK, "destroying a stream");
	rank_check(rank, program_end(&gpu->program), "another context is current than before");
}

/* ---- The matrix ---- */

static const uint64_t counts[] = { 0, 1, 16, 257, 1000, 5003, 40000 };

struct task {
	uint32_t share; /* one row in `share` is run */
	uint64_t seed;
};

/* If both sides chose, they could differ, also in the order of operands, which extreme values show. */
static const char *algorithm_of(const struct row *row, uint64_t mixed)
{
	static const char *const algorithms[] = { NULL, "direct", "tree", "two_shot" };
	const char *named = row->call == CALL_ALLREDUCE ? algorithms[mixed >> 2 & 3] : NULL;
	return !named && call_infos[row->call].is_reduction && row->values == VALUES_WILD ? "direct" : named;
}

static bool run_row(struct gpu *gpu, const struct row *row, uint64_t mixed)
{
	const bool all_on_gpu = mixed & 3;
	const uint64_t own = rows_mix(mixed, gpu->rank->rank);
	const struct call_mode mode = { .send_on_gpu = all_on_gpu || (own & 1),
		.recv_on_gpu = all_on_gpu || (own & 2),
		.in_place = own & 4,
		.request = (own & 24) == 8,
		.stream = own & 16 ? gpu->stream : NULL,
		.streams = &gpu->cuda,
		.host = gpu->host,
		.algorithm = algorithm_of(row, mixed) };
	return row_matches_host(gpu->rank, &gpu->program, row, &mode);
}

static void all_rows(struct rank *rank)
{
	const struct task *task = rank->options->context;
	struct gpu gpu;
	bool fine = start(&gpu, rank, true);
	if (!fine)
		return;
	const uint64_t sent = rank_sent(rank).messages;
	struct row_walk walk = { .share = task->share, .seed = task->seed, .counts = counts,
		.count_count = sizeof(counts) / sizeof(counts[0]), .barriers = true };
	struct row row;
	uint64_t mixed;
	while (fine && row_next(&walk, rank->size, &row, &mixed))
		fine = run_row(&gpu, &row, mixed);
	rank_check(rank, rank_sent(rank).messages == sent, "some calls went by way of the host");
	end(&gpu);
}

static void every_call_gives_what_the_host_gives(void **state)
{
	const bool full = getenv("COLLET_TEST_FULL") != NULL;
	const char *given = getenv("COLLET_TEST_SEED");
	static const struct {
		uint32_t size;
		enum ranks_mode mode;
		bool progress_thread;
		uint32_t share;
	} worlds[] = {
		{ 2, RANKS_THREADS, false, 8 },
		{ 2, RANKS_PROCESSES, true, 8 },
		{ 3, RANKS_PROCESSES, false, 16 },
		{ 4, RANKS_MIXED, true, 32 },
		{ 4, RANKS_THREADS, false, 32 },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		const struct task task = { full ? 1 : worlds[w].share * (ranks_are_slow() ? 4 : 1),
			given ? strtoull(given, NULL, 10) : 1 };
		const struct ranks_options options = { .size = worlds[w].size,
			.mode = worlds[w].mode,
			.bare = true,
			.transport = "shm",
			.progress_thread = worlds[w].progress_thread,
			.context = &task };
		ranks_must_pass(&options, all_rows);
	}
}

/* ---- Failures ---- */

enum { ELEMENTS = 5000, READY = 0 };

static bool make_ones(struct gpu *gpu, struct buffer *buffer)
{
	uint32_t ones[ELEMENTS];
	for (int i = 0; i < ELEMENTS; i++)
		ones[i] = 1;
	return rank_check(gpu->rank,
		buffer_make(buffer, &gpu->program, true, sizeof(ones)) && buffer_write(buffer, ones), "no GPU");
}

static void check_all(struct gpu *gpu, const struct buffer *buffer, uint32_t expected)
{
	uint32_t values[ELEMENTS] = { 0 };
	bool fine = buffer_read(buffer, values);
	for (int i = 0; i < ELEMENTS; i++)
		fine = fine && values[i] == expected;
	rank_check(gpu->rank, fine, "the sum is not %u, but %u", expected, values[0]);
}

static collet_status sum(struct gpu *gpu, const struct buffer *buffer, const collet_how *how)
{
	return collet_allreduce(gpu->rank->comm, buffer->first, buffer->first, ELEMENTS, COLLET_U32, COLLET_SUM, how);
}

/* Fails on the last rank, during setup; the context is FAKE_CUDA_FAIL, or FAKE_CUDA_ASTRAY. */
static void fail_once(struct rank *rank)
{
	const char *failure = rank->options->context;
	const bool fails = rank->rank == rank->size - 1;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (fails)
		setenv(strcmp(failure, "writes") == 0 ? "FAKE_CUDA_ASTRAY" : "FAKE_CUDA_FAIL", failure, 1);
	const bool started = start(&gpu, rank, false);
	unsetenv("FAKE_CUDA_FAIL");
	unsetenv("FAKE_CUDA_ASTRAY");
	if (!started || !make_ones(&gpu, &buffer))
		return;
	const uint64_t sent = rank_sent(rank).messages;
	rank_ok(rank, sum(&gpu, &buffer, NULL), failure);
	check_all(&gpu, &buffer, rank->size);
	rank_check(rank, rank_sent(rank).messages > sent, "%s: it did not go by way of the host", failure);
	const collet_how how = { .stream = gpu.stream };
	rank_ok(rank, sum(&gpu, &buffer, &how), "on a stream");
	rank_check(rank, gpu.cuda.cuStreamSynchronize(gpu.stream) == CU_OK, "the stream");
	check_all(&gpu, &buffer, rank->size * rank->size);
	buffer_free(&buffer);
	end(&gpu);
}

static void without_peer_access_all_calls_are_staged(void **state)
{
	static const char *const failures[] = {
		"cuMemCreate:1:2",
		"cuMemMap:1:1",
		"cuMemMap:2:1",
		"cuMemSetAccess:2:801",
		"cuMemExportToShareableHandle:1:1",
		"cuMemImportFromShareableHandle:1:1",
		"cuStreamCreateWithPriority:2:2",
		"cuEventCreate:2:2",
		"cuMemHostRegister:1:1",
		"cuMemsetD8Async:1:1",
		"cuModuleLoadData:1:218",
		"cuLaunchKernel:1:701",
		"cuMemcpyAsync:2:1",
		"cuEventRecord:1:1",
		"writes", "cuCtxGetStreamPriorityRange:2:1",
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = {
			.size = 2, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm", .context = failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

struct loss {
	enum { DIES, ABORTS, LEAVES, CALLS_ANOTHER, COMES_LATE } how; /* what the last rank does instead of calling */
	collet_status status;                                 /* what the others get */
};

static void lose(struct rank *rank)
{
	const struct loss *loss = rank->options->context;
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, false) || !make_ones(&gpu, &buffer))
		return;
	rank_ok(rank, sum(&gpu, &buffer, NULL), "before");
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	if (rank->rank != rank->size - 1) {
		collet_request *request = NULL;
		collet_how how = COLLET_HOW_DEFAULT;
		how.request = &request;
		how.timeout_ns = loss->how == COMES_LATE ? 50 * 1000000 : 0;
		collet_status status = sum(&gpu, &buffer, &how);
		if (status == COLLET_OK)
			status = collet_request_wait(&request);
		rank_status(rank, status, loss->status, "a call that not all make");
	} else if (loss->how == DIES) {
		_exit(0);
	} else if (loss->how == LEAVES) {
		rank_destroy(rank);
	} else if (loss->how == ABORTS) {
		collet_comm_abort(rank->comm);
	} else if (loss->how == CALLS_ANOTHER) {
		const collet_status status =
			collet_broadcast(rank->comm, buffer.first, buffer.first, ELEMENTS, COLLET_F32, 0, NULL);
		rank_status(rank, status, COLLET_ERR_MISMATCH, "another call");
		rank_check(rank, strstr(collet_last_error(), "allreduce of 5000 u32 sum") != NULL, "%s",
			collet_last_error());
	} else {
		rank_await(rank, READY, 2 * rank->size - 1);
	}
	rank_post(rank, READY);
	buffer_free(&buffer);
	end(&gpu);
}

static void a_lost_rank_ends_the_call_of_all(void **state)
{
	static const struct loss losses[] = {
		{ DIES, COLLET_ERR_PEER_LOST },
		{ ABORTS, COLLET_ERR_ABORTED },
		{ LEAVES, COLLET_ERR_PEER_LOST },
		{ CALLS_ANOTHER, COLLET_ERR_MISMATCH },
		{ COMES_LATE, COLLET_ERR_TIMEOUT },
	};
	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		const struct ranks_options options = {
			.size = 3, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm", .context = &losses[i] };
		struct ranks *ranks = ranks_start(&options, lose);
		assert_true(ranks_wait(ranks));
		for (uint32_t r = 0; r < 3; r++) {
			const struct rank_report *report = ranks_report(ranks, r);
			if ((losses[i].how != DIES || r != 2) && (!report->returned || report->failed))
				fail_msg("loss %zu: rank %u: %s", i, r, report->sentence);
		}
		ranks_free(&ranks);
	}
}

/* Waits for a word whose memory is freed the next moment. */
static void break_gpu(const struct gpu *gpu)
{
	cu_pointer gone = 0;
	rank_check(gpu->rank, gpu->program.cuMemAlloc_v2(&gone, sizeof(uint32_t)) == CU_OK &&
			gpu->cuda.cuStreamWaitValue32_v2(gpu->stream, gone, 1, CU_WAIT_VALUE_EQ) == CU_OK &&
			gpu->program.cuMemFree_v2(gone) == CU_OK, "a fault");
}

/* The last rank's GPU faults, for any reason, while its kernel waits for the others': its call ends, and theirs. */
static void fault(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, false) || !make_ones(&gpu, &buffer))
		return;
	rank_ok(rank, sum(&gpu, &buffer, NULL), "before");
	/* A rank with all its data may be through while others still wait for its signals. */
	rank_post(rank, READY);
	rank_await(rank, READY, rank->size);
	const bool faults = rank->rank == rank->size - 1;
	collet_request *request = NULL;
	/* No rank has all sums before each has had the others' operands. */
	collet_how how = { .algorithm = "two_shot", .timeout_ns = -1 };
	collet_status status = COLLET_OK;
	if (faults) {
		how.request = &request;
		rank_ok(rank, sum(&gpu, &buffer, &how), "the call");
		break_gpu(&gpu);
		status = collet_request_wait(&request);
		rank_check(rank, strstr(collet_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL, "%s",
			collet_last_error());
		rank_post(rank, READY);
	} else {
		rank_await(rank, READY, rank->size + 1);
		status = sum(&gpu, &buffer, &how);
	}
	rank_check(rank, status != COLLET_OK, "a call of which one rank's GPU did nothing");
	rank_destroy(rank);
	rank->leaks = faults; /* what the driver does not free any more */
	if (!faults) {
		buffer_free(&buffer);
		end(&gpu);
	}
}

static void a_gpu_that_faults_ends_the_call_of_all(void **state)
{
	const struct ranks_options options = { .size = 3, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, fault);
}

/* A call on a stream with a host buffer: the stream never reports that it has passed it. */
static void fault_on_stream(struct rank *rank)
{
	struct gpu gpu;
	uint32_t ones[ELEMENTS] = { 0 };
	struct buffer held = { .first = (char *)ones, .bytes = sizeof(ones) };
	if (!start(&gpu, rank, false))
		return;
	if (rank->rank == 0) {
		cu_stream stream = NULL;
		rank_check(rank, gpu.cuda.cuStreamCreate(&stream, CU_NON_BLOCKING_STREAM) == CU_OK, "a stream");
		const collet_how how = { .stream = stream, .timeout_ns = -1 };
		rank_ok(rank, sum(&gpu, &held, &how), "the call");
		break_gpu(&gpu);
		const int64_t began_ns = collet_clock_ns();
		rank_destroy(rank);
		const int64_t took_ms = (collet_clock_ns() - began_ns) / 1000000;
		rank_check(rank, took_ms < 5000, "destroying took %lld ms", (long long)took_ms);
		rank->leaks = true; /* as above */
	} else {
		rank_destroy(rank);
		end(&gpu);
	}
}

static void a_gpu_that_has_faulted_is_not_waited_for(void **state)
{
	const struct ranks_options options = { .size = 2, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, fault_on_stream);
}

/* Communicators of some of the ranks have windows of their own. */
static void split(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer = { 0 };
	if (!start(&gpu, rank, false) || !make_ones(&gpu, &buffer))
		return;
	collet_comm *whole = rank->comm, *part = NULL;
	if (rank_ok(rank, collet_comm_split(whole, rank->rank % 2, rank->size - rank->rank, &part), "split")) {
		rank->comm = part;
		const uint64_t sent = rank_sent(rank).messages;
		rank_ok(rank, sum(&gpu, &buffer, NULL), "in a part");
		check_all(&gpu, &buffer, collet_comm_size(part));
		rank_check(rank, rank_sent(rank).messages == sent, "a part's went by way of the host");
		rank->comm = whole;
		rank_ok(rank, sum(&gpu, &buffer, NULL), "in the whole");
		collet_comm_destroy(&part);
		rank_ok(rank, sum(&gpu, &buffer, NULL), "afterwards");
	}
	buffer_free(&buffer);
	end(&gpu);
}

static void a_part_of_the_ranks_has_its_own_windows(void **state)
{
	const struct ranks_options options = { .size = 4, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, split);
}

/* A v-form with as many elements of this rank as the call before, but others of the peers. */
static void gather_unlike(struct rank *rank)
{
	enum { GAP = 1, COUNT = 3 };
	const uint64_t blocks[] = { 0, COUNT }, displacements[] = { GAP, GAP };
	const uint8_t own[COUNT] = { 1, 2, 3 }, untouched[2 * COUNT] = { 0 };
	uint8_t plain[2 * COUNT], listed[2 * COUNT];
	struct gpu gpu;
	struct buffer from = { 0 }, to = { 0 };
	if (!start(&gpu, rank, false))
		return;
	if (!rank_check(rank,
		    buffer_make(&from, &gpu.program, true, sizeof(own)) && buffer_write(&from, own) &&
			    buffer_make(&to, &gpu.program, true, sizeof(untouched)) && buffer_write(&to, untouched),
		    "no GPU"))
		return;
	rank_ok(rank, collet_allgather(rank->comm, from.first, to.first, COUNT, COLLET_U8, NULL), "plain");
	rank_check(rank,
		buffer_read(&to, plain) && memcmp(plain, own, COUNT) == 0 && memcmp(plain + COUNT, own, COUNT) == 0 &&
			buffer_write(&to, untouched),
		"the plain form");
	rank_ok(rank,
		collet_allgatherv(rank->comm, from.first, blocks[rank->rank], to.first, blocks, displacements,
			COLLET_U8, NULL),
		"listed");
	rank_check(rank,
		buffer_read(&to, listed) && memcmp(listed, untouched, GAP) == 0 &&
			memcmp(listed + GAP, own, COUNT) == 0 &&
			memcmp(listed + GAP + COUNT, untouched, COUNT - GAP) == 0,
		"the v-form is not its own");
	buffer_free(&from);
	buffer_free(&to);
	end(&gpu);
}

static void a_v_form_is_not_taken_for_the_plain_form_before_it(void **state)
{
	const struct ranks_options options = {
		.size = 2, .mode = RANKS_PROCESSES, .bare = true, .transport = "shm" };
	ranks_must_pass(&options, gather_unlike);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_v_form_is_not_taken_for_the_plain_form_before_it),
		cmocka_unit_test(without_peer_access_all_calls_are_staged),
		cmocka_unit_test(a_lost_rank_ends_the_call_of_all),
		cmocka_unit_test(a_gpu_that_faults_ends_the_call_of_all),
		cmocka_unit_test(a_gpu_that_has_faulted_is_not_waited_for),
		cmocka_unit_test(a_part_of_the_ranks_has_its_own_windows),
		cmocka_unit_test(every_call_gives_what_the_host_gives),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
