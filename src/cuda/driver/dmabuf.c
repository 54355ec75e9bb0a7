#include "cuda/driver/dmabuf.h"

#include <unistd.h>

#include "core/status.h"

/* Returns 0 if the device lacks the attribute. */
static int device_attribute(const struct collet_cuda *cuda, int ordinal, int attribute)
{
	cu_device device;
	int value = 0;
	const bool ok = cuda->cuDeviceGet(&device, ordinal) == CU_OK &&
			  cuda->cuDeviceGetAttribute(&value, attribute, device) == CU_OK;
	return ok ? value : 0;
}

/* Exports the whole pages that the memory lies in. No two allocations of the driver share a page. */
collet_status collet_dmabuf_export(const struct collet_cuda *cuda, const struct collet_pointer_attributes *attributes,
	const void *memory, size_t bytes, int *fd, uint64_t *offset)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const cu_pointer first = (uintptr_t)memory / page * page;
	const size_t before = (size_t)((uintptr_t)memory - first);
	const size_t whole = (before + bytes + page - 1) / page * page;
	if (!device_attribute(cuda, attributes->ordinal, CU_DEVICE_HAS_DMABUF))
		return collet_fail(COLLET_ERR_UNSUPPORTED, "GPU %d has no dma-bufs", attributes->ordinal);
	/* Otherwise data that an adapter has reported as written might arrive after a kernel reads it. */
	if (device_attribute(cuda, attributes->ordinal, CU_DEVICE_RDMA_WRITES_ORDERING) < CU_RDMA_ORDERING_OWNER)
		return collet_fail(
			COLLET_ERR_UNSUPPORTED, "GPU %d does not keep adapters' writes in order", attributes->ordinal);
	const cu_result result = cuda->cuMemGetHandleForAddressRange(fd, first, whole, CU_RANGE_DMABUF, 0);
	if (result == CU_OK) {
		*offset = before;
		return COLLET_OK;
	}
	if (result == CU_NOT_SUPPORTED || result == CU_INVALID_VALUE)
		return collet_fail(COLLET_ERR_UNSUPPORTED, "GPU %d exports no dma-buf of %zu bytes at %p",
			attributes->ordinal, bytes, memory);
	return collet_cuda_fail(cuda, result, "exporting memory as a dma-buf");
}
