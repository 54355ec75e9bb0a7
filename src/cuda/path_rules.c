#include "cuda/path_rules.h"

#include <string.h>

#include "core/types.h"
#include "cuda/gpu_cost.h"
#include "cuda/peer_gpus/device_collective.h"

static bool is_any_order(const struct collet_way_call *call)
{
	return !call->named || call->op == COLLET_OP_COUNT || collet_op_is_exact(call->op, call->dtype);
}

struct collet_way_choices collet_way_choices(const collet_comm *comm, const struct collet_way_call *call, bool listed)
{
	const bool moves = call->collective != COLLET_BARRIER && (call->shape->count || listed);
	const struct collet_way_choices hosts = { &comm->inputs, &comm->table };
	if (!comm->executions || comm->context->deterministic || call->op == COLLET_USER ||
		!collet_executed_is_for(comm, call->collective, call->shape, call->dtype))
		return hosts;
	/* A leader has the lists, and what moves nothing is the host's where there is one. */
	if (comm->direct && (listed || !moves))
		return hosts;
	return collet_executed_choices(comm);
}

bool collet_way_is_by_host(const collet_comm *comm, const struct collet_way_call *call)
{
	return comm->gpu_each_host && collet_program_inter_host(call->collective) && call->op != COLLET_USER &&
	       call->shape->host_count > 1 &&
	       collet_shape_bytes(call->collective, call->shape, collet_dtype_bytes(call->dtype)) >=
		       COLLET_HOSTED_LEAST;
}

bool collet_way_leaders_go(const struct collet_way_call *call)
{
	const bool one_pass = call->collective == COLLET_REDUCE || call->collective == COLLET_REDUCE_SCATTER;
	/* Barriers and, of listed counts, calls of nothing. */
	if (strcmp(call->program->name, "hierarchical") != 0 || !collet_program_inter_host(call->collective) ||
		!collet_shape_bytes(call->collective, call->shape, collet_dtype_bytes(call->dtype)))
		return false;
	/* What is combined inside hosts is rounded there, which is an order of operands of its own. */
	return !one_pass || is_any_order(call);
}

/* The larger of the buffers that this rank uses. */
static uint64_t side_bytes(const collet_comm *comm, const struct collet_way_call *call)
{
	const enum collet_collective collective = call->collective;
	const bool one_for_each = collective == COLLET_ALLGATHER || collective == COLLET_REDUCE_SCATTER ||
				  collective == COLLET_ALLTOALL ||
				  ((collective == COLLET_GATHER || collective == COLLET_SCATTER) &&
					  call->shape->rank == call->shape->root);
	return call->shape->count * collet_dtype_bytes(call->dtype) * (one_for_each ? comm->group.size : 1);
}

static bool is_direct(const collet_comm *comm, const struct collet_way_call *call)
{
	const char *name = call->program->name;
	return comm->direct && !comm->gpu_each_host &&
	       (is_any_order(call) || strcmp(name, "direct") == 0 || strcmp(name, "two_shot") == 0);
}

const char *collet_way_of(const collet_comm *comm, const struct collet_way_call *call, const char **algorithm)
{
	*algorithm = NULL;
	if (!comm->context->cuda.module || call->collective == COLLET_BARRIER || call->op == COLLET_USER ||
		!call->shape->count)
		return NULL;
	*algorithm = call->program->name;
	if (collet_executed_is_for(comm, call->collective, call->shape, call->dtype))
		return "executor";
	if (is_direct(comm, call)) {
		*algorithm = "direct";
		return "direct";
	}
	if (comm->direct && comm->gpu_each_host && collet_way_leaders_go(call))
		return "hosted";
	const struct collet_gpu_link link = collet_gpu_link_of(comm->context);
	return side_bytes(comm, call) >= collet_gpu_piped_least(&link) ? "piped" : "staged";
}

bool collet_way_is_in_place(const collet_comm *comm, collet_op op)
{
	return comm->reaches_gpus && op == COLLET_OP_COUNT;
}
