/* Allocates GPU memory that can be exported as a file descriptor: physical memory (cuMemCreate()), mapped to addresses
 * of its own. */
#ifndef COLLET_CUDA_DRIVER_VMM_H
#define COLLET_CUDA_DRIVER_VMM_H

#include "cuda/driver/driver.h"

struct collet_vmm_memory {
	cu_pointer address;          /* 0 if there is no memory */
	size_t bytes;                /* a multiple of the driver's granularity */
	int ordinal;
};

/* Allocates at least so many bytes on this GPU, with undefined contents. The GPU itself and its peers can access them.
 * COLLET_ERR_UNSUPPORTED: this GPU cannot export memory so. COLLET_ERR_MEMORY, _SYSTEM. */
collet_status collet_vmm_alloc(
	const struct collet_cuda *cuda, int ordinal, size_t bytes, struct collet_vmm_memory *mapped);
/* Unmaps and frees the memory here; other processes' mappings stay valid. A zeroed object is allowed. */
void collet_vmm_free(const struct collet_cuda *cuda, struct collet_vmm_memory *mapped);

#endif
