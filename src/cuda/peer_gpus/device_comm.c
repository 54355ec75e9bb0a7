/* Launches kernels, orders the launches, and ends them. */
#include "cuda/peer_gpus/device_comm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/clock.h"
#include "core/status.h"
#include "cuda/peer_gpus/internal.h"
#include "engine/comm_state.h"
#include "engine/connection_manager.h"
#include "engine/engine.h"
#include "engine/lock.h"

static const int64_t DESTROY_TIMEOUT_NS = INT64_C(10) * 1000 * 1000 * 1000,
		     LEAVE_TIMEOUT_NS = INT64_C(1) * 1000 * 1000 * 1000;
enum {
	POLL_NS = 200 * 1000,
	LL_CALL_BYTES = 8 << 10,    /* calls up to this size use the LL protocol; others */
	MIN_SEGMENT_BYTES = 4 << 10 /* have segments of at least this size */
};

/* ---- Division of calls ---- */

static uint64_t at_least(uint64_t value, uint64_t least)
{
	return value < least ? least : value;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value > most ? most : value;
}

/* With many ranks, a message is a share of the call's bytes. Each channel should have several in flight. */
struct collet_plan_options collet_device_comm_options(const struct collet_device_comm *device_comm,
	const struct collet_program *program, const struct collet_shape *shape, size_t element_bytes, uint64_t bytes,
	uint32_t segment_bytes, uint32_t channels)
{
	const uint32_t parts = collet_program_part_count(program, shape);
	/* Of a v-form, not all ranks know the size. */
	const bool is_known = bytes || (shape->input.kind != COLLET_PARTITION_VECTOR &&
					    shape->result.kind != COLLET_PARTITION_VECTOR);
	const bool is_ll = is_known && bytes <= LL_CALL_BYTES && !segment_bytes && !channels;
	const uint64_t most = parts * device_comm->channels_per_part <= device_comm->window.channels
				      ? device_comm->channels_per_part
				      : at_least(device_comm->window.channels / parts, 1);
	uint64_t used_channels = channels ? channels
				 : bytes  ? bytes / device_comm->channel_limits.bytes_per_channel
					  : most;
	/* A segment costs the same however short it is, so those of a short call are sent at once. */
	used_channels = is_ll ? (bytes + COLLET_LL_BYTES - 1) / COLLET_LL_BYTES : used_channels;
	used_channels = at_most(at_least(used_channels, 1), most);
	uint64_t segment = bytes ? bytes / (shape->size * used_channels * 2) : device_comm->segment_bytes;
	segment = segment_bytes ? segment_bytes : at_least(segment, MIN_SEGMENT_BYTES);
	segment = is_ll ? COLLET_LL_BYTES : at_most(segment, device_comm->segment_bytes);
	return (struct collet_plan_options){ .element_bytes = (uint32_t)element_bytes,
		.channels_per_part = (uint32_t)used_channels,
		.segment_bytes = at_least(segment / 16 * 16, 16),
		.is_ll = is_ll };
}

/* ---- Launching ---- */

static collet_status check(const struct collet_device_comm *device_comm, cu_result result, const char *what)
{
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(device_comm->cuda, result, what);
}

/* Gets the id of a stream that is not captured. The driver has no id for a captured one: the question would invalidate
 * the capture. Handles cannot be compared instead, as a new stream may get a destroyed one's. */
static collet_status get_stream_id(const struct collet_device_comm *device_comm,
	const struct collet_launch_target *target, unsigned long long *id)
{
	*id = 0;
	return target->capture ? COLLET_OK
			       : check(device_comm, device_comm->cuda->cuStreamGetId(target->stream, id),
					 "asking for a stream's id");
}

/* Waits for the launch before, within a capture or outside all captures. A stream need not wait for itself; in a
 * capture that adds nothing to the graph. */
static collet_status wait_for_last_launch(
	struct collet_device_comm *device_comm, const struct collet_launch_target *target, unsigned long long id)
{
	static const char what[] = "making a stream wait for a communicator's last launch";
	if (target->capture && device_comm->last_capture == target->capture)
		return check(device_comm,
			device_comm->cuda->cuStreamWaitEvent(target->stream, device_comm->last_captured_event, 0),
			what);
	if (!target->capture && device_comm->launch_count && device_comm->last_stream != id)
		return check(device_comm,
			device_comm->cuda->cuStreamWaitEvent(target->stream, device_comm->last_launch_event, 0), what);
	return COLLET_OK;
}

static void record_last_launch(struct collet_device_comm *device_comm, const struct collet_launch_target *target,
	struct collet_device_plan *plan, unsigned long long id)
{
	if (target->capture) {
		device_comm->last_capture = target->capture;
		device_comm->cached_plans -= !plan->is_captured;
		plan->is_captured = true;
		return;
	}
	device_comm->last_stream = id;
	plan->last_launch = ++device_comm->launch_count;
}

static uint64_t done_address(const struct collet_device_comm *device_comm)
{
	return device_comm->host_flags_gpu + offsetof(struct host_flags, done);
}

static struct collet_plan_arguments arguments_of(const struct collet_device_comm *device_comm,
	const struct collet_devcoll_call *call, const struct collet_device_plan *plan)
{
	const bool reduces = call->op != COLLET_OP_COUNT;
	const uint64_t scratch = collet_program_scratch(call->program, &call->shape) * call->options.element_bytes;
	struct collet_plan_arguments arguments = { .op = reduces ? call->op : COLLET_SUM,
		.divisor = call->op == COLLET_AVERAGE ? call->shape.size : 1,
		.is_scaled = call->op == COLLET_PREMUL_SUM,
		.dtype = call->dtype,
		.window = device_comm->window };
	struct collet_plan_rank *rank = &arguments.ranks[0];
	*rank = (struct collet_plan_rank){
		.plan = plan->address,
		.plan_bytes = plan->bytes,
		.windows = window_addresses(device_comm),
		.abort = device_comm->host_flags_gpu + offsetof(struct host_flags, abort),
		.left_ranks = device_comm->host_flags_gpu + offsetof(struct host_flags, left_ranks),
		.signature = call->signature,
		.timeout_ns = call->timeout_ns > 0 ? (uint64_t)call->timeout_ns : 0,
		.done = call->ticket ? done_address(device_comm) : 0,
		.ticket = call->ticket,
		.buffers = { call->input, call->result, device_comm->scratch },
		.bytes = { call->input_bytes, call->result_bytes, scratch },
	};
	memcpy(&rank->scale, &call->scale, sizeof(rank->scale));
	collet_device_wide_set_arguments(device_comm, call, &arguments);
	return arguments;
}

collet_status collet_device_comm_launch(struct collet_device_comm *device_comm, const struct collet_devcoll_call *call,
	struct collet_device_plan *plan, const struct collet_launch_target *target)
{
	const struct collet_plan_arguments arguments = arguments_of(device_comm, call, plan);
	const cu_event order = target->capture ? device_comm->last_captured_event : device_comm->last_launch_event;
	unsigned long long id;
	collet_status status = get_stream_id(device_comm, target, &id);
	if (status == COLLET_OK)
		status = wait_for_last_launch(device_comm, target, id);
	if (status == COLLET_OK)
		status = collet_device_wide_launch_before(
			device_comm, call, &arguments, plan->channels, target->stream);
	if (status == COLLET_OK)
		status = collet_kernel_launch(
			device_comm->kernels, COLLET_GPU_plan, plan->channels, 1, &arguments, target->stream);
	if (status == COLLET_OK)
		status = collet_device_wide_launch_after(device_comm, call, &arguments, plan->channels,
			call->ticket ? done_address(device_comm) : 0, target->stream);
	if (status != COLLET_OK)
		return status;
	record_last_launch(device_comm, target, plan, id);
	status = check(device_comm, device_comm->cuda->cuEventRecord(order, target->stream),
		"recording an event behind a launch");
	/* The launch is queued, but nothing could wait for it. */
	if (status != COLLET_OK && !device_comm->exchange)
		collet_comm_state_end(device_comm->state, status, true, collet_last_error());
	return status;
}

struct collet_co_resident *collet_device_comm_co_resident(const struct collet_device_comm *device_comm)
{
	return device_comm->co_resident;
}

const struct collet_copy_stream *collet_device_comm_copy_stream(const struct collet_device_comm *device_comm)
{
	return device_comm->copy_stream;
}

cu_stream collet_device_comm_stream(const struct collet_device_comm *device_comm)
{
	return device_comm->stream;
}

uint64_t collet_device_comm_completed(const struct collet_device_comm *device_comm)
{
	/* Acquire: pairs with the release of the last channel. What all channels have written is visible. */
	return atomic_load_explicit(&device_comm->host_flags->done, memory_order_acquire);
}

/* Only CU_NOT_READY means that launches run. If a fault has broken the context, or the application has destroyed it,
 * nothing runs. */
bool collet_device_comm_is_idle(struct collet_device_comm *device_comm)
{
	return !device_comm->launch_count ||
	       device_comm->cuda->cuEventQuery(device_comm->last_launch_event) != CU_NOT_READY;
}

collet_status collet_device_comm_check_fault(struct collet_device_comm *device_comm)
{
	const int mode = collet_cuda_relax_capture(device_comm->cuda);
	const cu_result result =
		device_comm->launch_count ? device_comm->cuda->cuEventQuery(device_comm->last_launch_event) : CU_OK;
	collet_cuda_restore_capture(device_comm->cuda, mode);
	return result == CU_NOT_READY ? COLLET_OK :
		check(device_comm, result, "a device collective");
}

enum collet_device_error collet_device_comm_async_error(const struct collet_device_comm *device_comm, uint32_t *rank)
{
	const uint32_t word = atomic_load_explicit(&device_comm->host_flags->abort, memory_order_relaxed);
	*rank = word & ~(COLLET_ABORT_TIMEOUT | COLLET_ABORT_MISMATCH | COLLET_ABORT_PEER_LEFT);
	return word & COLLET_ABORT_TIMEOUT ? COLLET_DEVICE_TIMEOUT :
		word & COLLET_ABORT_MISMATCH ? COLLET_DEVICE_MISMATCH :
		word & COLLET_ABORT_PEER_LEFT ? COLLET_DEVICE_PEER_LEFT : COLLET_DEVICE_OK;
}

/* ---- Lifetime ---- */

static const struct collet_peer_info *peer_info_of(const struct collet_comm_state *state, uint32_t rank)
{
	return &state->engine->peer_infos[collet_comm_state_world_rank(state, rank)];
}

bool collet_device_comm_same_gpu(const struct collet_comm_state *state, uint32_t rank, uint32_t other)
{
	const struct collet_peer_info *a = peer_info_of(state, rank), *b = peer_info_of(state, other);
	return memcmp(a->gpu, b->gpu, sizeof(a->gpu)) == 0;
}

bool collet_device_comm_is_possible(const struct collet_comm_state *state)
{
	static const uint8_t none[sizeof(((struct collet_peer_info *)0)->gpu)];
	const struct collet_peer_info *first = peer_info_of(state, 0);
	if (state->size < 2 || state->size > COLLET_PLAN_RANKS)
		return false;
	for (uint32_t r = 0; r < state->size; r++) {
		const struct collet_peer_info *peer_info = peer_info_of(state, r);
		if (peer_info->host_id != first->host_id || !peer_info->handle_exchange[1] ||
			memcmp(peer_info->gpu, none, sizeof(none)) == 0)
			return false;
		/* The GPU runs kernels of two processes one after the other. */
		for (uint32_t other = 0; other < r; other++)
			if (collet_device_comm_same_gpu(state, r, other) &&
				peer_info_of(state, other)->process_id != peer_info->process_id)
				return false;
	}
	return true;
}

static uint32_t max_ranks_per_gpu(const struct collet_comm_state *state)
{
	uint32_t most = 0;
	for (uint32_t r = 0; r < state->size; r++) {
		uint32_t count = 0;
		for (uint32_t other = 0; other < state->size; other++)
			count += collet_device_comm_same_gpu(state, r, other);
		most = count > most ? count : most;
	}
	return most;
}

collet_status collet_device_comm_create(struct collet_device_comm **made, struct collet_device *device,
	struct collet_comm_state *state, bool has_leader, struct collet_channel_limits limits,
	const struct collet_host_exchange *exchange)
{
	bool ok = false;
	*made = NULL;
	struct collet_device_comm *device_comm = calloc(1, sizeof(*device_comm));
	struct collet_ipc_mapping **mapping = calloc(state->size, sizeof(struct collet_ipc_mapping *));
	if (!device_comm || !mapping) {
		free(device_comm);
		free(mapping);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	}
	device_comm->device = device;
	device_comm->cuda = device->cuda;
	device_comm->state = state;
	device_comm->exchange = exchange;
	device_comm->has_leader = has_leader;
	device_comm->channel_limits = limits;
	device_comm->ranks_per_gpu = max_ranks_per_gpu(state);
	device_comm->peer_windows = mapping;
	const collet_status status = collet_device_comm_connect(device_comm, &ok);
	device_comm->exchange = NULL;
	if (status == COLLET_OK && ok)
		*made = device_comm;
	else
		(void)collet_device_comm_destroy(device_comm);
	return status;
}

void collet_device_comm_abort(struct collet_device_comm *device_comm)
{
	uint32_t none = 0;
	if (device_comm && device_comm->host_flags)
		(void)atomic_compare_exchange_strong_explicit(
			&device_comm->host_flags->abort, &none, 1, memory_order_relaxed, memory_order_relaxed);
}

static bool wait_until_idle(struct collet_device_comm *device_comm, int64_t timeout_ns)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	const int64_t deadline = collet_clock_ns() + timeout_ns;
	while (device_comm->last_launch_event && !collet_device_comm_is_idle(device_comm)) {
		if (collet_clock_ns() >= deadline)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

void collet_device_comm_leave(struct collet_device_comm *device_comm)
{
	const int mode = collet_cuda_relax_capture(device_comm->cuda);
	(void)wait_until_idle(device_comm, LEAVE_TIMEOUT_NS);
	collet_cuda_restore_capture(device_comm->cuda, mode);
	collet_co_resident_leave(device_comm->co_resident, device_comm->state->rank);
	device_comm->co_resident = NULL;
	collet_connections_notify_left(device_comm->state);
}

/* Needs the context. */
static void free_on_gpu(struct collet_device_comm *device_comm)
{
	const struct collet_cuda *cuda = device_comm->cuda;
	if (device_comm->stream)
		(void)cuda->cuStreamSynchronize(device_comm->stream);
	collet_device_comm_free_plans(device_comm);
	if (device_comm->last_launch_event)
		(void)cuda->cuEventDestroy(device_comm->last_launch_event);
	if (device_comm->last_captured_event)
		(void)cuda->cuEventDestroy(device_comm->last_captured_event);
	if (device_comm->stream)
		(void)cuda->cuStreamDestroy(device_comm->stream);
}

static void free_host_memory(struct collet_device_comm *device_comm)
{
	for (struct collet_device_plan *plan = device_comm->plans, *next; plan; plan = next) {
		next = plan->next;
		free(plan);
	}
	for (struct plan_block *block = device_comm->blocks, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	if (device_comm->host_flags)
		(void)munmap(device_comm->host_flags, sizeof(*device_comm->host_flags));
	free(device_comm->peer_windows);
	free(device_comm);
}

/* Frees everything on the GPU. If the application has destroyed the context, all is gone already. Returns false if the
 * context exists but is broken. */
static bool free_in_context(struct collet_device_comm *device_comm)
{
	const struct collet_cuda *cuda = device_comm->cuda;
	if (!device_comm->copy_stream)
		return true;
	const cu_result result = cuda->cuCtxPushCurrent(device_comm->copy_stream->context);
	if (result != CU_OK)
		return collet_cuda_context_is_destroyed(result);
	const bool is_usable =
		!device_comm->launch_count || cuda->cuEventQuery(device_comm->last_launch_event) == CU_OK;
	if (is_usable)
		free_on_gpu(device_comm);
	(void)cuda->cuCtxPopCurrent(NULL);
	if (is_usable && device_comm->host_flags_gpu &&
		!collet_cuda_unregister_host(cuda, device_comm->copy_stream->context, device_comm->host_flags))
		device_comm->host_flags = NULL;
	return is_usable;
}

static void leak(struct collet_device_comm *device_comm)
{
	struct collet_device *device = device_comm->device;
	collet_engine_lock(device_comm->state->engine);
	device->is_leaked = true;
	device_comm->next_leaked = device->leaked_comms;
	device->leaked_comms = device_comm;
	collet_engine_unlock(device_comm->state->engine);
}

bool collet_device_comm_destroy(struct collet_device_comm *device_comm)
{
	if (!device_comm)
		return true;
	pthread_mutex_lock(&device_comm->state->engine->end_lock);
	device_comm->state->abort_flag = NULL;
	device_comm->state->left_ranks = NULL;
	pthread_mutex_unlock(&device_comm->state->engine->end_lock);
	collet_device_comm_abort(device_comm);
	/* Does not disturb captures by other threads of the application. */
	const struct collet_cuda *cuda = device_comm->cuda;
	const int mode = collet_cuda_relax_capture(cuda);
	const bool is_idle = wait_until_idle(device_comm, DESTROY_TIMEOUT_NS) && free_in_context(device_comm);
	collet_co_resident_leave(device_comm->co_resident, device_comm->state->rank);
	device_comm->co_resident = NULL;
	if (is_idle) {
		for (uint32_t r = 0; r < device_comm->state->size; r++)
			collet_ipc_cache_close(&device_comm->device->ipc_cache, device_comm->peer_windows[r]);
		collet_vmm_free(cuda, &device_comm->window_memory);
		collet_co_resident_release_blocks(device_comm->device->ordinal, device_comm->reserved_blocks);
		free_host_memory(device_comm);
	} else {
		leak(device_comm);
	}
	collet_cuda_restore_capture(cuda, mode);
	return is_idle;
}

void collet_device_comm_atfork_child(struct collet_device_comm *device_comm)
{
	if (device_comm)
		free_host_memory(device_comm);
}
