/* Runs device collectives on streams: a call is one launch. What it uses stays until the stream has passed it. */
#include <stdio.h>

#include "cuda/peer_gpus/device_collective_internal.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/request.h"

void devcoll_leave(struct devcoll_scope *scope)
{
	(void)scope->cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	(void)scope->cuda->cuCtxPopCurrent(NULL);
}

static collet_status query_stream(struct collet_device_collectives *devcolls, struct devcoll_scope *scope)
{
	const struct collet_cuda *cuda = scope->cuda;
	cu_context context = NULL;
	int captured = CU_CAPTURE_STATUS_NONE;
	cu_result result = cuda->cuStreamGetCtx(scope->target.stream, &context);
	if (result == CU_CAPTURE_INVALIDATED)
		return collet_cuda_fail_invalidated();
	if (result == CU_OK)
		result = cuda->cuStreamGetCaptureInfo(
			scope->target.stream, &captured, &scope->target.capture, NULL, NULL, NULL);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "how.stream: asking about the stream");
	if (devcolls->co_resident && (uintptr_t)scope->target.stream == CU_LEGACY_STREAM)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: this rank shares its GPU with others of its process, whose kernels wait for each "
			"other, and what is on the legacy default stream keeps those of other streams from beginning; "
			"call on a stream of the rank's own, made with CU_STREAM_NON_BLOCKING");
	if (context != collet_device_comm_copy_stream(devcolls->device_comm)->context)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: the stream is not of the CUDA context that was current when the communicator "
			"was made");
	if (captured == CU_CAPTURE_STATUS_INVALIDATED)
		return collet_cuda_fail_invalidated();
	if (captured == CU_CAPTURE_STATUS_NONE)
		scope->target.capture = 0;
	return COLLET_OK;
}

collet_status devcoll_enter(struct collet_device_collectives *devcolls, void *stream, struct devcoll_scope *scope)
{
	const struct collet_cuda *cuda = &devcolls->comm->context->gpu->cuda;
	*scope = (struct devcoll_scope){
		.cuda = cuda, .target.stream = stream, .capture_mode = CU_CAPTURE_MODE_RELAXED };
	cu_result result = cuda->cuCtxPushCurrent(collet_device_comm_copy_stream(devcolls->device_comm)->context);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "entering a communicator's context");
	result = cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	if (result != CU_OK) {
		(void)cuda->cuCtxPopCurrent(NULL);
		return collet_cuda_fail(cuda, result, "setting how strict captures are");
	}
	if (!stream)
		return COLLET_OK;
	const collet_status status = query_stream(devcolls, scope);
	if (status != COLLET_OK)
		devcoll_leave(scope);
	return status;
}

void devcoll_reap(struct collet_device_collectives *devcolls, bool all)
{
	for (struct devcoll **at = &devcolls->unreleased; *at;) {
		struct devcoll *devcoll = *at;
		if (!all && (devcoll->is_captured || devcoll->is_leaked ||
				    !atomic_load_explicit(&devcoll->is_released, memory_order_acquire))) {
			at = &devcoll->next;
			continue;
		}
		*at = devcoll->next;
		devcoll_free(devcoll);
	}
}

void devcoll_await_release(struct collet_device_collectives *devcolls, struct devcoll *devcoll)
{
	devcoll->next = devcolls->unreleased;
	devcolls->unreleased = devcoll;
}

/* Enqueues all of a call. After the launch other ranks wait for it, so a failure then ends the communicator. *kept: the
 * stream may use staging memory. */
static collet_status enqueue(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	const struct devcoll_scope *scope, bool *kept)
{
	const bool is_staged = devcoll_is_staged(devcoll);
	devcoll->is_captured = scope->target.capture != 0;
	collet_status status = devcoll_enqueue_copy_in(devcoll, scope->target.stream);
	*kept = is_staged && status == COLLET_OK;
	if (status == COLLET_OK)
		status =
			collet_device_comm_launch(devcolls->device_comm, &devcoll->call, devcoll->plan, &scope->target);
	if (status != COLLET_OK || !is_staged)
		return status;
	status = devcoll_enqueue_copy_out(devcoll, scope->target.stream);
	if (status != COLLET_OK)
		collet_comm_state_end(&devcolls->comm->state, status, true, collet_last_error());
	return status;
}

/* Handles a call that the driver has refused in the middle. The stream may have a part of it. */
static void enqueue_release(struct devcoll *devcoll, const struct devcoll_scope *scope, collet_status status)
{
	char error_text[COLLET_ERROR_BYTES];
	snprintf(error_text, sizeof(error_text), "%s", collet_last_error());
	devcoll->is_leaked = devcoll_enqueue_release(devcoll, scope->target.stream) != COLLET_OK;
	(void)collet_fail_copy(status, error_text);
}

collet_status devcoll_run_on_stream(struct collet_device_collectives *devcolls, struct devcoll *devcoll,
	struct collet_request *request, const struct devcoll_scope *scope)
{
	struct collet_engine *engine = devcolls->comm->state.engine;
	bool kept;
	devcoll->call.timeout_ns = request->timeout_ns;
	const collet_status status = enqueue(devcolls, devcoll, scope, &kept);
	uint64_t number = 0;
	if (status == COLLET_OK && devcolls->co_resident)
		number = collet_co_resident_count_call(devcolls->co_resident, devcolls->comm->state.rank);
	if (status != COLLET_OK && kept && !devcoll->is_captured)
		enqueue_release(devcoll, scope, status);
	if (kept)
		devcoll_await_release(devcolls, devcoll);
	else
		devcoll_free(devcoll);
	collet_engine_lock(engine);
	if (status == COLLET_OK) {
		devcoll_begin(devcolls, request, number);
		collet_request_end(request, COLLET_OK);
	}
	collet_request_release(request);
	collet_engine_unlock(engine);
	return status;
}
