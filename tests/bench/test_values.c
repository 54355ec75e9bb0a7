/* What the checker expects is what the collective means, and one wrong element does not pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "values.h"

enum { MANY = 3000 };  /* more than two periods */

/* Reads a narrow float by its definition, bit by bit: the opposite way from how it was written. */
static double read_narrow(collet_dtype dtype, const void *element)
{
	const int exponent_bits = dtype == COLLET_BF16 ? 8 : dtype == COLLET_F8E4M3 ? 4 : 5;
	const int total = (int)collet_dtype_bytes(dtype) * 8, fraction_bits = total - 1 - exponent_bits;
	const int bias = (1 << (exponent_bits - 1)) - 1;
	uint32_t bits = 0;
	memcpy(&bits, element, collet_dtype_bytes(dtype));
	const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
	const int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1));
	const double sign = bits >> (total - 1) ? -1 : 1;
	if (exponent == (1 << exponent_bits) - 1 && dtype != COLLET_F8E4M3)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - fraction_bits);
	return sign * ldexp((1u << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static double read_float(collet_dtype dtype, const void *element)
{
	float single;
	double twice;
	if (dtype == COLLET_F32) {
		memcpy(&single, element, sizeof(single));
		return (double)single;
	}
	if (dtype == COLLET_F64) {
		memcpy(&twice, element, sizeof(twice));
		return twice;
	}
	return read_narrow(dtype, element);
}

static void narrow_floats_are_stored_to_the_nearest_even(void **state)
{
	static const struct {
		collet_dtype dtype;
		double value;
		uint32_t bits;
	} rows[] = {
		{ COLLET_F16, 1, 0x3c00 },
		{ COLLET_F16, -2, 0xc000 },
		{ COLLET_F16, 65504, 0x7bff },
		{ COLLET_F16, 65520, 0x7c00 },
		{ COLLET_F16, 0x1p-24, 0x0001 },
		{ COLLET_F16, 0x1p-14, 0x0400 },
		{ COLLET_F16, 2049, 0x6800 },
		{ COLLET_F16, 2051, 0x6802 },
		{ COLLET_F16, 1.0 / 3, 0x3555 },
		{ COLLET_BF16, 1, 0x3f80 },
		{ COLLET_BF16, 257, 0x4380 },
		{ COLLET_BF16, 259, 0x4382 },
		{ COLLET_BF16, -0.0, 0x8000 },
		{ COLLET_F8E4M3, 448, 0x7e },
		{ COLLET_F8E4M3, 1e6, 0x7e },
		{ COLLET_F8E4M3, -1e6, 0xfe },
		{ COLLET_F8E4M3, 0x1p-9, 0x01 },
		{ COLLET_F8E4M3, 17, 0x58 },
		{ COLLET_F8E4M3, 1, 0x38 },
		{ COLLET_F8E5M2, 57344, 0x7b },
		{ COLLET_F8E5M2, 1e9, 0x7b },
		{ COLLET_F8E5M2, 1, 0x3c },
		{ COLLET_F8E5M2, 9, 0x48 },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t bits = 0;
		bench_store(rows[i].dtype, rows[i].value, &bits);
		assert_int_equal(bits, rows[i].bits);
	}
}

/* Combines in f64 what the inputs say, straight from the meaning of the operation. */
static double brute_force(const struct bench_work *work, uint32_t ranks, uint64_t index)
{
	double result = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		uint8_t element[8];
		bench_input_element(work, rank, ranks, index, element);
		const double value = read_float((collet_dtype)work->dtype, element);
		if (rank == 0 && work->op != COLLET_PREMUL_SUM)
			result = value;
		else if (work->op == COLLET_PRODUCT)
			result *= value;
		else if (work->op == COLLET_MIN)
			result = value < result ? value : result;
		else if (work->op == COLLET_MAX)
			result = value > result ? value : result;
		else
			result += value * (work->op == COLLET_PREMUL_SUM ? bench_scale(rank) : 1);
	}
	return result;
}

static void float_results_are_exact_in_any_order(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 7, 64, 300 };
	for (int d = COLLET_F16; d <= COLLET_F8E5M2; d++)
		for (int o = COLLET_SUM; o <= COLLET_PREMUL_SUM; o++)
			for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
				const struct bench_work work = {
					.collective = BENCH_ALLREDUCE, .dtype = (uint32_t)d, .op = (uint32_t)o
				};
				for (uint64_t i = 0; i < 200; i++) {
					uint8_t expected[8], exact[8];
					double result = brute_force(&work, worlds[w], i);
					bench_expected_element(&work, 0, worlds[w], 200, i, expected);
					bench_store((collet_dtype)d, result, exact);
					if (o != COLLET_AVERAGE) {
						assert_memory_equal(
							expected, exact, collet_dtype_bytes((collet_dtype)d));
						assert_true(read_float((collet_dtype)d, exact)
							== result); /* nothing was rounded */
					} else {
						assert_true(read_float((collet_dtype)d, exact) == result);
						result = d == COLLET_F64 ? result * (1.0 / worlds[w])
							: (double)((float)result * (1.0f / (float)worlds[w]));
						bench_store((collet_dtype)d, result, exact);
						assert_memory_equal(
							expected, exact, collet_dtype_bytes((collet_dtype)d));
					}
				}
			}
}

static void small_integers_wrap_and_divide_as_c_does(void **state)
{
	const uint32_t ranks = 5;
	for (int o = COLLET_SUM; o <= COLLET_XOR; o++) {
		if (o == COLLET_PREMUL_SUM)
			continue;
		const struct bench_work work = { .collective = BENCH_ALLREDUCE, .dtype = COLLET_I8, .op = (uint32_t)o };
		for (uint64_t i = 0; i < 300; i++) {
			int8_t in[5], want, got;
			for (uint32_t r = 0; r < ranks; r++)
				bench_input_element(&work, r, ranks, i, &in[r]);
			want = in[0];
			for (uint32_t r = 1; r < ranks; r++) {
				const int a = want, b = in[r];
				want = (int8_t)(o == COLLET_PRODUCT ? a * b
						: o == COLLET_MIN   ? (b < a ? b : a)
						: o == COLLET_MAX   ? (b > a ? b : a)
						: o == COLLET_AND   ? (a & b)
						: o == COLLET_OR    ? (a | b)
						: o == COLLET_XOR   ? (a ^ b)
								    : a + b);
			}
			if (o == COLLET_AVERAGE)
				want = (int8_t)(want / 5);
			bench_expected_element(&work, 3, ranks, 300, i, &got);
			assert_int_equal(got, want);
		}
	}
}

/* A collective done by hand between buffers in this process. */
static void do_collective(const struct bench_work *work, uint32_t ranks, uint64_t count, uint8_t **send, uint8_t **recv)
{
	const size_t e = collet_dtype_bytes((collet_dtype)work->dtype);
	for (uint32_t r = 0; r < ranks; r++)
		for (uint32_t p = 0; p < ranks; p++) {
			const bool root = r == work->root;
			if (work->collective == BENCH_ALLGATHER || (work->collective == BENCH_GATHER && root))
				memcpy(recv[r] + p * count * e, send[p], count * e);
			else if (work->collective == BENCH_ALLTOALL)
				memcpy(recv[r] + p * count * e, send[p] + r * count * e, count * e);
			else if (work->collective == BENCH_SCATTER && p == work->root)
				memcpy(recv[r], send[p] + r * count * e, count * e);
			else if (work->collective == BENCH_BROADCAST && p == work->root)
				memcpy(recv[r], send[p], count * e);
			else if (work->collective == BENCH_SENDRECV && p == (r + ranks - 1) % ranks)
				memcpy(recv[r], send[p], count * e);
			else if (bench_collective_combines((enum bench_collective)work->collective)
				&& (work->collective != BENCH_REDUCE || root))
				for (uint64_t i = 0; i < count; i++) {
					const uint64_t at =
						work->collective == BENCH_REDUCE_SCATTER ? r * count + i : i;
					uint32_t sum, addend;
					memcpy(&sum, recv[r] + i * e, e);
					memcpy(&addend, send[p] + at * e, e);
					sum = p == 0 ? addend : sum + addend;
					memcpy(recv[r] + i * e, &sum, e);
				}
		}
}

static void every_collective_checks_and_one_wrong_element_is_seen(void **state)
{
	static const uint64_t counts[] = { 0, 1, 7, 1021, 1500 };
	const uint32_t ranks = 3;
	uint8_t *send[3], *recv[3];
	for (uint32_t r = 0; r < ranks; r++) {
		send[r] = malloc(MANY * 3 * 4);
		recv[r] = malloc(MANY * 3 * 4);
		assert_true(send[r] && recv[r]);
	}
	for (int c = 0; c < BENCH_COLLECTIVES; c++)
		for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
			const struct bench_work work = {
				.collective = (uint32_t)c, .dtype = COLLET_U32, .op = COLLET_SUM, .root = 1
			};
			const uint64_t count = c == BENCH_BARRIER ? 0 : counts[n];
			for (uint32_t r = 0; r < ranks; r++) {
				bench_poison(&work, r, ranks, count, recv[r]);
				bench_fill(&work, r, ranks, count, send[r]);
			}
			for (uint32_t r = 0; r < ranks; r++) {
				uint64_t first = 0;   /* nothing has run: (nearly) everything is wrong */
				const uint64_t total = bench_recv_count(&work, r, ranks, count);
				assert_int_equal(bench_check(&work, r, ranks, count, recv[r], &first), total);
			}
			do_collective(&work, ranks, count, send, recv);
			for (uint32_t r = 0; r < ranks; r++) {
				uint64_t first = 99;
				const uint64_t total = bench_recv_count(&work, r, ranks, count);
				assert_int_equal(bench_check(&work, r, ranks, count, recv[r], &first), 0);
				if (total == 0)
					continue;
				recv[r][(total - 1) * 4 + 2] ^= 0x10;   /* one bit of the last element */
				assert_int_equal(bench_check(&work, r, ranks, count, recv[r], &first), 1);
				assert_int_equal(first, total - 1);
			}
		}
	for (uint32_t r = 0; r < ranks; r++) {
		free(send[r]);
		free(recv[r]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(narrow_floats_are_stored_to_the_nearest_even),
		cmocka_unit_test(float_results_are_exact_in_any_order),
		cmocka_unit_test(small_integers_wrap_and_divide_as_c_does),
		cmocka_unit_test(every_collective_checks_and_one_wrong_element_is_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
