#include "cuda/driver/copy_queue.h"

#include <stdlib.h>

#include "core/status.h"

void collet_copy_queue_destroy(const struct collet_cuda *cuda, struct collet_copy_queue *queue, bool entered)
{
	if (!queue)
		return;
	for (uint32_t i = 0; entered && i < queue->event_count; i++)
		(void)cuda->cuEventDestroy(queue->events[i]);
	if (entered && queue->stream)
		(void)cuda->cuStreamDestroy(queue->stream);
	free(queue);
}

static cu_result push_context(const struct collet_cuda *cuda, struct collet_copy_queue *queue)
{
	cu_result result = cuda->cuCtxPushCurrent(queue->copy_stream->context);
	if (result != CU_OK)
		return result;
	queue->capture_mode = CU_CAPTURE_MODE_RELAXED;
	result = cuda->cuThreadExchangeStreamCaptureMode(&queue->capture_mode);
	if (result != CU_OK)
		(void)cuda->cuCtxPopCurrent(NULL);
	return result;
}

static void pop_context(const struct collet_cuda *cuda, int mode)
{
	(void)cuda->cuThreadExchangeStreamCaptureMode(&mode);
	(void)cuda->cuCtxPopCurrent(NULL);
}

static collet_status create(
	const struct collet_cuda *cuda, struct collet_copy_stream *copy_stream, struct collet_copy_queue **created)
{
	struct collet_copy_queue *queue = calloc(1, sizeof(*queue));
	if (!queue)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for copies to or from GPU %d", copy_stream->ordinal);
	queue->copy_stream = copy_stream;
	collet_status status = collet_copy_queue_push_context(cuda, queue);
	if (status != COLLET_OK) {
		free(queue);
		return status;
	}
	cu_result result = collet_cuda_create_stream(cuda, &queue->stream);
	if (result != CU_OK)
		queue->stream = NULL;
	while (result == CU_OK && queue->event_count < COLLET_COPY_QUEUE_DEPTH) {
		result = cuda->cuEventCreate(&queue->events[queue->event_count], CU_UNTIMED_EVENT);
		queue->event_count += result == CU_OK;
	}
	if (result == CU_OK) {
		collet_copy_queue_pop_context(cuda, queue);
		*created = queue;
		return COLLET_OK;
	}
	status = collet_cuda_fail(cuda, result, "creating a stream for copies, and its events");
	const int mode = queue->capture_mode;
	collet_copy_queue_destroy(cuda, queue, true);
	pop_context(cuda, mode);
	return status;
}

collet_status collet_copy_queue_acquire(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue)
{
	pthread_mutex_lock(&copy_streams->lock);
	struct collet_copy_queue *found = copy_stream->idle_queues;
	if (found)
		copy_stream->idle_queues = found->next;
	pthread_mutex_unlock(&copy_streams->lock);
	*queue = found;
	return found ? COLLET_OK : create(copy_streams->cuda, copy_stream, queue);
}

/* Waits for the queue's copies. *is_reusable: the queue can be used again; otherwise it is freed. Returns false if it
 * is unknown what still runs. */
static bool drain(const struct collet_cuda *cuda, struct collet_copy_queue *queue, bool *is_reusable)
{
	*is_reusable = false;
	const cu_result result = push_context(cuda, queue);
	if (result != CU_OK) {
		collet_copy_queue_destroy(cuda, queue, false);
		return collet_cuda_context_is_destroyed(result);
	}
	/* A failed wait means that nothing runs there any more. */
	*is_reusable = cuda->cuStreamSynchronize(queue->stream) == CU_OK && !queue->failed;
	const int mode = queue->capture_mode;
	if (*is_reusable)
		queue->completed = queue->recorded;
	else
		collet_copy_queue_destroy(cuda, queue, true);
	pop_context(cuda, mode);
	return true;
}

bool collet_copy_queue_release(struct collet_copy_streams *copy_streams, struct collet_copy_queue *queue)
{
	bool has_waited = true, is_reusable = true;
	if (!queue)
		return true;
	struct collet_copy_stream *copy_stream = queue->copy_stream;
	if (queue->failed || !collet_copy_queue_is_empty(queue))
		has_waited = drain(copy_streams->cuda, queue, &is_reusable);
	if (!is_reusable)
		return has_waited;
	pthread_mutex_lock(&copy_streams->lock);
	queue->next = copy_stream->idle_queues;
	copy_stream->idle_queues = queue;
	pthread_mutex_unlock(&copy_streams->lock);
	return true;
}

collet_status collet_copy_queue_push_context(const struct collet_cuda *cuda, struct collet_copy_queue *queue)
{
	const cu_result result = push_context(cuda, queue);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "entering the context of a buffer");
}

collet_status collet_copy_queue_acquire_current(struct collet_copy_streams *copy_streams,
	struct collet_copy_stream *copy_stream, struct collet_copy_queue **queue)
{
	const collet_status status = *queue ? COLLET_OK : collet_copy_queue_acquire(copy_streams, copy_stream, queue);
	return status == COLLET_OK ? collet_copy_queue_push_context(copy_streams->cuda, *queue) : status;
}

void collet_copy_queue_pop_context(const struct collet_cuda *cuda, const struct collet_copy_queue *queue)
{
	pop_context(cuda, queue->capture_mode);
}

static collet_status check(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, cu_result result, const char *what)
{
	if (result == CU_OK)
		return COLLET_OK;
	queue->failed = true;
	return collet_cuda_fail(cuda, result, what);
}

collet_status collet_copy_queue_enqueue(const struct collet_cuda *cuda, struct collet_copy_queue *queue, void *to,
	const void *from, size_t bytes, const char *what)
{
	return check(cuda, queue, cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, queue->stream), what);
}

collet_status collet_copy_queue_record(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what)
{
	const cu_event event = queue->events[queue->recorded % COLLET_COPY_QUEUE_DEPTH];
	const collet_status status = check(cuda, queue, cuda->cuEventRecord(event, queue->stream), what);
	queue->recorded += status == COLLET_OK;
	return status;
}

collet_status collet_copy_queue_poll(
	const struct collet_cuda *cuda, struct collet_copy_queue *queue, const char *what, uint32_t *count)
{
	*count = 0;
	while (!collet_copy_queue_is_empty(queue)) {
		const cu_result result = cuda->cuEventQuery(queue->events[queue->completed % COLLET_COPY_QUEUE_DEPTH]);
		if (result == CU_NOT_READY)
			return COLLET_OK;
		if (result != CU_OK)
			return check(cuda, queue, result, what);
		queue->completed++;
		++*count;
	}
	return COLLET_OK;
}
