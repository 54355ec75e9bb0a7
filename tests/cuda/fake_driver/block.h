/* A block of a kernel, run by a thread of the system. The block's threads are fibres on it. They take turns from one
 * flag or barrier to the next, in a random order. So if a barrier is missing, a thread is too early in some order, and
 * the result is wrong, for the same seed each time.
 *
 * FAKE_CUDA_THREADS=N: a block has N threads (default 1), if it is launched with as many. FAKE_CUDA_SCHEDULE also
 * determines their order (schedule.h). Without it each launch has another order, which is the same in every run of a
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
	uint32_t columns, number;    /* blocks in a row; this block's number, row by row */
	uint32_t threads;
	uint64_t seed;               /* of the threads' order */
	struct schedule *schedule;   /* NULL: the system schedules blocks */
};

/* Number of threads of a block that is launched with so many. */
uint32_t block_threads(unsigned int launched);
/* CU_ILLEGAL_ADDRESS: it has accessed an address without memory. CU_LAUNCH_TIMEOUT: no block can continue. */
cu_result block_run(const struct block_run *run);

#endif
