/* Runs collectives of which each rank executes its part in a kernel of its own (cuda/peer_gpus/device_comm.h):
 * blocking, as requests, and on streams, where a call is one launch.
 *
 * Buffers that the GPU cannot access (in host memory, on another GPU) are copied through page-locked memory, which
 * kernels can access. So the place of a buffer does not change the path of any rank. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_H

#include "cuda/path_rules.h"
#include "cuda/staging/gpu_staging.h"

/* Tests whether the ranks' GPUs reach each other, if each rank has one, or whether kernels of ranks that share one run
 * at the same time; blocks. COLLET_ERR_*: the communicator has ended, or must be ended. */
collet_status collet_comm_make_device_collectives(collet_comm *comm);
/* Runs a checked call. *handled is false if it takes another path, on all ranks alike; nothing has happened then. */
collet_status collet_device_collectives_call(collet_comm *comm, const struct collet_call_arguments *call,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const collet_how *how, bool *claimed);
/* True if kernels of the ranks execute this call, and no leader does. Only for built-in operations, and not for
 * v-forms. */
bool collet_device_collectives_fit(const collet_comm *comm, enum collet_collective collective,
	const struct collet_shape *shape, collet_dtype dtype);
/* Returns the inputs of the choice of an algorithm for such calls. Only if device_collectives is set. */
struct collet_choice_basis collet_device_collectives_choices(collet_comm *comm);
/* Returns the recorder of calls that are numbered out of band; NULL if none are. */
const struct collet_recorder *collet_device_collectives_recorder(const collet_comm *comm);
/* Ends the communicator if a kernel has waited too long or found a mismatch. Any thread. */
void collet_device_collectives_check_errors(const collet_comm *comm);
/* Destroying a communicator: releases kernels that wait. Under the engine's lock. */
void collet_device_collectives_abort(collet_comm *comm);
/* Then, not under lock, when the communicator's state has been torn down: frees it. Returns false if streams may still
 * use the communicator's memory and context, which are not freed: after 10 s, if the driver has refused a call in the
 * middle, or if a fault has broken the context. */
bool collet_device_collectives_destroy(collet_comm *comm);
/* Frees what there is of it in a forked child. */
void collet_device_collectives_atfork_child(collet_comm *comm);

#endif
