/* Implements the collectives by MPI: by blocking calls, or by non-blocking ones that are tested until they complete.
 * The core is yielded between two tests. */
#ifndef BENCH_PEERS_MPI_CALLS_H
#define BENCH_PEERS_MPI_CALLS_H

#include <mpi.h>

#include "loop.h"

struct mpi_peer {
	MPI_Comm comm;
	int rank, size;
	int error;
	char text[MPI_MAX_ERROR_STRING];
};

MPI_Datatype mpi_datatype(collet_dtype dtype);   /* MPI_DATATYPE_NULL: it has none */
MPI_Op mpi_operation(collet_op op);              /* MPI_OP_NULL */

typedef int mpi_run(void *context, const struct bench_call *call);
extern mpi_run *const mpi_blocking_calls[BENCH_COLLECTIVES], *const mpi_yielding_calls[BENCH_COLLECTIVES];

/* Converts the result of an MPI call to that of bench_library's functions. */
static inline int mpi_result(struct mpi_peer *peer, int error)
{
	peer->error = error;
	return error != MPI_SUCCESS;
}

static inline const void *mpi_input(const struct bench_call *call, bool in_place)
{
	return in_place ? MPI_IN_PLACE : call->send;
}

static inline bool mpi_is_root(const struct mpi_peer *peer, const struct bench_call *call)
{
	return (uint32_t)peer->rank == call->root;
}

/* MPI's broadcast is always in place; out of place the root has its own copy to make, as with collet. */
void mpi_before_broadcast(const struct mpi_peer *peer, const struct bench_call *call);

#endif
