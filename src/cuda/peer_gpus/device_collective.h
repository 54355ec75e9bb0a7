/* Calls that each rank's GPU does a part of, in a kernel of its own (cuda/peer_gpus/device_comm.h): blocking, as
 * requests, and on streams, where a call is one launch.
 *
 * Buffers that the GPU does not reach (the host's, another GPU's) are copied to page-locked memory and from there,
 * which kernels do reach: so it is no rank's to decide which way a call goes. */
#ifndef COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_H
#define COLLET_CUDA_PEER_GPUS_DEVICE_COLLECTIVE_H

#include "cuda/path_rules.h"
#include "cuda/staging/gpu_staging.h"

/* Finds out whether the ranks' GPUs reach each other, if each rank has one, or whether kernels of those that share one
 * run at the same time; blocks for as long. COLLET_ERR_*: the group
 * has ended, or is to. */
collet_status collet_comm_make_device_collectives(collet_comm *comm);
/* A checked call. *handled false: it goes another way, on all ranks alike; nothing has happened. */
collet_status collet_device_collectives_call(collet_comm *comm, const struct collet_call_arguments *call,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const collet_how *how, bool *handled);
/* Is a call of something, with a built-in operation and of no v-form, done here, and not by a leader? */
bool collet_device_collectives_fit(const collet_comm *comm, enum collet_collective collective,
	const struct collet_shape *shape, collet_dtype dtype);
/* By what those are chosen. Only where there are any. */
struct collet_choice_basis collet_device_collectives_choices(const collet_comm *comm);
/* Of calls that have no number among the communicator's; NULL: all have. */
const struct collet_recorder *collet_device_collectives_recorder(const collet_comm *comm);
/* A kernel that waited too long ends the communicator, once somebody looks. Any thread. */
void collet_device_collectives_check_errors(const collet_comm *comm);
/* Destroying a communicator: under the engine's lock, whatever waits is let go of. */
void collet_device_collectives_abort(collet_comm *comm);
/* Then, without it, and when the group has been torn down. false: after 10 s, or since the driver has refused to have
 * them tell, or a fault has broken it, streams may still use the communicator's memory and context, which are not
 * freed. */
bool collet_device_collectives_destroy(collet_comm *comm);
/* In a forked child. */
void collet_device_collectives_forget(collet_comm *comm);

#endif
