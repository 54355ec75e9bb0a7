/* A GPU's memory: the library's own, and what applications register. */
#ifndef COLLET_CUDA_DEVICE_MEMORY_H
#define COLLET_CUDA_DEVICE_MEMORY_H

#include "api/context.h"

/* As api/offload.h says of mem_alloc, mem_free and mem_register. */
collet_status collet_device_memory_alloc(struct collet_context *context, void **memory, size_t bytes);
bool collet_device_memory_free(struct collet_context *context, const void *memory, collet_status *status);
collet_status collet_device_memory_register(struct collet_context *context, void *memory, size_t bytes, bool *is_gpu);

#endif
