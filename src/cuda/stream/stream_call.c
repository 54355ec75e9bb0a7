/* Enqueues calls on streams. Runs on the caller's thread, which waits neither for a peer nor for the GPU. */
#include "cuda/stream/stream_call.h"

#include <stdlib.h>
#include <string.h>

#include "api/on_end.h"
#include "cuda/gpu_call.h"
#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/stream/stream_internal.h"
#include "engine/comm_state.h"
#include "engine/lock.h"
#include "engine/request.h"

/* ---- Flags ---- */

/* In the current CUDA context. */
static collet_status add_block(struct collet_streams *streams, const struct collet_copy_stream *copy_stream)
{
	struct collet_context *context = streams->comm->context;
	struct collet_stream_flags_block *block = calloc(1, sizeof(*block));
	if (!block)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for calls on streams");
	collet_status status = collet_pinned_acquire(
		&context->gpu->pinned, copy_stream, sizeof(struct collet_stream_flags), &block->memory);
	if (status == COLLET_OK && !collet_pinned_register(&context->gpu->pinned, copy_stream, block->memory))
		status = collet_fail(COLLET_ERR_MEMORY, "%zu bytes cannot be page-locked, which calls on streams need; "
							"raise the limit of locked memory (ulimit -l)",
			block->memory->bytes);
	if (status == COLLET_OK) {
		const cu_result result =
			context->gpu->cuda.cuMemHostGetDevicePointer(&block->gpu, block->memory->memory, 0);
		if (result != CU_OK)
			status = collet_cuda_fail(
				&context->gpu->cuda, result, "finding where the GPU has page-locked memory");
	}
	if (status != COLLET_OK) {
		collet_pinned_release(&context->gpu->pinned, block->memory);
		free(block);
		return status;
	}
	block->next = streams->blocks;
	streams->blocks = block;
	return COLLET_OK;
}

collet_status collet_stream_call_new(
	struct collet_streams *streams, const struct collet_copy_stream *copy_stream, struct collet_stream_call **call)
{
	struct collet_stream_call *made = streams->free;
	if (made) {
		streams->free = made->next;
	} else {
		const struct collet_stream_flags_block *first = streams->blocks;
		if (!first || first->used == first->memory->bytes / sizeof(struct collet_stream_flags)) {
			const collet_status status = add_block(streams, copy_stream);
			if (status != COLLET_OK)
				return status;
		}
		made = calloc(1, sizeof(*made));
		if (!made)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a stream");
		struct collet_stream_flags_block *block = streams->blocks;
		made->flags = (struct collet_stream_flags *)(void *)block->memory->memory + block->used;
		made->released = block->gpu + block->used * sizeof(struct collet_stream_flags) +
			offsetof(struct collet_stream_flags, released);
		block->used++;
	}
	const cu_pointer released = made->released;
	*made = (struct collet_stream_call){ .streams = streams, .copy_stream = copy_stream, .flags = made->flags,
		.done_flag = &made->flags->done, .done = released - offsetof(struct collet_stream_flags, released),
		.released = released };
	atomic_store_explicit(&made->flags->done, 0, memory_order_relaxed);
	atomic_store_explicit(&made->flags->released, 1, memory_order_relaxed);
	*call = made;
	return COLLET_OK;
}

void collet_stream_call_free(struct collet_stream_call *call)
{
	struct collet_streams *streams = call->streams;
	collet_gpu_staging_free(call->staging);
	if (call->completion_flag.index)
		collet_shared_gpu_release_flag(streams->comm->gpu->shared_gpu, &call->completion_flag);
	call->completion_flag.index = 0;
	if (call->request) {
		collet_engine_lock(streams->engine);
		collet_request_release(call->request);
		collet_engine_unlock(streams->engine);
	}
	call->staging = NULL;
	call->request = NULL;
	call->next = streams->free;
	streams->free = call;
}

void collet_streams_reap(struct collet_streams *streams)
{
	struct collet_stream_call *released = NULL;
	pthread_mutex_lock(&streams->lock);
	for (struct collet_stream_call **at = &streams->unreleased; *at;) {
		struct collet_stream_call *call = *at;
		/* Acquire: pairs with the stream's write, after its last use of the call's memory. */
		if (call->is_leaked || !atomic_load_explicit(&call->flags->released, memory_order_acquire)) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		call->next = released;
		released = call;
	}
	pthread_mutex_unlock(&streams->lock);
	for (struct collet_stream_call *call = released, *next; call; call = next) {
		next = call->next;
		collet_stream_call_free(call);
		streams->unreleased_count--;
	}
	if (streams->has_eviction_pause && !streams->unreleased_count && !streams->captured) {
		collet_ipc_cache_resume_eviction(&streams->comm->context->gpu->device.ipc_cache);
		streams->has_eviction_pause = false;
	}
}

/* ---- The stream's context ---- */

struct stream_scope {
	const struct collet_cuda *cuda;
	cu_stream stream;
	cu_context context;
	struct collet_copy_stream *copy_stream;
	uint64_t capture; /* 0 if the stream is not captured */
	int capture_mode; /* the thread's capture mode before */
};

static collet_status find_copy_stream(struct collet_context *context, struct stream_scope *scope)
{
	struct collet_pointer_attributes attributes = { .is_device = true, .context = scope->context };
	int offered = 0;
	cu_device device = 0;
	cu_result result = scope->cuda->cuCtxGetDevice(&device);
	if (result == CU_OK)
		result = scope->cuda->cuDeviceGetAttribute(&offered, CU_DEVICE_HAS_STREAM_MEM_OPS, device);
	if (result != CU_OK)
		return collet_cuda_fail(scope->cuda, result, "asking about a stream's GPU");
	if (!offered)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: GPU %d has no stream memory operations, by which a stream waits for the host; "
			"call "
			"without it",
			device);
	attributes.ordinal = device;
	return collet_copy_stream_get(&context->gpu->copy_streams, &attributes, &scope->copy_stream);
}

static void leave(struct stream_scope *scope)
{
	(void)scope->cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	(void)scope->cuda->cuCtxPopCurrent(NULL);
}

/* Makes the stream's context current until leave(). Registering memory invalidates no capture meanwhile. */
static collet_status enter(struct collet_context *context, void *stream, struct stream_scope *scope)
{
	const struct collet_cuda *cuda = &context->gpu->cuda;
	*scope = (struct stream_scope){ .cuda = cuda, .stream = stream, .capture_mode = CU_CAPTURE_MODE_RELAXED };
	cu_result result = cuda->cuStreamGetCtx(stream, &scope->context);
	if (result == CU_CAPTURE_INVALIDATED)
		return collet_cuda_fail_invalidated();
	if (result == CU_OK)
		result = cuda->cuCtxPushCurrent(scope->context);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "how.stream: entering the context of the stream");
	result = cuda->cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
	if (result != CU_OK) {
		(void)cuda->cuCtxPopCurrent(NULL);
		return collet_cuda_fail(cuda, result, "how.stream: setting how strict captures are");
	}
	int captured = CU_CAPTURE_STATUS_NONE;
	collet_status status = COLLET_OK;
	result = cuda->cuStreamGetCaptureInfo(stream, &captured, &scope->capture, NULL, NULL, NULL);
	if (result != CU_OK)
		status = collet_cuda_fail(cuda, result, "how.stream: asking whether the stream is captured");
	else if (captured == CU_CAPTURE_STATUS_INVALIDATED)
		status = collet_cuda_fail_invalidated();
	if (captured == CU_CAPTURE_STATUS_NONE)
		scope->capture = 0;
	if (status == COLLET_OK)
		status = find_copy_stream(context, scope);
	if (status != COLLET_OK)
		leave(scope);
	return status;
}

/* ---- Enqueueing ---- */

static collet_status check(const struct stream_scope *scope, cu_result result, const char *what)
{
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(scope->cuda, result, what);
}

/* Enqueues the part of a call behind the doorbell: wait, copy back, release. */
static collet_status enqueue_rest(const struct stream_scope *scope, const struct collet_stream_call *call)
{
	collet_status status = check(scope,
		scope->cuda->cuStreamWaitValue32(scope->stream, call->done, 1, CU_WAIT_VALUE_GEQ),
		"having a stream wait for a call's end");
	if (status == COLLET_OK && call->staging)
		status = collet_gpu_staging_enqueue_copy_out(call->staging, scope->stream);
	if (status == COLLET_OK)
		status = check(scope, scope->cuda->cuStreamWriteValue32(scope->stream, call->released, 1, 0),
			"having a stream say that it has passed a call");
	return status;
}

/* Enqueues the release of a call of which the driver has refused a part. The stream may hold the rest, so the memory
 * stays until the stream has passed that. It stays for ever if nothing will report it. */
static void enqueue_release(const struct stream_scope *scope, struct collet_stream_call *call)
{
	call->is_leaked = scope->capture != 0 ||
		scope->cuda->cuStreamWriteValue32(scope->stream, call->released, 1, 0) != CU_OK;
}

static collet_status enqueue(const struct stream_scope *scope, struct collet_stream_call *call)
{
	struct collet_streams *streams = call->streams;
	if (!streams->has_eviction_pause)
		collet_ipc_cache_pause_eviction(&streams->comm->context->gpu->device.ipc_cache);
	streams->has_eviction_pause = true;
	collet_status status = collet_stream_call_add(call);
	if (status != COLLET_OK) {
		collet_stream_call_free(call);
		return status;
	}
	if (!scope->capture)
		atomic_store_explicit(&call->flags->released, 0, memory_order_relaxed);
	streams->unreleased_count += !scope->capture;
	if (call->staging)
		status = collet_gpu_staging_enqueue_copy_in(call->staging, scope->stream, call->op_count != 0);
	if (status == COLLET_OK)
		status = check(scope, scope->cuda->cuLaunchHostFunc(scope->stream, collet_streams_ring_doorbell, call),
			"having a stream ring");
	if (status != COLLET_OK) {
		collet_stream_call_withdraw(call);
		enqueue_release(scope, call);
		streams->unreleased_count -= !scope->capture && call->is_leaked;
		collet_stream_call_await_release(call);
		return status;
	}
	status = enqueue_rest(scope, call);
	if (status != COLLET_OK) {
		/* The doorbell will ring and other ranks will wait for the call, so it cannot be undone. */
		collet_comm_state_end(&streams->comm->state, status, true, collet_last_error());
		enqueue_release(scope, call);
		streams->unreleased_count -= !scope->capture && call->is_leaked;
	}
	return status;
}

/* ---- Calls ---- */

static collet_status prefix_function(collet_status status, const char *function)
{
	if (status != COLLET_OK)
		collet_error_prefix("%s", function);
	return status;
}

static collet_status make(collet_comm *comm, const struct stream_scope *scope, const char *function,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const collet_how *how,
	struct collet_stream_call **call)
{
	struct collet_streams *streams;
	collet_status status = collet_streams_get(comm, &streams);
	if (status == COLLET_OK) {
		collet_streams_reap(streams);
		status = collet_stream_call_new(streams, scope->copy_stream, call);
	}
	if (status != COLLET_OK)
		return prefix_function(status, function);
	(*call)->function = function;
	(*call)->capture = scope->capture;
	(*call)->timeout_ns = collet_call_timeout(comm, how);
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		(*call)->gpu_buffers.buffer[s] =
			(struct collet_buffer_info){ .first = buffers[s].first, .bytes = buffers[s].bytes };
	return COLLET_OK;
}

/* Stages the call: the stream copies to and from host memory, whose addresses buffers get. */
static collet_status stage(collet_comm *comm, struct collet_stream_call *call, struct collet_call_arguments *arguments,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector)
{
	const collet_status status = collet_gpu_staging_begin_on_stream(
		comm->context, arguments->function, buffers, collet_call_staging_kind(comm, arguments), &call->staging);
	return status == COLLET_OK && call->staging ?
		collet_call_use_staging(comm, arguments, buffers, vector, call->staging) : status;
}

/* Describes the call for the leader, which decides how it is executed when all ranks' doorbells have rung. The stream
 * copies nothing. */
static collet_status describe_for_leader(
	const collet_comm *comm, struct collet_stream_call *call, const char *function, const collet_how *how)
{
	call->is_for_leader = true;
	call->gpu_buffers.function = function;
	call->gpu_buffers.scale = how->scale;
	collet_shared_gpu_claim_flag(comm->gpu->shared_gpu, &call->completion_flag);
	if (call->completion_flag.index) {
		call->gpu_buffers.flag = call->completion_flag.index;
		call->done_flag = call->completion_flag.host;
		call->done = call->completion_flag.gpu;
		atomic_store_explicit(call->done_flag, 0, memory_order_relaxed);
	}
	return collet_shared_gpu_locate(comm->gpu->shared_gpu, &call->gpu_buffers);
}

collet_status collet_stream_enqueue_collective(collet_comm *comm, struct collet_call_arguments *arguments,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], const struct collet_partition *vector,
	const collet_how *how)
{
	struct stream_scope scope;
	struct collet_stream_call *call;
	collet_status status = collet_check_notice(arguments->function, how);
	if (status == COLLET_OK)
		status = prefix_function(enter(comm->context, how->stream, &scope), arguments->function);
	if (status != COLLET_OK)
		return status;
	status = make(comm, &scope, arguments->function, buffers, how, &call);
	if (status == COLLET_OK) {
		status = collet_call_may_share_gpu(comm, arguments) ?
			describe_for_leader(comm, call, arguments->function, how) :
			stage(comm, call, arguments, buffers, vector);
		if (status == COLLET_OK)
			status = collet_gpu_call_prepare(comm, arguments, call->staging, how, &call->request);
		if (status == COLLET_OK)
			status = prefix_function(enqueue(&scope, call), arguments->function);
		else
			collet_stream_call_free(call);
	}
	leave(&scope);
	return status;
}

collet_status collet_stream_enqueue_p2p(collet_comm *comm, const char *function, const struct collet_p2p_op *ops,
	uint32_t count, collet_dtype dtype, const collet_how *how)
{
	struct stream_scope scope;
	struct collet_stream_call *call;
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS] = { { NULL, 0 }, { NULL, 0 } };
	collet_status status = collet_check_notice(function, how);
	if (status == COLLET_OK)
		status = prefix_function(enter(comm->context, how->stream, &scope), function);
	if (status != COLLET_OK)
		return status;
	for (uint32_t i = 0; i < count; i++)
		buffers[ops[i].is_send ? COLLET_SEND_BUFFER : COLLET_RECV_BUFFER] =
			(struct collet_user_buffer){ ops[i].buffer, ops[i].count * collet_dtype_bytes(dtype) };
	status = make(comm, &scope, function, buffers, how, &call);
	if (status == COLLET_OK) {
		status = collet_gpu_staging_begin_on_stream(comm->context, function, buffers,
			collet_p2p_ops_staging_kind(comm, ops, count), &call->staging);
		if (status != COLLET_OK)
			collet_stream_call_free(call);
	}
	if (status == COLLET_OK) {
		call->op_count = count;
		call->dtype = dtype;
		memcpy(call->ops, ops, count * sizeof(*ops));
		collet_p2p_ops_use_staging(call->ops, count, buffers, call->staging);
		status = prefix_function(enqueue(&scope, call), function);
	}
	leave(&scope);
	return status;
}
