#include "cuda/call_path.h"

#include "cuda/path_rules.h"
#include "cuda/peer_gpus/device_collective.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/stream/stream_call.h"

enum collet_staging collet_call_staging(const collet_comm *comm, const struct collet_call_arguments *call)
{
	return collet_way_is_in_place(comm, call->op) ? COLLET_STAGED_REACHED : COLLET_STAGED_FLOWS;
}

collet_status collet_call_take_staged(const collet_comm *comm, struct collet_call_arguments *call,
	const struct collet_side sides[COLLET_SIDES], const struct collet_partition *listed,
	struct collet_staged *staged)
{
	if (sides[COLLET_READ].bytes)
		call->send = sides[COLLET_READ].first;
	if (sides[COLLET_WRITTEN].bytes)
		call->recv = (void *)(uintptr_t)sides[COLLET_WRITTEN].first;
	if (call->op == COLLET_USER)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: a user-defined operation is a function of the host; buffers of a GPU need a built-in one",
			call->function);
	if (!listed)
		return COLLET_OK;
	return collet_staged_blocks(staged, collet_dtype_bytes(call->dtype), comm->group.size, listed->counts,
		listed->displacements);
}

/* ---- The ways ---- */

/* By a kernel of each rank's, where ranks have a GPU each, or are threads that share one. All know which calls. */
static collet_status by_kernels(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	return collet_executed_call(comm, call->arguments, call->sides, call->how, taken);
}

/* When its stream gets to it: then by the leader, or by way of the host. */
static collet_status on_stream(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	*taken = call->how && call->how->stream;
	return *taken ? collet_streamed_call(comm, call->arguments, call->sides, call->listed, call->how) : COLLET_OK;
}

/* No way, but what all that follow have to do first: calls on streams that were made before must have started. */
static collet_status behind_streams(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	const collet_status status = collet_streams_let_start(comm, call->arguments->function, call->how);
	*taken = status != COLLET_OK;
	return status;
}

/* There is no driver, so buffers are the host's. */
static collet_status on_host(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	*taken = !comm->context->cuda.module;
	return *taken ? collet_call_start(comm, call->arguments, call->how) : COLLET_OK;
}

/* Offered to the leader of ranks that share a GPU, who says which way it goes (cuda/shared_gpu/shared_gpu.h): by its
 * launch, or of all of them by way of the host. All ranks know which calls are. */
static collet_status by_leader(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	struct collet_call_arguments *arguments = call->arguments;
	*taken = collet_call_may_be_direct(comm, arguments);
	if (!*taken)
		return COLLET_OK;
	const struct collet_side *read = &call->sides[COLLET_READ], *written = &call->sides[COLLET_WRITTEN];
	struct collet_direct_sides sides = { .function = arguments->function,
		.scale = call->how ? call->how->scale : 1,
		.side = { { .first = read->first, .bytes = read->bytes },
			{ .first = written->first, .bytes = written->bytes } } };
	collet_status status = collet_direct_locate(comm->direct, &sides);
	arguments->sides = &sides;
	if (status == COLLET_OK)
		status = collet_call_start(comm, arguments, call->how);
	arguments->sides = NULL;
	return status;
}

/* By way of the host's memory, where that is needed: each rank for itself. How, gpu_staging.h says. */
static collet_status by_host(collet_comm *comm, struct collet_checked *call, bool *taken)
{
	struct collet_call_arguments *arguments = call->arguments;
	struct collet_staged *staged;
	*taken = true;
	collet_status status = collet_staged_begin(
		comm->context, arguments->function, call->sides, collet_call_staging(comm, arguments), &staged);
	if (status != COLLET_OK || !staged)
		return status == COLLET_OK ? collet_call_start(comm, arguments, call->how) : status;
	status = collet_call_take_staged(comm, arguments, call->sides, call->listed, staged);
	if (status == COLLET_OK && collet_staged_flow(staged)) {
		arguments->staged = staged;
		return collet_call_start(comm, arguments, call->how);
	}
	if (status == COLLET_OK)
		status = collet_call_start(comm, arguments, call->how);
	return collet_call_follow(staged, status, call->how);
}

/* The last takes all that comes to it. */
static collet_way *const ways[] = { by_kernels, on_stream, behind_streams, on_host, by_leader, by_host };

collet_status collet_call_go(collet_comm *comm, struct collet_checked *call)
{
	collet_status status = COLLET_OK;
	bool taken = false;
	for (size_t w = 0; !taken; w++)
		status = ways[w](comm, call, &taken);
	return status;
}
