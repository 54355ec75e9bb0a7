/* Keeps the handles of this process's memory: one per allocation, while it stays allocated. */
#include "core/status.h"
#include "cuda/driver/device.h"
#include "cuda/driver/shareable_memory.h"

static bool covers(const struct collet_ipc_handle *handle, const void *memory)
{
	return (uintptr_t)memory >= handle->address && (uintptr_t)memory - handle->address < handle->bytes;
}

/* True if the same physical memory is still mapped there. */
static bool is_still_mapped(const struct collet_device *device, const struct collet_local_handle *entry)
{
	cu_mem_handle current;
	if (device->cuda->cuMemRetainAllocationHandle(&current, (void *)(uintptr_t)entry->handle.address) != CU_OK)
		return false;
	(void)device->cuda->cuMemRelease(current);
	return current == entry->physical;
}

static void drop_local_handle(const struct collet_device *device, struct collet_local_handle *entry)
{
	if (entry->physical)
		(void)device->cuda->cuMemRelease(entry->physical);
	*entry = (struct collet_local_handle){ 0 };
}

/* One driver number may belong to several allocations, see cuda/driver/ipc.h. NULL: unknown, or no longer mapped. */
static struct collet_local_handle *find_local_handle(
	struct collet_device *device, const struct collet_pointer_attributes *attributes, const void *memory)
{
	for (uint32_t i = 0; i < COLLET_LOCAL_HANDLES; i++) {
		struct collet_local_handle *entry = &device->local_handles[i];
		if (entry->driver_allocation == attributes->allocation && covers(&entry->handle, memory))
			return !entry->physical || is_still_mapped(device, entry) ? entry : NULL;
	}
	return NULL;
}

/* Also drops unmapped memory, so that it is retained no longer than until the next handle is created. */
static struct collet_local_handle *evict_oldest(struct collet_device *device)
{
	struct collet_local_handle *oldest = &device->local_handles[0];
	for (uint32_t i = 0; i < COLLET_LOCAL_HANDLES; i++) {
		struct collet_local_handle *entry = &device->local_handles[i];
		if (entry->physical && !is_still_mapped(device, entry))
			drop_local_handle(device, entry);
		if (entry->last_use < oldest->last_use)
			oldest = entry;
	}
	drop_local_handle(device, oldest);
	return oldest;
}

collet_status collet_device_create_handle(struct collet_device *device,
	const struct collet_pointer_attributes *attributes, const void *memory, struct collet_ipc_handle *handle,
	cu_mem_handle *mapped)
{
	struct collet_copy_stream *copy_stream;
	collet_status status = collet_copy_stream_get(device->copy_streams, attributes, &copy_stream);
	if (status == COLLET_OK)
		status = collet_copy_stream_push_context(device->cuda, copy_stream);
	if (status != COLLET_OK)
		return status;
	status = collet_ipc_handle_get(device->cuda, device->process_id, memory, handle, mapped);
	collet_copy_stream_pop_context(device->cuda);
	if (status == COLLET_OK && handle->kind == COLLET_IPC_FD)
		handle->allocation =
			(uint64_t)(device->rank + 1) << COLLET_IPC_RANK_SHIFT | ++device->allocations_numbered;
	return status;
}

collet_status collet_device_get_handle(struct collet_device *device, const struct collet_pointer_attributes *attributes,
	const void *memory, struct collet_ipc_handle *handle)
{
	for (const struct collet_shareable_block *own = device->shareable_blocks; own; own = own->next) {
		if (covers(&own->handle, memory)) {
			*handle = own->handle;
			return COLLET_OK;
		}
	}
	struct collet_local_handle *entry = find_local_handle(device, attributes, memory);
	if (!entry) {
		struct collet_local_handle made = { .driver_allocation = attributes->allocation };
		const collet_status status =
			collet_device_create_handle(device, attributes, memory, &made.handle, &made.physical);
		if (status != COLLET_OK)
			return status;
		entry = evict_oldest(device);
		*entry = made;
	}
	entry->last_use = ++device->use_count;
	*handle = entry->handle;
	return COLLET_OK;
}

void collet_device_drop_local_handles(struct collet_device *device)
{
	for (uint32_t i = 0; i < COLLET_LOCAL_HANDLES; i++)
		drop_local_handle(device, &device->local_handles[i]);
}
