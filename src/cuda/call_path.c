#include "cuda/call_path.h"

#include "core/types.h"
#include "cuda/gpu_call.h"
#include "cuda/gpu_context.h"
#include "cuda/path_rules.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/stream/stream_call.h"
#include "engine/comm_state.h"

enum collet_gpu_staging_kind collet_call_staging_kind(const collet_comm *comm, const struct collet_call_arguments *call)
{
	if (collet_op_averages_narrow(call->op, call->dtype))
		return COLLET_GPU_STAGING_AVERAGE;
	return collet_path_is_gpudirect(comm, call->op) ? COLLET_GPU_STAGING_GPUDIRECT : COLLET_GPU_STAGING_COLLECTIVE;
}

collet_status collet_call_use_staging(const collet_comm *comm, struct collet_call_arguments *call,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	struct collet_gpu_staging *staging)
{
	if (buffers[COLLET_SEND_BUFFER].bytes)
		call->send = buffers[COLLET_SEND_BUFFER].first;
	if (buffers[COLLET_RECV_BUFFER].bytes)
		call->recv = (void *)(uintptr_t)buffers[COLLET_RECV_BUFFER].first;
	if (call->op == COLLET_USER)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: a user-defined operation is a function of the host; buffers of a GPU need a built-in one",
			call->function);
	if (!vector)
		return COLLET_OK;
	return collet_gpu_staging_set_blocks(staging, collet_dtype_bytes(call->dtype), comm->state.size, vector->counts,
		vector->displacements);
}

/* ---- Paths ---- */

/* Runs the call by a kernel on each rank, if ranks have a GPU each or are threads that share one. All ranks decide
 * alike. */
static collet_status path_device_collective(collet_comm *comm, struct collet_checked_call *call, bool *claimed)
{
	return collet_device_collectives_call(comm, call->arguments, call->buffers, call->how, claimed);
}

/* Enqueues the call on the stream that the caller names. The leader executes it, or it is staged in host memory. */
static collet_status path_stream(collet_comm *comm, struct collet_checked_call *call, bool *claimed)
{
	*claimed = call->how && call->how->stream;
	return *claimed
		       ? collet_stream_enqueue_collective(comm, call->arguments, call->buffers, call->vector, call->how)
		       : COLLET_OK;
}

/* Waits until earlier calls on streams have started, as all paths behind it must. Claims the call only if that fails.
 */
static collet_status path_wait_for_streams(collet_comm *comm, struct collet_checked_call *call, bool *claimed)
{
	const collet_status status = collet_streams_wait_started(comm, call->arguments->function, call->how);
	*claimed = status != COLLET_OK;
	return status;
}

/* Sends the descriptor of the call to the leader of ranks that share a GPU. The leader launches a kernel for all of
 * them, or has all of them stage their buffers (cuda/shared_gpu/shared_gpu.h). All ranks decide alike which calls it is
 * asked about. */
static collet_status path_shared_gpu(collet_comm *comm, struct collet_checked_call *call, bool *claimed)
{
	const struct collet_call_arguments *arguments = call->arguments;
	*claimed = collet_call_may_share_gpu(comm, arguments);
	if (!*claimed)
		return COLLET_OK;
	const struct collet_user_buffer *read = &call->buffers[COLLET_SEND_BUFFER],
					*written = &call->buffers[COLLET_RECV_BUFFER];
	struct collet_call_buffers buffers = { .function = arguments->function,
		.scale = call->how ? call->how->scale : 1,
		.buffer = { { .first = read->first, .bytes = read->bytes },
			{ .first = written->first, .bytes = written->bytes } } };
	const collet_status status = collet_shared_gpu_locate(comm->gpu->shared_gpu, &buffers);
	return status == COLLET_OK ? collet_gpu_call_run(comm, arguments, &buffers, NULL, call->how) : status;
}

/* Runs the call in host memory: each rank stages its buffers in GPU memory (cuda/staging/gpu_staging.h). */
static collet_status path_staged(collet_comm *comm, struct collet_checked_call *call, bool *claimed)
{
	struct collet_call_arguments *arguments = call->arguments;
	struct collet_gpu_staging *staging;
	*claimed = true;
	collet_status status = collet_gpu_staging_begin(
		comm->context, arguments->function, call->buffers, collet_call_staging_kind(comm, arguments), &staging);
	if (status != COLLET_OK || !staging)
		return status == COLLET_OK ? collet_call_run(comm, arguments, call->how) : status;
	status = collet_call_use_staging(comm, arguments, call->buffers, call->vector, staging);
	if (status != COLLET_OK)
		return collet_gpu_staging_end(staging, status);
	return collet_gpu_call_run(comm, arguments, NULL, staging, call->how);
}

/* Tries one path. Sets *claimed to false if the call is not for it: nothing has happened then, and the next path is
 * tried. Otherwise returns the status of the call: it has run, has started (how.request), is on its stream
 * (how.stream), or was refused. */
typedef collet_status call_path(collet_comm *comm, struct collet_checked_call *call, bool *claimed);

/* Tried in this order. The last one takes every call. */
static call_path *const call_paths[] = { path_device_collective, path_stream, path_wait_for_streams, path_shared_gpu,
	path_staged };

collet_status collet_call_dispatch(collet_comm *comm, struct collet_checked_call *call)
{
	collet_status status = COLLET_OK;
	bool claimed = false;
	for (size_t path = 0; !claimed; path++)
		status = call_paths[path](comm, call, &claimed);
	return status;
}
