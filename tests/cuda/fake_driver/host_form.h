/* The library's kernels, compiled for the host from the same text as for GPUs. */
#ifndef TESTS_CUDA_FAKE_DRIVER_HOST_FORM_H
#define TESTS_CUDA_FAKE_DRIVER_HOST_FORM_H

#include <stddef.h>

struct host_kernel {
	const char *name;
	void (*run)(const void *argument);  /* one block */
	size_t argument_bytes;
};

/* NULL: there is none of this name. */
const struct host_kernel *host_kernel_find(const char *name);

#endif
