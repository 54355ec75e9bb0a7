/* The plan kernel gives the same bits as the host's engine. Covers every collective and algorithm, in worlds of 2, 3
 * and 4, in one segment and several, with and without the LL protocol, on one channel and several. All ranks run in one
 * launch, and, if there are enough GPUs, in a launch each on its own GPU. Runs on any driver.
 *
 * All ranks call the collective on the host, with the algorithm's name. Rank 0 then executes it for all of them on the
 * GPU. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "core/types.h"
#include "ranks.h"
#include "sample.h"
#include "kernels/kernel_ranks.h"

/* How rows are run. */
struct plan {
	uint64_t schedules;          /* fake driver: number of block orders to try on small rows; 0: all rows, once */
	bool late;                   /* random delays around all flags */
};

static bool can_be_in_place(const struct row *row)
{
	return row->program->collective == COLLET_ALLREDUCE || row->program->collective == COLLET_ALLTOALL;
}

/* Small numbers with fractions, so that sums round; for every type. */
static void fill(unsigned char *to, const struct row *row, uint32_t rank)
{
	uint32_t state = (uint32_t)row->number * 2654435761u + rank * 40503u + 7;
	const size_t element = collet_dtype_bytes(row->dtype);
	for (size_t i = 0; i < ROOM / element; i++) {
		state = state * 1664525u + 1013904223u;
		const float x = (float)(state >> 20) / 331 + 0.1f;
		const double wide = x;
		if (row->dtype == COLLET_F32)
			memcpy(to + i * element, &x, sizeof(x));
		else if (row->dtype == COLLET_F64)
			memcpy(to + i * element, &wide, sizeof(wide));
		else
			memcpy(to + i * element, &state, element);
	}
}

static collet_status call(struct rank *rank, const struct row *row, const void *send, void *recv)
{
	const uint32_t root = row_root(rank->size);
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = row->program->name;
	how.scale = row_scale(rank->rank);
	switch (row->program->collective) {
	case COLLET_ALLREDUCE: return collet_allreduce(rank->comm, send, recv, row->count, row->dtype, row->op, &how);
	case COLLET_REDUCE: return collet_reduce(rank->comm, send, recv, row->count, row->dtype, row->op, root, &how);
	case COLLET_BROADCAST: return collet_broadcast(rank->comm, send, recv, row->count, row->dtype, root, &how);
	case COLLET_BARRIER: return collet_barrier(rank->comm, &how);
	case COLLET_ALLGATHER: return collet_allgather(rank->comm, send, recv, row->count, row->dtype, &how);
	case COLLET_REDUCE_SCATTER:
		return collet_reduce_scatter(rank->comm, send, recv, row->count, row->dtype, row->op, &how);
	case COLLET_GATHER: return collet_gather(rank->comm, send, recv, row->count, row->dtype, root, &how);
	case COLLET_SCATTER: return collet_scatter(rank->comm, send, recv, row->count, row->dtype, root, &how);
	case COLLET_ALLTOALL: return collet_alltoall(rank->comm, send, recv, row->count, row->dtype, &how);
	case COLLET_COLLECTIVE_COUNT: break;
	}
	abort();
}

/* ---- On GPUs ---- */

/* Runs all ranks in one launch, or in a launch each. All launches are queued before any is waited for. */
static bool run_on_gpus(struct gpus *gpus, const struct row *row, uint32_t size, unsigned char *values)
{
	struct kernel_rank *members = gpus->members[row->own_gpus];
	struct collet_plan_arguments arguments[WORLD];
	uint32_t blocks = 0;
	for (uint32_t r = 0; r < size; r++) {
		arguments[r] = (struct collet_plan_arguments){ .op = row->op,
			.divisor = row->op == COLLET_AVERAGE ? size : 1, .is_scaled = row->op == COLLET_PREMUL_SUM,
			.dtype = row->dtype, .jitter = row->jitter, .window = gpus->window };
		struct collet_plan_rank *rank_arguments =
			&arguments[row->own_gpus ? r : 0].ranks[row->own_gpus ? 0 : r];
		fill(values, row, r);
		if (!kernel_rank_prepare(gpus, &members[r], row, r, size, values, rank_arguments, &blocks))
			return false;
	}
	for (uint32_t r = 0; r < (row->own_gpus ? size : 1); r++)
		if (kernel_rank_launch(&members[r], &arguments[r], blocks, row->own_gpus ? 1 : size) != COLLET_OK)
			return false;
	for (uint32_t r = 0; r < (row->own_gpus ? size : 1); r++)
		if (collet_copy_stream_synchronize(&gpus->cuda, members[r].copy_stream, "running a program") !=
			COLLET_OK)
			return false;
	return true;
}

static void compare(struct rank *rank, const struct gpus *gpus, const struct row *row, const char *expected)
{
	const size_t element = collet_dtype_bytes(row->dtype);
	char *got = malloc(ROOM);
	for (uint32_t r = 0; r < rank->size && got; r++) {
		const struct kernel_rank *member = &gpus->members[row->own_gpus][r];
		const size_t bytes = row_recv_count(row, r, rank->size) * element;
		const struct buffer result = { member->program, true, member->result.first, bytes };
		size_t i = 0;
		if (!rank_check(rank, buffer_read(&result, got), "reading a result"))
			break;
		while (i < bytes && got[i] == expected[r * ROOM + i])
			i++;
		rank_check(rank, i == bytes, "%s/%s/%s/%s/n%u/%llu%s%s%s/%u channels: rank %u, byte %zu differs",
			collet_collective_name(row->program->collective), row->program->name,
			collet_dtype_name(row->dtype), collet_op_name(row->op), rank->size,
			(unsigned long long)row->count, row->is_ll ? "/ll" : "", row->in_place ? "/in place" : "",
			row->own_gpus ? "/own GPUs" : "", row->channels, r, i);
	}
	free(got);
}

/* ---- Rows ---- */

/* Never 0, also with what is added to it. */
static uint64_t test_seed(void)
{
	const char *text = getenv("COLLET_TEST_SEED");
	return 1 + (text ? strtoull(text, NULL, 10) & 0xffffffff : 0);
}

/* Chooses the nth of the types and operations that round, wrap and scale. By programs that send
 * partial sums, averages of narrow floats are sums of f32 for this kernel (device_comm_wide.c). */
static void choose_type(struct row *row, uint64_t n)
{
	static const struct {
		collet_dtype dtype;
		collet_op op;
	} types[] = {
		{ COLLET_F32, COLLET_SUM }, { COLLET_BF16, COLLET_AVERAGE }, { COLLET_F16, COLLET_PREMUL_SUM },
		{ COLLET_I32, COLLET_MAX }, { COLLET_F64, COLLET_AVERAGE }, { COLLET_F8E4M3, COLLET_SUM },
		{ COLLET_I8, COLLET_AVERAGE }, { COLLET_F32, COLLET_PREMUL_SUM }, { COLLET_U16, COLLET_SUM },
		{ COLLET_BOOL, COLLET_XOR },
	};
	const bool reduces = row->program->collective == COLLET_ALLREDUCE ||
		row->program->collective == COLLET_REDUCE || row->program->collective == COLLET_REDUCE_SCATTER;
	row->dtype = types[n % 10].dtype;
	row->op = reduces ? types[n % 10].op : COLLET_SUM;
	if (collet_op_averages_narrow(row->op, row->dtype) && !row->program->reduces_once)
		row->dtype = COLLET_F32;
}

/* Returns false if there are no more rows. */
static bool make_row(struct row *row, const struct gpus *gpus, uint64_t number)
{
	static const uint64_t counts[] = { 0, 1, 5, 64, 701, MOST_COUNT };
	uint64_t left = number / 6;
	for (uint32_t c = 0; c < COLLET_COLLECTIVE_COUNT; c++) {
		size_t count;
		const struct collet_program *const *programs =
			collet_programs((enum collet_collective)c, &count);
		if (left >= count) {
			left -= count;
			continue;
		}
		*row = (struct row){ .number = number, .program = programs[left], .count = counts[number % 6] };
		if (c == COLLET_BARRIER)
			row->count = 0;
		/* Every program runs in every variant, with one count or another. */
		const uint64_t mixed = number * 2654435761u >> 7;
		row->is_ll = mixed & 1;
		row->in_place = mixed & 2 && can_be_in_place(row);
		row->own_gpus = mixed & 4 && gpus->count > 1;
		row->channels = mixed & 8 ? CHANNELS : 1;
		choose_type(row, mixed >> 4);
		return true;
	}
	return false;
}

static bool row_runs(const struct row *row, uint32_t size, const struct gpus *gpus)
{
	const struct collet_shape shape =
		collet_shape_of(row->program->collective, 0, size, row_root(size), row->count);
	const uint32_t blocks = collet_program_part_count(row->program, &shape) * row->channels;
	const uint32_t resident = gpus->members[0][0].set->resident_blocks[COLLET_GPU_plan];
	return collet_program_fits(row->program, &shape) && blocks * (row->own_gpus ? 1 : size) <= resident;
}

/* Rows for which block orders are tried: small ones, with all ranks in one launch. */
static bool is_small(const struct row *row)
{
	return !row->own_gpus && row->count <= 701 && row->count != 5 &&
		(row->program->collective == COLLET_ALLREDUCE || row->program->collective == COLLET_ALLTOALL ||
			row->program->collective == COLLET_BROADCAST);
}

/* What rows are chosen from. */
struct choice {
	const struct gpus *gpus;
	uint32_t size;
	bool explored; /* small rows only */
};

/* Finds the first row from this number on that can be run; program is NULL if there is none. Returns the number after
 * it. */
static uint64_t choose_row(struct row *row, const struct choice *from, bool sampled, uint64_t number)
{
	while (make_row(row, from->gpus, number)) {
		number++;
		if ((!sampled || sample_has(row->number)) && (!from->explored || is_small(row)) &&
			row_runs(row, from->size, from->gpus))
			return number;
	}
	row->program = NULL;
	return number;
}

/* A sample may contain none of a few rows: then one is run anyway. */
static uint64_t choose_next(struct row *row, const struct choice *from, bool none_yet, uint64_t number)
{
	const uint64_t next = choose_row(row, from, true, number);
	return row->program || !none_yet ? next : choose_row(row, from, false, 0);
}

/* Rank 0 decides what comes next: it alone knows the GPUs. */
struct shared {
	struct row row;
	char expected[WORLD][ROOM];
};

static void all_rows(struct rank *rank)
{
	struct shared *shared = rank->shared;
	struct gpus gpus = { 0 };
	char *send = malloc(ROOM);
	const struct plan *plan = rank->options->context;
	const uint64_t seeds = plan->schedules;
	const struct choice choice = { &gpus, rank->size, .explored = seeds > 0 };
	uint64_t ran = 0;
	bool fine = send != NULL;
	if (rank->rank == 0)
		fine = fine && rank_check(rank, gpus_open(&gpus, rank->size), "no GPU: %s", collet_last_error());
	for (uint64_t number = 0; fine;) {
		if (rank->rank == 0)
			number = choose_next(&shared->row, &choice, ran == 0, number);
		fine = rank_ok(rank, collet_barrier(rank->comm, NULL), "what comes next");
		struct row row = shared->row;
		if (!fine || !row.program)
			break;
		row.jitter = plan->late ? (uint32_t)(test_seed() * 1000 + row.number) : 0;
		rank_doing(rank, "%s/%s, %llu elements", collet_collective_name(row.program->collective),
			row.program->name, (unsigned long long)row.count);
		fill((unsigned char *)send, &row, rank->rank);
		fine = rank_ok(rank, call(rank, &row, send, shared->expected[rank->rank]), row.program->name) &&
			rank_ok(rank, collet_barrier(rank->comm, NULL), "all called");
		for (uint64_t s = 0; s < (seeds ? seeds : 1) && fine && !rank->rank; s++) {
			const uint64_t seed = seeds ? test_seed() + row.number * 1000 + s : 0;
			set_schedule(seed);
			fine = rank_check(rank, run_on_gpus(&gpus, &row, rank->size, (unsigned char *)send),
				"%s, schedule %llu, delays %u: %s", row.program->name, (unsigned long long)seed,
				row.jitter, collet_last_error());
			set_schedule(0);
			compare(rank, &gpus, &row, shared->expected[0]);
			fine = fine && !rank->report->failed;
			ran++;
		}
		fine = fine && !rank->report->failed;
	}
	rank_destroy(rank);
	if (rank->rank == 0) {
		rank_check(rank, ran > 0, "no row was run");
		rank_check(rank, gpus_close(&gpus), "another context is current than before");
	}
	free(send);
}

static void run_worlds(struct plan plan, uint32_t most)
{
	for (uint32_t size = 2; size <= most; size++) {
		const struct ranks_options options = { .mode = RANKS_THREADS, .size = size, .transport = "shm",
			.shared_bytes = sizeof(struct shared), .context = &plan };
		ranks_must_pass(&options, all_rows);
	}
}

static void every_program_gives_what_it_gives_on_the_host(void **state)
{
	run_worlds((struct plan){ 0 }, WORLD);
}

/* By COLLET_TEST_SEED, sometimes every flag is set late, and its data read and written late. */
static void delays_around_flags_change_nothing(void **state)
{
	run_worlds((struct plan){ .late = true }, WORLD);
}

/* One block at a time, in orders drawn from seeds. */
static void every_order_of_blocks_gives_the_same(void **state)
{
	run_worlds((struct plan){ .schedules = getenv("COLLET_TEST_FULL") ? 60 : 6 }, 3);
}

/* ---- Aborting ---- */

/* Rank 0 alone is launched: it waits for the other until it is aborted. */
static void give_up(struct gpus *gpus, bool is_ll)
{
	const struct row row = { .program = collet_program_find(COLLET_ALLREDUCE, "two_shot"), .count = 701,
		.dtype = COLLET_F32, .op = COLLET_SUM, .is_ll = is_ll, .channels = CHANNELS };
	struct kernel_rank *member = &gpus->members[0][0];
	struct collet_plan_arguments arguments = { .op = row.op, .divisor = 1, .dtype = row.dtype,
		.window = gpus->window };
	cu_stream other;
	uint32_t blocks;
	unsigned char *values = malloc(ROOM);
	assert_non_null(values);
	fill(values, &row, 0);
	assert_true(kernel_rank_prepare(gpus, member, &row, 0, 2, values, &arguments.ranks[0], &blocks));
	free(values);
	assert_int_equal(kernel_rank_launch(member, &arguments, blocks, 1), COLLET_OK);
	assert_int_equal(collet_cuda_create_stream(&gpus->cuda, &other), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamQuery(member->copy_stream->stream), CU_NOT_READY);
	const cu_pointer word = (uintptr_t)gpus->abort_word.first;
	assert_int_equal(gpus->cuda.cuStreamWriteValue32(other, word, 1, 0), CU_OK);
	assert_int_equal(collet_copy_stream_synchronize(&gpus->cuda, member->copy_stream, "giving up"), COLLET_OK);
	assert_int_equal(gpus->cuda.cuStreamWriteValue32(other, word, 0, 0), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamSynchronize(other), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamDestroy(other), CU_OK);
}

static void an_abort_ends_a_wait(void **state)
{
	for (int is_ll = 0; is_ll < 2; is_ll++) {
		struct gpus gpus;
		assert_true(gpus_open(&gpus, 2));
		give_up(&gpus, is_ll);
		assert_true(gpus_close(&gpus));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest anywhere[] = {
		cmocka_unit_test(every_program_gives_what_it_gives_on_the_host),
		cmocka_unit_test(delays_around_flags_change_nothing),
		cmocka_unit_test(an_abort_ends_a_wait),
	};
	const struct CMUnitTest fake[] = { cmocka_unit_test(every_order_of_blocks_gives_the_same) };
	struct program program;
	if (!program_start(&program, 0)) {
		puts("skipped: there is no CUDA driver, or no GPU");
		return 77;
	}
	const bool ended = program_end(&program), with_fake = argc > 1 && strcmp(argv[1], "fake") == 0;
	cmocka_set_test_filter(argc > 1 && !with_fake ? argv[1] : NULL);
	int failed = cmocka_run_group_tests(anywhere, NULL, NULL);
	if (with_fake)
		failed += cmocka_run_group_tests(fake, NULL, NULL);
	return failed + !ended;
}
