/* Tells host memory from GPU memory. */
#ifndef COLLET_CUDA_DRIVER_POINTER_ATTRIBUTES_H
#define COLLET_CUDA_DRIVER_POINTER_ATTRIBUTES_H

#include "cuda/driver/driver.h"

struct collet_pointer_attributes {
	bool is_device;      /* Only the GPU can access it. False for plain, pinned and managed memory. */
	int ordinal;         /* of that GPU */
	cu_context context;  /* where it was allocated; NULL if in none (memory pools, mapped memory) */
	uint64_t allocation; /* The driver's number of the allocation; a new one differs even at the same address. */
};

/* Asks the driver. If there is no driver, or the process has not initialised it, all memory is host memory.
 * COLLET_ERR_ARGUMENT: the buffer extends past the end of its allocation. `which` names the buffer in the error
 * sentence. */
collet_status collet_pointer_attributes_get(const struct collet_cuda *cuda, const char *which, const void *memory,
	size_t bytes, struct collet_pointer_attributes *attributes);

#endif
