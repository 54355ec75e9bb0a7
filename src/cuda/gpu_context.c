/* Creates and frees the GPU state of contexts and communicators. */
#include "cuda/gpu_context.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/config.h"
#include "core/status.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/staging/staging_gpudirect.h"
#include "cuda/stream/stream_call.h"

/* ---- A context's part ---- */

/* The driver is opened wherever there is one, and asked for nothing before the first call. */
collet_status collet_gpu_context_open(struct collet_context *context)
{
	bool direct = true, is_leader_only = false;
	collet_status status = collet_env_bool("COLLET_CUDA_DIRECT", &direct);
	if (status == COLLET_OK)
		status = collet_env_bool("COLLET_CUDA_LEADER", &is_leader_only);
	if (status != COLLET_OK)
		return status;
	const struct collet_log *log = &context->engine.log;
	struct collet_gpu_context *gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a context");
	status = collet_cuda_open(&gpu->cuda, log);
	if (status != COLLET_OK || !gpu->cuda.module) {
		snprintf(context->no_gpu_reason, sizeof(context->no_gpu_reason), "%s", gpu->cuda.unavailable_reason);
		free(gpu);
		return status;
	}
	collet_copy_streams_init(&gpu->copy_streams, &gpu->cuda);
	collet_pinned_init(&gpu->pinned, &gpu->cuda, &context->arena, log);
	collet_device_init(&gpu->device, &gpu->cuda, &gpu->copy_streams, direct, &context->peer_info, log);
	gpu->device.is_leader_only = is_leader_only;
	context->gpu = gpu;
	return COLLET_OK;
}

bool collet_gpu_context_close(struct collet_context *context, bool is_forked)
{
	struct collet_gpu_context *gpu = context->gpu;
	if (!is_forked) {
		if (gpu->device.is_leaked || !collet_pinned_deinit(&gpu->pinned))
			return false;
		collet_device_deinit(&gpu->device);
		collet_copy_streams_deinit(&gpu->copy_streams);
		collet_cuda_close(&gpu->cuda);
	}
	free(gpu);
	context->gpu = NULL;
	return true;
}

/* ---- A communicator's part ---- */

collet_status collet_gpu_comm_open(collet_comm *comm)
{
	if (!comm->context->gpu)
		return COLLET_OK;
	comm->gpu = calloc(1, sizeof(*comm->gpu));
	if (!comm->gpu)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a communicator");
	comm->gpu->has_gpudirect = collet_gpudirect_reaches_all(&comm->state);
	const collet_status status = collet_comm_make_shared_gpu(comm);
	return status == COLLET_OK ? collet_comm_make_device_collectives(comm) : status;
}

void collet_gpu_comm_abort(collet_comm *comm)
{
	collet_streams_close(comm);
	collet_device_collectives_abort(comm);
}

bool collet_gpu_comm_close(collet_comm *comm)
{
	const bool streams_freed = collet_streams_free(comm);
	const bool collectives_freed = collet_device_collectives_destroy(comm);
	collet_shared_gpu_destroy(comm->gpu->shared_gpu, !streams_freed);
	free(comm->gpu);
	comm->gpu = NULL;
	return streams_freed && collectives_freed;
}

void collet_gpu_comm_atfork_child(collet_comm *comm)
{
	collet_shared_gpu_atfork_child(comm->gpu->shared_gpu);
	collet_device_collectives_atfork_child(comm);
	free(comm->gpu);
	comm->gpu = NULL;
}
