/* Starts a call whose buffers may be in GPU memory. Sends its descriptor to the leader of a shared GPU, has a kernel
 * execute it, or runs it on staged host memory. */
#include "cuda/gpu_call.h"

#include "api/on_end.h"
#include "cuda/gpu_context.h"
#include "cuda/peer_gpus/ipc_get.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/stream/stream_call.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/pipeline.h"
#include "engine/recorder.h"
#include "engine/request.h"

/* ---- Collectives ---- */

/* Under lock. */
static collet_status prepare(collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_gpu_staging *staging, const collet_how *how, struct collet_request **prepared)
{
	struct collet_request *request;
	collet_status status = collet_call_prepare(comm, call, how, &request);
	if (status != COLLET_OK)
		return status;
	if (staging)
		status = collet_gpu_staging_plan(staging, request);
	if (status == COLLET_OK)
		*prepared = request;
	else
		collet_request_release(request);
	return status;
}

collet_status collet_gpu_call_prepare(collet_comm *comm, const struct collet_call_arguments *call,
	struct collet_gpu_staging *staging, const collet_how *how, struct collet_request **request)
{
	struct collet_engine *engine = comm->state.engine;
	collet_status status = collet_call_check_how(call, how);
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(engine);
	status = prepare(comm, call, staging, how, request);
	collet_engine_unlock(engine);
	return status;
}

/* Sends the descriptor of the call to the leader. Tasks defer the request, and later ones, until the decision. */
static void start_with_leader(
	collet_comm *comm, struct collet_request *request, const struct collet_call_buffers *gpu_buffers, bool blocks)
{
	collet_status status = collet_shared_gpu_start(comm->gpu->shared_gpu, request, gpu_buffers);
	if (status == COLLET_OK && !request->deferred) {
		collet_call_start(comm, request, blocks);
		return;
	}
	collet_call_record_start(request);
	if (status == COLLET_OK)
		status = collet_request_start(request);
	if (status != COLLET_OK)
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* Starts a request whose buffers are filled and emptied while it runs. */
static void start_pipelined(collet_comm *comm, struct collet_request *request, struct collet_pipeline *pipeline)
{
	collet_comm_count_call(comm, request);
	collet_call_record_start(request);
	collet_pipeline_start(pipeline, request);
	const collet_status status = collet_request_start(request);
	if (status == COLLET_OK)
		(void)pipeline->progress(pipeline);
	else
		collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

/* Starts a request on host memory. It has staging if any buffer was in GPU memory. */
static void start_on_host(collet_comm *comm, struct collet_request *request, bool blocks)
{
	struct collet_pipeline *pipeline = collet_gpu_staging_pipeline(request->staging);
	if (pipeline)
		start_pipelined(comm, request, pipeline);
	else
		collet_call_start(comm, request, blocks);
}

void collet_gpu_call_start_prepared(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_pipeline *pipeline)
{
	collet_request_reset(request);
	collet_call_assign_sequence(request);
	if (!gpu_buffers) {
		if (pipeline)
			start_pipelined(comm, request, pipeline);
		else
			collet_call_start(comm, request, false);
		return;
	}
	/* A graph's last launch may have been staged. */
	if (gpu_buffers->buffer[0].bytes)
		request->input = gpu_buffers->buffer[0].first;
	if (gpu_buffers->buffer[1].bytes)
		request->result = (char *)(uintptr_t)gpu_buffers->buffer[1].first;
	if (collet_request_is_for_leader(comm, request)) {
		start_with_leader(comm, request, gpu_buffers, false);
		return;
	}
	const collet_status status = collet_request_use_staging(request, gpu_buffers);
	if (status == COLLET_OK) {
		start_on_host(comm, request, false);
		return;
	}
	collet_call_record_start(request);
	collet_comm_state_end(&comm->state, status, true, collet_last_error());
}

void collet_gpu_call_start_offloaded(
	collet_comm *comm, struct collet_request *request, struct collet_recorder *out_of_band, uint64_t sequence)
{
	request->out_of_band_recorder = out_of_band;
	if (out_of_band)
		request->sequence = request->call.sequence = sequence;
	else
		collet_call_assign_sequence(request);
	request->deferred = request->offloaded = true;
	collet_comm_count_call(comm, request);
	collet_call_record_start(request);
}

/* Sets the staging of a prepared request: the one given, or a new one if the leader could do the call but does not.
 * *is_for_leader: the leader does it. On failure the caller still owns staging. Under lock. */
static collet_status set_staging(collet_comm *comm, struct collet_request *request,
	const struct collet_call_buffers *gpu_buffers, struct collet_gpu_staging *staging, bool *is_for_leader)
{
	*is_for_leader = gpu_buffers && collet_request_is_for_leader(comm, request);
	if (gpu_buffers && !*is_for_leader)
		return collet_request_use_staging(request, gpu_buffers);
	request->staging = staging;
	return COLLET_OK;
}

collet_status collet_gpu_call_run(collet_comm *comm, const struct collet_call_arguments *call,
	const struct collet_call_buffers *gpu_buffers, struct collet_gpu_staging *staging, const collet_how *how)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	collet_status status = how ? collet_call_check_how(call, how) : COLLET_OK;
	if (status != COLLET_OK)
		return collet_gpu_staging_end(staging, status);
	if (!how)
		how = &default_how;
	struct collet_engine *engine = comm->state.engine;
	struct collet_request *request;
	bool is_for_leader;
	collet_engine_lock(engine);
	status = prepare(comm, call, staging, how, &request);
	if (status == COLLET_OK) {
		status = set_staging(comm, request, gpu_buffers, staging, &is_for_leader);
		if (status != COLLET_OK)
			collet_request_release(request);
	}
	if (status != COLLET_OK) {
		collet_engine_unlock(engine);
		return collet_gpu_staging_end(staging, status);
	}
	collet_call_assign_sequence(request);
	if (is_for_leader)
		start_with_leader(comm, request, gpu_buffers, collet_how_blocks(how));
	else
		start_on_host(comm, request, collet_how_blocks(how));
	return collet_call_wait_or_return(request, how);
}

/* ---- Messages ---- */

void collet_p2p_ops_use_staging(struct collet_p2p_op *ops, uint32_t count,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_gpu_staging *staging)
{
	for (uint32_t i = 0; i < count && staging; i++) {
		const int side = ops[i].is_send ? COLLET_SEND_BUFFER : COLLET_RECV_BUFFER;
		ops[i].buffer = (void *)(uintptr_t)buffers[side].first;
		ops[i].bounce_buffer = collet_gpu_staging_bounce(staging, side);
	}
}

enum collet_gpu_staging_kind collet_p2p_ops_staging_kind(
	const collet_comm *comm, const struct collet_p2p_op *ops, uint32_t count)
{
	const struct collet_comm_state *state = &comm->state;
	for (uint32_t i = 0; i < count; i++) {
		const bool any = ops[i].peer == COLLET_ANY_SOURCE;
		for (uint32_t r = any ? 0 : ops[i].peer; r < (any ? state->size : ops[i].peer + 1); r++)
			if (collet_ipc_get_is_possible(state->engine, collet_comm_state_world_rank(state, r)))
				return COLLET_GPU_STAGING_PULLED_MESSAGE;
	}
	return COLLET_GPU_STAGING_MESSAGE;
}

/* Begins staging for messages whose buffers are in GPU memory, and makes ops use it. *staging is NULL if no buffer is.
 */
static collet_status stage(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
	collet_dtype dtype, struct collet_gpu_staging **staging)
{
	const size_t element = collet_dtype_bytes(dtype);
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS] = { { NULL, 0 }, { NULL, 0 } };
	*staging = NULL;
	for (uint32_t i = 0; i < count; i++)
		buffers[ops[i].is_send ? COLLET_SEND_BUFFER : COLLET_RECV_BUFFER] =
			(struct collet_user_buffer){ ops[i].buffer, ops[i].count * element };
	const collet_status status = collet_gpu_staging_begin(
		comm->context, function, buffers, collet_p2p_ops_staging_kind(comm, ops, count), staging);
	collet_p2p_ops_use_staging(ops, count, buffers, *staging);
	for (uint32_t i = 0; i < count && *staging; i++)
		if (!ops[i].is_send)
			ops[i].received = collet_gpu_staging_set_received(*staging, ops[i].received, element);
	return status;
}

collet_status collet_gpu_p2p(collet_comm *comm, const char *function, struct collet_p2p_op *ops, uint32_t count,
	collet_dtype dtype, const collet_how *how, struct collet_gpu_staging **staging)
{
	*staging = NULL;
	if (how->stream)
		return collet_stream_enqueue_p2p(comm, function, ops, count, dtype, how);
	const collet_status status = collet_streams_wait_started(comm, function, how);
	return status == COLLET_OK ? stage(comm, function, ops, count, dtype, staging) : status;
}
