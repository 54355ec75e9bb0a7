/* The executor kernel against the host's engine, bit for bit: every collective and algorithm, in worlds of 2, 3 and 4,
 * whole and in pieces, plain and quick, on one channel and several; all ranks in one launch, and a launch for each on a
 * GPU of its own where there are so many. Runs on whatever driver there is.
 *
 * All ranks call the collective on the host, by name of its algorithm; rank 0 then does the same for all of them on the
 * GPU. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "core/types.h"
#include "cuda/kernels.h"
#include "device/tape.h"
#include "program.h"
#include "ranks.h"
#include "sample.h"

enum { WORLD = 4, MOST_COUNT = 1501, ROOM = WORLD * MOST_COUNT * 8 + 64, CHANNELS = 2, PIECE_BYTES = 1024 };

static const struct collet_log no_log;

struct row {
	uint64_t number;
	const struct collet_program *program;
	uint64_t count;
	collet_dtype dtype;
	collet_op op;
	bool quick, in_place, apart;  /* apart: each rank's launch on its own GPU */
	uint32_t channels;
};

static uint32_t root_of(uint32_t size)
{
	return size - 1;
}

/* ---- Buffers ---- */

static uint64_t send_count(const struct row *row, uint32_t rank, uint32_t size)
{
	switch (row->program->collective) {
	case COLLET_BROADCAST: return rank == root_of(size) ? row->count : 0;
	case COLLET_REDUCE_SCATTER:
	case COLLET_ALLTOALL: return row->count * size;
	case COLLET_SCATTER: return rank == root_of(size) ? row->count * size : 0;
	case COLLET_BARRIER: return 0;
	default: return row->count;
	}
}

static uint64_t recv_count(const struct row *row, uint32_t rank, uint32_t size)
{
	switch (row->program->collective) {
	case COLLET_REDUCE: return rank == root_of(size) ? row->count : 0;
	case COLLET_ALLGATHER:
	case COLLET_ALLTOALL: return row->count * size;
	case COLLET_GATHER: return rank == root_of(size) ? row->count * size : 0;
	case COLLET_BARRIER: return 0;
	default: return row->count;
	}
}

static bool can_be_in_place(const struct row *row)
{
	return row->program->collective == COLLET_ALLREDUCE || row->program->collective == COLLET_ALLTOALL;
}

/* Small numbers with fractions, so that sums round; of every type. */
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

static double scale_of(uint32_t rank)
{
	return 0.3 + rank;
}

static collet_status call(struct rank *rank, const struct row *row, const void *send, void *recv)
{
	const uint32_t root = root_of(rank->size);
	collet_how how = COLLET_HOW_DEFAULT;
	how.algorithm = row->program->name;
	how.scale = scale_of(rank->rank);
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

/* ---- The GPU's side ---- */

/* A rank's memory on one GPU, and where its kernels are launched. */
struct seat {
	const struct program *program;
	struct collet_copier *copier;
	struct collet_kernel_set *set;
	struct buffer window, tape, input, result, scratch, windows;
};

struct gpus {
	struct collet_cuda cuda;
	struct collet_copiers copiers;
	struct collet_kernel_sets sets;
	struct program programs[WORLD];
	uint32_t count;              /* of GPUs that are used */
	struct seat seats[2][WORLD]; /* all on one, and apart */
	struct buffer abort_word;
	struct collet_window window;
};

static bool seat_make(struct gpus *gpus, struct seat *seat, const struct program *program)
{
	const struct collet_residence residence = { .device = true, .context = program->context };
	const size_t bytes = collet_window_bytes(&gpus->window);
	void *blank = calloc(1, bytes);
	*seat = (struct seat){ .program = program };
	const bool made = blank && program->cuCtxPushCurrent_v2(program->context) == CU_OK &&
		collet_copier_find(&gpus->copiers, &residence, &seat->copier) == COLLET_OK &&
		collet_kernel_set_find(&gpus->sets, seat->copier, &seat->set) == COLLET_OK &&
		buffer_make(&seat->window, program, true, bytes) && buffer_write(&seat->window, blank) &&
		buffer_make(&seat->tape, program, true, 1 << 16) && buffer_make(&seat->input, program, true, ROOM) &&
		buffer_make(&seat->result, program, true, ROOM) &&
		buffer_make(&seat->scratch, program, true, 2 * ROOM) &&
		buffer_make(&seat->windows, program, true, WORLD * sizeof(uint64_t)) &&
		program->cuCtxPopCurrent_v2(NULL) == CU_OK;
	free(blank);
	return made;
}

static void seat_free(struct seat *seat)
{
	struct buffer *all[] = { &seat->window, &seat->tape, &seat->input, &seat->result, &seat->scratch,
		&seat->windows };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && seat->program; i++)
		buffer_free(all[i]);
}

static bool enable_peers(struct gpus *gpus)
{
	for (uint32_t a = 0; a < gpus->count; a++)
		for (uint32_t b = 0; b < gpus->count; b++) {
			if (a == b)
				continue;
			if (gpus->cuda.cuCtxPushCurrent(gpus->programs[a].context) != CU_OK ||
				gpus->cuda.cuCtxEnablePeerAccess(gpus->programs[b].context, 0) != CU_OK ||
				gpus->cuda.cuCtxPopCurrent(NULL) != CU_OK)
				return false;
		}
	return true;
}

static bool gpus_open(struct gpus *gpus, uint32_t size)
{
	int count = 0;
	uint64_t addresses[WORLD];
	memset(gpus, 0, sizeof(*gpus));
	gpus->window = collet_window_for(size, CHANNELS, PIECE_BYTES);
	if (collet_cuda_open(&gpus->cuda, &no_log) != COLLET_OK || !gpus->cuda.module ||
		!program_start(&gpus->programs[0], 0) || gpus->cuda.cuDeviceGetCount(&count) != CU_OK)
		return false;
	gpus->count = (uint32_t)count >= size ? size : 1;
	for (uint32_t d = 1; d < gpus->count; d++)
		if (!program_start(&gpus->programs[d], (int)d))
			return false;
	collet_copiers_init(&gpus->copiers, &gpus->cuda);
	collet_kernel_sets_init(&gpus->sets, &gpus->cuda);
	if (!enable_peers(gpus) || !buffer_make(&gpus->abort_word, &gpus->programs[0], true, 4) ||
		!buffer_write(&gpus->abort_word, "\0\0\0"))
		return false;
	for (uint32_t apart = 0; apart < (gpus->count > 1 ? 2 : 1); apart++) {
		for (uint32_t r = 0; r < size; r++)
			if (!seat_make(gpus, &gpus->seats[apart][r], &gpus->programs[apart ? r : 0]))
				return false;
		for (uint32_t r = 0; r < size; r++)
			addresses[r] = (uintptr_t)gpus->seats[apart][r].window.first;
		for (uint32_t r = 0; r < size; r++)
			if (!buffer_write(&gpus->seats[apart][r].windows, addresses))
				return false;
	}
	return true;
}

static bool gpus_close(struct gpus *gpus)
{
	bool fine = true;
	for (uint32_t s = 0; s < 2 * WORLD; s++)
		seat_free(&gpus->seats[s / WORLD][s % WORLD]);
	buffer_free(&gpus->abort_word);
	collet_kernel_sets_deinit(&gpus->sets);
	collet_copiers_deinit(&gpus->copiers);
	for (uint32_t d = gpus->count; d-- > 0;)
		fine = program_end(&gpus->programs[d]) && fine;
	collet_cuda_close(&gpus->cuda);
	return fine;
}

/* buffer_write() and read take all of a buffer. */
static bool write_some(const struct seat *seat, const struct buffer *buffer, const void *from, size_t bytes)
{
	const struct buffer part = { seat->program, true, buffer->first, bytes };
	return buffer_write(&part, from);
}

static bool lay(struct gpus *gpus, struct seat *seat, const struct row *row, uint32_t rank, uint32_t size,
	struct collet_program_row *laid, uint32_t *lanes)
{
	const size_t element = collet_dtype_bytes(row->dtype);
	const struct collet_taping taping = { (uint32_t)element, row->channels, row->quick ? 512 : PIECE_BYTES,
		row->quick };
	const struct collet_shape shape =
		collet_shape_of(row->program->collective, rank, size, root_of(size), row->count);
	const uint64_t bytes[] = { send_count(row, rank, size) * element, recv_count(row, rank, size) * element,
		collet_program_scratch(row->program, &shape) * element };
	const double scale = scale_of(rank);
	struct collet_tape *tape;
	if (collet_tape_lay(row->program, &shape, &taping, &tape) != COLLET_OK)
		return false;
	*laid = (struct collet_program_row){
		.tape = (uintptr_t)seat->tape.first, .tape_bytes = tape->bytes,
		.windows = (uintptr_t)seat->windows.first, .abort = (uintptr_t)gpus->abort_word.first,
		.buffers = { (uintptr_t)(row->in_place ? seat->result.first : seat->input.first),
			(uintptr_t)seat->result.first, (uintptr_t)seat->scratch.first },
		.bytes = { bytes[0], bytes[1], bytes[2] },
	};
	memcpy(&laid->scale, &scale, sizeof(scale));
	*lanes = tape->parts * tape->channels;
	unsigned char *values = malloc(ROOM);
	bool fine = values && bytes[2] <= 2 * ROOM && tape->bytes <= 1 << 16 &&
		write_some(seat, &seat->tape, tape, tape->bytes);
	if (fine) {
		fill(values, row, rank);
		fine = write_some(seat, row->in_place ? &seat->result : &seat->input, values, bytes[0]);
	}
	free(values);
	free(tape);
	return fine;
}

static collet_status launch(struct seat *seat, const struct collet_program_arguments *arguments, uint32_t lanes,
	uint32_t rows)
{
	collet_status status = collet_copier_begin(seat->set->cuda, seat->copier);
	if (status != COLLET_OK)
		return status;
	status = collet_kernel_launch(seat->set, COLLET_GPU_program, lanes, rows, arguments, seat->copier->stream);
	collet_copier_end(seat->set->cuda);
	return status;
}

/* Another order of the blocks of a launch for each seed; 0: any. On the stand-in alone. */
static void set_schedule(uint64_t seed)
{
	char text[24];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	if (seed)
		setenv("FAKE_CUDA_SCHEDULE", text, 1);
	else
		unsetenv("FAKE_CUDA_SCHEDULE");
}

/* In one launch, or in a launch for each. Ranks are sorted into launches; all of them before any is waited for. */
static bool run_on_gpus(struct gpus *gpus, const struct row *row, uint32_t size)
{
	struct seat *seats = gpus->seats[row->apart];
	struct collet_program_arguments arguments[WORLD];
	uint32_t lanes = 0;
	for (uint32_t r = 0; r < size; r++) {
		arguments[r] = (struct collet_program_arguments){ .op = row->op,
			.divisor = row->op == COLLET_AVERAGE ? size : 1, .scaled = row->op == COLLET_PREMUL_SUM,
			.dtype = row->dtype, .window = gpus->window };
		struct collet_program_row *laid = &arguments[row->apart ? r : 0].rows[row->apart ? 0 : r];
		if (!lay(gpus, &seats[r], row, r, size, laid, &lanes))
			return false;
	}
	for (uint32_t r = 0; r < (row->apart ? size : 1); r++)
		if (launch(&seats[r], &arguments[r], lanes, row->apart ? 1 : size) != COLLET_OK)
			return false;
	for (uint32_t r = 0; r < (row->apart ? size : 1); r++)
		if (collet_copier_wait(&gpus->cuda, seats[r].copier, "running a program") != COLLET_OK)
			return false;
	return true;
}

static void compare(struct rank *rank, const struct gpus *gpus, const struct row *row, const char *expected)
{
	const size_t element = collet_dtype_bytes(row->dtype);
	char *got = malloc(ROOM);
	for (uint32_t r = 0; r < rank->size && got; r++) {
		const struct seat *seat = &gpus->seats[row->apart][r];
		const size_t bytes = recv_count(row, r, rank->size) * element;
		const struct buffer result = { seat->program, true, seat->result.first, bytes };
		size_t i = 0;
		if (!rank_check(rank, buffer_read(&result, got), "reading a result"))
			break;
		while (i < bytes && got[i] == expected[r * ROOM + i])
			i++;
		rank_check(rank, i == bytes, "%s/%s/%s/%s/n%u/%llu%s%s%s/%u channels: rank %u, byte %zu differs",
			collet_collective_name(row->program->collective), row->program->name,
			collet_dtype_name(row->dtype), collet_op_name(row->op), rank->size,
			(unsigned long long)row->count, row->quick ? "/quick" : "", row->in_place ? "/in place" : "",
			row->apart ? "/apart" : "", row->channels, r, i);
	}
	free(got);
}

/* ---- Rows ---- */

/* Never 0, with what is added to it. */
static uint64_t test_seed(void)
{
	const char *text = getenv("COLLET_TEST_SEED");
	return 1 + (text ? strtoull(text, NULL, 10) & 0xffffffff : 0);
}

/* Element types and operations that round, wrap and scale; the n-th of them. */
static void choose_type(struct row *row, uint64_t n)
{
	static const struct {
		collet_dtype dtype;
		collet_op op;
	} types[] = {
		{ COLLET_F32, COLLET_SUM }, { COLLET_BF16, COLLET_AVERAGE }, { COLLET_F16, COLLET_PREMUL_SUM },
		{ COLLET_I32, COLLET_MAX }, { COLLET_F64, COLLET_AVERAGE }, { COLLET_F8E4M3, COLLET_SUM },
		{ COLLET_I8, COLLET_AVERAGE }, { COLLET_F32, COLLET_PREMUL_SUM },
	};
	const bool reduces = row->program->collective == COLLET_ALLREDUCE ||
		row->program->collective == COLLET_REDUCE || row->program->collective == COLLET_REDUCE_SCATTER;
	row->dtype = types[n % 8].dtype;
	row->op = reduces ? types[n % 8].op : COLLET_SUM;
}

/* false: there are no more. */
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
		/* Every program meets every way of being run, with one count or another. */
		const uint64_t mixed = number * 2654435761u >> 7;
		row->quick = mixed & 1;
		row->in_place = mixed & 2 && can_be_in_place(row);
		row->apart = mixed & 4 && gpus->count > 1;
		row->channels = mixed & 8 ? CHANNELS : 1;
		choose_type(row, mixed >> 4);
		return true;
	}
	return false;
}

static bool row_runs(const struct row *row, uint32_t size, const struct gpus *gpus)
{
	const struct collet_shape shape =
		collet_shape_of(row->program->collective, 0, size, root_of(size), row->count);
	const uint32_t lanes = collet_program_parts(row->program, &shape) * row->channels;
	const uint32_t resident = gpus->seats[0][0].set->resident[COLLET_GPU_program];
	return collet_program_fits(row->program, &shape) && lanes * (row->apart ? 1 : size) <= resident;
}

/* Rows that are explored: small ones, all ranks in one launch. */
static bool is_small(const struct row *row)
{
	return !row->apart && row->count <= 701 && row->count != 5 &&
		(row->program->collective == COLLET_ALLREDUCE || row->program->collective == COLLET_ALLTOALL ||
			row->program->collective == COLLET_BROADCAST);
}

/* The first that can be run from this number on, program NULL if there is none; and the number after it. */
static uint64_t choose_row(struct row *row, uint32_t size, const struct gpus *gpus, uint64_t number)
{
	while (make_row(row, gpus, number)) {
		number++;
		if (sample_has(row->number) && row_runs(row, size, gpus))
			return number;
	}
	row->program = NULL;
	return number;
}

/* Rank 0 says what comes next: it alone knows the GPUs. */
struct shared {
	struct row row;
	char expected[WORLD][ROOM];
};

static void all_rows(struct rank *rank)
{
	struct shared *shared = rank->shared;
	struct gpus gpus = { 0 };
	char *send = malloc(ROOM);
	const uint64_t seeds = *(const uint64_t *)rank->options->context;
	uint64_t ran = 0;
	bool fine = send != NULL;
	if (rank->rank == 0)
		fine = fine && rank_check(rank, gpus_open(&gpus, rank->size), "no GPU: %s", collet_last_error());
	for (uint64_t number = 0; fine;) {
		if (rank->rank == 0)
			number = choose_row(&shared->row, rank->size, &gpus, number);
		fine = rank_ok(rank, collet_barrier(rank->comm, NULL), "what comes next");
		const struct row row = shared->row;
		if (!fine || !row.program)
			break;
		rank_doing(rank, "%s/%s, %llu elements", collet_collective_name(row.program->collective),
			row.program->name, (unsigned long long)row.count);
		fill((unsigned char *)send, &row, rank->rank);
		fine = rank_ok(rank, call(rank, &row, send, shared->expected[rank->rank]), row.program->name) &&
			rank_ok(rank, collet_barrier(rank->comm, NULL), "all called");
		for (uint64_t s = 0; s < (seeds && is_small(&row) ? seeds : !seeds) && fine && !rank->rank; s++) {
			const uint64_t seed = seeds ? test_seed() + row.number * 1000 + s : 0;
			set_schedule(seed);
			fine = rank_check(rank, run_on_gpus(&gpus, &row, rank->size), "%s, schedule %llu: %s",
				row.program->name, (unsigned long long)seed, collet_last_error());
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

static void run_worlds(uint64_t seeds, uint32_t most)
{
	for (uint32_t size = 2; size <= most; size++) {
		const struct ranks_options options = { .mode = RANKS_THREADS, .size = size, .transport = "shm",
			.shared_bytes = sizeof(struct shared), .context = &seeds };
		ranks_must_pass(&options, all_rows);
	}
}

static void every_program_gives_what_it_gives_on_the_host(void **state)
{
	run_worlds(0, WORLD);
}

/* One block at a time, in orders drawn from seeds. */
static void every_order_of_blocks_gives_the_same(void **state)
{
	run_worlds(getenv("COLLET_TEST_FULL") ? 60 : 2, 3);
}

/* ---- Giving up ---- */

/* Rank 0 alone is launched: it waits for the other until it is told not to. */
static void give_up(struct gpus *gpus, bool quick)
{
	const struct row row = { .program = collet_program_find(COLLET_ALLREDUCE, "two_shot"), .count = 701,
		.dtype = COLLET_F32, .op = COLLET_SUM, .quick = quick, .channels = CHANNELS };
	struct seat *seat = &gpus->seats[0][0];
	struct collet_program_arguments arguments = { .op = row.op, .divisor = 1, .dtype = row.dtype,
		.window = gpus->window };
	cu_stream other;
	uint32_t lanes;
	assert_true(lay(gpus, seat, &row, 0, 2, &arguments.rows[0], &lanes));
	assert_int_equal(launch(seat, &arguments, lanes, 1), COLLET_OK);
	assert_int_equal(collet_cuda_make_stream(&gpus->cuda, &other), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamQuery(seat->copier->stream), CU_NOT_READY);
	const cu_pointer word = (uintptr_t)gpus->abort_word.first;
	assert_int_equal(gpus->cuda.cuStreamWriteValue32(other, word, 1, 0), CU_OK);
	assert_int_equal(collet_copier_wait(&gpus->cuda, seat->copier, "giving up"), COLLET_OK);
	assert_int_equal(gpus->cuda.cuStreamWriteValue32(other, word, 0, 0), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamSynchronize(other), CU_OK);
	assert_int_equal(gpus->cuda.cuStreamDestroy(other), CU_OK);
}

static void who_waits_in_vain_gives_up_when_told(void **state)
{
	for (int quick = 0; quick < 2; quick++) {
		struct gpus gpus;
		assert_true(gpus_open(&gpus, 2));
		give_up(&gpus, quick);
		assert_true(gpus_close(&gpus));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest anywhere[] = {
		cmocka_unit_test(every_program_gives_what_it_gives_on_the_host),
		cmocka_unit_test(who_waits_in_vain_gives_up_when_told),
	};
	const struct CMUnitTest fake[] = { cmocka_unit_test(every_order_of_blocks_gives_the_same) };
	struct program program;
	if (!program_start(&program, 0)) {
		puts("skipped: there is no CUDA driver, or no GPU");
		return 77;
	}
	const bool ended = program_end(&program);
	int failed = cmocka_run_group_tests(anywhere, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "fake") == 0)
		failed += cmocka_run_group_tests(fake, NULL, NULL);
	return failed + !ended;
}
