#include "cuda/driver/shareable_memory.h"

#include <stdlib.h>

#include "core/status.h"

static collet_status find_gpu(const struct collet_device *device, int *ordinal)
{
	cu_context context = NULL;
	const int own = collet_device_current(device->cuda, &context);
	*ordinal = own >= 0 ? own : device->ordinal;
	if (*ordinal >= 0)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_UNSUPPORTED,
		"cuda: no CUDA context is current, so the GPU is unknown; call cuCtxSetCurrent() before, or "
		"cudaSetDevice() and another function of the runtime");
}

collet_status collet_shareable_block_create(
	const struct collet_device *device, size_t bytes, struct collet_shareable_block **block)
{
	int ordinal;
	collet_status status = find_gpu(device, &ordinal);
	if (status != COLLET_OK)
		return status;
	struct collet_shareable_block *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for the record of an allocation");
	int mode = collet_cuda_relax_capture(device->cuda);
	status = collet_vmm_alloc(device->cuda, ordinal, bytes, &made->memory);
	collet_cuda_restore_capture(device->cuda, mode);
	if (status != COLLET_OK) {
		free(made);
		return status;
	}
	*block = made;
	return COLLET_OK;
}

void collet_shareable_block_destroy(const struct collet_device *device, struct collet_shareable_block *block)
{
	if (!block)
		return;
	int mode = collet_cuda_relax_capture(device->cuda);
	collet_vmm_free(device->cuda, &block->memory);
	collet_cuda_restore_capture(device->cuda, mode);
	free(block);
}

collet_status collet_shareable_block_publish(struct collet_device *device, struct collet_shareable_block *block)
{
	const void *first = (const void *)(uintptr_t)block->memory.address;
	struct collet_pointer_attributes attributes;
	cu_mem_handle mapped = 0;
	collet_status status =
		collet_pointer_attributes_get(device->cuda, "memory", first, block->memory.bytes, &attributes);
	if (status == COLLET_OK)
		status = collet_device_create_handle(device, &attributes, first, &block->handle, &mapped);
	if (mapped)
		(void)device->cuda->cuMemRelease(mapped);  /* the application cannot unmap this memory */
	if (status != COLLET_OK)
		return status;
	block->next = device->shareable_blocks;
	device->shareable_blocks = block;
	return COLLET_OK;
}

struct collet_shareable_block **collet_shareable_block_find(struct collet_device *device, const void *memory)
{
	struct collet_shareable_block **at = &device->shareable_blocks;
	while (*at && (*at)->memory.address != (uintptr_t)memory)
		at = &(*at)->next;
	return at;
}
