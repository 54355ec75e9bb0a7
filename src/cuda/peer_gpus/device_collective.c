#include "cuda/peer_gpus/device_collective.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api/on_end.h"
#include "core/clock.h"
#include "core/types.h"
#include "cuda/gpu_call.h"
#include "cuda/gpu_cost.h"
#include "cuda/peer_gpus/device_collective_internal.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "engine/comm_state.h"
#include "engine/engine.h"
#include "engine/lock.h"
#include "engine/progress_hook.h"
#include "engine/recorder.h"
#include "engine/request.h"

enum { POLL_NS = 200 * 1000, MISMATCH_TIMEOUT_NS = 200 * 1000 * 1000 };
static const int64_t RELEASE_TIMEOUT_NS = INT64_C(10) * 1000 * 1000 * 1000;

/* ---- From a planned request to a kernel's call ---- */

/* Positions are ranks here: which ranks are near each other on the host does not matter to GPUs. */
static struct collet_shape shape_of(
	const collet_comm *comm, const struct collet_call_arguments *call, const struct collet_request *request)
{
	struct collet_shape shape =
		collet_shape_of(call->collective, comm->state.rank, comm->state.size, call->root, call->count);
	if (call->input_partition) {
		shape.input = request->shape.input;
		shape.result = request->shape.result;
	}
	return shape;
}

static struct collet_devcoll_call devcoll_call_of(const struct collet_device_collectives *devcolls,
	const struct collet_call_arguments *call, const struct collet_request *request, const collet_how *how)
{
	struct collet_devcoll_call made = {
		.program = request->program,
		.shape = shape_of(devcolls->comm, call, request),
		.is_vector = call->input_partition != NULL,
		.dtype = call->dtype,
		.op = call->op,
		.scale = how->scale,
		.signature = request->call_signature,
		.timeout_ns = -1,
	};
	/* The plan needs no more of the request's slices than that there are some. */
	made.is_wide = request->wide.is_used;
	made.options = collet_device_comm_options(devcolls->device_comm, made.program, &made.shape,
		request->element_bytes, request->counted_bytes, how->segment_bytes, how->channels);
	return made;
}

static void set_buffers(struct collet_devcoll_call *call, const struct devcoll *devcoll)
{
	call->input = devcoll->buffers[COLLET_SEND_BUFFER].device_address;
	call->result = devcoll->buffers[COLLET_RECV_BUFFER].device_address;
	call->input_bytes = devcoll->buffers[COLLET_SEND_BUFFER].bytes;
	call->result_bytes = devcoll->buffers[COLLET_RECV_BUFFER].bytes;
}

/* ---- A call ---- */

static collet_status check_call(const struct collet_call_arguments *call, const collet_how *how)
{
	if (how->stream && call->op == COLLET_USER)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: a user-defined operation is a function of the host, and calls on streams of a "
			"communicator whose ranks have GPUs of their own are the GPUs'; call without how.stream",
			call->function);
	return collet_check_notice(call->function, how);
}

static void free_request(collet_comm *comm, struct collet_request *request)
{
	collet_engine_lock(comm->state.engine);
	collet_request_release(request);
	collet_engine_unlock(comm->state.engine);
}

bool collet_device_collectives_fit(const collet_comm *comm, enum collet_collective collective,
	const struct collet_shape *shape, collet_dtype dtype)
{
	return comm->gpu->device_collectives &&
	       (!comm->gpu->device_collectives->has_leader ||
		       collet_shape_bytes(collective, shape, collet_dtype_bytes(dtype)) <= COLLET_DEVCOLL_MAX_BYTES);
}

struct collet_choice_basis collet_device_collectives_choices(collet_comm *comm)
{
	struct collet_device_collectives *devcolls = comm->gpu->device_collectives;
	return (struct collet_choice_basis){
		.inputs = &devcolls->inputs, .table = &devcolls->table, .is_device = true };
}

/* Fills inputs and table. Every rank computes the same, from rank 0's links. */
static void fill_choices(struct collet_device_collectives *devcolls)
{
	const collet_comm *comm = devcolls->comm;
	bool measured;
	const collet_link_cost *link = collet_gpu_kernel_link(comm->context, &measured);
	devcolls->inputs = (struct collet_choice_inputs){ .size = comm->state.size, .host_count = 1, .local = link,
		.remote = link, .scratch_bytes = comm->inputs.scratch_bytes };
	collet_choice_table_init(&devcolls->table, &devcolls->inputs);
}

/* True if kernels of the ranks execute this call; all ranks decide alike. A leader gets the calls for which it is
 * faster (cuda/peer_gpus/device_comm.h). The host gets those that no kernel can do. */
static bool is_device_collective(
	const struct collet_device_collectives *devcolls, const struct collet_call_arguments *arguments)
{
	const collet_comm *comm = devcolls->comm;
	if (arguments->op == COLLET_USER)
		return false;
	if (!devcolls->has_leader)
		return true;
	if (arguments->input_partition || !collet_call_may_share_gpu(comm, arguments))
		return false;
	const struct collet_shape shape = collet_shape_of(
		arguments->collective, comm->state.rank, comm->state.size, arguments->root, arguments->count);
	return collet_device_collectives_fit(comm, arguments->collective, &shape, arguments->dtype);
}

/* Plans the call. Under the engine's lock, since whichever thread makes progress launches calls that wait. */
static collet_status prepare_plan(struct collet_device_collectives *devcolls, struct devcoll *devcoll)
{
	struct collet_engine *engine = devcolls->comm->state.engine;
	collet_engine_lock(engine);
	const collet_status status =
		collet_device_comm_prepare(devcolls->device_comm, &devcoll->call, &devcoll->plan);
	collet_engine_unlock(engine);
	return status;
}

/* Plans the kernel of a prepared request, finds its buffers and runs it. Takes ownership of devcoll and request. The
 * context of the device communicator is current. */
static collet_status run(struct collet_device_collectives *devcolls, const struct collet_call_arguments *arguments,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const collet_how *how, struct devcoll *devcoll,
	struct collet_request *request, const struct devcoll_scope *scope)
{
	struct collet_comm_state *state = &devcolls->comm->state;
	struct collet_devcoll_call *call = &devcoll->call;
	*call = devcoll_call_of(devcolls, arguments, request, how);
	collet_status status = prepare_plan(devcolls, devcoll);
	if (status == COLLET_OK)
		status = devcoll_find_buffers(devcoll, arguments->function, buffers);
	if (status == COLLET_OK && call->is_vector)
		status = devcoll_set_parts(devcoll, call->options.element_bytes, call->shape.size, &call->shape.result);
	if (status == COLLET_OK) {
		set_buffers(call, devcoll);
		if (how->stream)
			return devcoll_run_on_stream(devcolls, devcoll, request, scope);
		bool consumed;
		status = devcoll_run_request(devcolls, devcoll, request, how, &consumed);
		if (consumed)
			return status;
	}
	/* If that has ended the communicator, the kernel has been launched. */
	if (atomic_load_explicit(&state->end_status, memory_order_acquire) != COLLET_OK) {
		devcoll->is_captured = true;
		devcoll_await_release(devcolls, devcoll);
	} else {
		devcoll_free(devcoll);
	}
	free_request(devcolls->comm, request);
	return status;
}

collet_status collet_device_collectives_call(collet_comm *comm, const struct collet_call_arguments *arguments,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const collet_how *how, bool *claimed)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	struct collet_device_collectives *devcolls = comm->gpu->device_collectives;
	struct collet_request *request;
	struct devcoll_scope scope;
	how = how ? how : &default_how;
	*claimed = devcolls != NULL;
	if (!devcolls)
		return COLLET_OK;
	const bool here = is_device_collective(devcolls, arguments);
	collet_status status = here || !devcolls->has_leader ? check_call(arguments, how) : COLLET_OK;
	*claimed = here || status != COLLET_OK;
	if (!*claimed || status != COLLET_OK)
		return status;
	struct devcoll *devcoll = calloc(1, sizeof(*devcoll));
	if (!devcoll)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call", arguments->function);
	devcoll->owner = devcolls;
	status = collet_gpu_call_prepare(comm, arguments, NULL, how, &request);
	if (status == COLLET_OK) {
		status = devcoll_enter(devcolls, how->stream, &scope);
		if (status != COLLET_OK)
			free_request(comm, request);
	}
	if (status != COLLET_OK) {
		free(devcoll);
		return status;
	}
	if (how->stream)
		devcoll_launch_all(devcolls);
	devcoll_reap(devcolls, false);
	status = run(devcolls, arguments, buffers, how, devcoll, request, &scope);
	devcoll_leave(&scope);
	return status;
}

void devcoll_begin(struct collet_device_collectives *devcolls, struct collet_request *request, uint64_t number)
{
	if (devcolls->has_leader)
		collet_gpu_call_start_offloaded(devcolls->comm, request, &devcolls->out_of_band_recorder, number - 1);
	else
		collet_gpu_call_start_offloaded(devcolls->comm, request, NULL, 0);
}

const struct collet_recorder *collet_device_collectives_recorder(const collet_comm *comm)
{
	return comm->gpu->device_collectives && comm->gpu->device_collectives->has_leader
		       ? &comm->gpu->device_collectives->out_of_band_recorder
		       : NULL;
}

/* Writes which calls this rank and another rank of this process have made, if they differ. Compares device collectives
 * with numbers of their own. A call is recorded after it has been enqueued, so the kernel of the other rank may find
 * the mismatch first: by a moment, or, on a busy machine, until that thread runs again. A different order of graph
 * launches is never found. */
static bool name_mismatch(const collet_comm *comm, uint32_t rank, char error_text[COLLET_ERROR_BYTES])
{
	const struct collet_device_collectives *devcolls = comm->gpu->device_collectives;
	const int64_t deadline = collet_clock_ns() + MISMATCH_TIMEOUT_NS;
	struct collet_call own, others;
	char mine[160], theirs[160];
	if (!devcolls->has_leader)
		return false;
	bool left = collet_co_resident_has_left(devcolls->co_resident, rank);
	while (!collet_co_resident_find_mismatch(devcolls->co_resident, comm->state.rank, rank, &own, &others)) {
		if (left || collet_clock_ns() >= deadline)
			return false;
		sched_yield();
		left = collet_co_resident_has_left(devcolls->co_resident, rank);
	}
	collet_call_describe(&own, mine, sizeof(mine));
	collet_call_describe(&others, theirs, sizeof(theirs));
	snprintf(error_text, COLLET_ERROR_BYTES,
		"ranks disagree: as kernels of their own rank %u on %s called %s, rank %u on %s called %s",
		comm->state.rank, collet_comm_host(comm, comm->state.rank), mine, rank, collet_comm_host(comm, rank),
		theirs);
	return true;
}

/* Describes a kernel's error in a sentence. */
static collet_status describe_error(const collet_comm *comm, enum collet_device_error error, uint32_t rank,
	char error_text[COLLET_ERROR_BYTES])
{
	const char *host = collet_comm_host(comm, rank);
	if (error == COLLET_DEVICE_TIMEOUT) {
		snprintf(error_text, COLLET_ERROR_BYTES, "a call timed out: its kernel waited for rank %u on %s", rank,
			host);
		return COLLET_ERR_TIMEOUT;
	}
	if (error == COLLET_DEVICE_MISMATCH && name_mismatch(comm, rank, error_text))
		return COLLET_ERR_MISMATCH;
	if (error == COLLET_DEVICE_MISMATCH) {
		snprintf(error_text, COLLET_ERROR_BYTES,
			"rank %u on %s has called something else than this rank has, as its next call that GPUs do; "
			"calls on streams and in graphs must be alike on all ranks, and in one order",
			rank, host);
		return COLLET_ERR_MISMATCH;
	}
	snprintf(error_text, COLLET_ERROR_BYTES,
		"rank %u on %s has left this communicator, of %u ranks, without a call that this rank's kernel waits "
		"for",
		rank, host, comm->state.size);
	return COLLET_ERR_PEER_LOST;
}

void collet_device_collectives_check_errors(const collet_comm *comm)
{
	char error_text[COLLET_ERROR_BYTES];
	uint32_t rank;
	if (!comm->gpu->device_collectives ||
		atomic_load_explicit(&comm->state.end_status, memory_order_acquire) != COLLET_OK)
		return;
	const enum collet_device_error error =
		collet_device_comm_async_error(comm->gpu->device_collectives->device_comm, &rank);
	if (error == COLLET_DEVICE_OK)
		return;
	const collet_status status = describe_error(comm, error, rank, error_text);
	collet_comm_state_end((struct collet_comm_state *)(uintptr_t)&comm->state, status, true, error_text);
}

/* ---- Creating and destroying ---- */

static collet_status exchange(void *context, const void *own, void *all, size_t bytes)
{
	return collet_allgather(context, own, all, bytes, COLLET_U8, NULL);
}

collet_status collet_comm_make_device_collectives(collet_comm *comm)
{
	const struct collet_host_exchange exchanging = { exchange, comm };
	struct collet_device_comm *device_comm;
	if (!comm->context->gpu->device.cuda || !collet_device_comm_is_possible(&comm->state))
		return COLLET_OK;
	/* All share a GPU and there is no leader either; the log has said why. */
	if (!comm->gpu->shared_gpu && collet_shared_gpu_scope_of(&comm->state) == COLLET_SHARED_GPU_ALL)
		return COLLET_OK;
	const bool has_leader = comm->gpu->shared_gpu != NULL;
	bool measured;
	const struct collet_channel_limits limits =
		collet_gpu_channel_limits(collet_gpu_kernel_link(comm->context, &measured));
	const collet_status status = collet_device_comm_create(
		&device_comm, &comm->context->gpu->device, &comm->state, has_leader, limits, &exchanging);
	if (status != COLLET_OK || !device_comm)
		return status;
	struct collet_device_collectives *made = calloc(1, sizeof(*made));
	if (!made || (has_leader && collet_recorder_init(&made->out_of_band_recorder) != COLLET_OK)) {
		free(made);
		(void)collet_device_comm_destroy(device_comm);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	}
	made->comm = comm;
	made->context = comm->context;
	made->device_comm = device_comm;
	made->co_resident = collet_device_comm_co_resident(device_comm);
	made->has_leader = has_leader;
	fill_choices(made);
	if (has_leader)
		collet_co_resident_set_recorder(made->co_resident, comm->state.rank, &made->out_of_band_recorder);
	made->last = &made->pending;
	collet_engine_lock(comm->state.engine);
	made->hook = (struct collet_progress_hook){ .table = &devcoll_hooks, .context = made };
	collet_comm_state_add_hook(&comm->state, &made->hook);
	collet_engine_unlock(comm->state.engine);
	comm->gpu->device_collectives = made;
	if (comm->state.rank == 0)
		collet_log(&comm->context->engine.log, COLLET_LOG_INFO,
			has_leader ? "cuda: %u threads share a GPU, and launch a kernel each for what is short"
			    : "cuda: %u ranks have GPUs that reach each other, and each rank launches a kernel of its "
			      "own for its part of a collective",
			comm->state.size);
	return COLLET_OK;
}

void collet_device_collectives_abort(collet_comm *comm)
{
	if (comm->gpu->device_collectives)
		collet_device_comm_abort(comm->gpu->device_collectives->device_comm);
}

/* Waits until streams have passed all calls that are not of graphs; false if that takes too long. Streams of a context
 * that a fault has broken never report it. So a fault is polled twice: by the second poll, copies by the host have
 * ended too. */
static bool wait_all_released(struct collet_device_collectives *devcolls)
{
	const int64_t deadline = collet_clock_ns() + RELEASE_TIMEOUT_NS;
	const struct timespec pause = { .tv_nsec = POLL_NS };
	bool broken = false;
	for (;;) {
		bool released = true;
		devcoll_reap(devcolls, false);
		for (const struct devcoll *devcoll = devcolls->unreleased; devcoll; devcoll = devcoll->next)
			released = released && (devcoll->is_captured || devcoll->is_leaked);
		if (released || collet_clock_ns() >= deadline)
			return released;
		const bool before = broken;
		broken = collet_device_comm_check_fault(devcolls->device_comm) != COLLET_OK;
		if (broken && before)
			return true;
		nanosleep(&pause, NULL);
	}
}

/* True if a stream of a working context may still execute a part of a call, and nothing will report when it has. */
static bool some_are_leaked(struct collet_device_collectives *devcolls)
{
	bool leaked = false;
	for (const struct devcoll *devcoll = devcolls->unreleased; devcoll; devcoll = devcoll->next)
		leaked = leaked || devcoll->is_leaked;
	return leaked && collet_device_comm_check_fault(devcolls->device_comm) == COLLET_OK;
}

static void log_leaked(const collet_comm *comm, bool released, bool leaked)
{
	if (released && !leaked)
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: a fault has broken the GPU's context; what the communicator has there, "
			"and what its calls use, is kept until the process ends");
	else if (leaked)
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: the driver has refused a call in the middle, so nobody knows when its "
			"stream has passed what it has of that; what the communicator's calls use is not freed");
	else
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: after %d s a stream has not passed calls of this communicator; what they "
			"use is not freed",
			(int)(RELEASE_TIMEOUT_NS / 1000000000));
}

bool collet_device_collectives_destroy(collet_comm *comm)
{
	struct collet_device_collectives *devcolls = comm->gpu->device_collectives;
	if (!devcolls)
		return true;
	collet_device_comm_leave(devcolls->device_comm);
	const bool released = wait_all_released(devcolls), leaked = released && some_are_leaked(devcolls);
	const bool idle = released && !leaked && collet_device_comm_destroy(devcolls->device_comm);
	collet_engine_lock(comm->state.engine);
	collet_comm_state_remove_hook(&comm->state, &devcolls->hook);
	if (!idle) {
		devcolls->next_leaked = comm->context->gpu->leaked_device_collectives;
		comm->context->gpu->leaked_device_collectives = devcolls;
	}
	collet_engine_unlock(comm->state.engine);
	comm->gpu->device_collectives = NULL;
	if (!idle) {
		log_leaked(comm, released, leaked);
		return false;
	}
	devcoll_reap(devcolls, true);
	for (struct devcoll *devcoll = devcolls->pending, *next; devcoll; devcoll = next) {
		next = devcoll->next;
		devcoll_free(devcoll);
	}
	collet_recorder_deinit(&devcolls->out_of_band_recorder);
	free(devcolls);
	return true;
}

/* Page-locked memory of calls is the parent's. */
void collet_device_collectives_atfork_child(collet_comm *comm)
{
	if (!comm->gpu->device_collectives)
		return;
	collet_device_comm_atfork_child(comm->gpu->device_collectives->device_comm);
	collet_comm_state_remove_hook(&comm->state, &comm->gpu->device_collectives->hook);
	collet_recorder_deinit(&comm->gpu->device_collectives->out_of_band_recorder);
	free(comm->gpu->device_collectives);
	comm->gpu->device_collectives = NULL;
}
