#include "cuda/dmabuf.h"

#include <unistd.h>

#include "core/status.h"

static bool offered(const struct collet_cuda *cuda, int ordinal)
{
	cu_device device;
	int offers = 0;
	return cuda->cuDeviceGet(&device, ordinal) == CU_OK &&
		cuda->cuDeviceGetAttribute(&offers, CU_DEVICE_HAS_DMABUF, device) == CU_OK && offers;
}

/* Whole pages are exported: those that the memory lies in. An allocation of the driver's has them to itself. */
collet_status collet_dmabuf_export(const struct collet_cuda *cuda, const struct collet_residence *residence,
	const void *memory, size_t bytes, int *file, uint64_t *offset)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const cu_pointer first = (uintptr_t)memory / page * page;
	const size_t before = (size_t)((uintptr_t)memory - first);
	const size_t whole = (before + bytes + page - 1) / page * page;
	if (!offered(cuda, residence->ordinal))
		return collet_fail(COLLET_ERR_UNSUPPORTED, "GPU %d has no dma-bufs", residence->ordinal);
	const cu_result result = cuda->cuMemGetHandleForAddressRange(file, first, whole, CU_RANGE_DMABUF, 0);
	if (result == CU_OK) {
		*offset = before;
		return COLLET_OK;
	}
	if (result == CU_NOT_SUPPORTED || result == CU_INVALID_VALUE)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "GPU %d exports no dma-buf of %zu bytes at %p",
			residence->ordinal, bytes, memory);
	return collet_cuda_fail(cuda, result, "exporting memory as a dma-buf");
}
