/* The library's kernels, compiled for the host from the same source as for GPUs. */
#ifndef TESTS_CUDA_FAKE_DRIVER_HOST_FORM_H
#define TESTS_CUDA_FAKE_DRIVER_HOST_FORM_H

#include <stddef.h>

struct host_kernel {
	const char *name;
	void (*run)(const void *argument);  /* runs one block */
	size_t argument_bytes;
};

/* Returns NULL if there is no kernel of this name. */
const struct host_kernel *host_kernel_find(const char *name);

#endif
