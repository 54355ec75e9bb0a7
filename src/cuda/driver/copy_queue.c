#include "cuda/driver/copy_queue.h"

#include <stdlib.h>

#include "core/status.h"

void collet_pipe_free(const struct collet_cuda *cuda, struct collet_pipe *pipe, bool entered)
{
	if (!pipe)
		return;
	for (uint32_t i = 0; entered && i < pipe->event_count; i++)
		(void)cuda->cuEventDestroy(pipe->events[i]);
	if (entered && pipe->stream)
		(void)cuda->cuStreamDestroy(pipe->stream);
	free(pipe);
}

static cu_result enter(const struct collet_cuda *cuda, struct collet_pipe *pipe)
{
	cu_result result = cuda->cuCtxPushCurrent(pipe->copier->context);
	if (result != CU_OK)
		return result;
	pipe->mode = CU_CAPTURE_RELAXED;
	result = cuda->cuThreadExchangeStreamCaptureMode(&pipe->mode);
	if (result != CU_OK)
		(void)cuda->cuCtxPopCurrent(NULL);
	return result;
}

static void leave(const struct collet_cuda *cuda, int mode)
{
	(void)cuda->cuThreadExchangeStreamCaptureMode(&mode);
	(void)cuda->cuCtxPopCurrent(NULL);
}

static collet_status make(const struct collet_cuda *cuda, struct collet_copier *copier, struct collet_pipe **made)
{
	struct collet_pipe *pipe = calloc(1, sizeof(*pipe));
	if (!pipe)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for copies to or from GPU %d", copier->ordinal);
	pipe->copier = copier;
	collet_status status = collet_pipe_enter(cuda, pipe);
	if (status != COLLET_OK) {
		free(pipe);
		return status;
	}
	cu_result result = collet_cuda_make_stream(cuda, &pipe->stream);
	if (result != CU_OK)
		pipe->stream = NULL;
	while (result == CU_OK && pipe->event_count < COLLET_PIPE_DEPTH) {
		result = cuda->cuEventCreate(&pipe->events[pipe->event_count], CU_UNTIMED_EVENT);
		pipe->event_count += result == CU_OK;
	}
	if (result == CU_OK) {
		collet_pipe_leave(cuda, pipe);
		*made = pipe;
		return COLLET_OK;
	}
	status = collet_cuda_fail(cuda, result, "making a stream to copy on, and its events");
	const int mode = pipe->mode;
	collet_pipe_free(cuda, pipe, true);
	leave(cuda, mode);
	return status;
}

collet_status collet_pipe_take(struct collet_copiers *copiers, struct collet_copier *copier, struct collet_pipe **pipe)
{
	pthread_mutex_lock(&copiers->lock);
	struct collet_pipe *found = copier->pipes;
	if (found)
		copier->pipes = found->next;
	pthread_mutex_unlock(&copiers->lock);
	*pipe = found;
	return found ? COLLET_OK : make(copiers->cuda, copier, pipe);
}

/* *ended: it may be used again. false: nobody knows what of it is under way. */
static bool empty(const struct collet_cuda *cuda, struct collet_pipe *pipe, bool *ended)
{
	*ended = false;
	const cu_result result = enter(cuda, pipe);
	if (result != CU_OK) {
		collet_pipe_free(cuda, pipe, false);
		return collet_cuda_is_gone(result);
	}
	/* A wait that fails says that nothing runs there any more. */
	*ended = cuda->cuStreamSynchronize(pipe->stream) == CU_OK && !pipe->failed;
	const int mode = pipe->mode;
	if (*ended)
		pipe->passed = pipe->marked;
	else
		collet_pipe_free(cuda, pipe, true);
	leave(cuda, mode);
	return true;
}

bool collet_pipe_give(struct collet_copiers *copiers, struct collet_pipe *pipe)
{
	bool waited = true, ended = true;
	if (!pipe)
		return true;
	struct collet_copier *copier = pipe->copier;
	if (pipe->failed || !collet_pipe_is_empty(pipe))
		waited = empty(copiers->cuda, pipe, &ended);
	if (!ended)
		return waited;
	pthread_mutex_lock(&copiers->lock);
	pipe->next = copier->pipes;
	copier->pipes = pipe;
	pthread_mutex_unlock(&copiers->lock);
	return true;
}

collet_status collet_pipe_enter(const struct collet_cuda *cuda, struct collet_pipe *pipe)
{
	const cu_result result = enter(cuda, pipe);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "entering the context of a buffer");
}

collet_status collet_pipe_take_and_enter(
	struct collet_copiers *copiers, struct collet_copier *copier, struct collet_pipe **pipe)
{
	const collet_status status = *pipe ? COLLET_OK : collet_pipe_take(copiers, copier, pipe);
	return status == COLLET_OK ? collet_pipe_enter(copiers->cuda, *pipe) : status;
}

void collet_pipe_leave(const struct collet_cuda *cuda, const struct collet_pipe *pipe)
{
	leave(cuda, pipe->mode);
}

static collet_status check(const struct collet_cuda *cuda, struct collet_pipe *pipe, cu_result result, const char *what)
{
	if (result == CU_OK)
		return COLLET_OK;
	pipe->failed = true;
	return collet_cuda_fail(cuda, result, what);
}

collet_status collet_pipe_add(const struct collet_cuda *cuda, struct collet_pipe *pipe, void *to, const void *from,
	size_t bytes, const char *what)
{
	return check(cuda, pipe, cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, pipe->stream), what);
}

collet_status collet_pipe_mark(const struct collet_cuda *cuda, struct collet_pipe *pipe, const char *what)
{
	const cu_event event = pipe->events[pipe->marked % COLLET_PIPE_DEPTH];
	const collet_status status = check(cuda, pipe, cuda->cuEventRecord(event, pipe->stream), what);
	pipe->marked += status == COLLET_OK;
	return status;
}

collet_status collet_pipe_look(
	const struct collet_cuda *cuda, struct collet_pipe *pipe, const char *what, uint32_t *count)
{
	*count = 0;
	while (!collet_pipe_is_empty(pipe)) {
		const cu_result result = cuda->cuEventQuery(pipe->events[pipe->passed % COLLET_PIPE_DEPTH]);
		if (result == CU_NOT_READY)
			return COLLET_OK;
		if (result != CU_OK)
			return check(cuda, pipe, result, what);
		pipe->passed++;
		++*count;
	}
	return COLLET_OK;
}
