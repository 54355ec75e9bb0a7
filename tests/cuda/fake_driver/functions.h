/* The driver functions that the fake driver has, by their symbols. */
#ifndef TESTS_CUDA_FAKE_DRIVER_FUNCTIONS_H
#define TESTS_CUDA_FAKE_DRIVER_FUNCTIONS_H

#include "cuda/driver/driver_api.h"

#include <stdbool.h>

#define FAKE_API __attribute__((visibility("default")))

/* failure.c: these exist only here. nth 0: no call fails any more. fakeFailed(): the first function that failed; NULL
 * if none has. */
FAKE_API void fakeFail(uint64_t nth, cu_result code, bool onwards);
FAKE_API const char *fakeFailed(void);
/* Calls since then. Calls of a spared thread, the program's own, are not counted and do not fail. */
FAKE_API uint64_t fakeCalls(void);
/* Calls of this function since the process began. */
FAKE_API unsigned fakeCallsOf(const char *function);
FAKE_API void fakeSpare(bool on);
/* Objects of this process that are not destroyed: retained contexts, streams, events, modules, graphs, memory. */
FAKE_API long fakeAlive(void);

/* slow.c: waits until no stream is in the middle of an operation; false if one still is after 5 s. */
FAKE_API bool fakeWaitAll(void);

/* memory.c: the most host memory that this process has had page-locked at a time, in bytes. */
FAKE_API size_t fakeLockedMost(void);

/* launch.c: while on, no kernel of this process begins, as if something else used the whole GPU. */
FAKE_API void fakeHold(bool on);

/* state.c */
FAKE_API cu_result cuInit(unsigned int flags);
FAKE_API cu_result cuDriverGetVersion(int *version);
FAKE_API cu_result cuGetErrorName(cu_result result, const char **name);
FAKE_API cu_result cuGetErrorString(cu_result result, const char **sentence);
FAKE_API cu_result cuDeviceGetCount(int *count);
FAKE_API cu_result cuDeviceGet(cu_device *device, int ordinal);
FAKE_API cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
FAKE_API cu_result cuDevicePrimaryCtxRelease_v2(cu_device device);
FAKE_API cu_result cuCtxCreate_v2(cu_context *context, unsigned int flags, cu_device device);
FAKE_API cu_result cuCtxDestroy_v2(cu_context context);
FAKE_API cu_result cuCtxPushCurrent_v2(cu_context context);
FAKE_API cu_result cuCtxPopCurrent_v2(cu_context *context);
FAKE_API cu_result cuCtxGetCurrent(cu_context *context);
FAKE_API cu_result cuCtxGetDevice(cu_device *device);
FAKE_API cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device);
FAKE_API cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer);
FAKE_API cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned int flags);
FAKE_API cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found);

FAKE_API cu_result cuDeviceGetName(char *name, int bytes, cu_device device);
FAKE_API cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device);

/* memory.c */
FAKE_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t bytes);
FAKE_API cu_result cuMemFree_v2(cu_pointer pointer);
FAKE_API cu_result cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags);
FAKE_API cu_result cuMemHostUnregister(void *memory);
FAKE_API cu_result cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags);
FAKE_API cu_result cuMemFreeHost(void *memory);
FAKE_API cu_result cuPointerGetAttributes(unsigned int count, int *attributes, void **values, cu_pointer pointer);

FAKE_API cu_result cuMemGetAddressRange_v2(cu_pointer *first, size_t *bytes, cu_pointer pointer);

/* ipc.c */
FAKE_API cu_result cuMemGetHandleForAddressRange(
	void *handle, cu_pointer pointer, size_t bytes, int type, uint64_t flags);
FAKE_API cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_pointer pointer);
FAKE_API cu_result cuIpcOpenMemHandle_v2(cu_pointer *pointer, cu_ipc_handle handle, unsigned int flags);
FAKE_API cu_result cuIpcCloseMemHandle(cu_pointer pointer);

/* mapped.c */
FAKE_API cu_result cuMemGetAllocationGranularity(size_t *bytes, const cu_memory_properties *properties, int option);
FAKE_API cu_result cuMemCreate(
	cu_mem_handle *memory, size_t bytes, const cu_memory_properties *properties, uint64_t flags);
FAKE_API cu_result cuMemRelease(cu_mem_handle memory);
FAKE_API cu_result cuMemRetainAllocationHandle(cu_mem_handle *memory, void *pointer);
FAKE_API cu_result cuMemAddressReserve(
	cu_pointer *pointer, size_t bytes, size_t alignment, cu_pointer wanted, uint64_t flags);
FAKE_API cu_result cuMemAddressFree(cu_pointer pointer, size_t bytes);
FAKE_API cu_result cuMemMap(cu_pointer pointer, size_t bytes, size_t offset, cu_mem_handle memory, uint64_t flags);
FAKE_API cu_result cuMemUnmap(cu_pointer pointer, size_t bytes);
FAKE_API cu_result cuMemSetAccess(cu_pointer pointer, size_t bytes, const cu_access *access, size_t count);
FAKE_API cu_result cuMemExportToShareableHandle(void *handle, cu_mem_handle memory, int type, uint64_t flags);
FAKE_API cu_result cuMemImportFromShareableHandle(cu_mem_handle *memory, void *handle, int type);

/* stream.c */
FAKE_API cu_result cuStreamCreate(cu_stream *created, unsigned int flags);
FAKE_API cu_result cuStreamCreateWithPriority(cu_stream *created, unsigned int flags, int priority);
FAKE_API cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest);
FAKE_API cu_result cuStreamDestroy_v2(cu_stream stream);
FAKE_API cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream);
FAKE_API cu_result cuStreamSynchronize(cu_stream stream);
FAKE_API cu_result cuStreamQuery(cu_stream stream);
FAKE_API cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t bytes);
FAKE_API cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t bytes);
FAKE_API cu_result cuMemsetD8Async(cu_pointer first, unsigned char value, size_t bytes, cu_stream stream);

FAKE_API cu_result cuStreamGetCtx(cu_stream stream, cu_context *context);
FAKE_API cu_result cuStreamGetId(cu_stream stream, unsigned long long *id);

/* words.c */
FAKE_API cu_result cuStreamWaitValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags);
FAKE_API cu_result cuStreamBatchMemOp_v2(
	cu_stream stream, unsigned int count, cu_mem_op *operations, unsigned int flags);
FAKE_API cu_result cuStreamWriteValue32_v2(cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags);
FAKE_API cu_result cuLaunchHostFunc(cu_stream stream, cu_host_function *function, void *data);
FAKE_API cu_result cuMemHostGetDevicePointer_v2(cu_pointer *pointer, void *memory, unsigned int flags);

/* capture.c */
FAKE_API cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode);
FAKE_API cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph);
FAKE_API cu_result cuStreamGetCaptureInfo_v2(cu_stream stream, int *status, uint64_t *id, cu_graph *graph,
	const cu_graph_node **nodes, size_t *count);
FAKE_API cu_result cuThreadExchangeStreamCaptureMode(int *mode);
FAKE_API cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags);
FAKE_API cu_result cuGraphDestroy(cu_graph graph);
FAKE_API cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream);
FAKE_API cu_result cuGraphExecDestroy(cu_graph_exec exec);

/* event.c */
FAKE_API cu_result cuEventCreate(cu_event *created, unsigned int flags);
FAKE_API cu_result cuEventDestroy_v2(cu_event event);
FAKE_API cu_result cuEventRecord(cu_event event, cu_stream stream);
FAKE_API cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags);
FAKE_API cu_result cuEventQuery(cu_event event);
FAKE_API cu_result cuEventSynchronize(cu_event event);
FAKE_API cu_result cuEventElapsedTime(float *ms, cu_event start, cu_event end);

/* launch.c */
FAKE_API cu_result cuModuleLoadData(cu_module *loaded, const void *image);
FAKE_API cu_result cuModuleUnload(cu_module module);
FAKE_API cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name);
FAKE_API cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, cu_function function, int threads, size_t shared_bytes);
FAKE_API cu_result cuLaunchKernel(cu_function function, unsigned int columns, unsigned int rows, unsigned int layers,
	unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes,
	cu_stream stream, void **arguments, void **extra);

#endif
