/* Starts calls whose buffers may be in GPU memory. Uses the steps of api/call.h, and adds what GPUs need between them.
 */
#ifndef COLLET_CUDA_GPU_CALL_H
#define COLLET_CUDA_GPU_CALL_H

#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/staging/gpu_staging.h"

/* ---- Collectives */

/* Runs a collective to its end, or starts it if how does not block. how may be NULL. At most one of gpu_buffers and
 * staging is set. gpu_buffers: the leader gets a descriptor of the call first (cuda/shared_gpu/shared_gpu.h). staging:
 * this function owns it from here on, even if the call fails. */
collet_status collet_gpu_call_run(collet_comm *comm, const struct collet_call_arguments *call,
	const struct collet_call_buffers *gpu_buffers, struct collet_gpu_staging *staging, const collet_how *how);
/* Checks and plans a call that is started later, perhaps repeatedly. The caller releases the request. staging is that
 * of its buffers, or NULL; it stays the caller's. Takes the engine's lock. */
collet_status collet_gpu_call_prepare(collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_gpu_staging *staging, const collet_how *how, struct collet_request **request);
/* Starts a prepared request that has not been started, or has ended. If gpu_buffers is set, the leader gets a
 * descriptor of the call first. pipeline is that of its staging. Each may be NULL. Under lock. */
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
/* Makes ops use the host memory that stages their buffers. Does nothing if staging is NULL. */
void collet_p2p_ops_use_staging(struct collet_p2p_op *ops, uint32_t count,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_gpu_staging *staging);
/* Enqueues checked messages on how->stream. If that is NULL, waits until earlier calls on streams have started, and
 * begins staging for buffers in GPU memory. ops then use the staging, which must be handed to their request. *staging
 * is NULL if nothing is staged. */
collet_status collet_gpu_p2p(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
	collet_dtype dtype, const collet_how *how, struct collet_gpu_staging **staging);

#endif
