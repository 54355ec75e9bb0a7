/* Which way a call goes whose buffers are a GPU's: what the ways are, from which sizes on they are taken, and what a
 * communicator says of it (collet_comm_plan()). */
#ifndef COLLET_CUDA_PATH_RULES_H
#define COLLET_CUDA_PATH_RULES_H

#include "api/call.h"

enum {
	/* A call from which on each host's ranks, which have GPUs, go together. What is inside hosts the GPU does then,
	 * of which the table, being about the host's memory, knows nothing; of small messages it is right all the same,
	 * as their copies are what takes long. Not what the model says, which knows nothing of what offers and verdicts
	 * take, and never measured on a GPU. */
	COLLET_GPU_HIERARCHICAL_MIN = 64 << 10
};

/* Where kernels of the ranks' own execute a call, its algorithm is chosen by what these take, else by what the host's
 * cores do. */
struct collet_choice_basis collet_path_choice_basis(
	const collet_comm *comm, const struct collet_path_query *call, bool is_vector);
/* Where hosts' ranks have GPUs: may leaders go between hosts for all, by this program? Alike on all ranks. */
bool collet_path_uses_leaders(const struct collet_path_query *call);
/* May a large call leave registered buffers where they are, for transports to reach? */
bool collet_path_is_gpudirect(const collet_comm *comm, collet_op op);
/* The way, and the name of the algorithm whose order of operands it has. NULL: there is no driver, or a call of this
 * kind has no buffers, or none of a GPU's. */
const char *collet_path_name(const collet_comm *comm, const struct collet_path_query *call, const char **algorithm);

#endif
