/* Large calls on GPU memory, staged through the host segment by segment. They give the same result as on the host,
 * results leave before all of the input has arrived, and a failure in the middle ends the call on every rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu.h"
#include "losses.h"
#include "sample.h"

enum { LARGE = 300001, LARGER = 1000000 }; /* f32: 7 cells, and 13 */

/* ---- Results ---- */

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void some_rows(struct rank *rank)
{
	uint32_t state = *(const uint32_t *)rank->options->context;
	struct program program;
	if (!rank_check(rank, program_start(&program, 0), "the driver does not start"))
		return;
	bool fine = true;
	for (uint32_t kind = 0; kind < CALL_KINDS && fine; kind++) {
		for (uint32_t i = 0; i < 3 && fine; i++) {
			const uint32_t how = next(&state) % 16;
			const uint64_t count = kind == ALLREDUCE && i == 0 ? LARGER : LARGE;
			const struct call_row row = {
				(enum call_kind)kind, count, i != 1, i != 2, how & 4, how & 8, NULL, NULL,
				.pinned = how & 1};
			if (sample_has((uint64_t)rank->size * 1000 + kind * 10 + i))
				fine = call_matches_host(rank, &row, &program);
		}
	}
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
}

static void every_call_gives_what_it_gives_on_the_host(void **state)
{
	static const uint32_t seeds[] = {1, 2, 3, 4};
	const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm", .context = &seeds[0] },
		{ .size = 3, .transport = "tcp", .mode = RANKS_THREADS, .context = &seeds[1] },
		{ .size = 2, .transport = "shm", .progress_thread = true, .context = &seeds[2] },
		{ .size = 4, .algorithm = "ring,direct,halving_doubling", .context = &seeds[3] },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], some_rows);
}

/* ---- Overlap ---- */

struct overlapping {
	enum call_kind kind;
	const char *algorithm;
	uint32_t size;
	const char *most; /* bytes that may be copied to the host before anything is copied back: less than all */
	bool in_place;
};

/* The fake driver blocks whoever copies everything to the host first. */
static void overlap(struct rank *rank)
{
	const struct overlapping *row = rank->options->context;
	struct program program;
	const struct call_row call = {
		row->kind, row->kind == BROADCAST ? 4 * LARGER : LARGER, true, true, row->in_place, false, NULL, NULL};
	if (!rank_check(rank, program_start(&program, 0), "the driver does not start"))
		return;
	setenv("FAKE_CUDA_IN_BEFORE_OUT", row->most, 1);
	call_matches_host(rank, &call, &program);
	unsetenv("FAKE_CUDA_IN_BEFORE_OUT");
	rank_destroy(rank);
	program_end(&program);
}

static void results_leave_before_all_of_the_input_has_come(void **state)
{
	static const struct overlapping rows[] = {
		{ALLREDUCE, "ring", 2, "3140000", false},
		{ALLREDUCE, "ring", 3, "3140000", true},
		{ALLREDUCE, "direct", 2, "3140000", false},
		{BROADCAST, "chain", 3, "3140000", false},
		{ALLGATHER, "ring", 2, "3140000", false},
		{ALLTOALL, "direct", 2, "3140000", false},
		{REDUCE_SCATTER, "ring", 2, "6850000", false},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = {
			.size = rows[i].size, .transport = "shm", .algorithm = rows[i].algorithm, .context = &rows[i]};
		ranks_must_pass(&options, overlap);
	}
}

/* ---- Streams ---- */

static void some_rows_on_a_stream(struct rank *rank)
{
	uint32_t state = 77;
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	bool fine = true;
	for (uint32_t kind = 0; kind < CALL_KINDS && fine; kind++) {
		const uint32_t how = next(&state) % 8;
		const struct call_row row = {
			(enum call_kind)kind, LARGE, how != 1, how != 2, how & 4, false, gpu.stream[0], &gpu.cuda};
		if (sample_has(10000 + kind))
			fine = call_matches_host(rank, &row, &gpu.program);
	}
	setenv("FAKE_CUDA_IN_BEFORE_OUT", "3140000", 1);
	const struct call_row row = {ALLREDUCE, LARGER, true, true, false, false, gpu.stream[0], &gpu.cuda};
	if (fine)
		call_matches_host(rank, &row, &gpu.program);
	unsetenv("FAKE_CUDA_IN_BEFORE_OUT");
	gpu_end(&gpu);
}

static void a_call_on_a_stream_is_overlapped_too(void **state)
{
	const struct ranks_options options = { .size = 2, .transport = "shm", .algorithm = "ring" };
	ranks_must_pass(&options, some_rows_on_a_stream);
}

/* A large call, and a small one whose copies are part of the graph, mixed with a large one without a graph. */
static void replay(struct rank *rank)
{
	enum { LAUNCHES = 12 };
	const int mode = rank->options->mode == RANKS_PROCESSES ? CU_CAPTURE_MODE_GLOBAL : CU_CAPTURE_MODE_THREAD_LOCAL;
	struct gpu gpu;
	struct buffer large = {0}, small = {0};
	cu_graph graph = NULL;
	cu_graph_exec exec = NULL;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &large, LARGE, 1) || !gpu_make(&gpu, &small, 300, 1))
		return;
	bool fine = gpu.cuda.cuStreamBeginCapture_v2(gpu.stream[0], mode) == CU_OK;
	rank_ok(rank, gpu_allreduce(&gpu, 0, &large), "captured");
	rank_ok(rank, gpu_allreduce(&gpu, 0, &small), "captured");
	fine = fine && gpu.cuda.cuStreamEndCapture(gpu.stream[0], &graph) == CU_OK &&
	       gpu.cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == CU_OK;
	for (uint32_t i = 0; i < LAUNCHES && fine && !rank->report->failed; i++) {
		fine = gpu.cuda.cuGraphLaunch(exec, gpu.stream[0]) == CU_OK;
		if (i % 3 == 0)
			rank_ok(rank, gpu_allreduce(&gpu, 0, &large), "in no graph");
	}
	gpu_synchronize(&gpu, 0);
	rank_check(rank, fine, "the driver failed");
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	gpu_holds(&gpu, &large, gpu_power(rank->size, LAUNCHES + LAUNCHES / 3, 1), "the large one");
	gpu_holds(&gpu, &small, gpu_power(rank->size, LAUNCHES, 1), "the small one");
	rank_destroy(rank);
	rank_check(rank, gpu.cuda.cuGraphExecDestroy(exec) == CU_OK && gpu.cuda.cuGraphDestroy(graph) == CU_OK,
		"destroying a graph");
	buffer_free(&large);
	buffer_free(&small);
	gpu_end(&gpu);
}

static void a_graph_copies_in_and_out_at_each_launch(void **state)
{
	static const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "shm" },
		{ .size = 3, .transport = "tcp", .mode = RANKS_THREADS },
	};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], replay);
}

/* ---- Failures ---- */

struct failure {
	const char *fail; /* FAKE_CUDA_FAIL of rank 0, or of all */
	bool of_all;
	const char *words;
	bool goes_on; /* the communicator survives */
	bool late;    /* rank 0 may have sent all that the others need: they are told in this call, or in the next */
};

static collet_status reduce_all(struct rank *rank, const struct buffer *buffer, bool request)
{
	collet_request *pending = NULL;
	collet_how how = COLLET_HOW_DEFAULT;
	how.request = request ? &pending : NULL;
	const collet_status status =
		collet_allreduce(rank->comm, buffer->first, buffer->first, LARGE, COLLET_F32, COLLET_SUM, &how);
	return status == COLLET_OK ? collet_request_wait(&pending) : status;
}

static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct program program;
	struct buffer gpu;
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&gpu, &program, true, LARGE * sizeof(float)),
		    "no GPU"))
		return;
	if (failure->of_all || rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	collet_status status = reduce_all(rank, &gpu, rank->rank == 0);
	unsetenv("FAKE_CUDA_FAIL");
	if (status == COLLET_OK && failure->late && rank->rank != 0)
		status = reduce_all(rank, &gpu, false);
	rank_check(rank, status == COLLET_ERR_SYSTEM || status == COLLET_ERR_MEMORY, "%s: status %d", failure->fail,
		(int)status);
	rank_check(rank, strstr(collet_last_error(), failure->words) != NULL, "%s", collet_last_error());
	rank_status(rank, reduce_all(rank, &gpu, false), failure->goes_on ? COLLET_OK : status, "afterwards");
	buffer_free(&gpu);
	rank_destroy(rank);
	rank_check(rank, program_end(&program), "another context is current than before");
}

/* Other ranks may be in the middle of the call: it ends on all, with the sentence of the rank that failed. */
static void what_the_driver_refuses_is_said_on_every_rank(void **state)
{
	static const struct failure failures[] = {
		{"cuEventCreate:3:2", true, "collet_allreduce: cuda: creating a stream for copies", true},
		{"cuMemcpyAsync:2:1", false, "copying a buffer from the GPU: CUDA_ERROR_INVALID_VALUE", false},
		{"cuEventRecord:3:1", false, "copying a buffer from the GPU", false},
		{"cuEventQuery:2:700", false, "CUDA_ERROR_ILLEGAL_ADDRESS", false},
		/* Certainly a result: of 7 cells at most 4 are copied in at once, so at most 2 results come before. */
		{"cuMemcpyAsync:10:1", false, "copying a result to the GPU", false, .late = true},
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "shm", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

/* Rank 1 leaves its call pending, rank 0 calls alone. All copies are over before memory is freed. */
static void come_alone(struct rank *rank)
{
	struct program program;
	struct buffer gpu;
	collet_request *request = NULL;
	collet_how how = COLLET_HOW_DEFAULT;
	if (!rank_check(rank, program_start(&program, 0) && buffer_make(&gpu, &program, true, LARGE * sizeof(float)),
		    "no GPU"))
		return;
	if (rank->rank == 1) {
		how.request = &request;
		rank_ok(rank, collet_allreduce(rank->comm, gpu.first, gpu.first, LARGE, COLLET_F32, COLLET_SUM, &how),
			"starting");
		rank_destroy(rank);
		rank_post(rank, 0);
	} else {
		rank_await(rank, 0, 1);
		how.timeout_ns = 50 * 1000 * 1000;
		rank_check(rank,
			collet_allreduce(rank->comm, gpu.first, gpu.first, LARGE, COLLET_F32, COLLET_SUM, &how) !=
				COLLET_OK,
			"alone");
		rank_destroy(rank);
	}
	buffer_free(&gpu);
	program_end(&program);
}

static void a_cancelled_call_leaves_nothing(void **state)
{
	const struct ranks_options options = { .size = 2 };
	ranks_must_pass_everywhere(&options, come_alone);
}

static void a_lost_rank_ends_the_call_of_all(void **state)
{
	static const struct loss_call call = {
		.begin = gpu_start, .kind = ALLREDUCE, .count = LARGE, .gpu_path = "pipelined" };
	const struct ranks_options options = { .size = 3, .transport = "shm" };
	losses_must_be_told(&options, &call, LOSS_BLOCKING);
}

static void die_in_graphs(struct rank *rank)
{
	struct gpu gpu;
	if (gpu_start(&gpu, rank))
		losses_in_graphs(&gpu, LARGE);
}

static void a_rank_that_dies_leaves_no_graph_stuck(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "shm" };
	losses_must_spare(&options, die_in_graphs, 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results_leave_before_all_of_the_input_has_come),
		cmocka_unit_test(every_call_gives_what_it_gives_on_the_host),
		cmocka_unit_test(a_call_on_a_stream_is_overlapped_too),
		cmocka_unit_test(a_graph_copies_in_and_out_at_each_launch),
		cmocka_unit_test(what_the_driver_refuses_is_said_on_every_rank),
		cmocka_unit_test(a_cancelled_call_leaves_nothing),
		cmocka_unit_test(a_lost_rank_ends_the_call_of_all),
		cmocka_unit_test(a_rank_that_dies_leaves_no_graph_stuck),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
