/* A block of a kernel, run by a thread of the system. Its threads are fibres of that one: they take turns, from a flag
 * or a barrier to the next, in an order that is drawn. So where a barrier is missing a thread is too early with one
 * order or another, and whatever it does then is wrong in the sums, with the same seed each time.
 *
 * FAKE_CUDA_THREADS=N: a block has so many threads (default 1), if it is launched with as many. Which goes next
 * FAKE_CUDA_SCHEDULE says too (schedule.h); without it each launch has another order, the same in every run of a
 * program that launches from one thread. */
#ifndef TESTS_CUDA_FAKE_DRIVER_BLOCK_H
#define TESTS_CUDA_FAKE_DRIVER_BLOCK_H

#include <stdint.h>

#include "functions.h"
#include "host_form.h"
#include "schedule.h"

struct block_run {
	const struct host_kernel *kernel;
	const void *argument;
	cu_context context;
	uint32_t columns, number;    /* blocks in a row; this one's number, row by row */
	uint32_t threads;
	uint64_t seed;               /* of their order */
	struct schedule *schedule;   /* NULL: blocks go as the system has it */
};

/* How many threads a block has that is launched with so many. */
uint32_t block_threads(unsigned int launched);
/* CU_ILLEGAL_ADDRESS: it has come to an address that is nowhere. CU_LAUNCH_TIMEOUT: nobody gets on any more. */
cu_result block_run(const struct block_run *run);

#endif
