/* Names the measured collectives, and converts between message bytes, counts and bandwidths.
 *
 * collet-bench and the peers' drivers share it, C++ ones too. Bytes are counted as nccl-tests does: allgather and
 * gather by the result; reduce_scatter, alltoall and scatter by one rank's whole input; all others by one buffer. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <collet/collet.h>

enum bench_collective {
	BENCH_ALLREDUCE,
	BENCH_REDUCE,
	BENCH_BROADCAST,
	BENCH_BARRIER,
	BENCH_ALLGATHER,
	BENCH_REDUCE_SCATTER,
	BENCH_GATHER,
	BENCH_SCATTER,
	BENCH_ALLTOALL,
	BENCH_SENDRECV,      /* every rank sends to the next one and receives from the one before */
	BENCH_COLLECTIVES
};

/* "allreduce", ...; NULL for no such thing. */
const char *bench_collective_name(enum bench_collective collective);
/* BENCH_COLLECTIVES: no such name. */
enum bench_collective bench_collective_find(const char *name);
bool bench_collective_combines(enum bench_collective collective);
bool bench_collective_has_root(enum bench_collective collective);
bool bench_collective_takes_bytes(enum bench_collective collective);

/* COLLET_DTYPE_COUNT, COLLET_OP_COUNT: no such name. */
collet_dtype bench_dtype_find(const char *name);
collet_op bench_op_find(const char *name);
bool bench_dtype_is_integer(collet_dtype dtype);
bool bench_dtype_is_float(collet_dtype dtype);
/* Does op exist for dtype? The library's own rule, as its header states it. */
bool bench_op_fits(collet_op op, collet_dtype dtype);

/* One kind of call, the same on every rank. Fixed-width members only: it also travels to drivers. */
struct bench_work {
	uint32_t collective;  /* enum bench_collective */
	uint32_t dtype;       /* collet_dtype */
	uint32_t op;          /* collet_op */
	uint32_t root;
	uint32_t in_place;
	uint32_t reserved;
};

/* Returns the API's count for a message of at most so many bytes, rounded down to a multiple. It is at least one
 * element for each rank, since a call that moves nothing says nothing about small messages. */
uint64_t bench_count(const struct bench_work *work, uint32_t ranks, uint64_t bytes);
/* The message's bytes with that count. */
uint64_t bench_bytes(const struct bench_work *work, uint32_t ranks, uint64_t count);
/* Elements in this rank's send and receive buffers; a buffer that is not used has none. */
uint64_t bench_send_count(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count);
uint64_t bench_recv_count(const struct bench_work *work, uint32_t rank, uint32_t ranks, uint64_t count);
/* Returns the offset, in elements, of the send or receive buffer within the one buffer of an in-place call. */
uint64_t bench_in_place_send_offset(const struct bench_work *work, uint32_t rank, uint64_t count);
uint64_t bench_in_place_recv_offset(const struct bench_work *work, uint32_t rank, uint64_t count);

/* busbw / algbw: what part of the bytes has to cross a rank's link. */
double bench_bus_factor(enum bench_collective collective, uint32_t ranks);
/* bytes / time in GB/s (10^9); 0 when either is. */
double bench_gbs(uint64_t bytes, double ns);

#endif
