/* Where memory is: the host's, or a GPU's. */
#ifndef COLLET_CUDA_DRIVER_POINTER_ATTRIBUTES_H
#define COLLET_CUDA_DRIVER_POINTER_ATTRIBUTES_H

#include "cuda/driver/driver.h"

struct collet_pointer_attributes {
	bool is_device;      /* only the GPU can touch it; else the host can: plain, pinned or managed memory */
	int ordinal;         /* of that GPU */
	cu_context context;  /* that the memory was allocated in; NULL: of none (memory pools, mapped memory) */
	uint64_t allocation; /* the driver's number of it: another is another, even at the same address */
};

/* Asks the driver. Without one, or one that this process has not initialised, all memory is the host's. A buffer that
 * reaches past the end of its allocation is COLLET_ERR_ARGUMENT; which: its name, for the sentence. */
collet_status collet_pointer_attributes_get(const struct collet_cuda *cuda, const char *which, const void *memory,
	size_t bytes, struct collet_pointer_attributes *attributes);

#endif
