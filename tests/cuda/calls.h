/* Calls with their buffers on the GPU, on the host, or one on each, beside the same calls on the host. */
#ifndef TESTS_CUDA_CALLS_H
#define TESTS_CUDA_CALLS_H

#include "program.h"
#include "ranks.h"
#include "streams.h"

enum call_kind {
	ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, ALLGATHERV, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL, EXCHANGE,
	CALL_KINDS
};

/* How one call is made. */
struct call_row {
	enum call_kind kind;
	uint64_t count;
	bool send_on_gpu, recv_on_gpu, in_place, request;
	cu_stream stream;            /* NULL: on none */
	const struct streams *streams;
	bool registered;             /* what is on a GPU, with the communicator */
	bool pinned;                 /* what is on the host is page-locked by the driver */
};

/* Makes it on the host, then as it says: true if both agree, byte for byte, and nothing else has changed. */
bool call_matches_host(struct rank *rank, const struct call_row *row, const struct program *program);

#endif
