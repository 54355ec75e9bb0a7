/* What mem.c leaves to device_memory.c. */
#ifndef COLLET_CUDA_DEVICE_MEMORY_H
#define COLLET_CUDA_DEVICE_MEMORY_H

#include "api/call.h"

collet_status collet_device_memory_alloc(struct collet_context *context, void **memory, size_t bytes);
/* false: it is none that the above has allocated. Else it is freed, or *status says why not. */
bool collet_device_memory_free(struct collet_context *context, const void *memory, collet_status *status);

#endif
