/* GPU memory that other processes may be shown: physical memory, mapped to addresses of its own (cuMemCreate() and what
 * follows), and exported as a file descriptor. */
#ifndef COLLET_CUDA_DRIVER_VMM_H
#define COLLET_CUDA_DRIVER_VMM_H

#include "cuda/driver/driver.h"

struct collet_vmm_memory {
	cu_pointer address;          /* 0: there is none */
	size_t bytes;                /* whole units of the driver's */
	int ordinal;
};

/* At least so many bytes on this GPU, contents undefined; for the GPU itself and those that reach its memory.
 * COLLET_ERR_UNSUPPORTED: this GPU's memory cannot be had so. COLLET_ERR_MEMORY, _SYSTEM. */
collet_status collet_vmm_alloc(
	const struct collet_cuda *cuda, int ordinal, size_t bytes, struct collet_vmm_memory *mapped);
/* Where others have it mapped it stays. A zeroed one is fine. */
void collet_vmm_free(const struct collet_cuda *cuda, struct collet_vmm_memory *mapped);

#endif
