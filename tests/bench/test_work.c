/* Bytes, counts and bandwidths are nccl-tests', for every collective. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "work.h"

static void names_are_the_functions_names(void **state)
{
	static const char *const names[] = { "allreduce", "reduce", "broadcast", "barrier", "allgather",
		"reduce_scatter", "gather", "scatter", "alltoall", "sendrecv" };
	for (int c = 0; c < BENCH_COLLECTIVES; c++) {
		assert_string_equal(bench_collective_name((enum bench_collective)c), names[c]);
		assert_int_equal(bench_collective_find(names[c]), c);
	}
	assert_null(bench_collective_name(BENCH_COLLECTIVES));
	assert_int_equal(bench_collective_find("all-reduce"), BENCH_COLLECTIVES);
	assert_int_equal(bench_dtype_find("bf16"), COLLET_BF16);
	assert_int_equal(bench_dtype_find("float"), COLLET_DTYPE_COUNT);
	assert_int_equal(bench_op_find("premul_sum"), COLLET_PREMUL_SUM);
	assert_int_equal(bench_op_find("plus"), COLLET_OP_COUNT);
}

static void bytes_become_counts_rounded_down(void **state)
{
	static const struct {
		enum bench_collective collective;
		collet_dtype dtype;
		uint32_t ranks;
		uint64_t bytes, count, bytes_used;
	} rows[] = {
		{ BENCH_ALLREDUCE, COLLET_F32, 4, 1024, 256, 1024 },
		{ BENCH_ALLREDUCE, COLLET_F32, 4, 1027, 256, 1024 },
		{ BENCH_ALLREDUCE, COLLET_F64, 4, 7, 0, 0 },
		{ BENCH_ALLREDUCE, COLLET_U8, 3, 0, 0, 0 },
		{ BENCH_BROADCAST, COLLET_I8, 3, 5, 5, 5 },
		{ BENCH_REDUCE, COLLET_F16, 3, 5, 2, 4 },
		{ BENCH_SENDRECV, COLLET_F32, 3, 64, 16, 64 },
		{ BENCH_ALLGATHER, COLLET_F32, 4, 1024, 64, 1024 },
		{ BENCH_ALLGATHER, COLLET_F32, 3, 1024, 85, 1020 },
		{ BENCH_REDUCE_SCATTER, COLLET_F32, 3, 11, 1, 12 },
		{ BENCH_GATHER, COLLET_F32, 4, 4, 1, 16 },
		{ BENCH_SCATTER, COLLET_F32, 8, 28, 1, 32 },
		{ BENCH_SCATTER, COLLET_F32, 8, 3, 0, 0 },
		{ BENCH_ALLTOALL, COLLET_F32, 8, 0, 0, 0 },
		{ BENCH_ALLTOALL, COLLET_F64, 2, 64, 4, 64 },
		{ BENCH_GATHER, COLLET_U8, 5, 64, 12, 60 },
		{ BENCH_SCATTER, COLLET_U8, 5, 64, 12, 60 },
		{ BENCH_BARRIER, COLLET_F32, 5, 64, 0, 0 },
		{ BENCH_ALLREDUCE, COLLET_F32, 2, (uint64_t)5 << 30, (uint64_t)5 << 28, (uint64_t)5 << 30 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bench_work work = { .collective = rows[i].collective, .dtype = rows[i].dtype };
		const uint64_t count = bench_count(&work, rows[i].ranks, rows[i].bytes);
		assert_int_equal(count, rows[i].count);
		assert_int_equal(bench_bytes(&work, rows[i].ranks, count), rows[i].bytes_used);
	}
}

static void buffers_hold_what_each_rank_sends_and_gets(void **state)
{
	/* Of 4 ranks, 10 elements each; root is 2. */
	static const struct {
		enum bench_collective collective;
		uint64_t send_root, send_other, recv_root, recv_other;
	} rows[] = {
		{ BENCH_ALLREDUCE, 10, 10, 10, 10 },
		{ BENCH_REDUCE, 10, 10, 10, 0 },
		{ BENCH_BROADCAST, 10, 0, 10, 10 },
		{ BENCH_BARRIER, 0, 0, 0, 0 },
		{ BENCH_ALLGATHER, 10, 10, 40, 40 },
		{ BENCH_REDUCE_SCATTER, 40, 40, 10, 10 },
		{ BENCH_GATHER, 10, 10, 40, 0 },
		{ BENCH_SCATTER, 40, 0, 10, 10 },
		{ BENCH_ALLTOALL, 40, 40, 40, 40 },
		{ BENCH_SENDRECV, 10, 10, 10, 10 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct bench_work work = { .collective = rows[i].collective, .dtype = COLLET_F32, .root = 2 };
		assert_int_equal(bench_send_count(&work, 2, 4, 10), rows[i].send_root);
		assert_int_equal(bench_send_count(&work, 1, 4, 10), rows[i].send_other);
		assert_int_equal(bench_recv_count(&work, 2, 4, 10), rows[i].recv_root);
		assert_int_equal(bench_recv_count(&work, 1, 4, 10), rows[i].recv_other);
	}
}

static void bus_bandwidth_has_the_collectives_factor(void **state)
{
	static const struct {
		enum bench_collective collective;
		uint32_t ranks;
		double factor;
	} rows[] = {
		{ BENCH_ALLREDUCE, 2, 1 },
		{ BENCH_ALLREDUCE, 4, 1.5 },
		{ BENCH_ALLREDUCE, 1, 0 },
		{ BENCH_REDUCE_SCATTER, 4, 0.75 },
		{ BENCH_ALLGATHER, 4, 0.75 },
		{ BENCH_ALLTOALL, 2, 0.5 },
		{ BENCH_BROADCAST, 4, 1 },
		{ BENCH_REDUCE, 4, 1 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_true(bench_bus_factor(rows[i].collective, rows[i].ranks) == rows[i].factor);
	assert_true(bench_gbs(4000, 1000) == 4);
	assert_true(bench_gbs(0, 1000) == 0);
	assert_true(bench_gbs(1000, 0) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_the_functions_names),
		cmocka_unit_test(bytes_become_counts_rounded_down),
		cmocka_unit_test(buffers_hold_what_each_rank_sends_and_gets),
		cmocka_unit_test(bus_bandwidth_has_the_collectives_factor),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
