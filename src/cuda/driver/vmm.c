#include "cuda/driver/vmm.h"

#include "core/status.h"

enum { GPUS_MAX = 64 };

static collet_status check_supported(const struct collet_cuda *cuda, int ordinal)
{
	static const int attributes[] = { CU_DEVICE_HAS_VMM, CU_DEVICE_HAS_FD_HANDLES };
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		int is_supported = 0;
		const cu_result result = cuda->cuDeviceGetAttribute(&is_supported, attributes[i], ordinal);
		if (result != CU_OK)
			return collet_cuda_fail(cuda, result, "querying a GPU's attributes");
		if (!is_supported)
			return collet_fail(COLLET_ERR_UNSUPPORTED,
				"cuda: GPU %d has no memory that can be exported to other processes; allocate it "
				"by cuMemAlloc()",
				ordinal);
	}
	return COLLET_OK;
}

/* Lists who gets access, the GPU itself first. */
static size_t list_access(const struct collet_cuda *cuda, int ordinal, cu_access access[GPUS_MAX])
{
	size_t count = 0;
	int gpus = 0, has_access;
	access[count++] = (cu_access){ { CU_LOCATION_DEVICE, ordinal }, CU_ACCESS_READ_WRITE };
	(void)cuda->cuDeviceGetCount(&gpus);
	for (int g = 0; g < gpus && count < GPUS_MAX; g++)
		if (g != ordinal && cuda->cuDeviceCanAccessPeer(&has_access, g, ordinal) == CU_OK && has_access)
			access[count++] = (cu_access){ { CU_LOCATION_DEVICE, g }, CU_ACCESS_READ_WRITE };
	return count;
}

/* Access for other GPUs is optional: without it, their calls on this memory are staged through the host. */
static cu_result set_access(const struct collet_cuda *cuda, const struct collet_vmm_memory *mapped)
{
	cu_access access[GPUS_MAX];
	const size_t count = list_access(cuda, mapped->ordinal, access);
	const cu_result result = cuda->cuMemSetAccess(mapped->address, mapped->bytes, access, count);
	return result == CU_OK || count == 1 ? result :
                                               cuda->cuMemSetAccess(mapped->address, mapped->bytes, access, 1);
}

static cu_result map(const struct collet_cuda *cuda, cu_mem_handle memory, struct collet_vmm_memory *mapped)
{
	cu_result result = cuda->cuMemAddressReserve(&mapped->address, mapped->bytes, 0, 0, 0);
	if (result != CU_OK)
		return result;
	result = cuda->cuMemMap(mapped->address, mapped->bytes, 0, memory, 0);
	if (result != CU_OK)
		goto err_free;
	result = set_access(cuda, mapped);
	if (result == CU_OK)
		return CU_OK;
	(void)cuda->cuMemUnmap(mapped->address, mapped->bytes);
err_free:
	(void)cuda->cuMemAddressFree(mapped->address, mapped->bytes);
	return result;
}

collet_status collet_vmm_alloc(
	const struct collet_cuda *cuda, int ordinal, size_t bytes, struct collet_vmm_memory *mapped)
{
	static const char what[] = "allocating memory for export to other processes";
	cu_memory_properties properties = { .type = CU_ALLOCATION_PINNED,
		.handle_types = CU_HANDLE_FILE_DESCRIPTOR, .location = { CU_LOCATION_DEVICE, ordinal } };
	struct collet_vmm_memory made = { .ordinal = ordinal };
	cu_mem_handle memory;
	size_t unit = 0;
	int has_rdma = 0;
	*mapped = (struct collet_vmm_memory){ 0 };
	const collet_status status = check_supported(cuda, ordinal);
	if (status != COLLET_OK)
		return status;
	/* Network adapters need this for a dma-buf of the memory. */
	if (cuda->cuDeviceGetAttribute(&has_rdma, CU_DEVICE_HAS_RDMA_TO_VMM, ordinal) == CU_OK)
		properties.flags.rdma_capable = has_rdma != 0;
	cu_result result = cuda->cuMemGetAllocationGranularity(&unit, &properties, CU_GRANULARITY_MINIMUM);
	if (result != CU_OK || !unit)
		return collet_cuda_fail(cuda, result, what);
	if (bytes > SIZE_MAX - unit)
		return collet_fail(COLLET_ERR_MEMORY, "cuda: no GPU has %zu bytes", bytes);
	made.bytes = (bytes + unit - 1) / unit * unit;
	result = cuda->cuMemCreate(&memory, made.bytes, &properties, 0);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	result = map(cuda, memory, &made);
	(void)cuda->cuMemRelease(memory);  /* the mapping holds a reference */
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	*mapped = made;
	return COLLET_OK;
}

void collet_vmm_free(const struct collet_cuda *cuda, struct collet_vmm_memory *mapped)
{
	if (!mapped->address)
		return;
	(void)cuda->cuMemUnmap(mapped->address, mapped->bytes);
	(void)cuda->cuMemAddressFree(mapped->address, mapped->bytes);
	*mapped = (struct collet_vmm_memory){ 0 };
}
