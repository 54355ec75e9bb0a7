#include "cuda/driver/peer_mapping.h"

#include "core/status.h"

/* What another thread of this process has on another GPU is at the same address here, once this context has been let at
 * it; which lasts. */
static bool let_at(const struct collet_device *device, const struct collet_copier *copier, cu_context peer)
{
	const struct collet_cuda *cuda = device->cuda;
	cu_result result = collet_cuda_enter(cuda, copier->context);
	if (result == CU_OK) {
		result = cuda->cuCtxEnablePeerAccess(peer, 0);
		collet_cuda_leave(cuda);
	}
	if (result == CU_OK || result == CU_PEER_ACCESS_ALREADY_ENABLED)
		return true;
	(void)collet_cuda_fail(cuda, result, "letting a GPU at another's memory");
	return false;
}

char *collet_device_reach(struct collet_device *device, const struct collet_copier *copier,
	const struct collet_direct_side *side, struct collet_opened **opened, const char **why, bool *refused)
{
	const struct collet_shared *shared = &side->shared;
	const bool own_process = shared->process == device->process;
	*opened = NULL;
	*refused = false;
	if (own_process && side->ordinal == copier->ordinal) {
		if (!side->context || (cu_context)(uintptr_t)side->context == copier->context)
			return (char *)(uintptr_t)side->first;
		*why = "a buffer was allocated in another CUDA context";
		return NULL;
	}
	if (own_process && shared->kind == COLLET_SHARED_HANDLE) {
		if (let_at(device, copier, (cu_context)(uintptr_t)side->context))
			return (char *)(uintptr_t)side->first;
		*why = collet_last_error();
		*refused = true;
		return NULL;
	}
	const uint64_t offset = (uintptr_t)side->first - shared->first;
	if ((uintptr_t)side->first < shared->first || offset > shared->bytes || side->bytes > shared->bytes - offset) {
		*why = "a buffer lies in several allocations";
		return NULL;
	}
	if (collet_device_open(device, copier, shared, opened) != COLLET_OK) {
		*why = collet_last_error();
		*refused = true;
		return NULL;
	}
	return (char *)(uintptr_t)((*opened)->mapped + offset);
}
