/* Putting a call on a stream. On the caller's thread, which waits for nobody: neither for a peer nor for the GPU. */
#include "cuda/stream/stream_call.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/shared_gpu/shared_gpu_comm.h"
#include "cuda/stream/stream_internal.h"
#include "engine/lock.h"

/* ---- Words ---- */

/* In the current CUDA context. */
static collet_status add_block(struct collet_streams *streams, const struct collet_copier *copier)
{
	struct collet_context *context = streams->comm->context;
	struct collet_words_block *block = calloc(1, sizeof(*block));
	if (!block)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for calls on streams");
	collet_status status =
		collet_pinned_take(&context->pinned, copier, sizeof(struct collet_words), &block->memory);
	if (status == COLLET_OK && !collet_pinned_lock(&context->pinned, copier, block->memory))
		status = collet_fail(COLLET_ERR_MEMORY, "%zu bytes cannot be page-locked, which calls on streams need; "
							"raise the limit of locked memory (ulimit -l)",
			block->memory->bytes);
	if (status == COLLET_OK) {
		const cu_result result =
			context->cuda.cuMemHostGetDevicePointer(&block->gpu, block->memory->memory, 0);
		if (result != CU_OK)
			status = collet_cuda_fail(
				&context->cuda, result, "finding where the GPU has page-locked memory");
	}
	if (status != COLLET_OK) {
		collet_pinned_give(&context->pinned, block->memory);
		free(block);
		return status;
	}
	block->next = streams->blocks;
	streams->blocks = block;
	return COLLET_OK;
}

collet_status collet_streamed_new(
	struct collet_streams *streams, const struct collet_copier *copier, struct collet_streamed **call)
{
	struct collet_streamed *made = streams->free;
	if (made) {
		streams->free = made->next;
	} else {
		const struct collet_words_block *first = streams->blocks;
		if (!first || first->used == first->memory->bytes / sizeof(struct collet_words)) {
			const collet_status status = add_block(streams, copier);
			if (status != COLLET_OK)
				return status;
		}
		made = calloc(1, sizeof(*made));
		if (!made)
			return collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a stream");
		struct collet_words_block *block = streams->blocks;
		made->words = (struct collet_words *)(void *)block->memory->memory + block->used;
		made->passed = block->gpu + block->used * sizeof(struct collet_words) +
			offsetof(struct collet_words, passed);
		block->used++;
	}
	const cu_pointer passed = made->passed;
	*made = (struct collet_streamed){ .streams = streams, .copier = copier, .words = made->words,
		.done_word = &made->words->done, .done = passed - offsetof(struct collet_words, passed),
		.passed = passed };
	atomic_store_explicit(&made->words->done, 0, memory_order_relaxed);
	atomic_store_explicit(&made->words->passed, 1, memory_order_relaxed);
	*call = made;
	return COLLET_OK;
}

void collet_streamed_free(struct collet_streamed *call)
{
	struct collet_streams *streams = call->streams;
	collet_staged_drop(call->staged);
	if (call->word.number)
		collet_direct_word_give(streams->comm->direct, &call->word);
	call->word.number = 0;
	if (call->request) {
		collet_engine_lock(streams->engine);
		collet_request_release(call->request);
		collet_engine_unlock(streams->engine);
	}
	call->staged = NULL;
	call->request = NULL;
	call->next = streams->free;
	streams->free = call;
}

void collet_streams_reap(struct collet_streams *streams)
{
	struct collet_streamed *passed = NULL;
	pthread_mutex_lock(&streams->lock);
	for (struct collet_streamed **at = &streams->passing; *at;) {
		struct collet_streamed *call = *at;
		/* Acquire: the stream's last use of its memory comes before. */
		if (call->lost || !atomic_load_explicit(&call->words->passed, memory_order_acquire)) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		call->next = passed;
		passed = call;
	}
	pthread_mutex_unlock(&streams->lock);
	for (struct collet_streamed *call = passed, *next; call; call = next) {
		next = call->next;
		collet_streamed_free(call);
		streams->under_way--;
	}
	if (streams->holds && !streams->under_way && !streams->captured) {
		collet_ipc_let_go(&streams->comm->context->device.ipc);
		streams->holds = false;
	}
}

/* ---- Where a call is put ---- */

struct place {
	const struct collet_cuda *cuda;
	cu_stream stream;
	cu_context context;
	struct collet_copier *copier;
	uint64_t capture;            /* 0: none */
	int mode;                    /* the thread's, of capturing, before */
};

static collet_status find_copier(struct collet_context *context, struct place *place)
{
	struct collet_residence residence = { .device = true, .context = place->context };
	int offered = 0;
	cu_device device = 0;
	cu_result result = place->cuda->cuCtxGetDevice(&device);
	if (result == CU_OK)
		result = place->cuda->cuDeviceGetAttribute(&offered, CU_DEVICE_HAS_MEMORY_OPERATIONS, device);
	if (result != CU_OK)
		return collet_cuda_fail(place->cuda, result, "asking about a stream's GPU");
	if (!offered)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"how.stream: GPU %d has no stream memory operations, by which a stream waits for the host; "
			"call "
			"without it",
			device);
	residence.ordinal = device;
	return collet_copier_find(&context->copiers, &residence, &place->copier);
}

static void leave(struct place *place)
{
	(void)place->cuda->cuThreadExchangeStreamCaptureMode(&place->mode);
	(void)place->cuda->cuCtxPopCurrent(NULL);
}

/* The stream's context is the thread's until leave(), and registering memory spoils nobody's capture. */
static collet_status enter(struct collet_context *context, void *stream, struct place *place)
{
	const struct collet_cuda *cuda = &context->cuda;
	*place = (struct place){ .cuda = cuda, .stream = stream, .mode = CU_CAPTURE_RELAXED };
	if (!cuda->module)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "how.stream: %s", cuda->absent);
	cu_result result = cuda->cuStreamGetCtx(stream, &place->context);
	if (result == CU_OK)
		result = cuda->cuCtxPushCurrent(place->context);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, "how.stream: entering the context of the stream");
	result = cuda->cuThreadExchangeStreamCaptureMode(&place->mode);
	if (result != CU_OK) {
		(void)cuda->cuCtxPopCurrent(NULL);
		return collet_cuda_fail(cuda, result, "how.stream: setting how strict captures are");
	}
	int captured = CU_NOT_CAPTURED;
	collet_status status = COLLET_OK;
	result = cuda->cuStreamGetCaptureInfo(stream, &captured, &place->capture, NULL, NULL, NULL);
	if (result != CU_OK)
		status = collet_cuda_fail(cuda, result, "how.stream: asking whether the stream is captured");
	else if (captured == CU_CAPTURE_SPOILT)
		status = collet_fail(COLLET_ERR_ARGUMENT,
			"how.stream: something has invalidated the stream's capture: end it, and capture again");
	if (captured == CU_NOT_CAPTURED)
		place->capture = 0;
	if (status == COLLET_OK)
		status = find_copier(context, place);
	if (status != COLLET_OK)
		leave(place);
	return status;
}

/* ---- Putting it there ---- */

static collet_status check(const struct place *place, cu_result result, const char *what)
{
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(place->cuda, result, what);
}

/* What the stream does once it has rung. */
static collet_status enqueue_rest(const struct place *place, const struct collet_streamed *call)
{
	collet_status status = check(place,
		place->cuda->cuStreamWaitValue32(place->stream, call->done, 1, CU_WAIT_AT_LEAST),
		"having a stream wait for a call's end");
	if (status == COLLET_OK && call->staged)
		status = collet_staged_enqueue_out(call->staged, place->stream);
	if (status == COLLET_OK)
		status = check(place, place->cuda->cuStreamWriteValue32(place->stream, call->passed, 1, 0),
			"having a stream say that it has passed a call");
	return status;
}

/* The driver has refused something. The stream may have a part of the call: then its memory stays until the stream has
 * passed, or, where that cannot be known, for ever. */
static void give_up(const struct place *place, struct collet_streamed *call)
{
	call->lost = place->capture != 0 ||
		place->cuda->cuStreamWriteValue32(place->stream, call->passed, 1, 0) != CU_OK;
}

static collet_status put(const struct place *place, struct collet_streamed *call)
{
	struct collet_streams *streams = call->streams;
	if (!streams->holds)
		collet_ipc_hold(&streams->comm->context->device.ipc);
	streams->holds = true;
	collet_status status = collet_streamed_add(call);
	if (status != COLLET_OK) {
		collet_streamed_free(call);
		return status;
	}
	if (!place->capture)
		atomic_store_explicit(&call->words->passed, 0, memory_order_relaxed);
	streams->under_way += !place->capture;
	if (call->staged)
		status = collet_staged_enqueue_in(call->staged, place->stream, call->half_count != 0);
	if (status == COLLET_OK)
		status = check(place, place->cuda->cuLaunchHostFunc(place->stream, collet_streams_ring, call),
			"having a stream ring");
	if (status != COLLET_OK) {
		collet_streamed_withdraw(call);
		give_up(place, call);
		streams->under_way -= !place->capture && call->lost;
		collet_streamed_let_pass(call);
		return status;
	}
	status = enqueue_rest(place, call);
	if (status != COLLET_OK) {
		/* It will ring, and the others will wait for it: there is no way back. */
		collet_comm_state_end(&streams->comm->group, status, true, collet_last_error());
		give_up(place, call);
		streams->under_way -= !place->capture && call->lost;
	}
	return status;
}

/* ---- Calls ---- */

static collet_status check_how(const char *function, const collet_how *how)
{
	if (!how->request)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_ARGUMENT,
		"%s: how.request and how.stream are both set: a call on a stream is waited for by its stream, or an "
		"event "
		"recorded there",
		function);
}

static collet_status name_caller(collet_status status, const char *function)
{
	if (status != COLLET_OK)
		collet_error_prefix("%s", function);
	return status;
}

static collet_status make(collet_comm *comm, const struct place *place, const char *function,
	const struct collet_side sides[COLLET_SIDES], const collet_how *how, struct collet_streamed **call)
{
	struct collet_streams *streams;
	collet_status status = collet_streams_get(comm, &streams);
	if (status == COLLET_OK) {
		collet_streams_reap(streams);
		status = collet_streamed_new(streams, place->copier, call);
	}
	if (status != COLLET_OK)
		return name_caller(status, function);
	(*call)->function = function;
	(*call)->capture = place->capture;
	(*call)->timeout_ns = collet_call_timeout(comm, how);
	for (int s = 0; s < COLLET_SIDES; s++)
		(*call)->sides.side[s] =
			(struct collet_direct_side){ .first = sides[s].first, .bytes = sides[s].bytes };
	return COLLET_OK;
}

/* The stream copies to and from the host's memory. sides: the host's afterwards. */
static collet_status lay_out(collet_comm *comm, struct collet_streamed *call, struct collet_call_arguments *arguments,
	struct collet_side sides[COLLET_SIDES], const struct collet_partition *listed)
{
	const collet_status status = collet_staged_lay_out(comm->context, arguments->function, sides,
		collet_call_staging(comm, arguments), &call->staged);
	arguments->staged = call->staged;
	return status == COLLET_OK && call->staged ?
		collet_call_take_staged(comm, arguments, sides, listed, call->staged) : status;
}

/* The stream copies nothing: which way it goes is decided when all have rung. */
static collet_status locate(
	const collet_comm *comm, struct collet_streamed *call, const char *function, const collet_how *how)
{
	call->offered = true;
	call->sides.function = function;
	call->sides.scale = how->scale;
	collet_direct_word_take(comm->direct, &call->word);
	if (call->word.number) {
		call->sides.word = call->word.number;
		call->done_word = call->word.host;
		call->done = call->word.gpu;
		atomic_store_explicit(call->done_word, 0, memory_order_relaxed);
	}
	return collet_direct_locate(comm->direct, &call->sides);
}

collet_status collet_streamed_call(collet_comm *comm, struct collet_call_arguments *arguments,
	struct collet_side sides[COLLET_SIDES], const struct collet_partition *listed, const collet_how *how)
{
	struct place place;
	struct collet_streamed *call;
	collet_status status = check_how(arguments->function, how);
	if (status == COLLET_OK)
		status = name_caller(enter(comm->context, how->stream, &place), arguments->function);
	if (status != COLLET_OK)
		return status;
	status = make(comm, &place, arguments->function, sides, how, &call);
	if (status == COLLET_OK) {
		status = collet_call_may_be_direct(comm, arguments) ?
			locate(comm, call, arguments->function, how) :
			lay_out(comm, call, arguments, sides, listed);
		if (status == COLLET_OK)
			status = collet_call_prepare(comm, arguments, how, &call->request);
		if (status == COLLET_OK)
			status = name_caller(put(&place, call), arguments->function);
		else
			collet_streamed_free(call);
	}
	leave(&place);
	return status;
}

collet_status collet_streamed_halves(collet_comm *comm, const char *function, const struct collet_half *halves,
	uint32_t count, collet_dtype dtype, const collet_how *how)
{
	struct place place;
	struct collet_streamed *call;
	struct collet_side sides[COLLET_SIDES] = { { NULL, 0 }, { NULL, 0 } };
	collet_status status = check_how(function, how);
	if (status == COLLET_OK)
		status = name_caller(enter(comm->context, how->stream, &place), function);
	if (status != COLLET_OK)
		return status;
	for (uint32_t i = 0; i < count; i++)
		sides[halves[i].sends ? COLLET_READ : COLLET_WRITTEN] =
			(struct collet_side){ halves[i].buffer, halves[i].count * collet_dtype_bytes(dtype) };
	status = make(comm, &place, function, sides, how, &call);
	if (status == COLLET_OK) {
		status = collet_staged_lay_out(
			comm->context, function, sides, collet_halves_staging(comm, halves, count), &call->staged);
		if (status != COLLET_OK)
			collet_streamed_free(call);
	}
	if (status == COLLET_OK) {
		call->half_count = count;
		call->dtype = dtype;
		memcpy(call->halves, halves, count * sizeof(*halves));
		collet_halves_take_staged(call->halves, count, sides, call->staged);
		status = name_caller(put(&place, call), function);
	}
	leave(&place);
	return status;
}
