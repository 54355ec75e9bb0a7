#include "comm/executed.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm/executed_internal.h"
#include "core/types.h"

enum {
	LOOK_NS = 200 * 1000,
	FAULT_EVERY = 4096 /* rounds of a wait, of which each is well below a microsecond */
};
/* A kernel that is told to leave has left long before, and one that has not begun looks at no buffer. */
static const int64_t LEAVING_NS = INT64_C(1) * 1000 * 1000 * 1000;
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
		.signature = request->own_signature,
		.timeout_ns = -1,
	};
	made.taping = collet_executor_cut(executions->executor, made.program, &made.shape,
		collet_dtype_bytes(call->dtype), request->counted_bytes, how->piece_bytes, how->channels);
	return made;
}

static void set_buffers(struct collet_executor_call *call, const struct executed *executed)
{
	call->input = executed->sides[COLLET_READ].gpu;
	call->result = executed->sides[COLLET_WRITTEN].gpu;
	call->input_bytes = executed->sides[COLLET_READ].bytes;
	call->result_bytes = executed->sides[COLLET_WRITTEN].bytes;
}

/* ---- Calls that are waited for ---- */

/* Under the engine's lock. */
static void add_pending(struct collet_executions *executions, struct executed *executed)
{
	executed->next = NULL;
	*executions->last = executed;
	executions->last = &executed->next;
}

static collet_status launch_own(struct collet_executions *executions, struct executed *executed,
	struct collet_executor_call *call, struct collet_executor_tape *tape)
{
	const struct collet_cuda *cuda = &executions->comm->context->cuda;
	const struct collet_executor_place place = {.stream = collet_executor_stream(executions->executor)};
	collet_status status = executed_copy_in(executed);
	if (status != COLLET_OK)
		return status;
	executed->ticket = call->ticket = ++executions->tickets;
	status = collet_copier_begin(cuda, collet_executor_copier(executions->executor));
	if (status != COLLET_OK)
		return status;
	status = collet_executor_launch(executions->executor, call, tape, &place);
	collet_copier_end(cuda);
	return status;
}

/* It is launched. */
static collet_status follow_own(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, const collet_how *how)
{
	struct collet_engine *engine = executions->comm->group.engine;
	pthread_mutex_lock(&engine->lock);
	executed->request = request;
	add_pending(executions, executed);
	collet_call_begin_elsewhere(executions->comm, request);
	if (how->request) {
		collet_engine_unlock_handing_over(engine);
		*how->request = request;
		return COLLET_OK;
	}
	pthread_mutex_unlock(&engine->lock);
	return collet_call_wait(&request);
}

/* Under the engine's lock. */
static void settle(struct collet_executions *executions, struct executed *executed)
{
	struct collet_group *group = &executions->comm->group;
	const collet_status status = executed_copy_out(executed);
	if (status != COLLET_OK)
		collet_group_end(group, status, true, collet_last_error());
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
	const struct collet_request *request = executions->pending->request;
	const struct collet_message came = {.signature = ~request->signature, .sequence = request->sequence};
	if (!executions->asked)
		collet_board_suspect(&executions->comm->group, peer, request, &came);
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
		collet_group_end(&executions->comm->group, status, true, collet_last_error());
	return status != COLLET_OK;
}

static bool advance(struct collet_group *group, void *hooked)
{
	struct collet_executions *executions = hooked;
	bool any = false;
	while (executions->pending && collet_executor_done(executions->executor) >= executions->pending->ticket) {
		struct executed *executed = executions->pending;
		if (ask_who_disagrees(executions))
			return any;
		collet_executed_look(executions->comm);
		if (atomic_load_explicit(&group->ended, memory_order_acquire) != COLLET_OK)
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
		last = executed->ticket;
	collet_executor_stop(executions->executor);
	while (collet_executor_done(executions->executor) < last && collet_clock_ns() < deadline)
		sched_yield();
}

/* ---- Calls on streams ---- */

struct place {
	const struct collet_cuda *cuda;
	struct collet_executor_place at;
	int mode; /* the thread's, of capturing, before */
};

static void leave(struct place *place)
{
	(void)place->cuda->cuThreadExchangeStreamCaptureMode(&place->mode);
	(void)place->cuda->cuCtxPopCurrent(NULL);
}

static collet_status look_at_stream(struct collet_executions *executions, struct place *place)
{
	const struct collet_cuda *cuda = place->cuda;
	cu_context context = NULL;
	int captured = CU_NOT_CAPTURED;
	cu_result result = cuda->cuStreamGetCtx(place->at.stream, &context);
	if (result == CU_OK)
		result =
			cuda->cuStreamGetCaptureInfo(place->at.stream, &captured, &place->at.capture, NULL, NULL, NULL);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "how.stream: asking about the stream");
	if (context != collet_executor_copier(executions->executor)->context)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: the stream is not of the CUDA context that was current when the communicator "
			"was made");
	if (captured == CU_CAPTURE_SPOILT)
		return collet_fail(COLLET_ERR_ARGUMENT,
			"how.stream: something has invalidated the stream's capture: end it, and capture again");
	if (captured == CU_NOT_CAPTURED)
		place->at.capture = 0;
	return COLLET_OK;
}

/* The executor's context is the thread's until leave(), and what is made meanwhile spoils nobody's capture. */
static collet_status enter(struct collet_executions *executions, void *stream, struct place *place)
{
	const struct collet_cuda *cuda = &executions->comm->context->cuda;
	*place = (struct place){.cuda = cuda, .at.stream = stream, .mode = CU_CAPTURE_RELAXED};
	cu_result result = cuda->cuCtxPushCurrent(collet_executor_copier(executions->executor)->context);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "entering a communicator's context");
	result = cuda->cuThreadExchangeStreamCaptureMode(&place->mode);
	if (result != CU_OK) {
		(void)cuda->cuCtxPopCurrent(NULL);
		return collet_cuda_fail(cuda, result, "setting how strict captures are");
	}
	if (!stream)
		return COLLET_OK;
	const collet_status status = look_at_stream(executions, place);
	if (status != COLLET_OK)
		leave(place);
	return status;
}

/* What streams have passed. */
static void reap(struct collet_executions *executions, bool graphs_too)
{
	for (struct executed **at = &executions->passing; *at;) {
		struct executed *executed = *at;
		if (!(graphs_too && executed->captured) &&
			(executed->captured || !atomic_load_explicit(&executed->passed, memory_order_acquire))) {
			at = &executed->next;
			continue;
		}
		*at = executed->next;
		executed_free(executed);
	}
}

static void keep(struct collet_executions *executions, struct executed *executed)
{
	executed->next = executions->passing;
	executions->passing = executed;
}

/* Once it is launched the others wait for all of it: what fails then ends the communicator. *kept: the stream may use
 * what stands for buffers. */
static collet_status put(struct collet_executions *executions, struct executed *executed,
	const struct collet_executor_call *call, struct collet_executor_tape *tape, const struct place *place,
	bool *kept)
{
	const bool away = executed_is_away(executed);
	executed->captured = place->at.capture != 0;
	*kept = away;
	collet_status status = executed_enqueue_in(executed, place->at.stream);
	if (status == COLLET_OK)
		status = collet_executor_launch(executions->executor, call, tape, &place->at);
	if (status != COLLET_OK || !away)
		return status;
	status = executed_enqueue_out(executed, place->at.stream);
	if (status != COLLET_OK)
		collet_group_end(&executions->comm->group, status, true, collet_last_error());
	return status;
}

static collet_status run_on_stream(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, struct collet_executor_call *call, struct collet_executor_tape *tape,
	const struct place *place)
{
	struct collet_engine *engine = executions->comm->group.engine;
	bool kept;
	call->timeout_ns = request->timeout_ns;
	const collet_status status = put(executions, executed, call, tape, place, &kept);
	/* What has failed half-way is kept as a graph's is. */
	executed->captured |= status != COLLET_OK;
	if (kept)
		keep(executions, executed);
	else
		executed_free(executed);
	pthread_mutex_lock(&engine->lock);
	if (status == COLLET_OK) {
		collet_call_begin_elsewhere(executions->comm, request);
		collet_request_end(request, COLLET_OK);
	}
	collet_request_free(request);
	pthread_mutex_unlock(&engine->lock);
	return status;
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
	pthread_mutex_lock(&comm->group.engine->lock);
	collet_request_free(request);
	pthread_mutex_unlock(&comm->group.engine->lock);
}

/* Its request and tape are there: finds the buffers, and runs it. Takes the request over. */
static collet_status run(struct collet_executions *executions, const struct collet_call_arguments *arguments,
	const struct collet_side sides[COLLET_SIDES], const collet_how *how, struct collet_request *request,
	struct collet_executor_call *call, struct collet_executor_tape *tape, const struct place *place)
{
	struct collet_group *group = &executions->comm->group;
	struct executed *executed = calloc(1, sizeof(*executed));
	collet_status status =
		executed ? COLLET_OK : collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call", arguments->function);
	if (executed) {
		executed->executions = executions;
		status = executed_find(executed, arguments->function, sides);
	}
	if (status == COLLET_OK && call->listed)
		status = executed_list(executed, call->taping.element_bytes, call->shape.size, &call->shape.result);
	if (status == COLLET_OK) {
		set_buffers(call, executed);
		if (how->stream)
			return run_on_stream(executions, executed, request, call, tape, place);
		status = launch_own(executions, executed, call, tape);
		if (status == COLLET_OK)
			return follow_own(executions, executed, request, how);
	}
	/* If that has ended the group, the kernel is on its way. */
	if (executed && atomic_load_explicit(&group->ended, memory_order_acquire) != COLLET_OK) {
		executed->captured = true;
		keep(executions, executed);
	} else if (executed) {
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
	struct collet_executor_tape *tape;
	struct place place;
	how = how ? how : &default_how;
	*handled = executions != NULL;
	if (!executions)
		return COLLET_OK;
	collet_status status = check_call(arguments, how);
	*handled = arguments->op != COLLET_USER || status != COLLET_OK;
	if (!*handled || status != COLLET_OK)
		return status;
	status = collet_call_prepare(comm, arguments, how, &request);
	if (status != COLLET_OK)
		return status;
	struct collet_executor_call call = executor_call_of(executions, arguments, request, how);
	status = enter(executions, how->stream, &place);
	if (status == COLLET_OK) {
		reap(executions, false);
		status = collet_executor_prepare(executions->executor, &call, &tape);
		if (status == COLLET_OK) {
			status = run(executions, arguments, sides, how, request, &call, tape, &place);
			request = NULL;
		}
		leave(&place);
	}
	if (request)
		free_request(comm, request);
	return status;
}

void collet_executed_look(const collet_comm *comm)
{
	uint32_t rank;
	if (!comm->executions || atomic_load_explicit(&comm->group.ended, memory_order_acquire) != COLLET_OK)
		return;
	const enum collet_executor_complaint complaint = collet_executor_complains(comm->executions->executor, &rank);
	if (complaint == COLLET_EXECUTOR_FINE)
		return;
	static const struct {
		collet_status status;
		const char *before, *after; /* the rank */
	} complaints[] = {
		[COLLET_EXECUTOR_LATE] = { COLLET_ERR_TIMEOUT,
			"a call on a stream timed out: its kernel waited for ", "" },
		[COLLET_EXECUTOR_DISAGREES] = { COLLET_ERR_MISMATCH, "",
			" has called something else than this rank has, as its next call that GPUs do; "
			"calls on streams and in graphs must be alike on all ranks, and in one order" },
		[COLLET_EXECUTOR_GONE] = { COLLET_ERR_PEER_LOST, "",
			" has left without a call that this rank's kernel waits for" },
	};
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "%srank %u on %s%s", complaints[complaint].before, rank,
		collet_comm_host(comm, rank), complaints[complaint].after);
	collet_group_end((struct collet_group *)(uintptr_t)&comm->group, complaints[complaint].status, true, sentence);
}

/* ---- Beginning and end ---- */

static collet_status exchange(void *context, const void *own, void *all, size_t bytes)
{
	return collet_allgather(context, own, all, bytes, COLLET_U8, NULL);
}

collet_status collet_comm_make_executed(collet_comm *comm)
{
	static const struct collet_group_hooks hooks = {advance, rests, name_awaited, let_go};
	const struct collet_executor_exchange exchanging = {exchange, comm};
	struct collet_executor *executor;
	if (!comm->context->device.cuda || !collet_executor_fits(&comm->group))
		return COLLET_OK;
	const collet_status status = collet_executor_make(&executor, &comm->context->device, &comm->group, &exchanging);
	if (status != COLLET_OK || !executor)
		return status;
	struct collet_executions *made = calloc(1, sizeof(*made));
	if (!made) {
		(void)collet_executor_free(executor);
		return collet_fail(COLLET_ERR_MEMORY, "no memory for collectives of ranks with GPUs");
	}
	made->comm = comm;
	made->executor = executor;
	made->last = &made->pending;
	pthread_mutex_lock(&comm->group.engine->lock);
	made->hook = (struct collet_group_hook){.hooks = &hooks, .hooked = made};
	collet_group_add_hook(&comm->group, &made->hook);
	pthread_mutex_unlock(&comm->group.engine->lock);
	comm->executions = made;
	if (comm->group.rank == 0)
		collet_log(&comm->context->engine.log, COLLET_LOG_INFO,
			"cuda: %u ranks have GPUs that reach each other, and each rank's does its part of a collective",
			comm->group.size);
	return COLLET_OK;
}

void collet_executed_close(collet_comm *comm)
{
	if (comm->executions)
		collet_executor_stop(comm->executions->executor);
}

/* Have streams passed all that is no graph's? */
static bool let_all_pass(struct collet_executions *executions)
{
	const int64_t deadline = collet_clock_ns() + PATIENCE_NS;
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	for (;;) {
		bool passed = true;
		reap(executions, false);
		for (const struct executed *executed = executions->passing; executed; executed = executed->next)
			passed = passed && executed->captured;
		if (passed || collet_clock_ns() >= deadline)
			return passed;
		nanosleep(&pause, NULL);
	}
}

bool collet_executed_free(collet_comm *comm)
{
	struct collet_executions *executions = comm->executions;
	if (!executions)
		return true;
	const bool passed = let_all_pass(executions) && collet_executor_free(executions->executor);
	pthread_mutex_lock(&comm->group.engine->lock);
	collet_group_remove_hook(&comm->group, &executions->hook);
	pthread_mutex_unlock(&comm->group.engine->lock);
	comm->executions = NULL;
	if (!passed) {
		collet_log(&comm->context->engine.log, COLLET_LOG_ERROR,
			"collet_comm_destroy: after %d s a stream has not passed calls of this communicator; what they "
			"use is not freed",
			(int)(PATIENCE_NS / 1000000000));
		return false;
	}
	reap(executions, true);
	for (struct executed *executed = executions->pending, *next; executed; executed = next) {
		next = executed->next;
		executed_free(executed);
	}
	free(executions);
	return true;
}

/* What calls have of page-locked memory goes with the parent's. */
void collet_executed_forget(collet_comm *comm)
{
	if (!comm->executions)
		return;
	collet_executor_forget(comm->executions->executor);
	collet_group_remove_hook(&comm->group, &comm->executions->hook);
	free(comm->executions);
	comm->executions = NULL;
}
