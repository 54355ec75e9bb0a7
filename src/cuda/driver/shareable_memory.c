#include "cuda/driver/shareable_memory.h"

#include <stdlib.h>

#include "core/status.h"

static collet_status find_gpu(const struct collet_device *device, int *ordinal)
{
	cu_context context = NULL;
	const int own = collet_device_of_thread(device->cuda, &context);
	*ordinal = own >= 0 ? own : device->ordinal;
	if (*ordinal >= 0)
		return COLLET_OK;
	return collet_fail(COLLET_ERR_UNSUPPORTED,
		"cuda: no GPU's context is current, so it cannot be told on which GPU; call cuCtxSetCurrent(), or "
		"cudaSetDevice() and something of it, before");
}

collet_status collet_own_make(const struct collet_device *device, size_t bytes, struct collet_own_block **block)
{
	int ordinal;
	collet_status status = find_gpu(device, &ordinal);
	if (status != COLLET_OK)
		return status;
	struct collet_own_block *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory to note an allocation in");
	int mode = collet_cuda_relax(device->cuda);
	status = collet_mapped_make(device->cuda, ordinal, bytes, &made->mapped);
	collet_cuda_relax_no_more(device->cuda, mode);
	if (status != COLLET_OK) {
		free(made);
		return status;
	}
	*block = made;
	return COLLET_OK;
}

void collet_own_free(const struct collet_device *device, struct collet_own_block *block)
{
	if (!block)
		return;
	int mode = collet_cuda_relax(device->cuda);
	collet_mapped_free(device->cuda, &block->mapped);
	collet_cuda_relax_no_more(device->cuda, mode);
	free(block);
}

collet_status collet_own_add(struct collet_device *device, struct collet_own_block *block)
{
	const void *first = (const void *)(uintptr_t)block->mapped.first;
	struct collet_residence residence;
	cu_memory mapped = 0;
	collet_status status =
		collet_residence_find(device->cuda, "memory", first, block->mapped.bytes, &residence);
	if (status == COLLET_OK)
		status = collet_device_describe_new(device, &residence, first, &block->shared, &mapped);
	if (mapped)
		(void)device->cuda->cuMemRelease(mapped);  /* nobody else unmaps it */
	if (status != COLLET_OK)
		return status;
	block->next = device->own;
	device->own = block;
	return COLLET_OK;
}

struct collet_own_block **collet_own_find(struct collet_device *device, const void *memory)
{
	struct collet_own_block **at = &device->own;
	while (*at && (*at)->mapped.first != (uintptr_t)memory)
		at = &(*at)->next;
	return at;
}
