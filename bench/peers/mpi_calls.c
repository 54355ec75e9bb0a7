/* The blocking calls, and what both kinds share. */
#include "mpi_calls.h"

#include <string.h>

MPI_Datatype mpi_datatype(collet_dtype dtype)
{
	switch (dtype) {
	case COLLET_I8: return MPI_INT8_T;
	case COLLET_U8: return MPI_UINT8_T;
	case COLLET_I16: return MPI_INT16_T;
	case COLLET_U16: return MPI_UINT16_T;
	case COLLET_I32: return MPI_INT32_T;
	case COLLET_U32: return MPI_UINT32_T;
	case COLLET_I64: return MPI_INT64_T;
	case COLLET_U64: return MPI_UINT64_T;
	case COLLET_F32: return MPI_FLOAT;
	case COLLET_F64: return MPI_DOUBLE;
	default: return MPI_DATATYPE_NULL;   /* MPI has no 16 and 8 bit floats */
	}
}

MPI_Op mpi_operation(collet_op op)
{
	switch (op) {
	case COLLET_SUM: return MPI_SUM;
	case COLLET_PRODUCT: return MPI_PROD;
	case COLLET_MIN: return MPI_MIN;
	case COLLET_MAX: return MPI_MAX;
	case COLLET_AND: return MPI_BAND;
	case COLLET_OR: return MPI_BOR;
	case COLLET_XOR: return MPI_BXOR;
	default: return MPI_OP_NULL;
	}
}

void mpi_before_broadcast(const struct mpi_peer *peer, const struct bench_call *call)
{
	if (mpi_is_root(peer, call) && !call->in_place)
		memcpy(call->recv, call->send, call->count * collet_dtype_bytes(call->dtype));
}

static int run_allreduce(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	return mpi_result(peer, MPI_Allreduce(mpi_input(call, call->in_place), call->recv, (int)call->count,
		mpi_datatype(call->dtype), mpi_operation(call->op), peer->comm));
}

/* MPICH looks at the receive buffer of ranks that have none, and refuses one that is the send buffer too. */
static int run_reduce(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const bool root = mpi_is_root(peer, call);
	return mpi_result(peer, MPI_Reduce(mpi_input(call, call->in_place && root), root ? call->recv : NULL,
		(int)call->count, mpi_datatype(call->dtype), mpi_operation(call->op), (int)call->root, peer->comm));
}

static int run_broadcast(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	mpi_before_broadcast(peer, call);
	return mpi_result(peer, MPI_Bcast(call->recv, (int)call->count, mpi_datatype(call->dtype), (int)call->root,
		peer->comm));
}

static int run_barrier(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	(void)call;
	return mpi_result(peer, MPI_Barrier(peer->comm));
}

static int run_allgather(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	return mpi_result(peer, MPI_Allgather(mpi_input(call, call->in_place), (int)call->count, type, call->recv,
		(int)call->count, type, peer->comm));
}

/* In place MPI leaves the result at the buffer's start, so the driver looks for it there. */
static int run_reduce_scatter(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	return mpi_result(peer, MPI_Reduce_scatter_block(mpi_input(call, call->in_place), call->recv, (int)call->count,
		mpi_datatype(call->dtype), mpi_operation(call->op), peer->comm));
}

static int run_gather(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	return mpi_result(peer, MPI_Gather(mpi_input(call, call->in_place && mpi_is_root(peer, call)), (int)call->count,
		type, call->recv, (int)call->count, type, (int)call->root, peer->comm));
}

static int run_scatter(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	const bool in_place = call->in_place && mpi_is_root(peer, call);
	return mpi_result(peer, MPI_Scatter(call->send, (int)call->count, type, in_place ? MPI_IN_PLACE : call->recv,
		(int)call->count, type, (int)call->root, peer->comm));
}

static int run_alltoall(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	return mpi_result(peer, MPI_Alltoall(mpi_input(call, call->in_place), (int)call->count, type, call->recv,
		(int)call->count, type, peer->comm));
}

static int run_sendrecv(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	return mpi_result(peer, MPI_Sendrecv(call->send, (int)call->count, type, (peer->rank + 1) % peer->size, 0,
		call->recv, (int)call->count, type, (peer->rank + peer->size - 1) % peer->size, 0, peer->comm,
		MPI_STATUS_IGNORE));
}

mpi_run *const mpi_blocking_calls[BENCH_COLLECTIVES] = {
	[BENCH_ALLREDUCE] = run_allreduce, [BENCH_REDUCE] = run_reduce, [BENCH_BROADCAST] = run_broadcast,
	[BENCH_BARRIER] = run_barrier, [BENCH_ALLGATHER] = run_allgather, [BENCH_REDUCE_SCATTER] = run_reduce_scatter,
	[BENCH_GATHER] = run_gather, [BENCH_SCATTER] = run_scatter, [BENCH_ALLTOALL] = run_alltoall,
	[BENCH_SENDRECV] = run_sendrecv,
};
