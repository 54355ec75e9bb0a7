#include "cuda/shared_gpu/shared_gpu_comm.h"

#include <stddef.h>
#include <string.h>

#include "cuda/gpu_context.h"
#include "cuda/path_rules.h"
#include "cuda/shared_gpu/gpu_hierarchical.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/pipeline.h"
#include "engine/recorder.h"
#include "engine/request.h"

static struct collet_comm *comm_of(const struct collet_request *request)
{
	return (struct collet_comm *)(void *)((char *)request->state - offsetof(struct collet_comm, state));
}

/* Counts a call that the GPU has executed, for the algorithm whose order of operands it had. */
static void done(struct collet_request *request)
{
	if (comm_of(request)->has_gpu_leaders) {
		collet_comm_count_call(comm_of(request), request);
		return;
	}
	const uint32_t planned = request->call.algorithm;
	const struct collet_program *direct =
		collet_program_find((enum collet_collective)request->call.collective, "direct");
	request->call.algorithm = collet_call_program_index(direct);
	collet_comm_count_call(comm_of(request), request);
	request->call.algorithm = planned;
}

collet_status collet_request_use_staging(struct collet_request *request, const struct collet_call_buffers *given)
{
	struct collet_comm *comm = comm_of(request);
	const struct collet_partition *result = &request->shape.result;
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS];
	const enum collet_gpu_staging_kind kind =
		request->wide.is_used ? COLLET_GPU_STAGING_AVERAGE : COLLET_GPU_STAGING_COLLECTIVE;
	struct collet_gpu_staging *staging;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		buffers[s] = (struct collet_user_buffer){ given->buffer[s].first, given->buffer[s].bytes };
	collet_status status = collet_gpu_staging_begin(
		comm->context, given->function, buffers, kind, &staging);
	if (status == COLLET_OK && staging && request->call.is_vector && result->counts)
		status = collet_gpu_staging_set_blocks(
			staging, request->element_bytes, comm->state.size, result->counts, result->displacements);
	if (status != COLLET_OK)
		return collet_gpu_staging_end(staging, status);
	if (buffers[COLLET_SEND_BUFFER].bytes)
		request->input = buffers[COLLET_SEND_BUFFER].first;
	if (buffers[COLLET_RECV_BUFFER].bytes)
		request->result = (char *)(uintptr_t)buffers[COLLET_RECV_BUFFER].first;
	request->staging = staging;
	return COLLET_OK;
}

static collet_status stage(struct collet_request *request, const struct collet_call_buffers *given)
{
	const collet_status status =
		collet_call_buffers_are_host(given) ? COLLET_OK : collet_request_use_staging(request, given);
	if (status == COLLET_OK && collet_gpu_staging_pipeline(request->staging))
		collet_pipeline_start(collet_gpu_staging_pipeline(request->staging), request);
	if (status == COLLET_OK)
		collet_comm_count_call(comm_of(request), request);
	return status;
}

static void log_shared_gpu(const collet_comm *comm, bool by_host)
{
	const bool one_gpu = collet_shared_gpu_has_one_gpu(comm->gpu->shared_gpu);
	collet_log(&comm->context->engine.log, COLLET_LOG_INFO, "cuda: %u ranks%s %s, %s", comm->local_size,
		by_host ? " of this host" : "", one_gpu ? "share a GPU" : "have GPUs that the first one's reaches",
		by_host ? "and go together to other hosts" : "whose collectives rank 0 does in one go");
}

collet_status collet_comm_make_shared_gpu(collet_comm *comm)
{
	static const struct collet_shared_gpu_events events = { done, stage, collet_gpu_hierarchical_start };
	const enum collet_shared_gpu_scope fit =
		comm->context->gpu->device.cuda ? collet_shared_gpu_scope_of(&comm->state) : COLLET_SHARED_GPU_NONE;
	const bool by_host = fit == COLLET_SHARED_GPU_PER_HOST;
	/* Alike on all ranks. A deterministic choice knows no hosts, so no algorithm may depend on them. */
	comm->has_gpu_leaders = by_host && !comm->context->deterministic;
	comm->gpu->ranks_per_gpu = fit == COLLET_SHARED_GPU_NONE ? 1 : collet_shared_gpu_max_ranks(&comm->state);
	if (fit == COLLET_SHARED_GPU_NONE || (by_host && (!comm->has_gpu_leaders || comm->local_size == 1)))
		return COLLET_OK;
	const collet_status status =
		collet_shared_gpu_create(&comm->gpu->shared_gpu, &comm->context->gpu->device, &comm->state, &events);
	if (comm->gpu->shared_gpu && comm->local_rank == 0)
		log_shared_gpu(comm, by_host);
	return status;
}

bool collet_request_is_for_leader(const collet_comm *comm, const struct collet_request *request)
{
	const struct collet_call *call = &request->call;
	const struct collet_path_query query = { .collective = (enum collet_collective)call->collective,
		.op = call->op == UINT8_MAX ? COLLET_OP_COUNT : (collet_op)call->op,
		.dtype = (collet_dtype)call->dtype,
		.shape = &request->shape,
		.program = request->program,
		.algorithm_named = request->algorithm_named };
	return !comm->has_gpu_leaders || collet_path_uses_leaders(&query);
}

bool collet_call_may_share_gpu(const collet_comm *comm, const struct collet_call_arguments *call)
{
	if (comm->has_gpu_leaders && !collet_program_inter_host(call->collective))
		return false;
	if (call->collective == COLLET_REDUCE_SCATTER && call->input_partition)
		return false;
	return comm->gpu->shared_gpu && call->collective != COLLET_BARRIER && call->op != COLLET_USER &&
	       (call->count || call->input_partition);
}
