/* The reduce kernels give the same bits as the host's reduction: every dtype and operation, with equal, different and
 * odd alignments, few and many sources, several results, and in place. Runs on any driver. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>

#include "core/types.h"
#include "loaded_kernels.h"
#include "reduce/reduce.h"

enum { POOL = 96 << 10, SPANS = 48, MOST_COUNT = 300 };

static uint32_t seed = 1;

static uint32_t random_below(uint32_t end)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(seed >> 8) * end >> 24);
}

/* ---- Elements: any bits for small types, and special values for all ---- */

static void fill(unsigned char *pool, size_t bytes, collet_dtype dtype)
{
	static const float hard_f32[] = { 0.0f, -0.0f, 1.0f, 1e-40f, -3e38f, 3e38f, 0.1f, 16777217.0f };
	static const uint32_t hard_bits[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 1 };
	const size_t element = collet_dtype_bytes(dtype);
	for (size_t i = 0; i < bytes; i++)
		pool[i] = (unsigned char)random_below(256);
	for (size_t i = 0; i + element <= bytes && element >= 4; i += element) {
		const uint32_t kind = random_below(4), which = random_below(6);
		float x = kind == 0 ? hard_f32[which] : (float)random_below(2000) / 7 - 140;
		if (kind == 1)
			memcpy(&x, &hard_bits[which], sizeof(x));
		const double wide = x;
		if (kind < 3 && dtype == COLLET_F32)
			memcpy(pool + i, &x, sizeof(x));
		else if (kind < 3 && dtype == COLLET_F64)
			memcpy(pool + i, &wide, sizeof(wide));
	}
}

/* ---- One launch of many spans ---- */

struct span {
	uint32_t sources, results;
	uint64_t count;
	/* offsets in the pools, in bytes */
	size_t source_at[COLLET_SPAN_MAX_OPERANDS], result_at[COLLET_SPAN_MAX_OPERANDS];
	bool in_place;                                                   /* the first source is the first result */
	double scales[COLLET_SPAN_MAX_OPERANDS];
};

struct row {
	collet_dtype dtype;
	collet_op op;
	uint32_t average_of;
	unsigned char *sources, *results, *expected;
	struct span spans[SPANS];
	uint32_t span_count;
};

/* The same alignment for all, one of its own for each, or not even a multiple of the element. */
enum lie { ALIKE, APART, ODD, LIES };

static size_t place(enum lie lie, size_t element, size_t shift)
{
	return lie == ALIKE ? shift * element % 16 : lie == APART ? random_below(16) / element * element :
								    random_below(16);
}

static void lay_out(struct row *row, bool wide)
{
	static const uint32_t few[] = { 1, 2, 3, 4, 5, 8, 9 };
	static const uint64_t counts[] = { 1, 15, 16, 17, 33, 64, 100, MOST_COUNT - 1 };
	static const double scales[] = { 1.0, -0.5, 0.003, 3.0 };
	const size_t element = collet_dtype_bytes(row->dtype);
	size_t used = 0;
	row->span_count = 0;
	for (uint32_t s = 0; s < SPANS; s++) {
		struct span *span = &row->spans[row->span_count];
		const enum lie lie = (enum lie)(s % LIES);
		const size_t shift = random_below(16);
		span->sources = wide && s == 0 ? COLLET_SPAN_MAX_OPERANDS : few[random_below(7)];
		span->results = wide && s == 1 ? COLLET_SPAN_MAX_OPERANDS : 1 + random_below(3);
		span->count = span->results > 3 ? 20 : counts[random_below(8)];
		span->in_place = random_below(3) == 0;
		const size_t bytes = span->count * element;
		if (used + span->results * (bytes + 64) > POOL)
			break;
		for (uint32_t k = 0; k < span->results; k++) {
			used = (used + 15) / 16 * 16;
			span->result_at[k] = used + place(lie, element, shift);
			used = span->result_at[k] + bytes;
		}
		for (uint32_t k = 0; k < span->sources; k++) {
			const size_t room = (POOL - bytes) / 16 - 1;
			span->source_at[k] = random_below((uint32_t)room) * 16 + place(lie, element, shift);
			span->scales[k] = scales[random_below(4)];
		}
		row->span_count++;
	}
}

/* One source as the reduction uses it: scaled, and rounded. */
static void scaled(const struct row *row, const unsigned char *from, double scale, uint64_t count, void *to)
{
	struct collet_reduction reduction;
	const struct collet_operand operand = { from, true };
	assert_int_equal(collet_reduction_init(&reduction, row->dtype, row->op, NULL, scale, 1, COLLET_ISA_AUTO),
		COLLET_OK);
	collet_reduction_run(&reduction, to, &operand, 1, count, false, NULL);
}

static void expect(const struct row *row, const struct span *span)
{
	static unsigned char copies[COLLET_SPAN_MAX_OPERANDS][MOST_COUNT * 8], result[MOST_COUNT * 8];
	struct collet_reduction reduction;
	struct collet_operand operands[COLLET_SPAN_MAX_OPERANDS];
	assert_int_equal(collet_reduction_init(
		&reduction, row->dtype, row->op, NULL, 1, row->average_of, COLLET_ISA_AUTO), COLLET_OK);
	for (uint32_t k = 0; k < span->sources; k++) {
		const unsigned char *from = span->in_place && !k ? row->results + span->result_at[0] :
			row->sources + span->source_at[k];
		if (row->op == COLLET_PREMUL_SUM)
			scaled(row, from, span->scales[k], span->count, copies[k]);
		operands[k] = (struct collet_operand){ row->op == COLLET_PREMUL_SUM ? copies[k] : from, false };
	}
	collet_reduction_run(&reduction, result, operands, span->sources, span->count, true, NULL);
	for (uint32_t k = 0; k < span->results; k++)
		memcpy(row->expected + span->result_at[k], result, span->count * collet_dtype_bytes(row->dtype));
}

static void run_row(struct loaded *gpu, struct row *row, const struct buffer *sources,
	const struct buffer *results)
{
	static const void *from[SPANS][COLLET_SPAN_MAX_OPERANDS];
	static void *to[SPANS][COLLET_SPAN_MAX_OPERANDS];
	static unsigned char got[POOL];
	struct collet_gpu_span spans[SPANS];
	fill(row->sources, POOL, row->dtype);
	fill(row->results, POOL, row->dtype);
	memcpy(row->expected, row->results, POOL);
	assert_true(buffer_write(sources, row->sources) && buffer_write(results, row->results));
	for (uint32_t s = 0; s < row->span_count; s++) {
		const struct span *span = &row->spans[s];
		expect(row, span);
		for (uint32_t k = 0; k < span->sources; k++)
			from[s][k] = span->in_place && !k ? results->first + span->result_at[0] :
				sources->first + span->source_at[k];
		for (uint32_t k = 0; k < span->results; k++)
			to[s][k] = results->first + span->result_at[k];
		spans[s] = (struct collet_gpu_span){ from[s], to[s], span->sources, span->results,
			row->op == COLLET_PREMUL_SUM ? span->scales : NULL, span->count };
	}
	const struct collet_gpu_reduction reduction = { row->dtype, row->op, row->average_of };
	assert_int_equal(loaded_reduce(gpu, &reduction, spans, row->span_count), COLLET_OK);
	assert_true(buffer_read(results, got));
	for (size_t i = 0; i < POOL; i++)
		if (got[i] != row->expected[i])
			fail_msg("%s/%s/average of %u: byte %zu is %02x, not %02x", collet_dtype_name(row->dtype),
				collet_op_name(row->op), row->average_of, i, got[i], row->expected[i]);
}

static void every_reduction_gives_what_the_host_gives(void **state)
{
	struct loaded gpu;
	struct row row;
	struct buffer sources, results;
	assert_true(loaded_start(&gpu, 0));
	assert_int_equal(loaded_load(&gpu), COLLET_OK);
	row.sources = malloc(3 * POOL);
	assert_non_null(row.sources);
	row.results = row.sources + POOL;
	row.expected = row.results + POOL;
	assert_true(buffer_make(&sources, &gpu.program, true, POOL) &&
		buffer_make(&results, &gpu.program, true, POOL));
	for (uint32_t d = 0; d < COLLET_DTYPE_COUNT; d++) {
		for (uint32_t o = 0; o < COLLET_USER; o++) {
			row.dtype = (collet_dtype)d;
			row.op = (collet_op)o;
			if (!collet_op_supports(row.op, row.dtype))
				continue;
			for (row.average_of = 1; row.average_of <= (o == COLLET_AVERAGE ? 7 : 1); row.average_of += 3) {
				lay_out(&row, o == COLLET_SUM);
				run_row(&gpu, &row, &sources, &results);
			}
		}
	}
	buffer_free(&sources);
	buffer_free(&results);
	free(row.sources);
	loaded_unload(&gpu);
	assert_true(loaded_end(&gpu));
}

/* A span of more elements than all resident threads. */
static void a_large_span_is_shared_among_blocks(void **state)
{
	enum { COUNT = 400003 };
	struct loaded gpu;
	struct buffer buffers[3];
	assert_true(loaded_start(&gpu, 0));
	assert_int_equal(loaded_load(&gpu), COLLET_OK);
	float *values = malloc(3 * COUNT * sizeof(float));
	assert_non_null(values);
	for (size_t i = 0; i < (size_t)2 * COUNT; i++)
		values[i] = (float)random_below(100000) / 3;
	for (uint32_t b = 0; b < 3; b++)
		assert_true(buffer_make(&buffers[b], &gpu.program, true, COUNT * sizeof(float)));
	assert_true(buffer_write(&buffers[0], values) && buffer_write(&buffers[1], values + COUNT));
	const void *sources[] = { buffers[0].first, buffers[1].first };
	void *result[] = { buffers[2].first }, *both[] = { buffers[0].first, buffers[1].first };
	const void *sum[] = { buffers[2].first };
	const struct collet_gpu_reduction reduction = { COLLET_F32, COLLET_SUM, 1 };
	const struct collet_gpu_span span = { sources, result, 2, 1, NULL, COUNT };
	const struct collet_gpu_span copy = { sum, both, 1, 2, NULL, COUNT };
	assert_int_equal(loaded_reduce(&gpu, &reduction, &span, 1), COLLET_OK);
	assert_int_equal(loaded_reduce(&gpu, &reduction, &copy, 1), COLLET_OK);
	for (uint32_t b = 0; b < 3; b++) {
		float *got = values + (size_t)2 * COUNT;
		assert_true(buffer_read(&buffers[b], got));
		for (size_t i = 0; i < COUNT; i++)
			if (got[i] != values[i] + values[COUNT + i])
				fail_msg("buffer %u, element %zu: %g", b, i, (double)got[i]);
	}
	for (uint32_t b = 0; b < 3; b++)
		buffer_free(&buffers[b]);
	free(values);
	loaded_unload(&gpu);
	assert_true(loaded_end(&gpu));
}

/* Swaps of blocks at addresses of any alignment; every third copies to another place. */
static void blocks_are_swapped(void **state)
{
	enum { BLOCKS = 70, ROOM = 1200 };
	struct loaded gpu;
	struct buffer buffer;
	unsigned char *given = malloc(3 * BLOCKS * ROOM), *got = malloc(3 * BLOCKS * ROOM);
	struct collet_gpu_span spans[BLOCKS];
	const void *sources[BLOCKS][2];
	void *results[BLOCKS][2];
	assert_true(given && got);
	assert_true(loaded_start(&gpu, 0));
	assert_int_equal(loaded_load(&gpu), COLLET_OK);
	for (size_t i = 0; i < 3 * BLOCKS * ROOM; i++)
		given[i] = (unsigned char)random_below(256);
	assert_true(buffer_make(&buffer, &gpu.program, true, 3 * BLOCKS * ROOM) && buffer_write(&buffer, given));
	for (uint32_t b = 0; b < BLOCKS; b++) {
		static const uint32_t units[] = { 16, 4, 1 };
		const uint32_t unit = units[random_below(3)], count = random_below(ROOM - 16);
		size_t at[3];
		for (uint32_t k = 0; k < 3; k++)
			at[k] = (3 * b + k) * ROOM + (unit == 16 ? b % 16 : random_below(16 / unit) * unit);
		const size_t away = b % 3 ? at[0] : at[2];
		sources[b][0] = buffer.first + at[0];
		sources[b][1] = buffer.first + at[1];
		results[b][0] = buffer.first + at[1];
		results[b][1] = buffer.first + away;
		spans[b] = (struct collet_gpu_span){ sources[b], results[b], 2, 2, NULL, count, .is_swap = true };
		for (uint32_t i = 0; i < count; i++) {
			const unsigned char first = given[at[0] + i], second = given[at[1] + i];
			given[at[1] + i] = first;
			given[away + i] = second;
		}
	}
	const struct collet_gpu_reduction reduction = { COLLET_U8, COLLET_SUM, 1 };
	assert_int_equal(loaded_reduce(&gpu, &reduction, spans, BLOCKS), COLLET_OK);
	assert_true(buffer_read(&buffer, got));
	assert_memory_equal(got, given, 3 * BLOCKS * ROOM);
	buffer_free(&buffer);
	free(given);
	free(got);
	loaded_unload(&gpu);
	assert_true(loaded_end(&gpu));
}

/* ---- Errors, on the fake driver only ---- */

static void kernels_that_do_not_load_are_a_reason(void **state)
{
	static const struct {
		const char *fail;
		collet_status status;
	} rows[] = {
		{ "cuModuleLoadData:1:209", COLLET_ERR_UNSUPPORTED },
		{ "cuModuleLoadData:2:221", COLLET_ERR_UNSUPPORTED },
		{ "cuModuleLoadData:3:222", COLLET_ERR_UNSUPPORTED },
		{ "cuModuleLoadData:4:2", COLLET_ERR_MEMORY },
		{ "cuModuleGetFunction:3:500", COLLET_ERR_UNSUPPORTED },
	};
	struct loaded gpu;
	assert_true(loaded_start(&gpu, 0));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv("FAKE_CUDA_FAIL", rows[i].fail, 1);
		const collet_status status = loaded_load(&gpu);
		unsetenv("FAKE_CUDA_FAIL");
		/* A build without kernels says so, whatever the driver says. */
		if (status != rows[i].status)
			assert_non_null(strstr(collet_last_error(), "built without kernels"));
		assert_null(gpu.set);
		loaded_unload(&gpu);
	}
	assert_true(loaded_end(&gpu));
}

/* As drivers do, so that the library's launches are known to be within the limits. */
static void launches_beyond_the_limits_are_refused(void **state)
{
	static const struct {
		unsigned int columns, rows, threads, shared_bytes;
	} rows[] = { { 0, 1, 32, 0 }, { 1, 0, 32, 0 }, { 1, 65536, 32, 0 }, { 1, 1, 0, 0 }, { 1, 1, 1025, 0 },
		{ UINT32_MAX, 1, 32, 0 }, { 1, 1, 32, 1 << 20 } };
	struct loaded gpu;
	struct program other;
	struct collet_span_arguments none = { 0 };
	void *arguments[] = { &none };
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	assert_true(loaded_start(&gpu, 0));
	assert_int_equal(loaded_load(&gpu), COLLET_OK);
	const cu_function function = gpu.set->functions[0];
	const cu_stream stream = gpu.copy_stream->stream;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(gpu.cuda.cuLaunchKernel(function, rows[i].columns, rows[i].rows, 1, rows[i].threads,
					 1, 1, rows[i].shared_bytes, stream, arguments, NULL), CU_INVALID_VALUE);
	/* And on another GPU than the one whose context is current. */
	assert_true(program_start(&other, 1));
	assert_int_equal(gpu.cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL),
		CU_INVALID_HANDLE);
	assert_true(program_end(&other));
	loaded_unload(&gpu);
	assert_true(loaded_end(&gpu));
	unsetenv("FAKE_CUDA_DEVICES");
}

/* After that the driver frees nothing of the context: everything stays reachable for a leak check. */
static void a_freed_source_breaks_the_stream(void **state)
{
	static struct loaded gpu;
	static struct buffer buffer;
	assert_true(loaded_start(&gpu, 0));
	assert_int_equal(loaded_load(&gpu), COLLET_OK);
	assert_true(buffer_make(&buffer, &gpu.program, true, 399));
	const void *sources[] = { buffer.first, buffer.first };
	void *results[] = { buffer.first };
	const struct collet_gpu_reduction reduction = { COLLET_F32, COLLET_SUM, 1 };
	const struct collet_gpu_span span = { sources, results, 2, 1, NULL, 101 };
	assert_int_equal(loaded_reduce(&gpu, &reduction, &span, 1), COLLET_ERR_SYSTEM);
	assert_non_null(strstr(collet_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest anywhere[] = {
		cmocka_unit_test(every_reduction_gives_what_the_host_gives),
		cmocka_unit_test(a_large_span_is_shared_among_blocks),
		cmocka_unit_test(blocks_are_swapped),
	};
	const struct CMUnitTest fake[] = {
		cmocka_unit_test(kernels_that_do_not_load_are_a_reason),
		cmocka_unit_test(launches_beyond_the_limits_are_refused),
		cmocka_unit_test(a_freed_source_breaks_the_stream),
	};
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
