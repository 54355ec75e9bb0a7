/* Calls on streams: a call is a launch there, and what it uses stays until the stream has passed it. */
#include <stdio.h>

#include "cuda/peer_gpus/device_collective_internal.h"
#include "engine/lock.h"

void executed_leave(struct executed_place *place)
{
	(void)place->cuda->cuThreadExchangeStreamCaptureMode(&place->mode);
	(void)place->cuda->cuCtxPopCurrent(NULL);
}

static collet_status look_at_stream(struct collet_executions *executions, struct executed_place *place)
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
	if (executions->together && (uintptr_t)place->at.stream == CU_LEGACY_STREAM)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: this rank shares its GPU with others of its process, whose kernels wait for each "
			"other, and what is on the legacy default stream keeps those of other streams from beginning; "
			"call on a stream of the rank's own, made with CU_STREAM_NON_BLOCKING");
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

collet_status executed_enter(struct collet_executions *executions, void *stream, struct executed_place *place)
{
	const struct collet_cuda *cuda = &executions->comm->context->cuda;
	*place = (struct executed_place){ .cuda = cuda, .at.stream = stream, .mode = CU_CAPTURE_RELAXED };
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
		executed_leave(place);
	return status;
}

void executed_reap(struct collet_executions *executions, bool all)
{
	for (struct executed **at = &executions->passing; *at;) {
		struct executed *executed = *at;
		if (!all && (executed->captured || executed->lost ||
				    !atomic_load_explicit(&executed->passed, memory_order_acquire))) {
			at = &executed->next;
			continue;
		}
		*at = executed->next;
		executed_free(executed);
	}
}

void executed_keep(struct collet_executions *executions, struct executed *executed)
{
	executed->next = executions->passing;
	executions->passing = executed;
}

/* Once it is launched the others wait for all of it: what fails then ends the communicator. *kept: the stream may use
 * what stands for buffers. */
static collet_status put(struct collet_executions *executions, struct executed *executed,
	const struct executed_place *place, bool *kept)
{
	const bool away = executed_is_away(executed);
	executed->captured = place->at.capture != 0;
	collet_status status = executed_enqueue_in(executed, place->at.stream);
	*kept = away && status == COLLET_OK;
	if (status == COLLET_OK)
		status = collet_executor_launch(executions->executor, &executed->call, executed->tape, &place->at);
	if (status != COLLET_OK || !away)
		return status;
	status = executed_enqueue_out(executed, place->at.stream);
	if (status != COLLET_OK)
		collet_comm_state_end(&executions->comm->group, status, true, collet_last_error());
	return status;
}

/* The driver has refused a call in the middle, with this status; the stream may have a part of it. */
static void give_up(struct executed *executed, const struct executed_place *place, collet_status status)
{
	char sentence[COLLET_ERROR_BYTES];
	snprintf(sentence, sizeof(sentence), "%s", collet_last_error());
	executed->lost = executed_enqueue_passed(executed, place->at.stream) != COLLET_OK;
	(void)collet_fail_copy(status, sentence);
}

collet_status executed_run_on_stream(struct collet_executions *executions, struct executed *executed,
	struct collet_request *request, const struct executed_place *place)
{
	struct collet_engine *engine = executions->comm->group.engine;
	bool kept;
	executed->call.timeout_ns = request->timeout_ns;
	const collet_status status = put(executions, executed, place, &kept);
	uint64_t number = 0;
	if (status == COLLET_OK && executions->together)
		number = collet_together_call(executions->together, executions->comm->group.rank);
	if (status != COLLET_OK && kept && !executed->captured)
		give_up(executed, place, status);
	if (kept)
		executed_keep(executions, executed);
	else
		executed_free(executed);
	collet_engine_lock(engine);
	if (status == COLLET_OK) {
		executed_begin(executions, request, number);
		collet_request_end(request, COLLET_OK);
	}
	collet_request_release(request);
	collet_engine_unlock(engine);
	return status;
}
