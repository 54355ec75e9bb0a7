/* Programs that make their own CUDA contexts (cuCtxCreate), beside a GPU's primary one: collet's calls work in them.
 * On the fake driver, contexts share nothing (test_fake_strict.c): a kernel that reads another context's memory
 * faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "calls.h"
#include "gpu.h"

enum { DEVICES = 2, RANKS = 3, COUNT = 40001 };

/* The contexts of the ranks. */
struct row {
	const char *name;
	bool beside[RANKS];          /* rank r has a context of its own */
	bool apart;                  /* rank r is on GPU r, as far as there are enough */
	bool later;                  /* the communicator is created while the primary one is current */
	bool refused;                /* streams of that context are refused */
};

static int device_of(const struct rank *rank, const struct row *row)
{
	return row->apart ? (int)rank->rank % DEVICES : 0;
}

static void refuse_streams(struct rank *rank, struct gpu *gpu, const char *name)
{
	struct buffer buffer;
	if (!gpu_make(gpu, &buffer, COUNT, 1))
		return;
	rank_status(rank, gpu_allreduce(gpu, 0, &buffer), COLLET_ERR_UNSUPPORTED, name);
	rank_check(rank, strstr(collet_last_error(), "the stream is not of the CUDA context that was current") != NULL,
		"%s", collet_last_error());
	buffer_free(&buffer);
}

static void call_all(struct rank *rank)
{
	static const uint64_t counts[] = { 5, COUNT };
	const struct row *row = rank->options->context;
	struct gpu gpu;
	struct program primary;
	if (row->later &&
		(!rank_check(rank, program_start(&primary, device_of(rank, row)), "primary") || !rank_create(rank)))
		return;
	if (!(row->beside[rank->rank] ? gpu_start_beside : gpu_start_on)(&gpu, rank, device_of(rank, row)) ||
		(!row->later && !rank_create(rank)))
		return;
	for (enum call_kind kind = 0; kind < CALL_KINDS; kind++) {
		for (int c = 0; c < (row->refused ? 2 : 4); c++) {
			const struct call_row call = { .kind = kind, .count = counts[c % 2], .send_on_gpu = true,
				.recv_on_gpu = true, .stream = c / 2 ? gpu.stream[0] : NULL, .streams = &gpu.cuda };
			rank_check(rank, call_matches_host(rank, &call, &gpu.program), "%s: kind %d, call %d",
				row->name, kind, c);
		}
	}
	if (row->refused)
		refuse_streams(rank, &gpu, row->name);
	gpu_end(&gpu);
	if (row->later)
		rank_check(rank, program_end(&primary), "the primary context");
}

static void calls_work_in_contexts_of_ones_own(void **state)
{
	static const struct {
		struct row row;
		struct ranks_options options;
	} rows[] = {
		{ { "all of their own", { true, true, true } }, { .size = 3 } },
		{ { "all of their own, threads", { true, true, true } }, { .size = 3, .mode = RANKS_THREADS } },
		{ { "one of its own, threads", { false, true, false } }, { .size = 3, .mode = RANKS_THREADS } },
		{ { "not that of the leader, threads", { true } }, { .size = 2, .mode = RANKS_THREADS } },
		{ { "some of a GPU each", { true, false, true }, .apart = true }, { .size = 3 } },
		{ { "a GPU each, threads", { true, true }, .apart = true }, { .size = 2, .mode = RANKS_THREADS } },
		{ { "later, threads", { true, true, true }, .later = true }, { .size = 3, .mode = RANKS_THREADS } },
		{ { "later, a GPU each", { true, true }, .apart = true, .later = true, .refused = true },
			{ .size = 2 } },
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct ranks_options options = rows[r].options;
		options.transport = "shm";
		options.bare = true;
		options.context = &rows[r].row;
		ranks_must_pass(&options, call_all);
	}
}

/* One context's buffer is read, and another one's on the same GPU is written. */
static void call_across(struct rank *rank)
{
	struct gpu first, second;
	struct buffer from, to;
	if (!gpu_start_beside(&first, rank, 0) || !rank_create(rank) || !gpu_make(&first, &from, COUNT, 3))
		return;
	collet_comm *comm = rank->comm;
	if (!gpu_start_beside(&second, rank, 0) || !gpu_make(&second, &to, COUNT, 0))
		return;
	for (int way = 0; way < 2; way++) {
		const struct buffer *read = way ? &to : &from, *written = way ? &from : &to;
		collet_how how = COLLET_HOW_DEFAULT;
		rank_ok(rank, collet_allreduce(comm, read->first, written->first, COUNT, COLLET_U32, COLLET_SUM, &how),
			"from one to the other");
		gpu_holds(&first, written, gpu_power(rank->size, (uint32_t)way + 1, 3), "and back");
		how.stream = second.stream[0];
		rank_ok(rank, collet_broadcast(comm, read->first, written->first, COUNT, COLLET_U32, 0, &how),
			"on a stream of either");
		gpu_synchronize(&second, 0);
		gpu_holds(&first, written, gpu_power(rank->size, (uint32_t)way, 3), "and back, on a stream");
		rank_ok(rank, collet_allreduce(comm, read->first, written->first, COUNT, COLLET_U32, COLLET_SUM, NULL),
			"once more");
	}
	rank_destroy(rank);
	buffer_free(&to);
	gpu_end(&second);
	buffer_free(&from);
	gpu_end(&first);
}

static void a_calls_buffers_may_be_of_two_contexts(void **state)
{
	for (enum ranks_mode mode = RANKS_PROCESSES; mode <= RANKS_THREADS; mode++) {
		const struct ranks_options options = { .size = 2, .mode = mode, .transport = "shm", .bare = true };
		ranks_must_pass(&options, call_across);
	}
}

/* The program destroys its context before the communicator. The library's objects in it are gone, and host memory still
 * works. */
static void outlive_a_context(struct rank *rank)
{
	struct gpu gpu;
	struct buffer buffer;
	if (!gpu_start_beside(&gpu, rank, 0) || !rank_create(rank) || !gpu_make(&gpu, &buffer, COUNT, 1))
		return;
	rank_ok(rank, gpu_allreduce(&gpu, 0, &buffer), "on a stream");
	gpu_synchronize(&gpu, 0);
	rank_ok(rank, collet_allreduce(rank->comm, buffer.first, buffer.first, COUNT, COLLET_U32, COLLET_SUM, NULL),
		"on none");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "all are through");
	rank_check(rank, gpu.program.cuCtxDestroy_v2(gpu.program.context) == CU_OK, "destroying the context");
	rank_ok(rank, collet_barrier(rank->comm, NULL), "without it");
	rank_destroy(rank);
	free((void *)gpu.gates);
}

static void a_context_may_go_before_the_communicator(void **state)
{
	for (enum ranks_mode mode = RANKS_PROCESSES; mode <= RANKS_THREADS; mode++) {
		const struct ranks_options options = { .size = 2, .mode = mode, .transport = "shm", .bare = true };
		ranks_must_pass(&options, outlive_a_context);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_work_in_contexts_of_ones_own),
		cmocka_unit_test(a_calls_buffers_may_be_of_two_contexts),
		cmocka_unit_test(a_context_may_go_before_the_communicator),
	};
	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
