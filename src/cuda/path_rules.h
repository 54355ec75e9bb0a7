/* Rules for the path of a call on GPU memory: from which sizes on, and by which algorithm. Says what collet_comm_plan()
 * reports of it. */
#ifndef COLLET_CUDA_PATH_RULES_H
#define COLLET_CUDA_PATH_RULES_H

#include "api/call.h"

enum {
	/* From this many bytes on, the leader of each host exchanges data with other hosts for all ranks of its host.
	 * Its GPU does the part inside the host. The table of choices knows nothing of that, as it is about host
	 * memory. Below this size copies take longest, so the table holds. The model has no cost for asking the leader.
	 * So this size is an estimate, and no GPU has measured it. */
	COLLET_GPU_HIERARCHICAL_MIN = 64 << 10
};

/* Returns the inputs of the choice of an algorithm: the cost of kernels if ranks launch their own, else the cost on
 * cores. */
struct collet_choice_basis collet_path_choice_basis(
	collet_comm *comm, const struct collet_path_query *call, bool is_vector);
/* True if, by this program, leaders exchange data between hosts for all ranks that have GPUs. Alike on all ranks. */
bool collet_path_uses_leaders(const struct collet_path_query *call);
/* True if transports may access the registered GPU buffers of a large call, so that nothing is staged. */
bool collet_path_is_gpudirect(const collet_comm *comm, collet_op op);
/* Returns the name of the path, and in *algorithm the one whose order of operands it has. Returns NULL if a call of
 * this kind has no buffers, or none that may be in GPU memory. */
const char *collet_path_name(const collet_comm *comm, const struct collet_path_query *call, const char **algorithm);

#endif
