/* Memory of a GPU as a dma-buf, by which adapters of a network reach it. */
#ifndef COLLET_CUDA_DRIVER_DMABUF_H
#define COLLET_CUDA_DRIVER_DMABUF_H

#include "cuda/driver/pointer_attributes.h"

/* *file is the caller's to close, and has the memory at *offset. COLLET_ERR_UNSUPPORTED: the GPU, the driver or the
 * kernel has none for this memory; COLLET_ERR_SYSTEM, COLLET_ERR_MEMORY. */
COLLET_MUST_USE collet_status collet_dmabuf_export(const struct collet_cuda *cuda,
	const struct collet_pointer_attributes *attributes, const void *memory, size_t bytes, int *fd,
	uint64_t *offset);

#endif
