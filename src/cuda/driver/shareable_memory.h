/* GPU memory that this rank has allocated to be shared: collet_mem_alloc_device()'s. */
#ifndef COLLET_CUDA_DRIVER_SHAREABLE_MEMORY_H
#define COLLET_CUDA_DRIVER_SHAREABLE_MEMORY_H

#include "cuda/driver/device.h"
#include "cuda/driver/vmm.h"

struct collet_shareable_block {
	struct collet_shareable_block *next;
	struct collet_vmm_memory memory;
	struct collet_ipc_handle handle;     /* what it is for other processes */
};

/* On the GPU of the calling thread's current context; if it has none, on the one that the device has. It is nobody's
 * yet. COLLET_ERR_UNSUPPORTED: there is no such GPU, or its memory cannot be had so; _MEMORY, _SYSTEM. */
collet_status collet_shareable_block_create(
	const struct collet_device *device, size_t bytes, struct collet_shareable_block **block);
/* Of one that is no longer on the list. NULL is fine. */
void collet_shareable_block_destroy(const struct collet_device *device, struct collet_shareable_block *block);

/* ---- Under the engine's lock. */
/* Finds out what it is for others, and puts it on the device's list. COLLET_ERR_SYSTEM. */
collet_status collet_shareable_block_publish(struct collet_device *device, struct collet_shareable_block *block);
/* Where the one is linked that starts at memory; *at NULL: none does. */
struct collet_shareable_block **collet_shareable_block_find(struct collet_device *device, const void *memory);

#endif
