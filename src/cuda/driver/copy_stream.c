#include "cuda/driver/copy_stream.h"

#include <stdlib.h>

#include "core/status.h"
#include "cuda/driver/copy_queue.h"

void collet_copiers_init(struct collet_copiers *copiers, const struct collet_cuda *cuda)
{
	*copiers = (struct collet_copiers){ .cuda = cuda };
	pthread_mutex_init(&copiers->lock, NULL);
}

static void free_copier(const struct collet_cuda *cuda, struct collet_copier *copier)
{
	/* The program may have destroyed its context, and the stream with it: then there is nothing left to free. */
	const bool entered = copier->stream && collet_cuda_enter(cuda, copier->context) == CU_OK;
	if (entered)
		(void)cuda->cuStreamDestroy(copier->stream);
	for (struct collet_pipe *pipe = copier->pipes, *next; pipe; pipe = next) {
		next = pipe->next;
		collet_pipe_free(cuda, pipe, entered);
	}
	if (entered)
		collet_cuda_leave(cuda);
	if (copier->retained)
		(void)cuda->cuDevicePrimaryCtxRelease(copier->ordinal);
	free(copier);
}

void collet_copiers_deinit(struct collet_copiers *copiers)
{
	if (!copiers->cuda)
		return;
	for (struct collet_copier *copier = copiers->first, *next; copier; copier = next) {
		next = copier->next;
		free_copier(copiers->cuda, copier);
	}
	pthread_mutex_destroy(&copiers->lock);
	*copiers = (struct collet_copiers){ 0 };
}

/* Memory of no context (pools, mappings) is copied in its GPU's primary one. */
static collet_status make_copier(
	const struct collet_cuda *cuda, const struct collet_residence *residence, struct collet_copier **made)
{
	struct collet_copier *copier = calloc(1, sizeof(*copier));
	if (!copier)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a stream of GPU %d", residence->ordinal);
	copier->context = residence->context;
	copier->ordinal = residence->ordinal;
	cu_result result = CU_OK;
	if (!residence->context) {
		result = cuda->cuDevicePrimaryCtxRetain(&copier->context, residence->ordinal);
		copier->retained = result == CU_OK;
	}
	if (result == CU_OK)
		result = collet_cuda_enter(cuda, copier->context);
	if (result == CU_OK) {
		result = collet_cuda_make_stream(cuda, &copier->stream);
		collet_cuda_leave(cuda);
	}
	if (result == CU_OK) {
		*made = copier;
		return COLLET_OK;
	}
	free_copier(cuda, copier);
	return collet_cuda_fail(cuda, result, "making a stream to copy on");
}

collet_status collet_copier_find(
	struct collet_copiers *copiers, const struct collet_residence *residence, struct collet_copier **copier)
{
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&copiers->lock);
	struct collet_copier *found = copiers->first;
	while (found && (residence->context ? found->retained || found->context != residence->context :
					  !found->retained || found->ordinal != residence->ordinal))
		found = found->next;
	if (!found) {
		status = make_copier(copiers->cuda, residence, &found);
		if (status == COLLET_OK) {
			found->next = copiers->first;
			copiers->first = found;
		}
	}
	pthread_mutex_unlock(&copiers->lock);
	*copier = found;
	return status;
}

collet_status collet_copier_begin(const struct collet_cuda *cuda, const struct collet_copier *copier)
{
	const cu_result result = collet_cuda_enter(cuda, copier->context);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, "entering the context of a buffer");
}

void collet_copier_end(const struct collet_cuda *cuda)
{
	collet_cuda_leave(cuda);
}

collet_status collet_copier_add(const struct collet_cuda *cuda, const struct collet_copier *copier, void *to,
	const void *from, size_t bytes, const char *what)
{
	const cu_result result =
		cuda->cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, copier->stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

collet_status collet_copier_wait(const struct collet_cuda *cuda, const struct collet_copier *copier, const char *what)
{
	const cu_result result = cuda->cuStreamSynchronize(copier->stream);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}
