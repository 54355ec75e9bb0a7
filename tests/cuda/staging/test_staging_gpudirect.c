/* Large collectives that only move data, on GPU memory that a transport accesses directly. They give the same result as
 * on the host. Directly accessed memory is not copied; other memory is staged through the host. The transport is the
 * one of test_p2p_gpudirect.c, for more than 16 KiB. */
#include <dlfcn.h>
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
#include "sample.h"

enum { LARGE = 300001, EVEN = 3 << 18 }; /* f32; all segments of the latter are long */

/* Their last segments are short: of programs that divide for one peer, and of those that divide for three. */
static const uint64_t counts[] = { LARGE, 10 * 176128 / 4 + 5, 10 * 105664 / 4 + 5 };

static const enum call_kind moving[] = { BROADCAST, ALLGATHER, ALLGATHERV, GATHER, SCATTER, ALLTOALL };

enum { MOVING = sizeof(moving) / sizeof(moving[0]) };

/* ---- Results ---- */

/* What prevents direct access; each on one rank only, since others need not know. */
enum hindrance { NOTHING, A_PEER, NO_REGISTRATION, NO_PAGE_LOCK, HINDRANCES };

static void hinder(const struct rank *rank, enum hindrance hindrance)
{
	if (rank->rank != 1)
		return;
	switch (hindrance) {
	case A_PEER: setenv("KIND_GPU_NOT_TO", "0", 1); break;
	case NO_REGISTRATION: setenv("FAKE_CUDA_WITHOUT", "dma-bufs", 1); break;
	case NO_PAGE_LOCK: setenv("FAKE_CUDA_FAIL", "cuMemHostRegister_v2:1:2", 1); break;
	default: break;
	}
}

static void relieve(void)
{
	unsetenv("KIND_GPU_NOT_TO");
	unsetenv("FAKE_CUDA_WITHOUT");
	unsetenv("FAKE_CUDA_FAIL");
}

static void all_rows(struct rank *rank)
{
	const bool threads = rank->options->mode == RANKS_THREADS;
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	bool fine = true;
	for (uint32_t i = 0; i < MOVING * 32 && fine; i++) {
		const uint32_t how = i % 32;
		const bool on_stream = how >> 3 == 2;
		/* Threads share the environment. */
		const enum hindrance hindrance = threads ? NOTHING : (enum hindrance)((i + i / 32) % HINDRANCES);
		const struct call_row row = { .kind = moving[i / 32], .count = counts[i % 3], .send_on_gpu = !(how & 1),
			.recv_on_gpu = !(how & 2), .in_place = how & 4, .request = how >> 3 == 1,
			.stream = on_stream ? gpu.stream[0] : NULL, .streams = &gpu.cuda, .registered = how >> 3 != 3 };
		const bool skipped = (i / 3 + rank->size) % (rank->options->context ? 4 : 2) != 0;
		if ((how & 3) == 3 || skipped || !sample_has(rank->size * 1000 + i))
			continue;
		if (!on_stream || hindrance != NO_PAGE_LOCK)  /* a word that a stream waits for must be page-locked */
			hinder(rank, hindrance);
		fine = call_matches_host(rank, &row, &gpu.program);
		relieve();
	}
	gpu_end(&gpu);
}

static void every_call_gives_what_it_gives_on_the_host(void **state)
{
	static const char fewer[] = "rows";
	const struct ranks_options worlds[] = {
		{ .size = 2, .transport = "gpu" },
		{ .size = 3, .transport = "gpu", .progress_thread = true },
		{ .size = 3, .transport = "gpu", .context = fewer, .mode = RANKS_THREADS },
		{ .size = 4, .transport = "gpu", .context = fewer, .algorithm = "ring,direct,pairwise" },
		{ .size = 4, .transport = "gpu", .context = fewer, .algorithm = "tree,bruck,chain" },
		{ .size = 4, .transport = "gpu", .context = fewer, .algorithm = "scatter_allgather,halves,doubling" },
		{ .size = 3, .transport = "faulty:gpu", .context = fewer },
	};
	setenv("COLLET_FAULTY", "delay=50,split=0,skip=4", 1);
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], all_rows);
	unsetenv("COLLET_FAULTY");
}

/* ---- What is not copied ---- */

struct uncopied {
	enum call_kind kind;
	const char *algorithm;
	bool in_place;
};

/* The fake driver refuses the first copy. */
static void copy_nothing(struct rank *rank)
{
	const struct uncopied *uncopied = rank->options->context;
	const struct call_row row = { .kind = uncopied->kind, .count = EVEN, .send_on_gpu = true, .recv_on_gpu = true,
		.in_place = uncopied->in_place, .registered = true };
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:1:1", 1);
	call_matches_host(rank, &row, &gpu.program);
	unsetenv("FAKE_CUDA_FAIL");
	gpu_end(&gpu);
}

static void registered_memory_is_not_copied(void **state)
{
	static const struct uncopied rows[] = {
		{ BROADCAST, "chain", true },
		{ BROADCAST, "tree", true },
		{ BROADCAST, "direct", true },
		{ BROADCAST, "scatter_allgather", true },
		{ ALLGATHER, "ring", true },
		{ ALLGATHER, "direct", true },
		{ GATHER, "direct", true },
		{ SCATTER, "direct", true },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ranks_options options = {
			.size = 3, .transport = "gpu", .algorithm = rows[i].algorithm, .context = &rows[i] };
		ranks_must_pass(&options, copy_nothing);
	}
}

/* ---- Plans ---- */

static void ask(struct rank *rank)
{
	static const struct {
		const char *collective;
		uint64_t count;
		bool in_place;
	} rows[] = {
		{ "broadcast", LARGE, true }, { "alltoall", LARGE, true }, { "broadcast", 100, false },
		{ "allreduce", LARGE, false }, { "barrier", 0, false },
	};
	const bool reaches = strcmp(rank->options->transport, "gpu") == 0;
	struct gpu gpu;
	if (!gpu_start(&gpu, rank))
		return;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		collet_plan plan;
		rank_ok(rank, collet_comm_plan(rank->comm, rows[i].collective, rows[i].count, COLLET_F32, COLLET_SUM, 0,
				      NULL, &plan), rows[i].collective);
		rank_check(rank, plan.is_gpudirect == (reaches && rows[i].in_place), "%s of %llu: %d",
			rows[i].collective, (unsigned long long)rows[i].count, plan.is_gpudirect);
		/* Without copies, a call takes as long as its messages; with copies, longer. */
		const bool priced = plan.is_gpudirect ? plan.gpu_copies_ns <= 0 && plan.gpu_ns <= plan.gpu_messages_ns
						      : !plan.gpu_path || (plan.gpu_copies_ns > 0 &&
								plan.gpu_ns > plan.gpu_messages_ns);
		rank_check(rank, priced, "%s of %llu: %g ns, copies %g, messages %g", rows[i].collective,
			(unsigned long long)rows[i].count, plan.gpu_ns, plan.gpu_copies_ns, plan.gpu_messages_ns);
	}
	gpu_end(&gpu);
}

static void a_plan_says_whether_it_would_be_copied(void **state)
{
	const struct ranks_options worlds[] = { { .size = 2, .transport = "gpu" }, { .size = 2, .transport = "tcp" } };
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
		ranks_must_pass(&worlds[w], ask);
}

/* ---- Graphs ---- */

/* Between launches, the graph's buffers are registered, or deregistered. */
static void replay(struct rank *rank)
{
	enum { LAUNCHES = 12 };
	struct gpu gpu;
	struct buffer buffer = { 0 };
	cu_graph_exec exec = NULL;
	if (!gpu_start(&gpu, rank) || !gpu_make(&gpu, &buffer, LARGE, 1))
		return;
	const collet_how how = { .stream = gpu.stream[0] };
	const cu_pointer words = (uintptr_t)buffer.first;
	rank_ok(rank, collet_mem_register(rank->comm, buffer.first, buffer.bytes), "registering");
	gpu_begin_capture(&gpu, 0);
	rank_ok(rank, collet_broadcast(rank->comm, buffer.first, buffer.first, LARGE, COLLET_U32, 0, &how), "captured");
	gpu_end_capture(&gpu, 0, &exec);
	for (uint32_t i = 0; i < LAUNCHES && !rank->report->failed; i++) {
		const uint32_t value = rank->rank ? 0 : 100 + i;
		rank_doing(rank, "launch %u", i);
		if (i % 4 == 2)
			rank_ok(rank, collet_mem_deregister(rank->comm, buffer.first), "deregistering");
		if (i % 4 == 0 && i)
			rank_ok(rank, collet_mem_register(rank->comm, buffer.first, buffer.bytes), "registering");
		for (uint32_t at = 0; at < LARGE; at += LARGE - 1)
			rank_check(rank,
				program_put(&gpu.program, words + at * sizeof(value), &value, sizeof(value)) == CU_OK,
				"writing");
		gpu_launch(&gpu, exec, 0);
		gpu_synchronize(&gpu, 0);
		for (uint32_t at = 0; at < LARGE; at += LARGE - 1) {
			uint32_t found = 0;
			gpu.program.cuMemcpyDtoH_v2(&found, words + at * sizeof(found), sizeof(found));
			rank_check(rank, found == 100 + i, "launch %u: element %u is %u", i, at, found);
		}
	}
	rank_ok(rank, collet_comm_error(rank->comm), "the error");
	rank_destroy(rank);
	(void)gpu.cuda.cuGraphExecDestroy(exec);
	buffer_free(&buffer);
	gpu_end(&gpu);
}

static void a_graph_goes_by_what_is_registered_at_each_launch(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "gpu" };
	ranks_must_pass(&options, replay);
}

/* ---- Failures ---- */

struct failure {
	const char *fail;            /* FAKE_CUDA_FAIL of rank 0, or of all */
	bool of_all;
	const char *words;
	bool goes_on;                /* the communicator survives */
};

/* Not in place, so that each rank copies its own block. */
static collet_status gather_all(struct rank *rank, const struct buffer *from, const struct buffer *to)
{
	return collet_allgather(rank->comm, from->first, to->first, LARGE, COLLET_U32, NULL);
}

static bool make_registered(struct gpu *gpu, struct buffer *from, struct buffer *to)
{
	struct rank *rank = gpu->rank;
	return gpu_make(gpu, from, LARGE, 5) && gpu_make(gpu, to, (uint64_t)LARGE * rank->size, 1) &&
		rank_ok(rank, collet_mem_register(rank->comm, from->first, from->bytes), "registering") &&
		rank_ok(rank, collet_mem_register(rank->comm, to->first, to->bytes), "registering");
}

static void fail_once(struct rank *rank)
{
	const struct failure *failure = rank->options->context;
	struct gpu gpu;
	struct buffer from, to;
	if (!gpu_start(&gpu, rank) || !make_registered(&gpu, &from, &to))
		return;
	if (failure->of_all || rank->rank == 0)
		setenv("FAKE_CUDA_FAIL", failure->fail, 1);
	collet_status status = gather_all(rank, &from, &to);
	unsetenv("FAKE_CUDA_FAIL");
	/* What rank 0 sends in place may all have arrived before it fails. */
	if (status == COLLET_OK && !failure->of_all && rank->rank != 0)
		status = gather_all(rank, &from, &to);
	rank_check(rank, status == COLLET_ERR_SYSTEM || status == COLLET_ERR_MEMORY, "%s: status %d", failure->fail,
		(int)status);
	rank_check(rank, strstr(collet_last_error(), failure->words) != NULL, "%s", collet_last_error());
	rank_status(rank, gather_all(rank, &from, &to), failure->goes_on ? COLLET_OK : status, "afterwards");
	if (failure->goes_on)
		gpu_holds(&gpu, &to, 5, "what came");
	rank_destroy(rank);
	buffer_free(&from);
	buffer_free(&to);
	gpu_end(&gpu);
}

static void what_the_driver_refuses_is_said_on_every_rank(void **state)
{
	static const struct failure failures[] = {
		{ "cuEventCreate:3:2", true, "collet_allgather: cuda: creating a stream for copies", true },
		{ "cuMemcpyAsync:1:1", false, "copying a piece to the GPU: CUDA_ERROR_INVALID_VALUE", false },
		{ "cuEventRecord:1:1", false, "copying a piece", false },
		{ "cuEventQuery:2:700", false, "CUDA_ERROR_ILLEGAL_ADDRESS", false },
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		const struct ranks_options options = { .size = 2, .transport = "gpu", .context = &failures[i] };
		ranks_must_pass(&options, fail_once);
	}
}

enum { LOST = 2 };

/* Rank 1 leaves its call pending, with whatever the others may have of it, and dies. */
static void lose_one(struct rank *rank)
{
	struct gpu gpu;
	struct buffer from, to;
	if (!gpu_start(&gpu, rank) || !make_registered(&gpu, &from, &to))
		return;
	rank_ok(rank, gather_all(rank, &from, &to), "while all were there");
	rank_post(rank, 0);
	if (rank->rank == LOST) {
		rank_await(rank, 0, rank->size);
		collet_request *request;
		collet_how how = COLLET_HOW_DEFAULT;
		how.request = &request;
		rank_ok(rank, collet_allgather(rank->comm, from.first, to.first, LARGE, COLLET_U32, &how), "starting");
		raise(SIGKILL);
	}
	collet_status status = gather_all(rank, &from, &to);
	if (status == COLLET_OK)
		status = gather_all(rank, &from, &to);
	rank_status(rank, status, COLLET_ERR_PEER_LOST, "without it");
	rank_destroy(rank);
	buffer_free(&from);
	buffer_free(&to);
	gpu_end(&gpu);
}

static void a_rank_that_is_lost_ends_the_call_on_the_others(void **state)
{
	const struct ranks_options options = { .size = 3, .transport = "gpu" };
	losses_must_spare(&options, lose_one, LOST);
}

static void a_lost_rank_ends_the_call_of_all(void **state)
{
	static const struct loss_call call = { .begin = gpu_start, .kind = ALLGATHER, .count = LARGE,
		.registered = true, .gpu_path = "pipelined" };
	const struct ranks_options options = { .size = 3, .transport = "gpu" };
	losses_must_be_told(&options, &call, LOSS_BLOCKING);
}

/* Loads the transport before ranks start as threads. It fills in its own table then, behind the loader's lock, which
 * ThreadSanitizer does not see. */
static bool load_transport(void)
{
	char path[400];
	snprintf(path, sizeof(path), "%s/libcollet-transport-gpu.so", getenv("COLLET_TRANSPORT_PATH"));
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

int main(void)
{
	if (!load_transport())
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registered_memory_is_not_copied),
		cmocka_unit_test(every_call_gives_what_it_gives_on_the_host),
		cmocka_unit_test(a_plan_says_whether_it_would_be_copied),
		cmocka_unit_test(a_graph_goes_by_what_is_registered_at_each_launch),
		cmocka_unit_test(what_the_driver_refuses_is_said_on_every_rank),
		cmocka_unit_test(a_rank_that_is_lost_ends_the_call_on_the_others),
		cmocka_unit_test(a_lost_rank_ends_the_call_of_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
