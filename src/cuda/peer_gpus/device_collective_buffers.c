/* Stages buffers that a kernel cannot access in page-locked memory. */
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "cuda/peer_gpus/device_collective_internal.h"

static struct collet_context *context_of(const struct devcoll *devcoll)
{
	return devcoll->owner->context;
}

static collet_status find_buffer(struct devcoll *devcoll, int s, const struct collet_user_buffer *given)
{
	static const char *const names[COLLET_USER_BUFFERS] = { "the buffer that is read",
		"the buffer that is written" };
	struct collet_context *context = context_of(devcoll);
	const struct collet_copy_stream *own = collet_device_comm_copy_stream(devcoll->owner->device_comm);
	struct devcoll_buffer *buffer = &devcoll->buffers[s];
	struct collet_pointer_attributes attributes = { .ordinal = -1 };
	uint64_t offset;
	*buffer = (struct devcoll_buffer){ .first = (char *)(uintptr_t)given->first,
		.bytes = given->bytes,
		.device_address = (uintptr_t)given->first };
	if (!buffer->bytes)
		return COLLET_OK;
	if (!collet_arena_contains(&context->arena, buffer->first, buffer->bytes, &offset)) {
		const collet_status status = collet_pointer_attributes_get(
			&context->gpu->cuda, names[s], buffer->first, buffer->bytes, &attributes);
		if (status != COLLET_OK)
			return status;
	}
	if (attributes.is_device && attributes.ordinal == own->ordinal &&
		(!attributes.context || attributes.context == own->context))
		return COLLET_OK;
	buffer->is_staged = true;
	if (!attributes.is_device)
		return COLLET_OK;
	struct collet_copy_stream *copy_stream;
	const collet_status status = collet_copy_stream_get(&context->gpu->copy_streams, &attributes, &copy_stream);
	buffer->copy_stream = copy_stream;
	return status;
}

static collet_status get_pinned(struct devcoll *devcoll, int b, size_t bytes, cu_pointer *gpu)
{
	struct collet_context *context = context_of(devcoll);
	const struct collet_copy_stream *copy_stream = collet_device_comm_copy_stream(devcoll->owner->device_comm);
	collet_status status = collet_pinned_acquire(&context->gpu->pinned, copy_stream, bytes, &devcoll->blocks[b]);
	if (status != COLLET_OK)
		return status;
	if (!collet_pinned_register(&context->gpu->pinned, copy_stream, devcoll->blocks[b]))
		return collet_fail(COLLET_ERR_MEMORY,
			"%zu bytes cannot be page-locked, by which a kernel reaches memory that is not its GPU's; "
			"raise the limit of locked memory (ulimit -l)",
			devcoll->blocks[b]->bytes);
	const cu_result result = context->gpu->cuda.cuMemHostGetDevicePointer(gpu, devcoll->blocks[b]->memory, 0);
	return result == CU_OK
		       ? COLLET_OK
		       : collet_cuda_fail(&context->gpu->cuda, result, "finding where the GPU has page-locked memory");
}

static bool overlap(const struct devcoll_buffer *a, const struct devcoll_buffer *b)
{
	return a->is_staged && b->is_staged && a->first < b->first + b->bytes && b->first < a->first + a->bytes;
}

/* Finds one range for buffers that overlap, so that they overlap when staged too. */
static collet_status get_staging(struct devcoll *devcoll)
{
	struct devcoll_buffer *read = &devcoll->buffers[COLLET_SEND_BUFFER],
			      *written = &devcoll->buffers[COLLET_RECV_BUFFER];
	const bool is_overlapping = overlap(read, written);
	char *first = read->first < written->first ? read->first : written->first;
	const char *read_end = read->first + read->bytes, *written_end = written->first + written->bytes;
	for (int s = 0; s < (is_overlapping ? 1 : COLLET_USER_BUFFERS); s++) {
		struct devcoll_buffer *buffer = &devcoll->buffers[s];
		if (!buffer->is_staged)
			continue;
		const size_t bytes = is_overlapping
					     ? (size_t)((read_end > written_end ? read_end : written_end) - first)
					     : buffer->bytes;
		const collet_status status = get_pinned(devcoll, s, bytes, &buffer->device_address);
		if (status != COLLET_OK)
			return status;
		buffer->pinned = devcoll->blocks[s]->memory;
	}
	if (!is_overlapping)
		return COLLET_OK;
	const cu_pointer gpu = read->device_address;
	for (int s = 0; s < COLLET_USER_BUFFERS; s++) {
		struct devcoll_buffer *buffer = &devcoll->buffers[s];
		buffer->pinned = devcoll->blocks[0]->memory + (buffer->first - first);
		buffer->device_address = gpu + (cu_pointer)(buffer->first - first);
	}
	return COLLET_OK;
}

collet_status devcoll_find_buffers(
	struct devcoll *devcoll, const char *function, const struct collet_user_buffer buffers[COLLET_USER_BUFFERS])
{
	collet_status status = COLLET_OK;
	for (int s = 0; s < COLLET_USER_BUFFERS && status == COLLET_OK; s++)
		status = find_buffer(devcoll, s, &buffers[s]);
	if (status == COLLET_OK)
		status = get_staging(devcoll);
	if (status != COLLET_OK)
		collet_error_prefix("%s", function);
	return status;
}

collet_status devcoll_set_parts(
	struct devcoll *devcoll, size_t element_bytes, uint32_t size, const struct collet_partition *partition)
{
	if (!devcoll->buffers[COLLET_RECV_BUFFER].is_staged || !partition->counts)
		return COLLET_OK;
	devcoll->parts = calloc(size, sizeof(*devcoll->parts));
	if (!devcoll->parts)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the blocks of %u ranks", size);
	devcoll->part_count = size;
	for (uint32_t r = 0; r < size; r++)
		devcoll->parts[r] = (struct devcoll_part){ partition->displacements[r] * element_bytes,
			partition->counts[r] * element_bytes };
	return COLLET_OK;
}

bool devcoll_is_staged(const struct devcoll *devcoll)
{
	return devcoll->buffers[COLLET_SEND_BUFFER].is_staged || devcoll->buffers[COLLET_RECV_BUFFER].is_staged;
}

/* ---- Copies ---- */

static struct devcoll_part part_of(const struct devcoll *devcoll, uint32_t p)
{
	if (devcoll->parts)
		return devcoll->parts[p];
	return (struct devcoll_part){ 0, devcoll->buffers[COLLET_RECV_BUFFER].bytes };
}

static uint32_t parts_of(const struct devcoll *devcoll)
{
	return devcoll->parts ? devcoll->part_count : devcoll->buffers[COLLET_RECV_BUFFER].is_staged;
}

static collet_status copy(
	const struct devcoll *devcoll, const struct devcoll_buffer *buffer, char *to, const char *from, size_t bytes)
{
	static const char what[] = "copying a buffer of another GPU";
	const struct collet_cuda *cuda = &context_of(devcoll)->gpu->cuda;
	if (!buffer->copy_stream) {
		memcpy(to, from, bytes);
		return COLLET_OK;
	}
	collet_status status = collet_copy_stream_push_context(cuda, buffer->copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_copy_stream_enqueue(cuda, buffer->copy_stream, to, from, bytes, what);
	const collet_status waited = collet_copy_stream_synchronize(cuda, buffer->copy_stream, what);
	collet_copy_stream_pop_context(cuda);
	return status == COLLET_OK ? waited : status;
}

collet_status devcoll_copy_in(const struct devcoll *devcoll)
{
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_SEND_BUFFER];
	return buffer->is_staged ? copy(devcoll, buffer, buffer->pinned, buffer->first, buffer->bytes) : COLLET_OK;
}

collet_status devcoll_copy_out(const struct devcoll *devcoll)
{
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_RECV_BUFFER];
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; p < parts_of(devcoll) && status == COLLET_OK; p++) {
		const struct devcoll_part part = part_of(devcoll, p);
		if (part.bytes)
			status = copy(
				devcoll, buffer, buffer->first + part.offset, buffer->pinned + part.offset, part.bytes);
	}
	return status;
}

/* Copies between host memory and the page-locked memory, as a host function of a stream. */
static void copy_in_on_host(void *data)
{
	const struct devcoll *devcoll = data;
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_SEND_BUFFER];
	memcpy(buffer->pinned, buffer->first, buffer->bytes);
}

static void mark_released(void *data)
{
	struct devcoll *devcoll = data;
	/* Pairs with the load of whoever wants to free it. */
	atomic_store_explicit(&devcoll->is_released, true, memory_order_release);
}

static void copy_out_on_host(void *data)
{
	struct devcoll *devcoll = data;
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_RECV_BUFFER];
	if (buffer->is_staged && !buffer->copy_stream)
		(void)devcoll_copy_out(devcoll);
	mark_released(devcoll);
}

static collet_status enqueue_host_function(const struct devcoll *devcoll, cu_stream stream, cu_host_function *function)
{
	const struct collet_cuda *cuda = &context_of(devcoll)->gpu->cuda;
	const cu_result result = cuda->cuLaunchHostFunc(stream, function, (void *)(uintptr_t)devcoll);
	return result == CU_OK ? COLLET_OK
			       : collet_cuda_fail(cuda, result, "having a stream copy a buffer of the host");
}

static collet_status enqueue_copy(
	const struct devcoll *devcoll, cu_stream stream, char *to, const char *from, size_t bytes)
{
	const struct collet_cuda *cuda = &context_of(devcoll)->gpu->cuda;
	const cu_result result = cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "copying a buffer of another GPU");
}

collet_status devcoll_enqueue_copy_in(struct devcoll *devcoll, cu_stream stream)
{
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_SEND_BUFFER];
	if (!buffer->is_staged)
		return COLLET_OK;
	return buffer->copy_stream ? enqueue_copy(devcoll, stream, buffer->pinned, buffer->first, buffer->bytes)
			    : enqueue_host_function(devcoll, stream, copy_in_on_host);
}

collet_status devcoll_enqueue_copy_out(struct devcoll *devcoll, cu_stream stream)
{
	const struct devcoll_buffer *buffer = &devcoll->buffers[COLLET_RECV_BUFFER];
	collet_status status = COLLET_OK;
	for (uint32_t p = 0; buffer->copy_stream && p < parts_of(devcoll) && status == COLLET_OK; p++) {
		const struct devcoll_part part = part_of(devcoll, p);
		if (part.bytes)
			status = enqueue_copy(
				devcoll, stream, buffer->first + part.offset, buffer->pinned + part.offset, part.bytes);
	}
	return status == COLLET_OK ? enqueue_host_function(devcoll, stream, copy_out_on_host) : status;
}

collet_status devcoll_enqueue_release(struct devcoll *devcoll, cu_stream stream)
{
	return enqueue_host_function(devcoll, stream, mark_released);
}

void devcoll_free(struct devcoll *devcoll)
{
	for (int b = 0; b < COLLET_USER_BUFFERS; b++)
		collet_pinned_release(&context_of(devcoll)->gpu->pinned, devcoll->blocks[b]);
	free(devcoll->parts);
	free(devcoll);
}
