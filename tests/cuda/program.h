/* What a program that uses a GPU does around collet: its own memory, in its own context, by the driver. */
#ifndef TESTS_CUDA_PROGRAM_H
#define TESTS_CUDA_PROGRAM_H

#include <stdbool.h>

#include "cuda/api.h"

/* The driver's functions that programs call and the library does not. */
struct program {
	void *driver;
	int device;
	cu_context context;
	cu_result (*cuInit)(unsigned int flags);
	cu_result (*cuDevicePrimaryCtxRetain)(cu_context *context, cu_device device);
	cu_result (*cuDevicePrimaryCtxRelease_v2)(cu_device device);
	cu_result (*cuCtxPushCurrent_v2)(cu_context context);
	cu_result (*cuCtxPopCurrent_v2)(cu_context *context);
	cu_result (*cuCtxGetCurrent)(cu_context *context);
	cu_result (*cuMemAlloc_v2)(cu_pointer *pointer, size_t bytes);
	cu_result (*cuMemFree_v2)(cu_pointer pointer);
	cu_result (*cuMemcpyHtoD_v2)(cu_pointer to, const void *from, size_t bytes);
	cu_result (*cuMemcpyDtoH_v2)(void *to, cu_pointer from, size_t bytes);
};

/* Initialises the driver and makes this device's context the thread's. false: some call failed. */
bool program_start(struct program *program, int device);
/* false: the context that is current is not the one that start left. */
bool program_end(struct program *program);

/* A GPU's memory or the host's, zeroed or not as it comes. */
struct buffer {
	const struct program *program;
	bool gpu;
	char *first;
	size_t bytes;
};

/* At least one byte, so that a pointer means something. */
bool buffer_make(struct buffer *buffer, const struct program *program, bool gpu, size_t bytes);
bool buffer_write(const struct buffer *buffer, const void *from);
bool buffer_read(const struct buffer *buffer, void *to);
void buffer_free(struct buffer *buffer);

#endif
