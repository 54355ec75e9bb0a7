/* Makes inputs whose exact result is known, and compares results with it.
 *
 * Every rank can compute every other rank's input, so a check collects nothing. Inputs repeat with a prime period.
 * So filling and checking run at the speed of memory, and no misplaced chunk of a power of two goes unnoticed. For
 * floats, the values are small integers: every partial sum is exact in any order, and one wrong bit is one wrong
 * element. */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include "work.h"

enum { BENCH_PERIOD = 1021 };

/* This rank's factor for COLLET_PREMUL_SUM: a power of two. */
double bench_scale(uint32_t rank);

/* Element `index` of what `rank` sends. Writes one element. */
void bench_input_element(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t index, void *element);
/* Element `index` of what `rank` must have received with this count. */
void bench_expected_element(
	const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, uint64_t index, void *element);

/* Fills a send buffer of bench_send_count() elements. */
void bench_fill(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, void *send);
/* Fills a receive buffer with bytes that are not the result. */
void bench_poison(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, void *recv);

/* Returns the number of elements of recv that differ in any bit; *first is the first of them, if any. */
uint64_t bench_check(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count, const void *recv,
	uint64_t *first);

/* The number as the library would store it in this dtype: rounded to nearest even; fp8 saturates. For numbers that fit
 * an f64 exactly. */
void bench_store(collet_dtype dtype, double value, void *element);

#endif
