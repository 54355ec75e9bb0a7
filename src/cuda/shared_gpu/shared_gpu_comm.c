#include "cuda/shared_gpu/shared_gpu_comm.h"

#include <stddef.h>
#include <string.h>

#include "cuda/path_rules.h"
#include "cuda/shared_gpu/gpu_hierarchical.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/staging/gpu_staging.h"
#include "engine/pipeline.h"

static struct collet_comm *comm_of(const struct collet_request *request)
{
	return (struct collet_comm *)(void *)((char *)request->state - offsetof(struct collet_comm, group));
}

/* It counts for the algorithm whose order of operands it had. */
static void done(struct collet_request *request)
{
	if (comm_of(request)->gpu_each_host) {
		collet_comm_count_use(comm_of(request), request);
		return;
	}
	const uint32_t planned = request->call.algorithm;
	const struct collet_program *direct =
		collet_program_find((enum collet_collective)request->call.collective, "direct");
	request->call.algorithm = collet_call_program_index(direct);
	collet_comm_count_use(comm_of(request), request);
	request->call.algorithm = planned;
}

collet_status collet_request_stage(struct collet_request *request, const struct collet_direct_sides *given)
{
	struct collet_comm *comm = comm_of(request);
	const struct collet_partition *result = &request->shape.result;
	struct collet_side sides[COLLET_SIDES];
	struct collet_staged *staged;
	for (int s = 0; s < COLLET_SIDES; s++)
		sides[s] = (struct collet_side){ given->side[s].first, given->side[s].bytes };
	collet_status status = collet_staged_begin(comm->context, given->function, sides, COLLET_STAGED_FLOWS, &staged);
	if (status == COLLET_OK && staged && request->call.is_vector && result->counts)
		status = collet_staged_blocks(
			staged, request->element_bytes, comm->group.size, result->counts, result->displacements);
	if (status != COLLET_OK)
		return collet_staged_end(staged, status);
	if (sides[COLLET_READ].bytes)
		request->input = sides[COLLET_READ].first;
	if (sides[COLLET_WRITTEN].bytes)
		request->result = (char *)(uintptr_t)sides[COLLET_WRITTEN].first;
	request->staging = staged;
	return COLLET_OK;
}

static collet_status stage(struct collet_request *request, const struct collet_direct_sides *given)
{
	const collet_status status =
		collet_direct_is_hosts(given) ? COLLET_OK : collet_request_stage(request, given);
	if (status == COLLET_OK && collet_staged_flow(request->staging))
		collet_pipeline_start(collet_staged_flow(request->staging), request);
	if (status == COLLET_OK)
		collet_comm_count_use(comm_of(request), request);
	return status;
}

static void log_direct(const collet_comm *comm, bool by_host)
{
	const bool one_gpu = collet_direct_has_one_gpu(comm->direct);
	collet_log(&comm->context->engine.log, COLLET_LOG_INFO, "cuda: %u ranks%s %s, %s", comm->local_size,
		by_host ? " of this host" : "", one_gpu ? "share a GPU" : "have GPUs that the first one's reaches",
		by_host ? "and go together to other hosts" : "whose collectives rank 0 does in one go");
}

collet_status collet_comm_make_direct(collet_comm *comm)
{
	static const struct collet_direct_events events = { done, stage, collet_hosted_share };
	const enum collet_direct_fit fit =
		comm->context->device.cuda ? collet_direct_fits(&comm->group) : COLLET_DIRECT_NONE;
	const bool by_host = fit == COLLET_DIRECT_BY_HOST;
	/* Alike on all ranks. A deterministic choice knows no hosts, and no algorithm then does. */
	comm->gpu_each_host = by_host && !comm->context->deterministic;
	comm->gpu_ranks = fit == COLLET_DIRECT_NONE ? 1 : collet_direct_most_sharing(&comm->group);
	if (fit == COLLET_DIRECT_NONE || (by_host && (!comm->gpu_each_host || comm->local_size == 1)))
		return COLLET_OK;
	const collet_status status =
		collet_direct_make(&comm->direct, &comm->context->device, &comm->group, &events);
	if (comm->direct && comm->local_rank == 0)
		log_direct(comm, by_host);
	return status;
}

bool collet_request_is_offered(const collet_comm *comm, const struct collet_request *request)
{
	const struct collet_call *call = &request->call;
	const struct collet_way_call way = { .collective = (enum collet_collective)call->collective,
		.op = call->op == UINT8_MAX ? COLLET_OP_COUNT : (collet_op)call->op,
		.dtype = (collet_dtype)call->dtype,
		.shape = &request->shape,
		.program = request->program,
		.named = request->algorithm_named };
	return !comm->gpu_each_host || collet_way_leaders_go(&way);
}

bool collet_call_may_be_direct(const collet_comm *comm, const struct collet_call_arguments *call)
{
	if (comm->gpu_each_host && !collet_program_inter_host(call->collective))
		return false;
	return comm->direct && call->collective != COLLET_BARRIER && call->op != COLLET_USER &&
	       (call->count || call->input);
}
