/* Runs rows of the conformance matrix (tests/api/rows.h) on GPU memory, and the same calls on host memory. */
#ifndef TESTS_CUDA_ROW_CALLS_H
#define TESTS_CUDA_ROW_CALLS_H

#include "program.h"
#include "ranks.h"
#include "rows.h"
#include "streams.h"

/* Which of a rank's buffers are GPU memory, and how the call is made. */
struct call_mode {
	bool is_reference;           /* the call on the host that gives the expected result */
	bool send_on_gpu, recv_on_gpu, in_place, request;
	const char *algorithm;
	const struct streams *streams;
	cu_stream stream;            /* NULL if on no stream */
	/* Communicator of the same ranks that computes the expected result on the host; NULL: the algorithm "direct" on
	 * host memory does. */
	collet_comm *host;
};

/* Walks through all calls, dtypes and operations, or a share drawn from a seed. Everything else varies from row to
 * row. */
struct row_walk {
	uint32_t share;              /* one row in `share` is run */
	uint64_t seed;
	const uint64_t *counts;
	size_t count_count;
	bool barriers;               /* include barriers */
	uint64_t number;             /* current position, 0 at first */
};

/* Returns the next row for so many ranks, and a random number for it; false at the end. */
bool row_next(struct row_walk *walk, uint32_t size, struct row *row, uint64_t *drawn);

/* Makes the call on the host, and then as said. Returns true if both give the same bytes. */
bool row_matches_host(
	struct rank *rank, const struct program *program, const struct row *row, const struct call_mode *mode);

#endif
