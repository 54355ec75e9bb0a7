/* Opens the CUDA driver at run time, so that one binary runs with and without it. The library has a table of its own
 * (src/cuda/driver/driver_api.h). Names and numbers here are the driver's. */
#ifndef COLLET_COMMON_GPU_H
#define COLLET_COMMON_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int gpu_result;      /* 0: it went */
typedef int gpu_device;
typedef unsigned long long gpu_pointer;
typedef struct CUctx_st *gpu_context;
typedef struct CUstream_st *gpu_stream;
typedef struct CUevent_st *gpu_event;
typedef struct CUgraph_st *gpu_graph;
typedef struct CUgraphExec_st *gpu_graph_exec;

enum { GPU_OK = 0, GPU_NO_DEVICE = 100 };
enum { GPU_NON_BLOCKING_STREAM = 1 };
enum { GPU_LEGACY_STREAM = 1 };    /* by this address */
enum { GPU_UNTIMED_EVENT = 2 };
enum { GPU_NOT_READY = 600 };
enum { GPU_CAPTURE_RELAXED = 2 };
enum { GPU_L2_CACHE_BYTES = 38 };  /* of cuDeviceGetAttribute() */

/* CUDA 12.0, as the library. */
enum { GPU_OLDEST = 12000 };

/* F(name, arguments), by the name that cuGetProcAddress() knows. */
#define GPU_FUNCTIONS(F)                                                                                               \
	F(cuInit, (unsigned int flags))                                                                                \
	F(cuGetErrorName, (gpu_result result, const char **name))                                                      \
	F(cuGetErrorString, (gpu_result result, const char **sentence))                                                \
	F(cuDeviceGetCount, (int *count))                                                                              \
	F(cuDeviceGet, (gpu_device * device, int ordinal))                                                             \
	F(cuDeviceGetName, (char *name, int bytes, gpu_device device))                                                 \
	F(cuDeviceGetAttribute, (int *value, int attribute, gpu_device device))                                        \
	F(cuDevicePrimaryCtxRetain, (gpu_context * context, gpu_device device))                                        \
	F(cuDevicePrimaryCtxRelease, (gpu_device device))                                                              \
	F(cuCtxPushCurrent, (gpu_context context))                                                                     \
	F(cuCtxPopCurrent, (gpu_context * context))                                                                    \
	F(cuMemAlloc, (gpu_pointer * pointer, size_t bytes))                                                           \
	F(cuMemFree, (gpu_pointer pointer))                                                                            \
	F(cuMemcpyHtoD, (gpu_pointer to, const void *from, size_t bytes))                                              \
	F(cuMemcpyDtoH, (void *to, gpu_pointer from, size_t bytes))                                                    \
	F(cuMemcpyAsync, (gpu_pointer to, gpu_pointer from, size_t bytes, gpu_stream stream))                          \
	F(cuMemsetD8Async, (gpu_pointer first, unsigned char value, size_t bytes, gpu_stream stream))                  \
	F(cuMemHostRegister, (void *memory, size_t bytes, unsigned int flags))                                         \
	F(cuMemHostUnregister, (void *memory))                                                                         \
	F(cuStreamCreate, (gpu_stream * stream, unsigned int flags))                                                   \
	F(cuStreamDestroy, (gpu_stream stream))                                                                        \
	F(cuStreamSynchronize, (gpu_stream stream))                                                                    \
	F(cuStreamWaitEvent, (gpu_stream stream, gpu_event event, unsigned int flags))                                 \
	F(cuStreamBeginCapture, (gpu_stream stream, int mode))                                                         \
	F(cuStreamEndCapture, (gpu_stream stream, gpu_graph * graph))                                                  \
	F(cuGraphInstantiateWithFlags, (gpu_graph_exec * exec, gpu_graph graph, unsigned long long flags))             \
	F(cuGraphLaunch, (gpu_graph_exec exec, gpu_stream stream))                                                     \
	F(cuGraphExecDestroy, (gpu_graph_exec exec))                                                                   \
	F(cuGraphDestroy, (gpu_graph graph))                                                                           \
	F(cuEventCreate, (gpu_event * event, unsigned int flags))                                                      \
	F(cuEventDestroy, (gpu_event event))                                                                           \
	F(cuEventRecord, (gpu_event event, gpu_stream stream))                                                         \
	F(cuEventQuery, (gpu_event event))                                                                             \
	F(cuEventSynchronize, (gpu_event event))                                                                       \
	F(cuEventElapsedTime, (float *ms, gpu_event start, gpu_event end))

/* Zeroed: no driver. Read-only once opened. */
struct gpu {
	void *library;
#define GPU_SLOT(name, arguments) gpu_result(*name) arguments;
	GPU_FUNCTIONS(GPU_SLOT)
#undef GPU_SLOT
};

enum { GPU_WHY_BYTES = 256 };

/* Opens and initialises the driver (cuInit, which takes long). Returns false, and sets why to a phrase that says
 * what is missing. */
bool gpu_open(struct gpu *gpu, char why[GPU_WHY_BYTES]);
void gpu_close(struct gpu *gpu);  /* a zeroed one is fine */

/* Returns the driver's text for an error. */
const char *gpu_words(const struct gpu *gpu, gpu_result result, char words[GPU_WHY_BYTES]);

/* Copies from host memory to the current context's GPU, and returns once the bytes are there. cuMemcpyHtoD() may
 * return as soon as it has read pageable memory. Streams that do not wait for the legacy stream would not see the
 * bytes yet. */
gpu_result gpu_put(const struct gpu *gpu, gpu_pointer to, const void *from, size_t bytes);

/* Returns how many GPUs a new process would see: all of the host's, or those of CUDA_VISIBLE_DEVICES. A child
 * process asks, because the driver's state (threads, files, memory) does not survive a fork. 0: why says what is
 * missing. */
unsigned gpu_count(char why[GPU_WHY_BYTES]);

/* One of the GPUs, and this thread at work on it. Zeroed: none. */
struct gpu_device {
	struct gpu gpu;
	int ordinal, count;          /* of how many that the driver shows */
	gpu_device device;
	gpu_context context;         /* the GPU's primary one, current on the thread that opened it */
	char name[64];
	size_t cache_bytes;          /* of L2 */
};

/* Opens the GPU of a rank: LOCAL_RANK's, and where there are fewer than ranks they share. False: why says in half a
 * sentence what is missing. Closed by the thread that has opened it. */
bool gpu_device_open(struct gpu_device *device, uint32_t local_rank, char why[GPU_WHY_BYTES]);
void gpu_device_close(struct gpu_device *device);  /* a zeroed one is fine */

#endif
