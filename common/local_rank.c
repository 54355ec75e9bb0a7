#include "local_rank.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static bool launcher_says(uint32_t *local_rank)
{
	static const char *const names[] = { "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
		"SLURM_LOCALID" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);
		if (text && *text) {
			*local_rank = (uint32_t)strtoul(text, NULL, 10);
			return true;
		}
	}
	return false;
}

collet_status local_rank_find(const collet_options *comm_options, uint32_t *local_rank)
{
	collet_comm *comm;
	if (comm_options->explicit_rank) {
		*local_rank = comm_options->local_rank;
		return COLLET_OK;
	}
	if (launcher_says(local_rank))
		return COLLET_OK;
	const collet_status status = collet_comm_create(&comm, comm_options);
	if (status != COLLET_OK)
		return status;
	*local_rank = collet_comm_local_rank(comm);
	return collet_comm_destroy(&comm);
}
