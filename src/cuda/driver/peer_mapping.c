#include "cuda/driver/peer_mapping.h"

#include "core/status.h"

/* Lets this context access another GPU's memory of the same process, at the same addresses. Access stays enabled. */
static bool enable_peer_access(
	const struct collet_device *device, const struct collet_copy_stream *copy_stream, cu_context peer)
{
	const struct collet_cuda *cuda = device->cuda;
	cu_result result = collet_cuda_push_context(cuda, copy_stream->context);
	if (result == CU_OK) {
		result = cuda->cuCtxEnablePeerAccess(peer, 0);
		collet_cuda_pop_context(cuda);
	}
	if (result == CU_OK || result == CU_PEER_ACCESS_ALREADY_ENABLED)
		return true;
	(void)collet_cuda_fail(cuda, result, "enabling access to another GPU's memory");
	return false;
}

char *collet_device_map_peer_buffer(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_buffer_info *buffer, struct collet_ipc_mapping **mapping, const char **why,
	bool *has_failed)
{
	const struct collet_ipc_handle *handle = &buffer->handle;
	const bool is_same_process = handle->process == device->process_id;
	*mapping = NULL;
	*has_failed = false;
	if (is_same_process && buffer->ordinal == copy_stream->ordinal) {
		if (!buffer->context || (cu_context)(uintptr_t)buffer->context == copy_stream->context)
			return (char *)(uintptr_t)buffer->first;
		*why = "a buffer was allocated in another CUDA context";
		return NULL;
	}
	if (is_same_process && handle->kind == COLLET_IPC_LEGACY) {
		if (enable_peer_access(device, copy_stream, (cu_context)(uintptr_t)buffer->context))
			return (char *)(uintptr_t)buffer->first;
		*why = collet_last_error();
		*has_failed = true;
		return NULL;
	}
	const uint64_t offset = (uintptr_t)buffer->first - handle->address;
	if ((uintptr_t)buffer->first < handle->address || offset > handle->bytes ||
		buffer->bytes > handle->bytes - offset) {
		*why = "a buffer extends over several allocations";
		return NULL;
	}
	if (collet_device_open_handle(device, copy_stream, handle, mapping) != COLLET_OK) {
		*why = collet_last_error();
		*has_failed = true;
		return NULL;
	}
	return (char *)(uintptr_t)((*mapping)->address + offset);
}
