/* Caches kernel plans on the GPU: a plan is built and copied on the first call of its kind, and kept for the next. */
#include <stdlib.h>

#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/comm_state.h"

enum { MIN_PLAN_CAPACITY = 1024 };

static bool same_options(const struct collet_plan_options *a, const struct collet_plan_options *b)
{
	return a->element_bytes == b->element_bytes && a->channels_per_part == b->channels_per_part &&
	       a->segment_bytes == b->segment_bytes && a->is_ll == b->is_ll;
}

/* A v-form's plan serves only its own call, since it contains the blocks. */
static bool serves_call(const struct collet_device_plan *plan, const struct collet_devcoll_call *call)
{
	return !call->is_vector && plan->program && plan->program == call->program &&
	       plan->count == call->shape.count && plan->root == call->shape.root &&
	       same_options(&plan->options, &call->options);
}

static void move_to_front(struct collet_device_comm *device_comm, struct collet_device_plan **at)
{
	struct collet_device_plan *plan = *at;
	*at = plan->next;
	plan->next = device_comm->plans;
	device_comm->plans = plan;
}

static uint32_t plan_capacity(uint32_t bytes)
{
	uint32_t capacity = MIN_PLAN_CAPACITY;
	while (capacity < bytes)
		capacity *= 2;
	return capacity;
}

/* Finds the least recently used plan that no launch will read any more; NULL if there is none. */
static struct collet_device_plan **find_unused(struct collet_device_comm *device_comm, uint32_t capacity)
{
	struct collet_device_plan **found = NULL;
	for (struct collet_device_plan **at = &device_comm->plans; *at; at = &(*at)->next)
		if (!(*at)->is_captured && !(*at)->pending_launches && (*at)->capacity == capacity &&
			(*at)->last_launch <= device_comm->completed_count)
			found = at;
	return found;
}

void collet_device_plan_reserve(struct collet_device_plan *plan, bool is_reserved)
{
	if (is_reserved)
		plan->pending_launches++;
	else
		plan->pending_launches--;
}

/* Needs the copy stream's context. */
static collet_status add_block(struct collet_device_comm *device_comm, uint32_t capacity)
{
	struct plan_block *block = calloc(1, sizeof(*block));
	if (!block)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a kernel plan");
	block->bytes = capacity > PLAN_BLOCK_BYTES ? capacity : PLAN_BLOCK_BYTES;
	const cu_result result = device_comm->cuda->cuMemAlloc(&block->memory, block->bytes);
	if (result != CU_OK) {
		free(block);
		return collet_cuda_fail(device_comm->cuda, result, "allocating memory for kernel plans");
	}
	block->next = device_comm->blocks;
	device_comm->blocks = block;
	return COLLET_OK;
}

/* Needs the copy stream's context. */
static collet_status allocate_from_block(struct collet_device_comm *device_comm, uint32_t capacity, cu_pointer *at)
{
	struct plan_block *block = device_comm->blocks;
	if (!block || block->bytes - block->used < capacity) {
		const collet_status status = add_block(device_comm, capacity);
		if (status != COLLET_OK)
			return status;
		block = device_comm->blocks;
	}
	*at = block->memory + block->used;
	block->used += capacity;
	return COLLET_OK;
}

/* Finds or allocates a plan of this size, at the front of the list. */
static collet_status claim_plan(
	struct collet_device_comm *device_comm, uint32_t bytes, struct collet_device_plan **claimed)
{
	const uint32_t capacity = plan_capacity(bytes);
	struct collet_device_plan **unused = NULL;
	if (device_comm->cached_plans >= CACHED_PLANS && collet_device_comm_is_idle(device_comm))
		device_comm->completed_count = device_comm->launch_count;
	/* A plan that serves no later call is reused at once. */
	unused = find_unused(device_comm, capacity);
	if (unused && device_comm->cached_plans < CACHED_PLANS && (*unused)->program)
		unused = NULL;
	if (unused) {
		move_to_front(device_comm, unused);
		*claimed = device_comm->plans;
		return COLLET_OK;
	}
	struct collet_device_plan *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a kernel plan");
	const collet_status status = allocate_from_block(device_comm, capacity, &made->address);
	if (status != COLLET_OK) {
		free(made);
		return status;
	}
	made->capacity = capacity;
	made->next = device_comm->plans;
	device_comm->plans = made;
	device_comm->cached_plans++;
	*claimed = made;
	return COLLET_OK;
}

static collet_status upload(
	struct collet_device_comm *device_comm, const struct collet_kernel_plan *built, cu_pointer at)
{
	static const char what[] = "copying a kernel plan to the GPU";
	const collet_status status = collet_copy_stream_enqueue(
		device_comm->cuda, device_comm->copy_stream, (void *)(uintptr_t)at, built, built->bytes, what);
	const collet_status waited = collet_copy_stream_synchronize(device_comm->cuda, device_comm->copy_stream, what);
	return status == COLLET_OK ? waited : status;
}

static collet_status add_plan(struct collet_device_comm *device_comm, const struct collet_devcoll_call *call,
	const struct collet_kernel_plan *built, struct collet_device_plan **added)
{
	collet_status status = claim_plan(device_comm, built->bytes, added);
	if (status != COLLET_OK)
		return status;
	struct collet_device_plan *plan = *added;
	plan->program = NULL; /* until it has been copied */
	plan->last_launch = 0;
	status = upload(device_comm, built, plan->address);
	if (status != COLLET_OK)
		return status;
	plan->program = call->is_vector ? NULL : call->program;
	plan->count = call->shape.count;
	plan->root = call->shape.root;
	plan->options = call->options;
	plan->channels = built->parts * built->channels_per_part;
	plan->bytes = built->bytes;
	return COLLET_OK;
}

/* Needs the copy stream's context. */
static collet_status create_scratch(struct collet_device_comm *device_comm)
{
	if (device_comm->scratch)
		return COLLET_OK;
	const cu_result result = device_comm->cuda->cuMemAlloc(&device_comm->scratch, COLLET_SCRATCH_BYTES);
	if (result == CU_OK)
		return COLLET_OK;
	device_comm->scratch = 0;
	return collet_cuda_fail(device_comm->cuda, result, "allocating a communicator's scratch");
}

/* An equal plan may have served a call of f32. */
static collet_status prepare_wide(struct collet_device_comm *device_comm, const struct collet_devcoll_call *call)
{
	if (!call->is_wide)
		return COLLET_OK;
	collet_status status = collet_copy_stream_push_context(device_comm->cuda, device_comm->copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_device_wide_prepare(device_comm, call);
	collet_copy_stream_pop_context(device_comm->cuda);
	return status;
}

collet_status collet_device_comm_prepare(struct collet_device_comm *device_comm, const struct collet_devcoll_call *call,
	struct collet_device_plan **plan)
{
	struct collet_kernel_plan *built;
	for (struct collet_device_plan **at = &device_comm->plans; *at; at = &(*at)->next) {
		if (!serves_call(*at, call))
			continue;
		move_to_front(device_comm, at);
		*plan = device_comm->plans;
		return prepare_wide(device_comm, call);
	}
	collet_status status = collet_kernel_plan_build(call->program, &call->shape, &call->options, &built);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_stream_push_context(device_comm->cuda, device_comm->copy_stream);
	if (status == COLLET_OK) {
		if (collet_program_scratch(call->program, &call->shape))
			status = create_scratch(device_comm);
		if (status == COLLET_OK)
			status = collet_device_wide_prepare(device_comm, call);
		if (status == COLLET_OK)
			status = add_plan(device_comm, call, built, plan);
		collet_copy_stream_pop_context(device_comm->cuda);
	}
	free(built);
	return status;
}

collet_status collet_device_comm_preallocate(struct collet_device_comm *device_comm)
{
	collet_status status = create_scratch(device_comm);
	if (status == COLLET_OK)
		status = collet_device_wide_reserve(device_comm, COLLET_DEVCOLL_MAX_BYTES);
	return status == COLLET_OK ? add_block(device_comm, 0) : status;
}

void collet_device_comm_free_plans(struct collet_device_comm *device_comm)
{
	for (struct collet_device_plan *plan = device_comm->plans, *next; plan; plan = next) {
		next = plan->next;
		free(plan);
	}
	for (struct plan_block *block = device_comm->blocks, *next; block; block = next) {
		next = block->next;
		(void)device_comm->cuda->cuMemFree(block->memory);
		free(block);
	}
	device_comm->plans = NULL;
	device_comm->blocks = NULL;
	collet_device_wide_free(device_comm);
	if (device_comm->scratch)
		(void)device_comm->cuda->cuMemFree(device_comm->scratch);
	device_comm->scratch = 0;
}
