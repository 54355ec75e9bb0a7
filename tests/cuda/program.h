/* A program that uses a GPU beside collet: its own memory, in its own context, through the driver. */
#ifndef TESTS_CUDA_PROGRAM_H
#define TESTS_CUDA_PROGRAM_H

#include <stdbool.h>

#include "cuda/driver/driver_api.h"

/* Driver functions that programs call and the library does not. */
struct program {
	void *driver;
	int device;
	bool beside;                 /* the context is its own, not the GPU's primary one */
	cu_context context;
	cu_result (*cuInit)(unsigned int flags);
	cu_result (*cuDevicePrimaryCtxRetain)(cu_context *context, cu_device device);
	cu_result (*cuDevicePrimaryCtxRelease_v2)(cu_device device);
	cu_result (*cuCtxCreate_v2)(cu_context *context, unsigned int flags, cu_device device);
	cu_result (*cuCtxDestroy_v2)(cu_context context);
	cu_result (*cuCtxPushCurrent_v2)(cu_context context);
	cu_result (*cuCtxPopCurrent_v2)(cu_context *context);
	cu_result (*cuCtxGetCurrent)(cu_context *context);
	cu_result (*cuMemAlloc_v2)(cu_pointer *pointer, size_t bytes);
	cu_result (*cuMemFree_v2)(cu_pointer pointer);
	cu_result (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned int flags);
	cu_result (*cuMemFreeHost)(void *memory);
	cu_result (*cuMemcpyHtoD_v2)(cu_pointer to, const void *from, size_t bytes);
	cu_result (*cuMemcpyDtoH_v2)(void *to, cu_pointer from, size_t bytes);
	cu_result (*cuStreamSynchronize)(cu_stream stream);
};

/* Initialises the driver and makes this device's context current. Returns false if a call failed. */
bool program_start(struct program *program, int device);
/* The same with a context of its own on this device, beside the primary one. */
bool program_start_beside(struct program *program, int device);
/* Returns false if the current context is not the one that start made current. */
bool program_end(struct program *program);

/* Copies to the GPU and waits until the data is there: cuMemcpyHtoD() may return earlier. */
cu_result program_put(const struct program *program, cu_pointer to, const void *from, size_t bytes);

/* GPU or host memory, whatever its contents. */
struct buffer {
	const struct program *program;
	bool gpu;
	char *first;
	size_t bytes;
	bool pinned;                 /* page-locked host memory, from the driver */
};

/* Allocates at least one byte, so that the pointer is valid. */
bool buffer_make(struct buffer *buffer, const struct program *program, bool gpu, size_t bytes);
bool buffer_make_pinned(struct buffer *buffer, const struct program *program, size_t bytes);
bool buffer_write(const struct buffer *buffer, const void *from);
bool buffer_read(const struct buffer *buffer, void *to);
void buffer_free(struct buffer *buffer);

#endif
