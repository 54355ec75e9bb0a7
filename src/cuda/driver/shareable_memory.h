/* Allocates GPU memory that other processes can map, for collet_mem_alloc_device(). */
#ifndef COLLET_CUDA_DRIVER_SHAREABLE_MEMORY_H
#define COLLET_CUDA_DRIVER_SHAREABLE_MEMORY_H

#include "cuda/driver/device.h"
#include "cuda/driver/vmm.h"

struct collet_shareable_block {
	struct collet_shareable_block *next;
	struct collet_vmm_memory memory;
	struct collet_ipc_handle handle;     /* describes it for other processes */
};

/* Allocates on the GPU of the thread's current context, or on the device's GPU if it has none. The block is not on any
 * list yet. COLLET_ERR_UNSUPPORTED: no such GPU, or it cannot export memory; _MEMORY, _SYSTEM. */
collet_status collet_shareable_block_create(
	const struct collet_device *device, size_t bytes, struct collet_shareable_block **block);
/* Frees a block that is no longer on the list. NULL is allowed. */
void collet_shareable_block_destroy(const struct collet_device *device, struct collet_shareable_block *block);

/* ---- The next two need the engine's lock. ---- */

/* Creates the block's handle for other processes, and puts the block on the device's list. COLLET_ERR_SYSTEM. */
collet_status collet_shareable_block_publish(struct collet_device *device, struct collet_shareable_block *block);
/* Returns the link to the block that starts at memory; it points to NULL if there is none. */
struct collet_shareable_block **collet_shareable_block_find(struct collet_device *device, const void *memory);

#endif
