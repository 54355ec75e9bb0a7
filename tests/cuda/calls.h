/* Makes calls with buffers on the GPU, on the host, or one on each, and the same calls on the host. */
#ifndef TESTS_CUDA_CALLS_H
#define TESTS_CUDA_CALLS_H

#include "program.h"
#include "ranks.h"
#include "streams.h"

enum call_kind {
	ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, ALLGATHERV, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL, EXCHANGE,
	CALL_KINDS
};

/* How a call is made. */
struct call_row {
	enum call_kind kind;
	uint64_t count;
	bool send_on_gpu, recv_on_gpu, in_place, request;
	cu_stream stream;            /* NULL if on no stream */
	const struct streams *streams;
	bool registered;             /* GPU buffers are registered with the communicator */
	bool pinned;                 /* host buffers are page-locked by the driver */
};

/* Makes the call on the host, and then as the row says. Returns true if both results agree byte for byte, and nothing
 * else has changed. */
bool call_matches_host(struct rank *rank, const struct call_row *row, const struct program *program);

#endif
