/* The part of the CUDA driver's binary interface that collet uses, declared here so that it is built where no toolkit
 * is: names, types and numbers are the driver's, which keeps them from version to version. tests/cuda holds them
 * against the toolkit's own header where there is one. */
#ifndef COLLET_CUDA_API_H
#define COLLET_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_pointer;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;

/* cu_result */
enum {
	CU_OK = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_INVALID_CONTEXT = 201,
	CU_INVALID_HANDLE = 400,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CU_HOST_MEMORY_NOT_REGISTERED = 713
};

/* What cuPointerGetAttributes() is asked. */
enum {
	CU_ATTRIBUTE_CONTEXT = 1,
	CU_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_ATTRIBUTE_IS_MANAGED = 8,
	CU_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_ATTRIBUTE_RANGE_START = 11,
	CU_ATTRIBUTE_RANGE_BYTES = 12
};

/* CU_ATTRIBUTE_MEMORY_TYPE; 0: none that the driver knows. */
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

enum { CU_NON_BLOCKING_STREAM = 1 };
enum { CU_BLOCKING_EVENT = 1, CU_UNTIMED_EVENT = 2 };

/* What cuDeviceGetAttribute() is asked. */
enum { CU_DEVICE_L2_CACHE_BYTES = 38 };

enum { CU_HOST_REGISTER_PORTABLE = 1 };

/* F(name, arguments): every function that is used, by the name that cuGetProcAddress() knows. */
#define COLLET_CUDA_FUNCTIONS(F)                                                                                       \
	F(cuDriverGetVersion, (int *version))                                                                          \
	F(cuGetErrorName, (cu_result result, const char **name))                                                       \
	F(cuGetErrorString, (cu_result result, const char **sentence))                                                 \
	F(cuDeviceGet, (cu_device * device, int ordinal))                                                              \
	F(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                                          \
	F(cuDevicePrimaryCtxRelease, (cu_device device))                                                               \
	F(cuCtxPushCurrent, (cu_context context))                                                                      \
	F(cuCtxPopCurrent, (cu_context * context))                                                                     \
	F(cuPointerGetAttributes, (unsigned int count, int *attributes, void **values, cu_pointer pointer))            \
	F(cuMemHostRegister, (void *memory, size_t bytes, unsigned int flags))                                         \
	F(cuMemHostUnregister, (void *memory))                                                                         \
	F(cuMemcpyAsync, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                             \
	F(cuStreamCreate, (cu_stream * stream, unsigned int flags))                                                    \
	F(cuStreamDestroy, (cu_stream stream))                                                                         \
	F(cuStreamSynchronize, (cu_stream stream))                                                                     \
	F(cuStreamQuery, (cu_stream stream))

#endif
