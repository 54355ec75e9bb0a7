/* Sums whose end is told to on_end(), and the ways to make progress until it is. */
#ifndef TESTS_API_TOLD_SUMS_H
#define TESTS_API_TOLD_SUMS_H

#include <stdatomic.h>
#include <stdint.h>

#include "ranks.h"

/* A sum, and what its on_end() was told. */
struct sum {
	struct rank *rank;
	float *values;
	uint64_t count;
	collet_request *request;
	atomic_uint told;            /* how often */
	collet_status status;
};

enum { SUM_POLL_MS = 20000 };        /* much longer than any of these calls takes */

/* Fills its values. The caller frees them. */
bool sum_make(struct rank *rank, struct sum *sum, uint64_t count);
/* Starts it, as a request if is_owned. */
collet_status sum_start(collet_comm *comm, struct sum *sum, bool is_owned);
/* The on_end() of a sum: checks the values, and notes the status. */
void sum_note(void *sum, collet_status status);
/* Makes progress until its end was told: by collet_progress(), by the descriptor, or by the progress thread alone. */
bool sum_progress(struct rank *rank, struct sum *sum);
bool sum_poll(struct rank *rank, struct sum *sum);
bool sum_await(struct rank *rank, struct sum *sum);
bool sum_was_told_once(struct rank *rank, struct sum *sum, collet_status status);

#endif
