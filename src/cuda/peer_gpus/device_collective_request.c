/* Calls that the host waits for: blocking, or as requests. They are launched on a stream of the communicator's own, and
 * a round of progress finds out that they have ended.
 *
 * Where ranks share a GPU, a call is launched when all ranks of the process have made it (see
 * cuda/peer_gpus/co_resident.h); until then it waits its turn here, and is launched by whoever makes progress. */
#include <sched.h>
#include <stdio.h>

#include "core/clock.h"
#include "cuda/peer_gpus/device_collective_internal.h"
#include "engine/lock.h"

enum { FAULT_EVERY = 4096 }; /* rounds of a wait, of which each is well below a microsecond */
/* A kernel that is told to leave has left long before, and one that has not begun looks at no buffer. */
static const int64_t LEAVING_NS = INT64_C(1) * 1000 * 1000 * 1000;
/* The host, which says more of a call that comes too late, goes first where it looks at all. */
static const int64_t MARGIN_NS = INT64_C(1) * 1000 * 1000 * 1000;

/* ---- Launching ---- */

static collet_status launch(struct collet_executions *executions, struct executed *executed)
{
	const struct collet_cuda *cuda = &executions->comm->context->cuda;
	const struct collet_executor_place place = { .stream = collet_executor_stream(executions->executor) };
	collet_status status = collet_copier_begin(cuda, collet_executor_copier(executions->executor));
	if (status != COLLET_OK)
		return status;
	executed->ticket = executed->call.ticket = ++executions->tickets;
	status = collet_executor_launch(executions->executor, &executed->call, executed->tape, &place);
	collet_copier_end(cuda);
	return status;
}

/* The first of those that wait for their turn; NULL: none does. */
static struct executed *first_waiting(const struct collet_executions *executions)
{
	struct executed *executed = executions->pending;
	while (executed && executed->ticket)
		executed = executed->next;
	return executed;
}

/* Whose turn it is, or all. true: some were. Under the engine's lock. */
static bool launch_waiting(struct collet_executions *executions, bool all)
{
	struct executed *executed = first_waiting(executions);
	bool any = false;
	for (; executed; executed = executed->next) {
		if (!all && !collet_together_have_called(executions->together, executed->number))
			return any;
		const int mode = collet_cuda_relax(&executions->comm->context->cuda);
		const collet_status status = launch(executions, executed);
		collet_cuda_relax_no_more(&executions->comm->context->cuda, mode);
		collet_executor_promise(executed->tape, false);
		any = true;
		if (status == COLLET_OK)
			continue;
		/* The others' kernels wait for it. */
		collet_comm_state_end(&executions->comm->group, status, true, collet_last_error());
		return any;
	}
	return any;
}

void executed_launch_all(struct collet_executions *executions)
{
	if (!executions->together)
		return;
	collet_engine_lock(executions->comm->group.engine);
	(void)launch_waiting(executions, true);
	collet_engine_unlock(executions->comm->group.engine);
}

/* Under the engine's lock. */
static void add_pending(struct collet_executions *executions, struct executed *executed)
{
	executed->next = NULL;
	*executions->last = executed;
	executions->last = &executed->next;
}

static int64_t kernel_timeout(int64_t timeout_ns)
{
	return timeout_ns < 0 || timeout_ns > INT64_MAX - MARGIN_NS ? -1 : timeout_ns + MARGIN_NS;
}

collet_status executed_run_own(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, const collet_how *how, bool *followed)
{
	struct collet_engine *engine = executions->comm->group.engine;
	executed->call.timeout_ns = kernel_timeout(request->timeout_ns);
	collet_status status = executed_copy_in(executed);
	if (status == COLLET_OK && !executions->together)
		status = launch(executions, executed);
	*followed = status == COLLET_OK;
	if (status != COLLET_OK)
		return status;
	collet_engine_lock(engine);
	executed->request = request;
	add_pending(executions, executed);
	if (executions->together) {
		collet_executor_promise(executed->tape, true);
		executed->number = collet_together_call(executions->together, executions->comm->group.rank);
	}
	executed_begin(executions, request, executed->number);
	if (executions->together)
		(void)launch_waiting(executions, false);
	if (how->request) {
		collet_engine_unlock_handoff(engine);
		*how->request = request;
		return COLLET_OK;
	}
	collet_engine_unlock(engine);
	return collet_call_wait(&request);
}

/* ---- How they end ---- */

/* Under the engine's lock. */
static void settle(struct collet_executions *executions, struct executed *executed)
{
	struct collet_comm_state *group = &executions->comm->group;
	const collet_status status = executed_copy_out(executed);
	if (status != COLLET_OK)
		collet_comm_state_end(group, status, true, collet_last_error());
	else
		collet_request_end(executed->request, COLLET_OK);
	executed_free(executed);
}

/* A kernel has found that ranks disagree: each of them is asked what it has called, so that both calls are named, and
 * the group ends for it. Under the engine's lock. */
static bool ask_who_disagrees(struct collet_executions *executions)
{
	uint32_t peer;
	if (collet_executor_complains(executions->executor, &peer) != COLLET_EXECUTOR_DISAGREES)
		return false;
	/* By its number, which not all calls have. */
	if (executions->led)
		return false;
	const struct collet_request *request = executions->pending->request;
	const struct collet_message came = { .signature = ~request->signature, .sequence = request->sequence };
	if (!executions->asked)
		collet_mismatch_suspect(&executions->comm->group, peer, request, &came);
	executions->asked = true;
	return true;
}

/* Of all that is pending nothing would ever be heard. true: the group has ended for it. */
static bool ends_for_a_fault(struct collet_executions *executions)
{
	if (!executions->pending || ++executions->looks % FAULT_EVERY)
		return false;
	const collet_status status = collet_executor_find_fault(executions->executor);
	if (status != COLLET_OK)
		collet_comm_state_end(&executions->comm->group, status, true, collet_last_error());
	return status != COLLET_OK;
}

static bool advance(struct collet_comm_state *group, void *hooked)
{
	struct collet_executions *executions = hooked;
	bool any = executions->together && launch_waiting(executions, false);
	while (executions->pending && executions->pending->ticket &&
		collet_executor_done(executions->executor) >= executions->pending->ticket) {
		struct executed *executed = executions->pending;
		if (ask_who_disagrees(executions))
			return any;
		collet_executed_look(executions->comm);
		if (atomic_load_explicit(&group->end_status, memory_order_acquire) != COLLET_OK)
			return true; /* it may have been told to leave */
		executions->pending = executed->next;
		if (!executions->pending)
			executions->last = &executions->pending;
		settle(executions, executed);
		any = true;
	}
	return any || ends_for_a_fault(executions);
}

/* No message comes of what a GPU has done. */
static bool rests(const void *hooked)
{
	const struct collet_executions *executions = hooked;
	return !executions->pending;
}

static bool name_awaited(const void *hooked, const struct collet_request *request, char *text, size_t capacity)
{
	const struct collet_executions *executions = hooked;
	const struct executed *executed = executions->pending;
	while (executed && executed->request != request)
		executed = executed->next;
	if (executed)
		snprintf(text, capacity, "any of the others, or its GPU");
	return executed != NULL;
}

static void let_go(void *hooked)
{
	const struct collet_executions *executions = hooked;
	const int64_t deadline = collet_clock_ns() + LEAVING_NS;
	uint64_t last = 0;
	for (const struct executed *executed = executions->pending; executed; executed = executed->next)
		last = executed->ticket ? executed->ticket : last;
	collet_executor_stop(executions->executor);
	while (collet_executor_done(executions->executor) < last && collet_clock_ns() < deadline)
		sched_yield();
}

const struct collet_progress_hooks executed_hooks = { advance, rests, name_awaited, let_go };
