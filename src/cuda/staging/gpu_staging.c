#include "cuda/staging/gpu_staging.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/staging/staging_bounced.h"
#include "cuda/staging/staging_gpudirect.h"
#include "cuda/staging/staging_pipelined.h"
#include "engine/p2p/bounce_buffer.h"
#include "engine/pipeline.h"
#include "engine/request.h"

/* The first method that supports a call takes it. */
static const struct collet_staging_method *const staging_methods[] = {
	&collet_gpudirect_staging, &collet_pipelined_staging, &collet_bounced_staging
};

struct collet_gpu_staging {
	struct collet_staging_transfer transfer;
	struct collet_pinned_block *blocks[COLLET_USER_BUFFERS];
	const struct collet_staging_method *method; /* NULL if buffers are copied whole, before and after */
	struct collet_staging_handle *handle;       /* NULL likewise, or if it has not been made yet */
	struct collet_buffer_part whole, *parts;    /* of what is written; parts is NULL if that is whole */
	size_t part_count;
	const collet_received *received;
	collet_received own_received;
	size_t element_bytes;
};

bool collet_gpu_staging_uses(const struct collet_gpu_staging *staging, const char *first, size_t bytes)
{
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		const struct collet_gpu_staging_buffer *buffer = &staging->transfer.buffers[s];
		if (buffer->copy_stream && buffer->gpu < first + bytes && first < buffer->gpu + buffer->bytes)
			return true;
	}
	return false;
}

void collet_gpu_staging_free(struct collet_gpu_staging *staging)
{
	if (!staging)
		return;
	struct collet_pinned_pool *pool = &staging->transfer.context->gpu->pinned;
	const bool waited = !staging->handle || staging->method->free(staging->handle);
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		if (waited)
			collet_pinned_release(pool, staging->blocks[s]);
		else
			collet_pinned_leak(pool, staging->blocks[s]);
	}
	free(staging->parts);
	free(staging);
}

static bool overlap(const struct collet_gpu_staging_buffer *a, const struct collet_gpu_staging_buffer *b)
{
	return a->copy_stream && b->copy_stream && a->gpu < b->gpu + b->bytes && b->gpu < a->gpu + a->bytes;
}

/* Returns the first method that supports the transfer, or NULL; only those after `declined`, unless that is NULL. */
static const struct collet_staging_method *find_method(
	const struct collet_staging_transfer *transfer, const struct collet_staging_method *declined)
{
	bool asks = !declined;
	for (size_t i = 0; i < sizeof(staging_methods) / sizeof(staging_methods[0]); i++) {
		if (asks && staging_methods[i]->supports(transfer))
			return staging_methods[i];
		asks = asks || staging_methods[i] == declined;
	}
	return NULL;
}

static size_t host_bytes(const struct collet_gpu_staging *staging, const struct collet_gpu_staging_buffer *buffer)
{
	return staging->method && staging->method->host_bytes ? staging->method->host_bytes(buffer) : buffer->bytes;
}

/* Acquires host memory for the buffers. Buffers that overlap on the GPU overlap in host memory too, except for
 * messages. */
static collet_status get_host_memory(struct collet_gpu_staging *staging)
{
	struct collet_pinned_pool *pool = &staging->transfer.context->gpu->pinned;
	struct collet_gpu_staging_buffer *read = &staging->transfer.buffers[COLLET_SEND_BUFFER],
		*written = &staging->transfer.buffers[COLLET_RECV_BUFFER];
	if (staging->method && staging->method->is_zero_copy) {
		read->host = read->gpu;
		written->host = written->gpu;
		return COLLET_OK;
	}
	if (!collet_staging_is_message(&staging->transfer) && overlap(read, written)) {
		char *first = read->gpu < written->gpu ? read->gpu : written->gpu;
		char *read_end = read->gpu + read->bytes, *written_end = written->gpu + written->bytes;
		char *end = read_end > written_end ? read_end : written_end;
		const collet_status status =
			collet_pinned_acquire(pool, read->copy_stream, (size_t)(end - first), &staging->blocks[0]);
		if (status != COLLET_OK)
			return status;
		read->host = staging->blocks[0]->memory + (read->gpu - first);
		written->host = staging->blocks[0]->memory + (written->gpu - first);
		return COLLET_OK;
	}
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		struct collet_gpu_staging_buffer *buffer = &staging->transfer.buffers[s];
		if (!buffer->copy_stream)
			continue;
		const collet_status status = collet_pinned_acquire(
			pool, buffer->copy_stream, host_bytes(staging, buffer), &staging->blocks[s]);
		if (status != COLLET_OK)
			return status;
		buffer->host = staging->blocks[s]->memory;
	}
	return COLLET_OK;
}

static collet_status copy_in(const struct collet_cuda *cuda, const struct collet_gpu_staging_buffer *buffer)
{
	static const char what[] = "copying a buffer from the GPU";
	collet_status status = collet_copy_stream_push_context(cuda, buffer->copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_stream_enqueue(cuda, buffer->copy_stream, buffer->host, buffer->gpu, buffer->bytes, what);
	if (status == COLLET_OK)
		status = collet_copy_stream_synchronize(cuda, buffer->copy_stream, what);
	collet_copy_stream_pop_context(cuda);
	return status;
}

static collet_status copy_out(const struct collet_cuda *cuda, const struct collet_gpu_staging_buffer *buffer,
	const struct collet_buffer_part *parts, size_t count)
{
	static const char what[] = "copying a result to the GPU";
	collet_status status = collet_copy_stream_push_context(cuda, buffer->copy_stream);
	if (status != COLLET_OK)
		return status;
	for (size_t i = 0; i < count && status == COLLET_OK; i++)
		if (parts[i].bytes)
			status = collet_copy_stream_enqueue(cuda, buffer->copy_stream, buffer->gpu + parts[i].offset,
				buffer->host + parts[i].offset, parts[i].bytes, what);
	/* Copies that were enqueued must end in any case: the next call uses the memory. */
	const collet_status waited = collet_copy_stream_synchronize(cuda, buffer->copy_stream, what);
	collet_copy_stream_pop_context(cuda);
	return status == COLLET_OK ? waited : status;
}

/* Finds where the buffers are. *any is set if one is in GPU memory. */
static collet_status find_buffers(struct collet_context *context, const char *function,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS],
	struct collet_gpu_staging_buffer found[COLLET_USER_BUFFERS], bool *any)
{
	static const char *const names[COLLET_USER_BUFFERS] = { "the buffer that is read",
		"the buffer that is written" };
	*any = false;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		struct collet_pointer_attributes attributes;
		uint64_t offset;
		found[s] = (struct collet_gpu_staging_buffer){ 0 };
		if (!buffers[s].bytes ||
			collet_arena_contains(&context->arena, buffers[s].first, buffers[s].bytes, &offset))
			continue;
		collet_status status = collet_pointer_attributes_get(
			&context->gpu->cuda, names[s], buffers[s].first, buffers[s].bytes, &attributes);
		if (status == COLLET_OK && attributes.is_device)
			status =
				collet_copy_stream_get(&context->gpu->copy_streams, &attributes, &found[s].copy_stream);
		if (status != COLLET_OK) {
			collet_error_prefix("%s", function);
			return status;
		}
		found[s].gpu = (char *)(uintptr_t)buffers[s].first;
		found[s].bytes = buffers[s].bytes;
		found[s].allocation = attributes.allocation;
		*any = *any || attributes.is_device;
	}
	return COLLET_OK;
}

/* Does everything but the copies. Replaces GPU addresses in buffers by host addresses, unless the method is zero-copy.
 */
static collet_status prepare(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging)
{
	struct collet_gpu_staging_buffer found[COLLET_USER_BUFFERS];
	bool any;
	*staging = NULL;
	collet_status status = find_buffers(context, function, buffers, found, &any);
	if (status != COLLET_OK || !any)
		return status;
	struct collet_gpu_staging *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "%s: no memory for a call on a GPU's buffer", function);
	made->transfer = (struct collet_staging_transfer){ context, kind,
		{ found[COLLET_SEND_BUFFER], found[COLLET_RECV_BUFFER] } };
	made->whole.bytes = buffers[COLLET_RECV_BUFFER].bytes;
	made->method = find_method(&made->transfer, NULL);
	status = get_host_memory(made);
	if (status != COLLET_OK) {
		collet_gpu_staging_free(made);
		collet_error_prefix("%s", function);
		return status;
	}
	for (int s = 0; s < COLLET_USER_BUFFERS; s++)
		if (found[s].copy_stream)
			buffers[s].first = made->transfer.buffers[s].host;
	*staging = made;
	return COLLET_OK;
}

static collet_status make_handle(struct collet_gpu_staging *staging)
{
	return staging->method ? staging->method->make(&staging->transfer, &staging->handle) : COLLET_OK;
}

/* True if the buffer is copied before or after the call. */
static bool is_copied_whole(const struct collet_gpu_staging *staging, int buffer)
{
	const struct collet_staging_handle *handle = staging->handle;
	return staging->transfer.buffers[buffer].copy_stream &&
	       !(handle && (handle->pipeline || handle->bounce_buffers[buffer]));
}

static collet_status fail(struct collet_gpu_staging **staging, const char *function, collet_status status)
{
	collet_gpu_staging_free(*staging);
	*staging = NULL;
	collet_error_prefix("%s", function);
	return status;
}

collet_status collet_gpu_staging_begin(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging)
{
	collet_status status = prepare(context, function, buffers, kind, staging);
	if (status != COLLET_OK || !*staging)
		return status;
	status = make_handle(*staging);
	if (status == COLLET_OK && is_copied_whole(*staging, COLLET_SEND_BUFFER))
		status = copy_in(&context->gpu->cuda, &(*staging)->transfer.buffers[COLLET_SEND_BUFFER]);
	return status == COLLET_OK ? COLLET_OK : fail(staging, function, status);
}

collet_status collet_gpu_staging_begin_hooks(struct collet_context *context, struct collet_copy_stream *copy_stream,
	const struct collet_user_buffer buffers[COLLET_USER_BUFFERS], size_t bytes,
	const struct collet_copy_hooks *hooks, char **host, struct collet_gpu_staging **staging)
{
	struct collet_gpu_staging *made = calloc(1, sizeof(*made));
	collet_status status = made ? collet_pinned_acquire(&context->gpu->pinned, copy_stream,
					      bytes + hooks->spare_bytes, &made->blocks[0])
				    : collet_fail(COLLET_ERR_MEMORY, "no memory for a call on a GPU's buffer");
	if (status != COLLET_OK) {
		free(made);
		hooks->free(hooks->context);
		return status;
	}
	const struct collet_gpu_staging_buffer both = {
		.copy_stream = copy_stream, .host = made->blocks[0]->memory, .bytes = bytes
	};
	made->transfer.context = context;
	made->method = &collet_pipelined_staging;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) /* so that they are known to be in use */
		if (buffers[s].bytes)
			made->transfer.buffers[s] = (struct collet_gpu_staging_buffer){ .copy_stream = copy_stream,
				.gpu = (char *)(uintptr_t)buffers[s].first, .bytes = buffers[s].bytes };
	status = collet_pipelined_make_hooks(context, &both, hooks, &made->handle);
	if (status == COLLET_OK) {
		*host = both.host;
		*staging = made;
	} else {
		collet_gpu_staging_free(made);
	}
	return status;
}

collet_status collet_gpu_staging_device_address(const struct collet_gpu_staging *staging, cu_pointer *gpu)
{
	struct collet_context *context = staging->transfer.context;
	if (!staging->blocks[0]->copy_stream)
		return collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, by which a kernel reaches memory that is not its GPU's; "
			"raise the limit of locked memory (ulimit -l)",
			staging->blocks[0]->bytes);
	const cu_result result = context->gpu->cuda.cuMemHostGetDevicePointer(gpu, staging->blocks[0]->memory, 0);
	return result == CU_OK
		       ? COLLET_OK
		       : collet_cuda_fail(&context->gpu->cuda, result, "finding where the GPU has page-locked memory");
}

struct collet_pipeline *collet_gpu_staging_pipeline(const struct collet_gpu_staging *staging)
{
	return staging && staging->handle ? staging->handle->pipeline : NULL;
}

static void pass_parts(const struct collet_gpu_staging *staging)
{
	if (staging->parts && staging->handle && staging->method->set_parts)
		staging->method->set_parts(staging->handle, staging->parts, staging->part_count);
}

/* Gives the request to the next method that supports it. */
static collet_status use_next_method(struct collet_gpu_staging *staging, struct collet_request *request)
{
	const struct collet_gpu_staging_buffer *read = &staging->transfer.buffers[COLLET_SEND_BUFFER],
		*written = &staging->transfer.buffers[COLLET_RECV_BUFFER];
	(void)staging->method->free(staging->handle); /* it has copied nothing */
	staging->handle = NULL;
	staging->method = find_method(&staging->transfer, staging->method);
	assert(staging->method); /* it is too late to copy it whole */
	collet_status status = get_host_memory(staging);
	if (status == COLLET_OK)
		status = make_handle(staging);
	if (status != COLLET_OK)
		return status;
	pass_parts(staging);
	if (read->copy_stream)
		request->input = read->host;
	if (written->copy_stream)
		request->result = written->host;
	return COLLET_OK;
}

collet_status collet_gpu_staging_plan(struct collet_gpu_staging *staging, struct collet_request *request)
{
	bool declined = false;
	collet_status status = COLLET_OK;
	if (staging->handle && staging->method->plan)
		status = staging->method->plan(staging->handle, request, &declined);
	return declined ? use_next_method(staging, request) : status;
}

struct collet_bounce_buffer *collet_gpu_staging_bounce(const struct collet_gpu_staging *staging, int buffer)
{
	return staging && staging->handle ? staging->handle->bounce_buffers[buffer] : NULL;
}

void collet_gpu_staging_stop(const struct collet_gpu_staging *staging)
{
	struct collet_pipeline *pipeline = collet_gpu_staging_pipeline(staging);
	if (pipeline)
		collet_pipeline_stop(pipeline);
	if (staging->handle)
		staging->method->quiesce(staging->handle);
}

collet_status collet_gpu_staging_begin_on_stream(struct collet_context *context, const char *function,
	struct collet_user_buffer buffers[COLLET_USER_BUFFERS], enum collet_gpu_staging_kind kind,
	struct collet_gpu_staging **staging)
{
	collet_status status = prepare(context, function, buffers, kind, staging);
	if (status != COLLET_OK || !*staging)
		return status;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		struct collet_pinned_block *block = (*staging)->blocks[s];
		const struct collet_copy_stream *read = (*staging)->transfer.buffers[COLLET_SEND_BUFFER].copy_stream;
		const struct collet_copy_stream *copy_stream =
			read ? read : (*staging)->transfer.buffers[COLLET_RECV_BUFFER].copy_stream;
		if (!block || collet_pinned_register(&context->gpu->pinned, copy_stream, block))
			continue;
		status = collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, which a call on a stream needs; raise the limit of "
			"locked memory (ulimit -l), or call without how.stream",
			block->bytes);
		return fail(staging, function, status);
	}
	status = make_handle(*staging);
	if (status != COLLET_OK)
		return fail(staging, function, status);
	collet_gpu_staging_stop(*staging);
	return COLLET_OK;
}

static collet_status enqueue(const struct collet_gpu_staging *staging, cu_stream stream, void *to, const void *from,
	size_t bytes, const char *what)
{
	const struct collet_cuda *cuda = &staging->transfer.context->gpu->cuda;
	const cu_result result = cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

collet_status collet_gpu_staging_enqueue_copy_in(const struct collet_gpu_staging *staging, cu_stream stream, bool whole)
{
	collet_status status = COLLET_OK;
	for (int s = 0; s < (whole ? COLLET_USER_BUFFERS : COLLET_SEND_BUFFER + 1) && status == COLLET_OK; s++) {
		const struct collet_gpu_staging_buffer *buffer = &staging->transfer.buffers[s];
		if (is_copied_whole(staging, s))
			status = enqueue(staging, stream, buffer->host, buffer->gpu, buffer->bytes,
				"copying a buffer from the GPU");
	}
	return status;
}

collet_status collet_gpu_staging_enqueue_copy_out(const struct collet_gpu_staging *staging, cu_stream stream)
{
	const struct collet_gpu_staging_buffer *buffer = &staging->transfer.buffers[COLLET_RECV_BUFFER];
	const struct collet_buffer_part *parts = staging->parts ? staging->parts : &staging->whole;
	const size_t count = !is_copied_whole(staging, COLLET_RECV_BUFFER) ? 0
			     : staging->parts                              ? staging->part_count
									   : 1;
	collet_status status = COLLET_OK;
	for (size_t i = 0; i < count && status == COLLET_OK; i++)
		if (parts[i].bytes)
			status = enqueue(staging, stream, buffer->gpu + parts[i].offset, buffer->host + parts[i].offset,
				parts[i].bytes, "copying a result to the GPU");
	return status;
}

collet_status collet_gpu_staging_set_blocks(struct collet_gpu_staging *staging, size_t element_bytes, uint32_t size,
	const uint64_t *counts, const uint64_t *displacements)
{
	staging->parts = calloc(size, sizeof(*staging->parts));
	if (!staging->parts)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the blocks of %u ranks", size);
	staging->part_count = size;
	for (uint32_t r = 0; r < size; r++)
		staging->parts[r] =
			(struct collet_buffer_part){ displacements[r] * element_bytes, counts[r] * element_bytes };
	pass_parts(staging);
	return COLLET_OK;
}

collet_received *collet_gpu_staging_set_received(
	struct collet_gpu_staging *staging, collet_received *received, size_t element_bytes)
{
	received = received ? received : &staging->own_received;
	staging->received = received;
	staging->element_bytes = element_bytes;
	return received;
}

collet_status collet_gpu_staging_end(struct collet_gpu_staging *staging, collet_status status)
{
	if (!staging)
		return status;
	const struct collet_gpu_staging_buffer *written = &staging->transfer.buffers[COLLET_RECV_BUFFER];
	if (status == COLLET_OK && is_copied_whole(staging, COLLET_RECV_BUFFER)) {
		if (staging->received)
			staging->whole.bytes = staging->received->count * staging->element_bytes;
		status = copy_out(&staging->transfer.context->gpu->cuda, written,
			staging->parts ? staging->parts : &staging->whole, staging->parts ? staging->part_count : 1);
	}
	collet_gpu_staging_free(staging);
	return status;
}
