/* A GPU's memory: the library's own, and what programs register. */
#ifndef COLLET_CUDA_DEVICE_MEMORY_H
#define COLLET_CUDA_DEVICE_MEMORY_H

#include "api/call.h"

/* Allocates memory of the current GPU, and lets ranks of this host map it. */
collet_status collet_device_memory_alloc(struct collet_context *context, void **memory, size_t bytes);
/* Frees it, or says in *status why not. Returns false if it is not of the function above. */
bool collet_device_memory_free(struct collet_context *context, const void *memory, collet_status *status);
/* Finds whether memory of the program's is a GPU's. If so it tells transports of it, where they gain; that they cannot
 * use it is a line of the log. COLLET_ERR_ARGUMENT if it reaches past the end of its allocation. */
collet_status collet_device_memory_register(struct collet_context *context, void *memory, size_t bytes, bool *is_gpu);

#endif
