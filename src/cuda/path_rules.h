/* Which path a call on GPU memory takes: from which sizes on, by which algorithm, and what collet_comm_plan() says of
 * it. */
#ifndef COLLET_CUDA_PATH_RULES_H
#define COLLET_CUDA_PATH_RULES_H

#include "api/call.h"

enum {
	/* The bytes from which on the leader of each host goes between hosts for the host's ranks. The GPU does the
	 * part inside the host then, which the table of choices does not know: it is about host memory. Below this size
	 * the table is right all the same, since the copies take longest. The model does not know what asking the
	 * leader costs, so this is a guess, and never measured on a GPU. */
	COLLET_GPU_HIERARCHICAL_MIN = 64 << 10
};

/* Where kernels of the ranks' own execute a call, its algorithm is chosen by what these take, else by what the host's
 * cores do. */
struct collet_choice_basis collet_path_choice_basis(
	const collet_comm *comm, const struct collet_path_query *call, bool is_vector);
/* True if this program lets leaders go between hosts for all ranks that have GPUs. Alike on all ranks. */
bool collet_path_uses_leaders(const struct collet_path_query *call);
/* True if transports may reach the registered buffers of a large call on the GPU, so that nothing is staged. */
bool collet_path_is_gpudirect(const collet_comm *comm, collet_op op);
/* Returns the name of the call's path, and in *algorithm the one whose order of operands it has. Returns NULL if a call
 * of this kind has no buffers, or none of a GPU's. */
const char *collet_path_name(const collet_comm *comm, const struct collet_path_query *call, const char **algorithm);

#endif
