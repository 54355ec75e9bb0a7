#include "cuda/peer_gpus/device_collective.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/types.h"
#include "cuda/gpu_cost.h"
#include "cuda/peer_gpus/device_collective_internal.h"
#include "cuda/shared_gpu/shared_gpu.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "engine/lock.h"

enum { LOOK_NS = 200 * 1000, NAMING_NS = 200 * 1000 * 1000 };
static const int64_t PATIENCE_NS = INT64_C(10) * 1000 * 1000 * 1000;

/* ---- From a planned request to what a kernel does ---- */

/* Which ranks stand next to each other on the host does not matter to GPUs: positions are ranks. */
static struct collet_shape shape_of(
	const collet_comm *comm, const struct collet_call_arguments *call, const struct collet_request *request)
{
	struct collet_shape shape =
		collet_shape_of(call->collective, comm->group.rank, comm->group.size, call->root, call->count);
	if (call->input) {
		shape.input = request->shape.input;
		shape.result = request->shape.result;
	}
	return shape;
}

static struct collet_executor_call executor_call_of(const struct collet_executions *executions,
	const struct collet_call_arguments *call, const struct collet_request *request, const collet_how *how)
{
	struct collet_executor_call made = {
		.program = request->program,
		.shape = shape_of(executions->comm, call, request),
		.listed = call->input != NULL,
		.dtype = call->dtype,
		.op = call->op,
		.scale = how->scale,
		.signature = request->call_signature,
		.timeout_ns = -1,
	};
	made.taping = collet_executor_cut(executions->executor, made.program, &made.shape,
		collet_dtype_bytes(call->dtype), request->counted_bytes, how->segment_bytes, how->channels);
	return made;
}

static void set_buffers(struct collet_executor_call *call, const struct executed *executed)
{
	call->input = executed->sides[COLLET_READ].gpu;
	call->result = executed->sides[COLLET_WRITTEN].gpu;
	call->input_bytes = executed->sides[COLLET_READ].bytes;
	call->result_bytes = executed->sides[COLLET_WRITTEN].bytes;
}

/* ---- A call ---- */

static collet_status check_call(const struct collet_call_arguments *call, const collet_how *how)
{
	if (how->request && how->stream)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"%s: how.request and how.stream are both set: a call on a stream is waited for by its stream, "
			"or an event recorded there",
			call->function);
	if (how->stream && call->op == COLLET_USER)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"%s: a user-defined operation is a function of the host, and calls on streams of a "
			"communicator whose ranks have GPUs of their own are the GPUs'; call without how.stream",
			call->function);
	return COLLET_OK;
}

static void free_request(collet_comm *comm, struct collet_request *request)
{
	collet_engine_lock(comm->group.engine);
	collet_request_release(request);
	collet_engine_unlock(comm->group.engine);
}

bool collet_executed_is_for(const collet_comm *comm, enum collet_collective collective,
	const struct collet_shape *shape, collet_dtype dtype)
{
	return comm->executions &&
	       (!comm->executions->led || collet_shape_bytes(collective, shape, collet_dtype_bytes(dtype)) <=
						  COLLET_EXECUTOR_LED_MOST_BYTES);
}

struct collet_way_choices collet_executed_choices(const collet_comm *comm)
{
	return (struct collet_way_choices){ &comm->executions->inputs, &comm->executions->table };
}

/* Every rank computes the same: links are rank 0's. */
static void fill_choices(struct collet_executions *executions)
{
	const collet_comm *comm = executions->comm;
	bool measured;
	const collet_link_cost *link = collet_gpu_kernel_link(comm->context, &measured);
	executions->inputs = (struct collet_choice_inputs){ .size = comm->group.size, .host_count = 1, .local = link,
		.remote = link, .scratch_bytes = comm->inputs.scratch_bytes };
	collet_choice_table_fill(&executions->table, &executions->inputs);
}

/* Is it done here, as all ranks know? What a leader does better is its (see cuda/peer_gpus/device_comm.h), and what no
 * kernel does is the host's. */
static bool is_done_here(const struct collet_executions *executions, const struct collet_call_arguments *arguments)
{
	const collet_comm *comm = executions->comm;
	if (arguments->op == COLLET_USER)
		return false;
	if (!executions->led)
		return true;
	if (arguments->input || !collet_call_may_be_direct(comm, arguments))
		return false;
	const struct collet_shape shape = collet_shape_of(
		arguments->collective, comm->group.rank, comm->group.size, arguments->root, arguments->count);
	return collet_executed_is_for(comm, arguments->collective, &shape, arguments->dtype);
}

/* Calls that wait for their turn are launched under the engine's lock, by whichever thread makes progress. */
static collet_status prepare_tape(struct collet_executions *executions, struct executed *executed)
{
	struct collet_engine *engine = executions->comm->group.engine;
	collet_engine_lock(engine);
	const collet_status status =
		collet_executor_prepare(executions->executor, &executed->call, &executed->tape);
	collet_engine_unlock(engine);
	return status;
}

/* Its request is there: lays down a tape, finds the buffers, and runs it. Takes both over. In the executor's
 * context. */
static collet_status run(struct collet_executions *executions, const struct collet_call_arguments *arguments,
	const struct collet_side sides[COLLET_SIDES], const collet_how *how, struct executed *executed,
	struct collet_request *request, const struct executed_place *place)
{
	struct collet_comm_state *group = &executions->comm->group;
	struct collet_executor_call *call = &executed->call;
	*call = executor_call_of(executions, arguments, request, how);
	collet_status status = prepare_tape(executions, executed);
	if (status == COLLET_OK)
		status = executed_find(executed, arguments->function, sides);
	if (status == COLLET_OK && call->listed)
		status = executed_list(executed, call->taping.element_bytes, call->shape.size, &call->shape.result);
	if (status == COLLET_OK) {
		set_buffers(call, executed);
		if (how->stream)
			return executed_run_on_stream(executions, executed, request, place);
		bool followed;
		status = executed_run_own(executions, executed, request, how, &followed);
		if (followed)
			return status;
	}
	/* If that has ended the group, the kernel is on its way. */
	if (atomic_load_explicit(&group->end_status, memory_order_acquire) != COLLET_OK) {
		executed->captured = true;
		executed_keep(executions, executed);
	} else {
		executed_free(executed);
	}
	free_request(executions->comm, request);
	return status;
}

collet_status collet_executed_call(collet_comm *comm, const struct collet_call_arguments *arguments,
	const struct collet_side sides[COLLET_SIDES], const collet_how *how, bool *handled)
{
	static const collet_how default_how = COLLET_HOW_DEFAULT;
	struct collet_executions *executions = comm->executions;
	struct collet_request *request;
	struct executed_place place;
	how = how ? how : &default_how;
	*handled = executions != NULL;
	if (!executions)
		return COLLET_OK;
	const bool here = is_done_here(executions, arguments);
	collet_status status = here || !executions->led ? check_call(arguments, how) : COLLET_OK;
	*handled = here || status != COLLET_OK;
	if (!*handled || status != COLLET_OK)
		return status;
	struct executed *executed = calloc(1, sizeof(*executed));
	if (!executed)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call", arguments->function);
	executed->executions = executions;
	status = collet_call_prepare(comm, arguments, how, &request);
	if (status == COLLET_OK) {
		status = executed_enter(executions, how->stream, &place);
		if (status != COLLET_OK)
			free_request(comm, request);
	}
	if (status != COLLET_OK) {
		free(executed);
		return status;
	}
	if (how->stream)
		executed_launch_all(executions);
	executed_reap(executions, false);
	status = run(executions, arguments, sides, how, executed, request, &place);
	executed_leave(&place);
	return status;
}

void executed_begin(struct collet_executions *executions, struct collet_request *request, uint64_t number)
{
	if (executions->led)
		collet_call_begin_elsewhere(executions->comm, request, &executions->apart, number - 1);
	else
		collet_call_begin_elsewhere(executions->comm, request, NULL, 0);
}

const struct collet_recorder *collet_executed_recorder(const collet_comm *comm)
{
	return comm->executions && comm->executions->led ? &comm->executions->apart : NULL;
}

/* What two ranks of this process have called: their own kernels, by number. A call is recorded when it has been put on
 * its stream, which the other's kernel may find out before: by a moment, or, on a busy machine, until that thread runs
 * again. Graphs that are launched in another order are never found. */
static bool name_both(const collet_comm *comm, uint32_t rank, char sentence[COLLET_ERROR_BYTES])
{
	const struct collet_executions *executions = comm->executions;
	const int64_t deadline = collet_clock_ns() + NAMING_NS;
	struct collet_call own, others;
	char mine[160], theirs[160];
	if (!executions->led)
		return false;
	bool left = collet_together_has_left(executions->together, rank);
	while (!collet_together_differ(executions->together, comm->group.rank, rank, &own, &others)) {
		if (left || collet_clock_ns() >= deadline)
			return false;
		sched_yield();
		left = collet_together_has_left(executions->together, rank);
	}
	collet_call_describe(&own, mine, sizeof(mine));
	collet_call_describe(&others, theirs, sizeof(theirs));
	snprintf(sentence, COLLET_ERROR_BYTES,
		"ranks disagree: as kernels of their own rank %u on %s called %s, rank %u on %s called %s",
		comm->group.rank, collet_comm_host(comm, comm->group.rank), mine, rank, collet_comm_host(comm, rank),
		theirs);
	return true;
}

/* What a kernel complains of, in words. */
static collet_status word_complaint(const collet_comm *comm, enum collet_executor_complaint complaint, uint32_t rank,
	char sentence[COLLET_ERROR_BYTES])
{
	const char *host = collet_comm_host(comm, rank);
	if (complaint == COLLET_EXECUTOR_LATE) {
		snprintf(sentence, COLLET_ERROR_BYTES, "a call timed out: its kernel waited for rank %u on %s", rank,
			host);
		return COLLET_ERR_TIMEOUT;
	}
	if (complaint == COLLET_EXECUTOR_DISAGREES && name_both(comm, rank, sentence))
		return COLLET_ERR_MISMATCH;
	if (complaint == COLLET_EXECUTOR_DISAGREES) {
		snprintf(sentence, COLLET_ERROR_BYTES,
			"rank %u on %s has called something else than this rank has, as its next call that GPUs do; "
			"calls on streams and in graphs must be alike on all ranks, and in one order",
			rank, host);
		return COLLET_ERR_MISMATCH;
	}
	snprintf(sentence, COLLET_ERROR_BYTES,
		"rank %u on %s has left this communicator, of %u ranks, without a call that this rank's kernel waits "
		"for",
		rank, host, comm->group.size);
	return COLLET_ERR_PEER_LOST;
}

void collet_executed_look(const collet_comm *comm)
{
	char sentence[COLLET_ERROR_BYTES];
	uint32_t rank;
	if (!comm->executions || atomic_load_explicit(&comm->group.end_status, memory_order_acquire) != COLLET_OK)
		return;
	const enum collet_executor_complaint complaint = collet_executor_complains(comm->executions->executor, &rank);
	if (complaint == COLLET_EXECUTOR_FINE)
		return;
	const collet_status status = word_complaint(comm, complaint, rank, sentence);
	collet_comm_state_end((struct collet_comm_state *)(uintptr_t)&comm->group, status, true, sentence);
}

/* ---- Beginning and end ---- */

static collet_status exchange(void *context, const void *own, void *all, size_t bytes)
{
	return collet_allgather(context, own, all, bytes, COLLET_U8, NULL);
}

collet_status collet_comm_make_executed(collet_comm *comm)
{
	const struct collet_executor_exchange exchanging = { exchange, comm };
	struct collet_executor *executor;
	if (!comm->context->device.cuda || !collet_executor_fits(&comm->group))
		return COLLET_OK;
	/* One GPU, and no leader either: it has been said why. */
	if (!comm->direct && collet_direct_fits(&comm->group) == COLLET_DIRECT_ALL)
		return COLLET_OK;
	const bool led = comm->direct != NULL;
	bool measured;
	const struct collet_executor_lanes lanes = collet_gpu_lanes(collet_gpu_kernel_link(comm->context, &measured));
	const collet_status status =
		collet_executor_make(&executor, &comm->context->device, &comm->group, led, lanes, &exchanging);
	if (status != COLLET_OK || !executor)
		return status;
	struct collet_executions *made = calloc(1, sizeof(*made));
	if (!made || (led && collet_recorder_init(&made->apart) != COLLET_OK)) {
		free(made);
		(void)collet_executor_free(executor);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	}
	made->comm = comm;
	made->context = comm->context;
	made->executor = executor;
	made->together = collet_executor_together(executor);
	made->led = led;
	fill_choices(made);
	if (led)
		collet_together_show(made->together, comm->group.rank, &made->apart);
	made->last = &made->pending;
	collet_engine_lock(comm->group.engine);
	made->hook = (struct collet_progress_hook){ .table = &executed_hooks, .context = made };
	collet_comm_state_add_hook(&comm->group, &made->hook);
	collet_engine_unlock(comm->group.engine);
	comm->executions = made;
	if (comm->group.rank == 0)
		collet_log(&comm->context->engine.log, COLLET_LOG_INFO,
			led ? "cuda: %u threads share a GPU, and launch a kernel each for what is short"
			    : "cuda: %u ranks have GPUs that reach each other, and each rank launches a kernel of its "
			      "own for its part of a collective",
			comm->group.size);
	return COLLET_OK;
}

void collet_executed_close(collet_comm *comm)
{
	if (comm->executions)
		collet_executor_stop(comm->executions->executor);
}

/* Have streams passed all that is no graph's? Those of a context that a fault has broken never say so; it is there at
 * the next look too, when what the host was copying for them is done. */
static bool let_all_pass(struct collet_executions *executions)
{
	const int64_t deadline = collet_clock_ns() + PATIENCE_NS;
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	bool broken = false;
	for (;;) {
		bool passed = true;
		executed_reap(executions, false);
		for (const struct executed *executed = executions->passing; executed; executed = executed->next)
			passed = passed && (executed->captured || executed->lost);
		if (passed || collet_clock_ns() >= deadline)
			return passed;
		const bool before = broken;
		broken = collet_executor_find_fault(executions->executor) != COLLET_OK;
		if (broken && before)
			return true;
		nanosleep(&pause, NULL);
	}
}

/* May a stream of a context that works have a part of a call of which it does not say that it has passed it? */
static bool some_are_lost(struct collet_executions *executions)
{
	bool lost = false;
	for (const struct executed *executed = executions->passing; executed; executed = executed->next)
		lost = lost || executed->lost;
	return lost && collet_executor_find_fault(executions->executor) == COLLET_OK;
}

static void log_kept(const collet_comm *comm, bool passed, bool lost)
{
	if (passed && !lost)
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: a fault has broken the GPU's context; what the communicator has there, "
			"and what its calls use, is kept until the process ends");
	else if (lost)
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: the driver has refused a call in the middle, so nobody knows when its "
			"stream has passed what it has of that; what the communicator's calls use is not freed");
	else
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: after %d s a stream has not passed calls of this communicator; what they "
			"use is not freed",
			(int)(PATIENCE_NS / 1000000000));
}

bool collet_executed_free(collet_comm *comm)
{
	struct collet_executions *executions = comm->executions;
	if (!executions)
		return true;
	collet_executor_leave(executions->executor);
	const bool passed = let_all_pass(executions), lost = passed && some_are_lost(executions);
	const bool idle = passed && !lost && collet_executor_free(executions->executor);
	collet_engine_lock(comm->group.engine);
	collet_comm_state_remove_hook(&comm->group, &executions->hook);
	if (!idle) {
		executions->next_kept = comm->context->executions;
		comm->context->executions = executions;
	}
	collet_engine_unlock(comm->group.engine);
	comm->executions = NULL;
	if (!idle) {
		log_kept(comm, passed, lost);
		return false;
	}
	executed_reap(executions, true);
	for (struct executed *executed = executions->pending, *next; executed; executed = next) {
		next = executed->next;
		executed_free(executed);
	}
	collet_recorder_deinit(&executions->apart);
	free(executions);
	return true;
}

/* What calls have of page-locked memory goes with the parent's. */
void collet_executed_forget(collet_comm *comm)
{
	if (!comm->executions)
		return;
	collet_executor_forget(comm->executions->executor);
	collet_comm_state_remove_hook(&comm->group, &comm->executions->hook);
	collet_recorder_deinit(&comm->executions->apart);
	free(comm->executions);
	comm->executions = NULL;
}
