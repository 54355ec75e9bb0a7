/* Runs calls that the host waits for: blocking ones, and requests. They are launched on a stream of the communicator,
 * and rounds of progress find out that they have ended.
 *
 * Where ranks share a GPU, a call is launched when all ranks of the process have made it
 * (cuda/peer_gpus/co_resident.h). Until then it waits here, and whoever makes progress launches it. */
#include <sched.h>
#include <stdio.h>

#include "api/on_end.h"
#include "core/clock.h"
#include "cuda/peer_gpus/device_collective_internal.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/mismatch.h"
#include "engine/progress_hook.h"
#include "engine/request.h"
#include "engine/wait.h"

enum { FAULT_CHECK_INTERVAL = 4096 }; /* rounds of a wait; each takes well below a microsecond */
/* By then a kernel that was told to stop has stopped, and one that has not begun reads no buffer. */
static const int64_t STOP_TIMEOUT_NS = INT64_C(1) * 1000 * 1000 * 1000;
/* Time for the host to find a timeout first, since its sentence says more. */
static const int64_t KERNEL_MARGIN_NS = INT64_C(1) * 1000 * 1000 * 1000;

/* ---- Launching ---- */

static collet_status launch(struct collet_device_collectives *devcolls, struct devcoll *devcoll)
{
	const struct collet_cuda *cuda = &devcolls->comm->context->gpu->cuda;
	const struct collet_launch_target target = { .stream = collet_device_comm_stream(devcolls->device_comm) };
	collet_status status =
		collet_copy_stream_push_context(cuda, collet_device_comm_copy_stream(devcolls->device_comm));
	if (status != COLLET_OK)
		return status;
	devcoll->ticket = devcoll->call.ticket = ++devcolls->last_ticket;
	status = collet_device_comm_launch(devcolls->device_comm, &devcoll->call, devcoll->plan, &target);
	collet_copy_stream_pop_context(cuda);
	return status;
}

/* Returns the first call that has not been launched; NULL if there is none. */
static struct devcoll *first_waiting(const struct collet_device_collectives *devcolls)
{
	struct devcoll *devcoll = devcolls->pending;
	while (devcoll && devcoll->ticket)
		devcoll = devcoll->next;
	return devcoll;
}

/* Launches calls whose turn it is, or all. True if there were any. Under the engine's lock. */
static bool launch_waiting(struct collet_device_collectives *devcolls, bool all)
{
	struct devcoll *devcoll = first_waiting(devcolls);
	bool any = false;
	for (; devcoll; devcoll = devcoll->next) {
		if (!all && !collet_co_resident_all_called(devcolls->co_resident, devcoll->sequence))
			return any;
		const int mode = collet_cuda_relax_capture(&devcolls->comm->context->gpu->cuda);
		const collet_status status = launch(devcolls, devcoll);
		collet_cuda_restore_capture(&devcolls->comm->context->gpu->cuda, mode);
		collet_device_plan_reserve(devcoll->plan, false);
		any = true;
		if (status == COLLET_OK)
			continue;
		/* Other ranks' kernels wait for it. */
		collet_comm_state_end(&devcolls->comm->state, status, true, collet_last_error());
		return any;
	}
	return any;
}

void devcoll_launch_all(struct collet_device_collectives *devcolls)
{
	if (!devcolls->co_resident)
		return;
	collet_engine_lock(devcolls->comm->state.engine);
	(void)launch_waiting(devcolls, true);
	collet_engine_unlock(devcolls->comm->state.engine);
}

/* Under the engine's lock. */
static void add_pending(struct collet_device_collectives *devcolls, struct devcoll *devcoll)
{
	devcoll->next = NULL;
	*devcolls->last = devcoll;
	devcolls->last = &devcoll->next;
}

static int64_t kernel_timeout(int64_t timeout_ns)
{
	return timeout_ns < 0 || timeout_ns > INT64_MAX - KERNEL_MARGIN_NS ? -1 : timeout_ns + KERNEL_MARGIN_NS;
}

collet_status devcoll_run_request(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const collet_how *how, bool *consumed)
{
	struct collet_engine *engine = devcolls->comm->state.engine;
	devcoll->call.timeout_ns = kernel_timeout(request->timeout_ns);
	collet_status status = devcoll_copy_in(devcoll);
	if (status == COLLET_OK && !devcolls->co_resident)
		status = launch(devcolls, devcoll);
	*consumed = status == COLLET_OK;
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(engine);
	devcoll->request = request;
	add_pending(devcolls, devcoll);
	if (devcolls->co_resident) {
		collet_device_plan_reserve(devcoll->plan, true);
		devcoll->sequence = collet_co_resident_count_call(devcolls->co_resident, devcolls->comm->state.rank);
	}
	devcoll_begin(devcolls, request, devcoll->sequence);
	if (devcolls->co_resident)
		(void)launch_waiting(devcolls, false);
	return collet_call_wait_or_return(request, how);
}

/* ---- Completion ---- */

/* Under the engine's lock. */
static void complete(struct collet_device_collectives *devcolls, struct devcoll *devcoll)
{
	struct collet_comm_state *state = &devcolls->comm->state;
	const collet_status status = devcoll_copy_out(devcoll);
	if (status != COLLET_OK)
		collet_comm_state_end(state, status, true, collet_last_error());
	else
		collet_request_end(devcoll->request, COLLET_OK);
	devcoll_free(devcoll);
}

/* Asks each rank what it has called, after a kernel has found that ranks disagree: so both calls are named, and the
 * communicator ends. Under the engine's lock. */
static bool ask_mismatch(struct collet_device_collectives *devcolls)
{
	uint32_t peer;
	if (collet_device_comm_async_error(devcolls->device_comm, &peer) != COLLET_DEVICE_MISMATCH)
		return false;
	/* By its number; not all calls have one. */
	if (devcolls->has_leader)
		return false;
	const struct collet_request *request = devcolls->pending->request;
	const struct collet_message came = { .signature = ~request->signature, .sequence = request->sequence };
	if (!devcolls->has_asked)
		collet_mismatch_suspect(&devcolls->comm->state, peer, request, &came);
	devcolls->has_asked = true;
	return true;
}

/* Ends the communicator if pending calls would never end; true if it has. */
static bool end_on_fault(struct collet_device_collectives *devcolls)
{
	if (!devcolls->pending || ++devcolls->poll_count % FAULT_CHECK_INTERVAL)
		return false;
	const collet_status status = collet_device_comm_check_fault(devcolls->device_comm);
	if (status != COLLET_OK)
		collet_comm_state_end(&devcolls->comm->state, status, true, collet_last_error());
	return status != COLLET_OK;
}

static bool progress(struct collet_comm_state *state, void *context)
{
	struct collet_device_collectives *devcolls = context;
	bool any = devcolls->co_resident && launch_waiting(devcolls, false);
	while (devcolls->pending && devcolls->pending->ticket &&
		collet_device_comm_completed(devcolls->device_comm) >= devcolls->pending->ticket) {
		struct devcoll *devcoll = devcolls->pending;
		if (ask_mismatch(devcolls))
			return any;
		collet_device_collectives_check_errors(devcolls->comm);
		if (atomic_load_explicit(&state->end_status, memory_order_acquire) != COLLET_OK)
			return true; /* it may have been told to stop */
		devcolls->pending = devcoll->next;
		if (!devcolls->pending)
			devcolls->last = &devcolls->pending;
		complete(devcolls, devcoll);
		any = true;
	}
	return any || end_on_fault(devcolls);
}

/* A GPU sends no message when it is done, so the engine must poll. */
static bool is_idle(const void *context)
{
	const struct collet_device_collectives *devcolls = context;
	return !devcolls->pending;
}

static bool name_awaited(const void *context, const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_device_collectives *devcolls = context;
	const struct devcoll *devcoll = devcolls->pending;
	while (devcoll && devcoll->request != request)
		devcoll = devcoll->next;
	if (devcoll)
		snprintf(text, capacity, "any of the others, or its GPU");
	return devcoll != NULL;
}

static void release_buffers(void *context)
{
	const struct collet_device_collectives *devcolls = context;
	const int64_t deadline = collet_clock_ns() + STOP_TIMEOUT_NS;
	uint64_t last = 0;
	for (const struct devcoll *devcoll = devcolls->pending; devcoll; devcoll = devcoll->next)
		last = devcoll->ticket ? devcoll->ticket : last;
	collet_device_comm_abort(devcolls->device_comm);
	while (collet_device_comm_completed(devcolls->device_comm) < last && collet_clock_ns() < deadline)
		sched_yield();
}

const struct collet_progress_hook_ops devcoll_hooks = { progress, is_idle, name_awaited, release_buffers };
