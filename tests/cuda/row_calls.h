/* Rows of the conformance matrix (tests/api/rows.h) on GPU memory, beside the same calls on the host's. */
#ifndef TESTS_CUDA_ROW_CALLS_H
#define TESTS_CUDA_ROW_CALLS_H

#include "program.h"
#include "ranks.h"
#include "rows.h"
#include "streams.h"

/* Which of a rank's buffers are the GPU's, and how the call is made. */
struct way {
	bool send_on_gpu, recv_on_gpu, in_place, request;
	const char *algorithm;
	const struct streams *streams;
	cu_stream stream;            /* NULL: on none */
	collet_comm *host;           /* of the same ranks, and goes by way of the host; NULL: the algorithm "direct" on
					the host's memory says what is expected */
};

/* Every call, dtype and operation in turn, or a share of them that is drawn from a seed; what else may vary does so
 * from row to row. */
struct row_walk {
	uint32_t share;              /* every so manieth row is run */
	uint64_t seed;
	const uint64_t *counts;
	size_t count_count;
	bool barriers;               /* too */
	uint64_t number;             /* how far it is; 0 at first */
};

/* The next row, of so many ranks, and a number that is drawn for it. false: that was all. */
bool row_next(struct row_walk *walk, uint32_t size, struct row *row, uint64_t *drawn);

/* Makes the call on the host, then as way says: true if both give the same bytes. */
bool row_matches_host(struct rank *rank, const struct program *program, const struct row *row, const struct way *way);

#endif
