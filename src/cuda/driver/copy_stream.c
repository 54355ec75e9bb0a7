#include "cuda/driver/copy_stream.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/driver/copy_queue.h"

void collet_copy_streams_init(struct collet_copy_streams *copy_streams, const struct collet_cuda *cuda)
{
	*copy_streams = (struct collet_copy_streams){ .cuda = cuda };
	pthread_mutex_init(&copy_streams->lock, NULL);
}

static void free_copy_stream(const struct collet_cuda *cuda, struct collet_copy_stream *copy_stream)
{
	/* The application may have destroyed the context, and the stream with it. Then nothing is left to free. */
	const bool entered = copy_stream->stream && collet_cuda_push_context(cuda, copy_stream->context) == CU_OK;
	if (entered)
		(void)cuda->cuStreamDestroy(copy_stream->stream);
	for (struct collet_copy_queue *queue = copy_stream->idle_queues, *next; queue; queue = next) {
		next = queue->next;
		collet_copy_queue_destroy(cuda, queue, entered);
	}
	if (entered)
		collet_cuda_pop_context(cuda);
	if (copy_stream->is_primary)
		(void)cuda->cuDevicePrimaryCtxRelease(copy_stream->ordinal);
	free(copy_stream);
}

void collet_copy_streams_deinit(struct collet_copy_streams *copy_streams)
{
	if (!copy_streams->cuda)
		return;
	for (struct collet_copy_stream *copy_stream = copy_streams->first, *next; copy_stream; copy_stream = next) {
		next = copy_stream->next;
		free_copy_stream(copy_streams->cuda, copy_stream);
	}
	pthread_mutex_destroy(&copy_streams->lock);
	*copy_streams = (struct collet_copy_streams){ 0 };
}

/* Memory without a context (pools, mappings) is copied in the primary context of its GPU. */
static collet_status create_copy_stream(const struct collet_cuda *cuda,
	const struct collet_pointer_attributes *attributes, struct collet_copy_stream **created)
{
	struct collet_copy_stream *copy_stream = calloc(1, sizeof(*copy_stream));
	if (!copy_stream)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a stream of GPU %d", attributes->ordinal);
	copy_stream->context = attributes->context;
	copy_stream->ordinal = attributes->ordinal;
	cu_result result = CU_OK;
	if (!attributes->context) {
		result = cuda->cuDevicePrimaryCtxRetain(&copy_stream->context, attributes->ordinal);
		copy_stream->is_primary = result == CU_OK;
	}
	if (result == CU_OK)
		result = collet_cuda_push_context(cuda, copy_stream->context);
	if (result == CU_OK) {
		result = collet_cuda_create_stream(cuda, &copy_stream->stream);
		collet_cuda_pop_context(cuda);
	}
	if (result == CU_OK) {
		*created = copy_stream;
		return COLLET_OK;
	}
	free_copy_stream(cuda, copy_stream);
	return collet_cuda_fail(cuda, result, "creating a stream for copies");
}

collet_status collet_copy_stream_get(struct collet_copy_streams *copy_streams,
	const struct collet_pointer_attributes *attributes, struct collet_copy_stream **copy_stream)
{
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&copy_streams->lock);
	struct collet_copy_stream *found = copy_streams->first;
	while (found && (attributes->context ? found->is_primary || found->context != attributes->context :
					  !found->is_primary || found->ordinal != attributes->ordinal))
		found = found->next;
	if (!found) {
		status = create_copy_stream(copy_streams->cuda, attributes, &found);
		if (status == COLLET_OK) {
			found->next = copy_streams->first;
			copy_streams->first = found;
		}
	}
	pthread_mutex_unlock(&copy_streams->lock);
	*copy_stream = found;
	return status;
}

collet_status collet_copy_stream_push_context(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream)
{
	const cu_result result = collet_cuda_push_context(cuda, copy_stream->context);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "entering the context of a buffer");
}

void collet_copy_stream_pop_context(const struct collet_cuda *cuda)
{
	collet_cuda_pop_context(cuda);
}

collet_status collet_copy_stream_enqueue(const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream,
	void *to, const void *from, size_t bytes, const char *what)
{
	const cu_result result =
		cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, copy_stream->stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

collet_status collet_copy_stream_synchronize(
	const struct collet_cuda *cuda, const struct collet_copy_stream *copy_stream, const char *what)
{
	const cu_result result = cuda->cuStreamSynchronize(copy_stream->stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}
