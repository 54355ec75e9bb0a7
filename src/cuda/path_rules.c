#include "cuda/path_rules.h"

#include <string.h>

#include "core/types.h"
#include "cuda/gpu_context.h"
#include "cuda/gpu_cost.h"
#include "cuda/peer_gpus/device_collective.h"
#include "engine/comm_state.h"
#include "selection/choice.h"

static bool is_any_order(const struct collet_path_query *call)
{
	return !call->algorithm_named || call->op == COLLET_OP_COUNT || collet_op_is_exact(call->op, call->dtype);
}

/* Leaders do not do it: it goes through host memory, or kernels of each rank do it. */
static bool is_reduce_scatterv(const struct collet_path_query *call)
{
	return call->collective == COLLET_REDUCE_SCATTER && call->shape->input.kind == COLLET_PARTITION_VECTOR;
}

static bool is_hierarchical(const collet_comm *comm, const struct collet_path_query *call)
{
	return comm->has_gpu_leaders && collet_program_inter_host(call->collective) && call->op != COLLET_USER &&
	       !is_reduce_scatterv(call) &&
	       call->shape->host_count > 1 &&
	       collet_shape_bytes(call->collective, call->shape, collet_dtype_bytes(call->dtype)) >=
		       COLLET_GPU_HIERARCHICAL_MIN;
}

struct collet_choice_basis collet_path_choice_basis(
	collet_comm *comm, const struct collet_path_query *call, bool is_vector)
{
	const bool moves = call->collective != COLLET_BARRIER && (call->shape->count || is_vector);
	const struct collet_choice_basis hosts = { .inputs = &comm->inputs,
		.table = &comm->table,
		.is_hierarchical = is_hierarchical(comm, call) };
	if (!comm->gpu->device_collectives || comm->context->deterministic || call->op == COLLET_USER ||
		!collet_device_collectives_fit(comm, call->collective, call->shape, call->dtype))
		return hosts;
	/* If there is a leader, it does v-forms, and the host does calls that move nothing. */
	if (comm->gpu->shared_gpu && (is_vector || !moves))
		return hosts;
	struct collet_choice_basis kernels = collet_device_collectives_choices(comm);
	kernels.is_hierarchical = hosts.is_hierarchical;
	return kernels;
}

bool collet_path_uses_leaders(const struct collet_path_query *call)
{
	const bool one_pass = call->collective == COLLET_REDUCE || call->collective == COLLET_REDUCE_SCATTER;
	/* Not barriers, nor v-forms that move nothing. */
	if (strcmp(call->program->name, "hierarchical") != 0 || !collet_program_inter_host(call->collective) ||
		!collet_shape_bytes(call->collective, call->shape, collet_dtype_bytes(call->dtype)))
		return false;
	/* Reducing inside hosts rounds there: that is another order of operands. */
	return !one_pass || is_any_order(call);
}

/* Returns the size of the larger buffer that this rank uses. */
static uint64_t largest_buffer_bytes(const collet_comm *comm, const struct collet_path_query *call)
{
	const enum collet_collective collective = call->collective;
	const bool one_for_each = collective == COLLET_ALLGATHER || collective == COLLET_REDUCE_SCATTER ||
				  collective == COLLET_ALLTOALL ||
				  ((collective == COLLET_GATHER || collective == COLLET_SCATTER) &&
					  call->shape->rank == call->shape->root);
	return call->shape->count * collet_dtype_bytes(call->dtype) * (one_for_each ? comm->state.size : 1);
}

static bool is_shared_gpu(const collet_comm *comm, const struct collet_path_query *call)
{
	const char *name = call->program->name;
	return comm->gpu->shared_gpu && !comm->has_gpu_leaders &&
	       (is_any_order(call) || strcmp(name, "direct") == 0 || strcmp(name, "two_shot") == 0);
}

const char *collet_path_name(const collet_comm *comm, const struct collet_path_query *call, const char **algorithm)
{
	*algorithm = NULL;
	if (call->collective == COLLET_BARRIER || call->op == COLLET_USER || !call->shape->count)
		return NULL;
	*algorithm = call->program->name;
	if (collet_device_collectives_fit(comm, call->collective, call->shape, call->dtype))
		return "peer_gpus";
	if (is_shared_gpu(comm, call)) {
		*algorithm = "direct";
		return "shared_gpu";
	}
	if (comm->gpu->shared_gpu && comm->has_gpu_leaders && collet_path_uses_leaders(call))
		return "hierarchical";
	const struct collet_gpu_link link = collet_gpu_copy_link(comm->context);
	if (collet_op_averages_narrow(call->op, call->dtype))
		return "copied";
	return largest_buffer_bytes(comm, call) >= collet_gpu_pipelined_min(&link) ? "pipelined" : "copied";
}

bool collet_path_is_gpudirect(const collet_comm *comm, collet_op op)
{
	return comm->gpu->has_gpudirect && op == COLLET_OP_COUNT;
}
