/* The driver of an MPI, built once for each one found. What it does for collet-bench is in common/driver.h; here is
 * only how MPI spells the calls. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "driver.h"
#include "pin.h"

struct peer {
	MPI_Comm comm;
	int rank, size;
	int error;
	char text[MPI_MAX_ERROR_STRING];
};

static MPI_Datatype datatype(collet_dtype dtype)
{
	switch (dtype) {
	case COLLET_I8: return MPI_INT8_T;
	case COLLET_U8: return MPI_UINT8_T;
	case COLLET_I32: return MPI_INT32_T;
	case COLLET_U32: return MPI_UINT32_T;
	case COLLET_I64: return MPI_INT64_T;
	case COLLET_U64: return MPI_UINT64_T;
	case COLLET_F32: return MPI_FLOAT;
	case COLLET_F64: return MPI_DOUBLE;
	default: return MPI_DATATYPE_NULL;   /* MPI has no 16 and 8 bit floats */
	}
}

static MPI_Op operation(collet_op op)
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

static bool supports(void *context, const struct bench_work *work, uint64_t count)
{
	const struct peer *peer = context;
	if (count > (uint64_t)(INT_MAX / peer->size) || datatype((collet_dtype)work->dtype) == MPI_DATATYPE_NULL)
		return false;
	return !bench_collective_combines((enum bench_collective)work->collective)
		|| operation((collet_op)work->op) != MPI_OP_NULL;
}

static int result(struct peer *peer, int error)
{
	peer->error = error;
	return error != MPI_SUCCESS;
}

static const void *input(const struct bench_call *call, bool in_place)
{
	return in_place ? MPI_IN_PLACE : call->send;
}

static int run_allreduce(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	return result(peer,
		MPI_Allreduce(input(call, call->in_place), call->recv, (int)call->count, datatype(call->dtype),
			operation(call->op), peer->comm));
}

static int run_reduce(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const bool root = (uint32_t)peer->rank == call->root;
	/* MPICH looks at the receive buffer of ranks that have none, and refuses one that is the send buffer too. */
	return result(peer,
		MPI_Reduce(input(call, call->in_place && root), root ? call->recv : NULL, (int)call->count,
			datatype(call->dtype), operation(call->op), (int)call->root, peer->comm));
}

/* MPI's broadcast is always in place; out of place the root has its own copy to make, as with collet. */
static int run_broadcast(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const bool root = (uint32_t)peer->rank == call->root;
	if (root && !call->in_place)
		memcpy(call->recv, call->send, call->count * collet_dtype_bytes(call->dtype));
	return result(
		peer, MPI_Bcast(call->recv, (int)call->count, datatype(call->dtype), (int)call->root, peer->comm));
}

static int run_barrier(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	(void)call;
	return result(peer, MPI_Barrier(peer->comm));
}

static int run_allgather(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const MPI_Datatype type = datatype(call->dtype);
	return result(peer,
		MPI_Allgather(input(call, call->in_place), (int)call->count, type, call->recv, (int)call->count, type,
			peer->comm));
}

/* In place MPI leaves the result at the start of the one buffer, collet at the rank's own block: not the same call. */
static int run_reduce_scatter(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	return result(peer, MPI_Reduce_scatter_block(call->send, call->recv, (int)call->count, datatype(call->dtype),
		operation(call->op), peer->comm));
}

static int run_gather(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const MPI_Datatype type = datatype(call->dtype);
	const bool in_place = call->in_place && (uint32_t)peer->rank == call->root;
	return result(peer,
		MPI_Gather(input(call, in_place), (int)call->count, type, call->recv, (int)call->count, type,
			(int)call->root, peer->comm));
}

static int run_scatter(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const MPI_Datatype type = datatype(call->dtype);
	const bool in_place = call->in_place && (uint32_t)peer->rank == call->root;
	return result(peer, MPI_Scatter(call->send, (int)call->count, type, in_place ? MPI_IN_PLACE : call->recv,
		(int)call->count, type, (int)call->root, peer->comm));
}

static int run_alltoall(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const MPI_Datatype type = datatype(call->dtype);
	return result(peer,
		MPI_Alltoall(input(call, call->in_place), (int)call->count, type, call->recv, (int)call->count, type,
			peer->comm));
}

static int run_sendrecv(void *context, const struct bench_call *call)
{
	struct peer *peer = context;
	const MPI_Datatype type = datatype(call->dtype);
	return result(peer,
		MPI_Sendrecv(call->send, (int)call->count, type, (peer->rank + 1) % peer->size, 0, call->recv,
			(int)call->count, type, (peer->rank + peer->size - 1) % peer->size, 0, peer->comm,
			MPI_STATUS_IGNORE));
}

static const char *error_text(void *context)
{
	struct peer *peer = context;
	int length = 0;
	if (MPI_Error_string(peer->error, peer->text, &length) != MPI_SUCCESS)
		return "an MPI error";
	return peer->text;
}

/* MPICH 4.0 dereferences MPI_IN_PLACE when a reduce has another root than 0. */
static bool crashes(const struct bench_work *work)
{
#ifdef MPICH_VERSION
	return work->in_place && work->collective == BENCH_REDUCE && work->root != 0;
#else
	return false;
#endif
}

static bool supports_in_place(void *context, const struct bench_work *work, uint64_t count)
{
	const bool differs =
		work->in_place && (work->collective == BENCH_REDUCE_SCATTER || work->collective == BENCH_SENDRECV);
	return !differs && !crashes(work) && supports(context, work, count);
}

/* Bound before MPI_Init, so that its threads and memory are too. */
static void pin(void)
{
	static const char *const ranks[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK", NULL };
	static const char *const sizes[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_SIZE", NULL };
	const uint32_t size = bench_env_u32(sizes, 0);
	if (size > 0)
		bench_pin(bench_env_u32(ranks, 0), size);
}

int main(int argc, char **argv)
{
	struct peer peer = { .comm = MPI_COMM_WORLD };
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length = 0;
	pin();
	if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return 1;
	MPI_Comm_rank(peer.comm, &peer.rank);
	MPI_Comm_size(peer.comm, &peer.size);
	MPI_Comm_set_errhandler(peer.comm, MPI_ERRORS_RETURN);
	MPI_Get_library_version(version, &length);
	version[strcspn(version, "\n,")] = '\0';
	for (char *tab = version; (tab = strchr(tab, '\t')) != NULL;)
		*tab = ' ';
	const struct bench_driver driver = {
		.library = {
			.context = &peer, .rank = (uint32_t)peer.rank, .size = (uint32_t)peer.size,
			.run = {
				[BENCH_ALLREDUCE] = run_allreduce, [BENCH_REDUCE] = run_reduce, [BENCH_BROADCAST] = run_broadcast,
				[BENCH_BARRIER] = run_barrier, [BENCH_ALLGATHER] = run_allgather,
				[BENCH_REDUCE_SCATTER] = run_reduce_scatter, [BENCH_GATHER] = run_gather, [BENCH_SCATTER] = run_scatter,
				[BENCH_ALLTOALL] = run_alltoall, [BENCH_SENDRECV] = run_sendrecv,
			},
			.supports = supports_in_place, .error = error_text,
		},
		.version = version,
	};
	if (bench_driver_serve(&driver) != 0)
		_exit(1);   /* finalising would wait for ranks that may be stuck in a call */
	MPI_Finalize();
	return 0;
}
