/* Starting calls whose buffers may be a GPU's: from the steps in api/call.h, with what GPUs need between them. */
#ifndef COLLET_CUDA_GPU_CALL_H
#define COLLET_CUDA_GPU_CALL_H

#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/staging/gpu_staging.h"

/* ---- Collectives */

/* Runs a collective to its end, or starts it if how->request is set. how may be NULL. Either gpu_buffers is set, and
 * the call is described to the leader first (cuda/shared_gpu/shared_gpu.h); or staging, which is taken over however the
 * call ends. The other is NULL. */
collet_status collet_gpu_call_run(collet_comm *comm, const struct collet_call_arguments *call,
	const struct collet_call_buffers *gpu_buffers, struct collet_gpu_staging *staging, const collet_how *how);
/* Checks and plans a call that is started later, perhaps repeatedly. The caller releases the request. staging is that
 * of its buffers, or NULL; it stays the caller's. Takes the engine's lock. */
collet_status collet_gpu_call_prepare(collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_gpu_staging *staging, const collet_how *how, struct collet_request **request);
/* Starts a prepared request that has not been started, or has ended. gpu_buffers is set if the call is described to the
 * leader first; pipeline is that of its staging. Each may be NULL. Under lock. */
void collet_gpu_call_start_prepared(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_pipeline *pipeline);
/* Starts a prepared request that a kernel executes and tasks skip; whoever launches the kernel ends it. The request is
 * the communicator's next call. If out_of_band is set, it has this number there instead. Under lock. */
void collet_gpu_call_start_offloaded(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *out_of_band, uint64_t sequence);

/* ---- Messages */

/* Returns the kind of staging that these messages need. */
enum collet_gpu_staging_kind collet_p2p_ops_staging_kind(
	const collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count);
/* Replaces the buffers of ops by those of their staging. Does nothing if staging is NULL. */
void collet_p2p_ops_use_staging(struct collet_p2p_op *ops, uint32_t count,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_gpu_staging *staging);
/* Enqueues checked messages on how->stream. Or, if that is NULL, waits until earlier calls on streams have started and
 * begins staging for buffers that are a GPU's: ops use it then, and their request takes it over. *staging is NULL if
 * nothing is staged. */
collet_status collet_gpu_p2p(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
	collet_dtype dtype, const collet_how *how, struct collet_gpu_staging **staging);

#endif
