/* Plans a checked call: chooses its program, segments and channels, and fills in the request. */
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/named_algorithm.h"
#include "api/on_end.h"
#include "core/status.h"
#include "core/types.h"
#include "engine/channel.h"
#include "engine/comm_state.h"
#include "engine/fast_path.h"
#include "engine/plan_key.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/task.h"
#include "selection/choice.h"

collet_status collet_call_check_how(const struct collet_call_arguments *call, const collet_how *how)
{
	if (!collet_how_reserves_nothing(how))
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: how.reserved is not zero; initialise with COLLET_HOW_DEFAULT", call->function);
	if (how->timeout_ns < COLLET_NO_TIMEOUT)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: how.timeout_ns is %lld; a number of ns, 0 or COLLET_NO_TIMEOUT is meant", call->function,
			(long long)how->timeout_ns);
	if (how->channels > COLLET_CHANNELS_MAX)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: how.channels is %u; at most %d are meant", call->function,
			how->channels, COLLET_CHANNELS_MAX);
	return collet_check_notice(call->function, how);
}

static collet_status check_op(const struct collet_call_arguments *call, const collet_how *how)
{
	if (call->collective != COLLET_ALLREDUCE && call->collective != COLLET_REDUCE &&
		call->collective != COLLET_REDUCE_SCATTER)
		return COLLET_OK;
	if ((unsigned)call->op >= COLLET_OP_COUNT)
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: %d is no operation", call->function, (int)call->op);
	if (!collet_op_supports(call->op, call->dtype))
		return collet_fail(COLLET_ERR_UNSUPPORTED, "%s: %s is not defined for %s%s", call->function,
			collet_op_name(call->op), collet_dtype_name(call->dtype),
			call->dtype == COLLET_BOOL ? ", which has and, or, xor, min, max, sum (or) and product (and)" :
						     "");
	if (call->op == COLLET_USER && (!how->user_op || !how->user_op->combine))
		return collet_fail(COLLET_ERR_ARGUMENT, "%s: COLLET_USER needs how.user_op with a combine function",
			call->function);
	return COLLET_OK;
}

static bool commutes(const struct collet_call_arguments *call, const collet_how *how)
{
	return call->op != COLLET_USER || (how->user_op && how->user_op->commutative);
}

static collet_status check_named(const struct collet_call_arguments *call, const struct collet_program *program,
	const struct collet_request *request, bool any_order, bool is_device)
{
	/* Sums are widened in slices of equal blocks. */
	if (call->input_partition && collet_op_averages_narrow(call->op, call->dtype) &&
		!collet_program_reduces_once(program, &request->shape))
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: algorithm %s cannot average %s in blocks of different counts; direct can", call->function,
			program->name, collet_dtype_name(call->dtype));
	/* The host widens sums slice by slice, so that scratch is no limit. */
	const size_t element_bytes = is_device
		? collet_message_element_bytes(program, &request->shape, call->dtype, call->op)
		: request->element_bytes;
	return collet_named_check_scratch(call->function, program, &request->shape, any_order, element_bytes);
}

struct collet_choice_basis collet_call_choice_basis(
	collet_comm *comm, const struct collet_path_query *query, bool is_vector)
{
	if (comm->gpu)
		return collet_offload->choice_basis(comm, query, is_vector);
	return (struct collet_choice_basis){ .inputs = &comm->inputs, .table = &comm->table };
}

struct collet_decision collet_call_choose(
	const struct collet_choice_basis *basis, const struct collet_path_query *query, bool commutes)
{
	const size_t element_bytes = collet_dtype_bytes(query->dtype);
	return collet_op_averages_narrow(query->op, query->dtype)
		       ? collet_choose_average(basis->inputs, basis->table, query->collective, query->shape,
				 element_bytes, basis->is_device)
		       : collet_choose(basis->table, query->collective, commutes, query->shape, element_bytes);
}

static collet_status choose(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request *request, struct collet_decision *choice)
{
	const bool any_order = commutes(call, how);
	const struct collet_path_query query = {
		.collective = call->collective, .op = call->op, .dtype = call->dtype, .shape = &request->shape };
	const struct collet_choice_basis basis = collet_call_choice_basis(comm, &query, call->input_partition != NULL);
	request->algorithm_named = how->algorithm != NULL;
	*choice = collet_call_choose(&basis, &query, any_order);
	if (how->algorithm) {
		const struct collet_program *named = NULL;
		collet_status status = collet_named_find(call->function, call->collective, how->algorithm, &named);
		if (status == COLLET_OK)
			status = check_named(call, named, request, any_order, basis.is_device);
		if (status != COLLET_OK)
			return status;
		*choice = collet_choose_segmentation(basis.inputs, named, &request->shape,
			collet_message_element_bytes(named, &request->shape, call->dtype, call->op));
		return COLLET_OK;
	}
	if (basis.is_hierarchical && !comm->context->forced[call->collective]) {
		*choice = collet_choose_segmentation(&comm->inputs,
			collet_program_find(call->collective, "hierarchical"), &request->shape, request->element_bytes);
		return COLLET_OK;
	}
	/* COLLET_ALGORITHM applies where it can, so that one setting may cover a whole application. */
	const struct collet_program *forced = comm->context->forced[call->collective];
	if (forced && check_named(call, forced, request, any_order, basis.is_device) == COLLET_OK) {
		*choice = collet_choose_segmentation(basis.inputs, forced, &request->shape,
			collet_message_element_bytes(forced, &request->shape, call->dtype, call->op));
		request->algorithm_named = true;
	}
	return COLLET_OK;
}

uint32_t collet_call_program_index(const struct collet_program *program)
{
	size_t count;
	const struct collet_program *const *programs = collet_programs(program->collective, &count);
	uint32_t index = 0;
	while (programs[index] != program)
		index++;
	return index;
}

static uint32_t hash_name(const char *name)
{
	uint32_t hash = 2166136261u;  /* FNV-1a */
	for (; name && *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash;
}

static void fill_call(struct collet_request *request, const struct collet_call_arguments *call, const collet_how *how)
{
	const bool rooted = call->collective == COLLET_REDUCE || call->collective == COLLET_BROADCAST ||
		call->collective == COLLET_GATHER || call->collective == COLLET_SCATTER;
	request->call = (struct collet_call){
		.sequence = request->sequence,
		.count = call->input_partition ? 0 : call->count,
		.root = rooted ? call->root : UINT32_MAX,
		.collective = (uint8_t)call->collective,
		.is_vector = call->input_partition != NULL,
		.dtype = call->collective == COLLET_BARRIER ? UINT8_MAX : (uint8_t)call->dtype,
		.op = call->op == COLLET_OP_COUNT ? UINT8_MAX : (uint8_t)call->op,
		.algorithm = collet_call_program_index(request->program),
		.segment_bytes = how->segment_bytes,
		.channels = how->channels,
		.user_op = call->op == COLLET_USER ? hash_name(how->user_op->name) : 0,
	};
	if (call->op == COLLET_USER && how->user_op->name)
		strncpy(request->call.user_name, how->user_op->name, sizeof(request->call.user_name) - 1);
	request->call_signature = collet_call_signature(&request->call);
}

/* Copies counts and displacements of a v-form into the request, since the caller's may go when the call returns. */
static void copy_vector(struct collet_request *request, struct collet_partition *partition, size_t *used)
{
	if (!partition->counts)
		return;
	const uint32_t size = request->shape.size;
	uint64_t *counts = request->vector_counts + *used, *displacements = counts + size;
	memcpy(counts, partition->counts, size * sizeof(*counts));
	memcpy(displacements, partition->displacements, size * sizeof(*displacements));
	partition->counts = counts;
	partition->displacements = displacements;
	*used += 2 * (size_t)size;
}

static collet_status fill_shape(
	collet_comm *comm, const struct collet_call_arguments *call, struct collet_request *request)
{
	struct collet_shape *shape = &request->shape;
	*shape = collet_shape_of(call->collective, comm->state.rank, comm->state.size, call->root, call->count);
	if (!call->input_partition)
		return COLLET_OK;
	const size_t capacity = 4 * (size_t)shape->size;
	if (request->vector_capacity < capacity) {
		uint64_t *counts = realloc(request->vector_counts, capacity * sizeof(*counts));
		if (!counts)
			return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for the counts", call->function);
		request->vector_counts = counts;
		request->vector_capacity = capacity;
	}
	shape->input = *call->input_partition;
	shape->result = *call->result_partition;
	size_t used = 0;
	copy_vector(request, &shape->input, &used);
	copy_vector(request, &shape->result, &used);
	return COLLET_OK;
}

static collet_status init_reduction(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request *request)
{
	request->prescales = call->op == COLLET_PREMUL_SUM;
	request->finishes = call->op == COLLET_AVERAGE || (call->dtype == COLLET_BOOL && call->op != COLLET_OP_COUNT);
	const bool moves = call->op == COLLET_OP_COUNT;
	const collet_op op = moves ? COLLET_SUM : call->op;
	/* A reduction of bool would make its bytes 0 or 1. */
	const collet_dtype dtype = moves && call->dtype == COLLET_BOOL ? COLLET_U8 : call->dtype;
	return collet_reduction_init(&request->reduction, dtype, op, how->user_op, how->scale, request->shape.size,
		comm->context->isa);
}

static collet_status plan(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	struct collet_request *request)
{
	collet_status status = fill_shape(comm, call, request);
	if (status != COLLET_OK)
		return status;
	request->call.root = call->root;
	collet_layout_by_host(comm, &request->shape, commutes(call, how));
	request->element_bytes = collet_dtype_bytes(call->dtype);
	struct collet_decision choice;
	status = choose(comm, call, how, request, &choice);
	if (status != COLLET_OK)
		return status;
	choice.segment_bytes = how->segment_bytes ? how->segment_bytes : choice.segment_bytes;
	choice.channels = how->channels ? how->channels : choice.channels;
	const struct collet_program *program = choice.program;
	collet_layout_by_locality(comm, &request->shape, program, call->dtype, call->op);
	status = init_reduction(comm, call, how, request);
	if (status != COLLET_OK)
		return status;
	request->program = program;
	request->counted_bytes = collet_shape_bytes(call->collective, &request->shape, request->element_bytes);
	request->element_bytes = collet_message_element_bytes(program, &request->shape, call->dtype, call->op);
	request->wide.is_used = false;
	if (call->count && request->element_bytes != collet_dtype_bytes(call->dtype))
		status = collet_wide_sums_plan(request, call->dtype, comm->context->isa);
	if (status != COLLET_OK)
		return status;
	request->parts = collet_program_part_count(program, &request->shape);
	request->channels = program->segmented && choice.channels ? choice.channels : 1;
	while (request->parts * request->channels > COLLET_TASKS)
		request->channels--;
	request->task_count = request->parts * request->channels;
	request->fan_in = collet_program_fan_in(program, &request->shape);
	request->segment_elements = collet_segment_elements(choice.segment_bytes,
		collet_slot_segments(call->collective, request->fan_in), request->element_bytes);
	request->nontemporal_results = !request->wide.is_used && collet_request_is_nontemporal(request);
	collet_fast_path_plan(request);
	return COLLET_OK;
}

struct collet_plan_key collet_call_plan_key(const struct collet_call_arguments *call, const collet_how *how)
{
	const struct collet_program *named =
		how->algorithm ? collet_program_find(call->collective, how->algorithm) : NULL;
	const bool is_repeatable = !call->input_partition && !how->algorithm == !named;
	const uint32_t algorithm = named ? 2 + collet_call_program_index(named) : 1;
	return (struct collet_plan_key){
		.count = call->count,
		.root = call->root,
		.op = (uint32_t)call->op,
		.segment_bytes = how->segment_bytes,
		.channels = (uint8_t)how->channels,
		.collective = (uint8_t)call->collective,
		.dtype = (uint8_t)call->dtype,
		.algorithm = is_repeatable ? (uint8_t)algorithm : 0,
		.slot = (uint8_t)collet_plan_slot(call->collective, call->count, call->root),
		.commutes = commutes(call, how),
	};
}

collet_status collet_call_plan(collet_comm *comm, const struct collet_call_arguments *call, const collet_how *how,
	const struct collet_plan_key *key, struct collet_request *request)
{
	request->input = call->send;
	request->result = call->recv;
	const bool is_planned = key->algorithm && collet_plan_key_equal(key, &request->plan_key);
	if (is_planned && !collet_op_is_caller_defined(call->op))
		return COLLET_OK;
	request->plan_key.algorithm = 0;
	request->plan_generation++;
	collet_status status = check_op(call, how);
	if (status == COLLET_OK)
		status = is_planned ? init_reduction(comm, call, how, request) : plan(comm, call, how, request);
	if (status != COLLET_OK)
		return status;
	fill_call(request, call, how);
	request->plan_key = *key;
	return COLLET_OK;
}
