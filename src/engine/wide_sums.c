#include "engine/wide_sums.h"

#include "collectives/program.h"
#include "core/status.h"
#include "core/types.h"
#include "engine/comm_state.h"
#include "engine/cursor.h"
#include "engine/request.h"
#include "engine/task.h"
#include "selection/choice.h"

/* BLOCK_ELEMENTS stay in the L1 cache while they are converted. */
enum { WIDE_BYTES = 4 << 20, BLOCK_ELEMENTS = 1024 };

/* ---- Planning ---- */

/* A reduce-scatter has a block for each rank. */
static uint32_t block_count(const struct collet_request *request)
{
	return request->program->collective == COLLET_REDUCE_SCATTER ? request->shape.size : 1;
}

static void set_count(struct collet_shape *shape, uint64_t count)
{
	shape->count = shape->input.count = shape->result.count = count;
}

/* True if GPUs may do the part inside hosts (cuda/shared_gpu/gpu_hierarchical.h): they cut nothing into slices, so the
 * hosts that they send to must not either. */
static bool is_led_by_gpus(const struct collet_request *request)
{
	return request->shape.leader_is_first &&
	       request->program == collet_program_find(request->program->collective, "hierarchical");
}

static uint64_t slice_count(const struct collet_request *request)
{
	struct collet_shape shape = request->shape;
	if (is_led_by_gpus(request))
		return shape.count;
	uint64_t count = WIDE_BYTES / sizeof(float) / block_count(request);
	count = count < 1 ? 1 : count < shape.count ? count : shape.count;
	for (set_count(&shape, count);
		count > 1 &&
		collet_program_max_scratch(request->program, shape) > COLLET_SCRATCH_BYTES / sizeof(float);
		set_count(&shape, count))
		count /= 2;
	return count;
}

/* Reserves at least so many bytes. No request uses the memory now. */
static collet_status reserve(struct collet_comm_state *state, size_t bytes)
{
	if (state->wide_bytes >= bytes)
		return COLLET_OK;
	collet_wide_sums_free(state);
	state->wide_memory = collet_staging_alloc(state->engine, bytes, &state->wide_is_mapped);
	state->wide_bytes = state->wide_memory ? bytes : 0;
	return state->wide_memory
		       ? COLLET_OK
		       : collet_fail(COLLET_ERR_MEMORY, "no memory for the sums of an average, %zu bytes", bytes);
}

void collet_wide_sums_free(struct collet_comm_state *state)
{
	collet_staging_free(state->engine, state->wide_memory, state->wide_bytes, state->wide_is_mapped);
	state->wide_memory = NULL;
	state->wide_bytes = 0;
}

collet_status collet_wide_sums_plan(struct collet_request *request, collet_dtype dtype, enum collet_isa isa)
{
	struct collet_wide_sums *wide = &request->wide;
	const double shrunk = collet_average_shrunk(request->shape.size);
	collet_status status = request->state->wide_requests ? COLLET_OK : reserve(request->state, WIDE_BYTES);
	if (status == COLLET_OK)
		status = collet_conversion_init(&wide->conversion, dtype, isa);
	if (status == COLLET_OK)
		status = collet_reduction_init(&wide->down, COLLET_F32, COLLET_PREMUL_SUM, NULL, shrunk, 1, isa);
	if (status == COLLET_OK)
		status = collet_reduction_init(&wide->up, COLLET_F32, COLLET_PREMUL_SUM, NULL,
			1 / (shrunk * request->shape.size), 1, isa);
	if (status == COLLET_OK)
		status = collet_reduction_init(&request->reduction, COLLET_F32, COLLET_SUM, NULL, 1, 1, isa);
	if (status != COLLET_OK)
		return status;
	wide->slice_count = slice_count(request);
	wide->is_used = true;
	request->finishes = false;
	return COLLET_OK;
}

/* ---- Slices ---- */

static void widen(const struct collet_wide_sums *wide, float *to, const char *from, uint64_t count)
{
	const size_t bytes = collet_dtype_bytes(wide->conversion.dtype);
	for (uint64_t at = 0, now; at < count; at += now) {
		now = count - at < BLOCK_ELEMENTS ? count - at : BLOCK_ELEMENTS;
		collet_widen(&wide->conversion, to + at, from + at * bytes, now);
		const struct collet_operand operand = { to + at, true };
		collet_reduction_run(&wide->down, to + at, &operand, 1, now, false, NULL);
	}
}

void collet_wide_sums_narrow(const struct collet_wide_sums *wide, char *to, const float *from, uint64_t count)
{
	const size_t bytes = collet_dtype_bytes(wide->conversion.dtype);
	float block[BLOCK_ELEMENTS];
	for (uint64_t at = 0, now; at < count; at += now) {
		now = count - at < BLOCK_ELEMENTS ? count - at : BLOCK_ELEMENTS;
		const struct collet_operand operand = { from + at, true };
		collet_reduction_run(&wide->up, block, &operand, 1, now, false, NULL);
		collet_narrow(&wide->conversion, to + at * bytes, block, now);
	}
}

/* The tasks walk the program again, in the shape of the slice. */
static void begin_slice(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_wide_sums *wide = &request->wide;
	const uint64_t left = wide->count - wide->first, count = left < wide->slice_count ? left : wide->slice_count;
	const size_t bytes = collet_dtype_bytes(wide->conversion.dtype);
	const bool has_blocks = request->program->collective == COLLET_REDUCE_SCATTER;
	wide->result = wide->memory + (has_blocks ? state->rank * count * sizeof(float) : 0);
	set_count(&request->shape, count);
	for (uint32_t b = 0; b < block_count(request); b++)
		widen(wide, (float *)(void *)wide->memory + b * count,
			request->input + (b * wide->count + wide->first) * bytes, count);
	for (uint32_t i = 0; i < request->task_count; i++) {
		struct collet_task *task = state->tasks[i];
		if (task->first_request != request)
			continue;
		task->awaits_slice = false;
		collet_cursor_begin(task);
	}
	state->tasks_need_progress = true;
}

void collet_wide_sums_queue(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	request->wide.next = NULL;
	request->wide.previous = state->wide_end;
	*state->wide_end = request;
	state->wide_end = &request->wide.next;
}

bool collet_wide_sums_begin(struct collet_request *request)
{
	struct collet_comm_state *state = request->state;
	struct collet_wide_sums *wide = &request->wide;
	if (state->wide_requests != request)
		return false;
	if (reserve(state, block_count(request) * wide->slice_count * sizeof(float)) != COLLET_OK) {
		collet_comm_state_end(state, COLLET_ERR_MEMORY, true, collet_last_error());
		return false;
	}
	wide->memory = state->wide_memory;
	wide->first = 0;
	wide->count = request->shape.count;
	begin_slice(request);
	return true;
}

bool collet_wide_sums_has_more(const struct collet_request *request)
{
	const struct collet_wide_sums *wide = &request->wide;
	return wide->memory && wide->first + request->shape.count < wide->count;
}

bool collet_wide_sums_end_slice(struct collet_request *request)
{
	struct collet_wide_sums *wide = &request->wide;
	const uint64_t count = request->shape.count;
	const bool has_result =
		request->program->collective != COLLET_REDUCE || request->shape.rank == request->shape.root;
	if (has_result) {
		collet_wide_sums_narrow(wide,
			request->result + wide->first * collet_dtype_bytes(wide->conversion.dtype),
			(const float *)(const void *)wide->result, count);
		request->state->roundings += count;
	}
	wide->first += count;
	if (wide->first == wide->count)
		return true;
	request->issuing_tasks = request->task_count;
	begin_slice(request);
	return false;
}

void collet_wide_sums_release(struct collet_request *request)
{
	struct collet_wide_sums *wide = &request->wide;
	*wide->previous = wide->next;
	if (wide->next)
		wide->next->wide.previous = wide->previous;
	else
		request->state->wide_end = wide->previous;
	wide->previous = NULL;
	if (wide->memory)
		set_count(&request->shape, wide->count);
	wide->memory = NULL;
	request->state->tasks_need_progress = true;
}
