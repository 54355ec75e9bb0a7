/* Implements the collectives by non-blocking MPI calls. An MPI that spins while it waits (MPICH) delays the ranks
 * that share its core. Its user can avoid that by testing and yielding. */
#include <sched.h>

#include "mpi_calls.h"

static int finish(struct mpi_peer *peer, int error, MPI_Request *request)
{
	int done = 0;
	while (error == MPI_SUCCESS && !done) {
		error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (!done)
			sched_yield();
	}
	return mpi_result(peer, error);
}

static int run_allreduce(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	MPI_Request request;
	return finish(peer, MPI_Iallreduce(mpi_input(call, call->in_place), call->recv, (int)call->count,
		mpi_datatype(call->dtype), mpi_operation(call->op), peer->comm, &request), &request);
}

static int run_reduce(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const bool root = mpi_is_root(peer, call);
	MPI_Request request;
	return finish(peer, MPI_Ireduce(mpi_input(call, call->in_place && root), root ? call->recv : NULL,
		(int)call->count, mpi_datatype(call->dtype), mpi_operation(call->op), (int)call->root, peer->comm,
		&request), &request);
}

static int run_broadcast(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	mpi_before_broadcast(peer, call);
	MPI_Request request;
	return finish(peer, MPI_Ibcast(call->recv, (int)call->count, mpi_datatype(call->dtype), (int)call->root,
		peer->comm, &request), &request);
}

static int run_barrier(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	(void)call;
	MPI_Request request;
	return finish(peer, MPI_Ibarrier(peer->comm, &request), &request);
}

static int run_allgather(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	MPI_Request request;
	return finish(peer, MPI_Iallgather(mpi_input(call, call->in_place), (int)call->count, type, call->recv,
		(int)call->count, type, peer->comm, &request), &request);
}

static int run_reduce_scatter(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	MPI_Request request;
	return finish(peer, MPI_Ireduce_scatter_block(mpi_input(call, call->in_place), call->recv, (int)call->count,
		mpi_datatype(call->dtype), mpi_operation(call->op), peer->comm, &request), &request);
}

static int run_gather(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	MPI_Request request;
	return finish(peer, MPI_Igather(mpi_input(call, call->in_place && mpi_is_root(peer, call)), (int)call->count,
		type, call->recv, (int)call->count, type, (int)call->root, peer->comm, &request), &request);
}

static int run_scatter(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	const bool in_place = call->in_place && mpi_is_root(peer, call);
	MPI_Request request;
	return finish(peer, MPI_Iscatter(call->send, (int)call->count, type, in_place ? MPI_IN_PLACE : call->recv,
		(int)call->count, type, (int)call->root, peer->comm, &request), &request);
}

static int run_alltoall(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	MPI_Request request;
	return finish(peer, MPI_Ialltoall(mpi_input(call, call->in_place), (int)call->count, type, call->recv,
		(int)call->count, type, peer->comm, &request), &request);
}

static int run_sendrecv(void *context, const struct bench_call *call)
{
	struct mpi_peer *peer = context;
	const MPI_Datatype type = mpi_datatype(call->dtype);
	MPI_Request requests[2];
	if (mpi_result(peer, MPI_Irecv(call->recv, (int)call->count, type,
		(peer->rank + peer->size - 1) % peer->size, 0, peer->comm, &requests[0])))
		return 1;
	const int sent = MPI_Isend(call->send, (int)call->count, type, (peer->rank + 1) % peer->size, 0, peer->comm,
		&requests[1]);
	return finish(peer, sent, &requests[1]) || finish(peer, MPI_SUCCESS, &requests[0]);
}

mpi_run *const mpi_yielding_calls[BENCH_COLLECTIVES] = {
	[BENCH_ALLREDUCE] = run_allreduce, [BENCH_REDUCE] = run_reduce, [BENCH_BROADCAST] = run_broadcast,
	[BENCH_BARRIER] = run_barrier, [BENCH_ALLGATHER] = run_allgather, [BENCH_REDUCE_SCATTER] = run_reduce_scatter,
	[BENCH_GATHER] = run_gather, [BENCH_SCATTER] = run_scatter, [BENCH_ALLTOALL] = run_alltoall,
	[BENCH_SENDRECV] = run_sendrecv,
};
