/* The driver of an MPI, built once for each one found. What it does for collet-bench is in common/driver.h, how MPI
 * spells the calls in mpi_calls.h. With COLLET_BENCH_MPI_YIELD set they are the non-blocking ones. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>

#include "driver.h"
#include "mpi_calls.h"
#include "pin.h"

static bool supports(void *context, const struct bench_work *work, uint64_t count)
{
	const struct mpi_peer *peer = context;
	if (count > (uint64_t)(INT_MAX / peer->size) || mpi_datatype((collet_dtype)work->dtype) == MPI_DATATYPE_NULL)
		return false;
	return !bench_collective_combines((enum bench_collective)work->collective)
		|| mpi_operation((collet_op)work->op) != MPI_OP_NULL;
}

static const char *error_text(void *context)
{
	struct mpi_peer *peer = context;
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
	const bool differs = work->in_place && work->collective == BENCH_SENDRECV;
	return !differs && !crashes(work) && supports(context, work, count);
}

static int allocate(void *context, void **memory, size_t bytes)
{
	return mpi_result(context, MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, memory));
}

static void release(void *context, void *memory)
{
	(void)mpi_result(context, MPI_Free_mem(memory));
}

/* Bound before MPI_Init, so that its threads and memory are too. */
static void pin(void)
{
	static const char *const ranks[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK", NULL };
	static const char *const sizes[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_SIZE", NULL };
	const uint32_t size = bench_env_u32(sizes, 0);
	if (size > 0)
		bench_pin(bench_env_u32(ranks, 0), size, getenv(BENCH_PIN_SHARED_VARIABLE) != NULL);
}

int main(int argc, char **argv)
{
	struct mpi_peer peer = { .comm = MPI_COMM_WORLD };
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
	const struct bench_allocator allocator = { .allocate = allocate, .release = release, .context = &peer };
	struct bench_driver driver = {
		.library = {
			.context = &peer, .rank = (uint32_t)peer.rank, .size = (uint32_t)peer.size,
			.supports = supports_in_place, .error = error_text,
			.allocator = &allocator, .one_host = true, .in_place_at_start = true,
		},
		.version = version,
	};
	memcpy(driver.library.run, getenv("COLLET_BENCH_MPI_YIELD") != NULL ? mpi_yielding_calls : mpi_blocking_calls,
		sizeof(driver.library.run));
	if (bench_driver_serve(&driver) != 0)
		_exit(1);   /* finalising would wait for ranks that may be stuck in a call */
	MPI_Finalize();
	return 0;
}
