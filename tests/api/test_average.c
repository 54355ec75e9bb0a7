/* Tests averages of narrow floats: every algorithm gives the sum of all ranks in f32, divided and rounded once. So the
 * average of equal values is that value, and values near the largest one do not overflow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <collet/tools.h>

#include "ranks.h"
#include "sample.h"
#include "values.h"

enum { CODES = 8, ALGORITHMS_MOST = 16, SLICE = 1 << 20 };

/* The least and the largest values, and mantissas whose multiples need more bits than the type has. */
static const struct {
	collet_dtype dtype;
	uint16_t codes[CODES];
} types[] = {
	{ COLLET_F16, { 0x7b53 /* 60000 */, 0x7bff, 0x0001, 0x83ff, 0x3c55, 0xb555, 0x3bff, 0x0000 } },
	{ COLLET_BF16, { 0x7f7f /* 3.4e38 */, 0xff7f, 0x0001, 0x807f, 0x3fab, 0xbeab, 0x7f01, 0x3f7f } },
	{ COLLET_F8E4M3, { 0x7e /* 448 */, 0xfe, 0x01, 0x87, 0x3d, 0xb5, 0x7b, 0x3f } },
	{ COLLET_F8E5M2, { 0x7b /* 57344 */, 0xfb, 0x01, 0x83, 0x3d, 0xb7, 0x79, 0x3f } },
};

enum pattern { EQUAL, ONE, OPPOSITE, PATTERNS };

/* Returns this rank's code of an element: the same on all ranks, on one rank only, or with both signs. */
static uint64_t code_of(size_t type, uint32_t rank, uint32_t size, uint64_t element)
{
	const uint64_t code = types[type].codes[element / PATTERNS % CODES];
	const unsigned sign = 8 * (unsigned)collet_dtype_bytes(types[type].dtype) - 1;
	switch (element % PATTERNS) {
	case ONE: return rank == element % size ? code : 0;
	case OPPOSITE: return code ^ (uint64_t)(rank % 2) << sign;
	default: return code;
	}
}

/* Returns the average as the header defines it. Sums are exact in f64, and kept within f32 by a power of two. */
static uint64_t average_of(size_t type, uint32_t size, uint64_t element)
{
	double sum = 0;
	if (element % PATTERNS == EQUAL)
		return code_of(type, 0, size, element);
	for (uint32_t r = 0; r < size; r++)
		sum += value_decode(types[type].dtype, code_of(type, r, size, element));
	const float share = 8.0f / (float)size;
	return value_encode(types[type].dtype, (double)((float)(sum / 8) * share));
}

enum { ALLREDUCE, REDUCE, REDUCE_SCATTER, CALLS };
static const char *const collectives[CALLS] = { "allreduce", "reduce", "reduce_scatter" };

struct row {
	uint32_t call;
	size_t type;
	const char *algorithm;
	uint64_t count;
	bool in_place;
};

/* A call with its buffers. */
struct started {
	struct row row;
	char *send, *recv;
	uint64_t elements;           /* of send */
	uint32_t root;
};

static bool fill(struct rank *rank, const struct row *row, struct started *call)
{
	const collet_dtype dtype = types[row->type].dtype;
	const size_t bytes = collet_dtype_bytes(dtype);
	*call = (struct started){ .row = *row, .root = rank->size - 1,
		.elements = row->count * (row->call == REDUCE_SCATTER ? rank->size : 1) };
	call->send = malloc(call->elements * bytes);
	call->recv = row->in_place ? call->send + (row->call == REDUCE_SCATTER ? rank->rank * row->count * bytes : 0)
				   : malloc(row->count * bytes);
	if (!rank_check(rank, call->send && call->recv, "no memory"))
		return false;
	for (uint64_t i = 0; i < call->elements; i++)
		value_store(dtype, code_of(row->type, rank->rank, rank->size, i), call->send + i * bytes);
	return true;
}

static collet_status start(struct rank *rank, const struct started *call, const collet_how *how)
{
	const struct row *row = &call->row;
	const collet_dtype dtype = types[row->type].dtype;
	switch (row->call) {
	case REDUCE:
		return collet_reduce(
			rank->comm, call->send, call->recv, row->count, dtype, COLLET_AVERAGE, call->root, how);
	case REDUCE_SCATTER:
		return collet_reduce_scatter(
			rank->comm, call->send, call->recv, row->count, dtype, COLLET_AVERAGE, how);
	default:
		return collet_allreduce(rank->comm, call->send, call->recv, row->count, dtype, COLLET_AVERAGE, how);
	}
}

static bool check(struct rank *rank, const struct started *call)
{
	const struct row *row = &call->row;
	const collet_dtype dtype = types[row->type].dtype;
	const size_t bytes = collet_dtype_bytes(dtype);
	const uint64_t first = row->call == REDUCE_SCATTER ? rank->rank * row->count : 0;
	bool ok = true;
	for (uint64_t i = 0; ok && i < row->count && (row->call != REDUCE || rank->rank == call->root); i++) {
		const uint64_t got = value_load(dtype, call->recv + i * bytes);
		const uint64_t want = average_of(row->type, rank->size, first + i);
		/* Zero may have either sign: -x and x add up to +0, but rounding a tiny negative gives -0. */
		ok = rank_check(rank, got == want || value_decode(dtype, got) == value_decode(dtype, want),
			"%s by %s, %s, element %llu of %llu is %#llx instead of %#llx", collectives[row->call],
			row->algorithm ? row->algorithm : "what is chosen", collet_dtype_name(dtype),
			(unsigned long long)i, (unsigned long long)row->count, (unsigned long long)got,
			(unsigned long long)want);
	}
	return ok;
}

static void release(struct started *call)
{
	if (!call->row.in_place)
		free(call->recv);
	free(call->send);
	*call = (struct started){ .send = NULL };
}

static bool run(struct rank *rank, const struct row *row)
{
	struct started call;
	const collet_how how = { .algorithm = row->algorithm };
	rank_doing(rank, "%s by %s, %s, %llu", collectives[row->call],
		row->algorithm ? row->algorithm : "what is chosen", collet_dtype_name(types[row->type].dtype),
		(unsigned long long)row->count);
	bool ok = fill(rank, row, &call);
	const collet_status status = ok ? start(rank, &call, &how) : COLLET_OK;
	if (status != COLLET_ERR_UNSUPPORTED || !row->algorithm)
		ok = ok && rank_ok(rank, status, "the call") && check(rank, &call);
	release(&call);
	return ok;
}

/* Fills in the algorithms of a call; the first is NULL, which leaves the choice to the library. */
static size_t list_algorithms(uint32_t call, const char *names[ALGORITHMS_MOST])
{
	collet_algorithm_info infos[ALGORITHMS_MOST];
	size_t count = 0;
	names[0] = NULL;
	if (collet_algorithm_list(collectives[call], infos, ALGORITHMS_MOST, &count) != COLLET_OK)
		return 1;
	for (size_t i = 0; i < count && i + 1 < ALGORITHMS_MOST; i++)
		names[i + 1] = infos[i].name;
	return count + 1;
}

static void each_algorithm(struct rank *rank)
{
	static const uint64_t counts[] = { 1, 7, 1003, 20000 };
	uint64_t number = 0;
	for (uint32_t call = 0; call < CALLS; call++) {
		const char *names[ALGORITHMS_MOST];
		const size_t algorithms = list_algorithms(call, names);
		for (size_t a = 0; a < algorithms; a++)
			for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
				for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++, number++) {
					const struct row row = { call, t, names[a], counts[c], number % 3 == 1 };
					if (sample_has(number) && !run(rank, &row))
						return;
				}
	}
}

/* Ranks with even and odd numbers are on two hosts. */
static void on_two_hosts(struct rank *rank)
{
	setenv("COLLET_HOST_ID", rank->rank % 2 ? "odd" : "even", 1);
	if (rank_create(rank))
		each_algorithm(rank);
}

/* ---- More elements than are widened at a time ---- */

static void long_calls(struct rank *rank)
{
	const uint64_t block = SLICE / rank->size;
	const struct row rows[] = {
		{ ALLREDUCE, 2, "ring", SLICE - 1, false },
		{ ALLREDUCE, 0, "ring", SLICE + 1, true },
		{ ALLREDUCE, 3, "double_tree", 2 * SLICE + 12345, false },
		{ ALLREDUCE, 1, NULL, SLICE + 1, false },
		{ REDUCE, 2, "tree", SLICE + 7, false },
		{ REDUCE_SCATTER, 0, "ring", block + 1, true },
		{ REDUCE_SCATTER, 3, "bruck", 2 * block + 77, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (sample_of(sizeof(rows) / sizeof(rows[0]), i) && !run(rank, &rows[i]))
			return;
}

/* ---- Several calls at a time ---- */

/* They use the same memory one after the other, over one task or several, and sums of another type go between. */
static void overlapping_calls(struct rank *rank)
{
	static const struct row rows[] = {
		{ ALLREDUCE, 2, "ring", SLICE + 1, false },
		{ ALLREDUCE, 0, "double_tree", 30000, false },
		{ REDUCE, 1, "chain", 20000, false },
		{ ALLREDUCE, 1, NULL, 1000, false },
		{ REDUCE_SCATTER, 0, "ring", 5000, false },
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	struct started calls[ROWS] = { { .send = NULL } };
	collet_request *requests[ROWS] = { NULL }, *sums[ROWS] = { NULL };
	float sum[ROWS][100];
	for (size_t i = 0; i < ROWS; i++) {
		const collet_how how = { .algorithm = rows[i].algorithm, .request = &requests[i],
			.channels = i % 2 ? 1 : 2 };
		const collet_how plain = { .request = &sums[i] };
		for (size_t k = 0; k < 100; k++)
			sum[i][k] = (float)(i + k);
		if (!fill(rank, &rows[i], &calls[i]) || !rank_ok(rank, start(rank, &calls[i], &how), "starting"))
			return;
		if (!rank_ok(rank,
			    collet_allreduce(rank->comm, sum[i], sum[i], 100, COLLET_F32, COLLET_SUM, &plain), "a sum"))
			return;
	}
	for (size_t i = ROWS; i-- > 0;) {
		if (!rank_ok(rank, collet_request_wait(&sums[i]), "waiting for a sum") ||
			!rank_ok(rank, collet_request_wait(&requests[i]), "waiting") || !check(rank, &calls[i]))
			return;
		for (size_t k = 0; k < 100; k++)
			rank_check(rank, sum[i][k] == (float)((i + k) * rank->size), "a sum is %g", (double)sum[i][k]);
		release(&calls[i]);
	}
}

static const char *const transports[] = { "shm", "tcp" };

static void equal_values_come_back(void **state)
{
	static const uint32_t sizes[] = { 2, 3, 4, 5, 8 };
	(void)state;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (size_t t = 0; t < 2; t++)
			ranks_must_pass(&(struct ranks_options){ .size = sizes[s], .transport = transports[t],
				.mode = s % 2 ? RANKS_PROCESSES : RANKS_THREADS }, each_algorithm);
}

static void also_between_hosts(void **state)
{
	(void)state;
	for (uint32_t size = 4; size <= 5; size++)
		ranks_must_pass(&(struct ranks_options){ .size = size, .bare = true }, on_two_hosts);
}

static void also_if_there_are_many(void **state)
{
	(void)state;
	for (size_t t = 0; t < 2; t++)
		ranks_must_pass(&(struct ranks_options){ .size = 3, .transport = transports[t] }, long_calls);
}

static void also_in_calls_that_overlap(void **state)
{
	(void)state;
	ranks_must_pass_everywhere(&(struct ranks_options){ .size = 3 }, overlapping_calls);
	ranks_must_pass(&(struct ranks_options){ .size = 5, .progress_thread = true }, overlapping_calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_values_come_back),
		cmocka_unit_test(also_between_hosts),
		cmocka_unit_test(also_if_there_are_many),
		cmocka_unit_test(also_in_calls_that_overlap),
	};
	return cmocka_run_group_tests_name("averages of narrow floats", tests, NULL, NULL);
}
