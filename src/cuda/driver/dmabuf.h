/* Exports GPU memory as a dma-buf, through which network adapters access it. */
#ifndef COLLET_CUDA_DRIVER_DMABUF_H
#define COLLET_CUDA_DRIVER_DMABUF_H

#include "cuda/driver/pointer_attributes.h"

/* The caller closes *fd; the memory begins *offset bytes into it. COLLET_ERR_UNSUPPORTED: the GPU, the driver or the
 * kernel has no dma-buf for this memory; COLLET_ERR_SYSTEM, COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_dmabuf_export(const struct collet_cuda *cuda,
	const struct collet_pointer_attributes *attributes, const void *memory, size_t bytes, int *fd,
	uint64_t *offset);

#endif
