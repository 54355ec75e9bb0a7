/* Declares the part of the CUDA driver's binary interface that collet uses, so that no toolkit is needed to build. The
 * driver keeps these names, types and numbers from version to version. tests/cuda compares them with the toolkit's own
 * header where there is one. */
#ifndef COLLET_CUDA_DRIVER_DRIVER_API_H
#define COLLET_CUDA_DRIVER_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_pointer;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphNode_st *cu_graph_node;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef void cu_host_function(void *data);
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

/* cu_result */
enum {
	CU_OK = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_DEINITIALIZED = 4,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_INVALID_IMAGE = 200,
	CU_INVALID_CONTEXT = 201,
	CU_MAP_FAILED = 205,
	CU_ALREADY_MAPPED = 208,
	CU_NO_BINARY_FOR_GPU = 209,
	CU_PEER_ACCESS_UNSUPPORTED = 217,
	CU_INVALID_PTX = 218,
	CU_NO_PTX_COMPILER = 221,
	CU_PTX_TOO_NEW = 222,
	CU_INVALID_HANDLE = 400,
	CU_ILLEGAL_STATE = 401,
	CU_NOT_FOUND = 500,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_LAUNCH_OUT_OF_RESOURCES = 701,
	CU_LAUNCH_TIMEOUT = 702,
	CU_PEER_ACCESS_ALREADY_ENABLED = 704,
	CU_CONTEXT_IS_DESTROYED = 709,
	CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CU_HOST_MEMORY_NOT_REGISTERED = 713,
	CU_NOT_PERMITTED = 800,
	CU_NOT_SUPPORTED = 801,
	CU_CAPTURE_UNSUPPORTED = 900,  /* not allowed while a stream is being captured */
	CU_CAPTURE_INVALIDATED = 901,  /* a forbidden call has invalidated the capture */
	CU_CAPTURE_MERGE = 902,        /* two captures would become one */
	CU_CAPTURE_UNMATCHED = 903,    /* the capture began on another stream */
	CU_CAPTURE_UNJOINED = 904,     /* work of another stream was captured but not joined */
	CU_CAPTURE_ISOLATION = 905,    /* captured and uncaptured work would depend on each other */
	CU_CAPTURE_IMPLICIT = 906,     /* the legacy stream would wait for captured work */
	CU_CAPTURED_EVENT = 907,       /* the event was recorded in a capture, and is no use outside */
	CU_CAPTURE_WRONG_THREAD = 908
};

/* Attributes for cuPointerGetAttributes(). */
enum {
	CU_ATTRIBUTE_CONTEXT = 1,
	CU_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_ATTRIBUTE_BUFFER_ID = 7,  /* of the allocation: differs if memory at the same address is allocated again */
	CU_ATTRIBUTE_IS_MANAGED = 8,
	CU_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_ATTRIBUTE_IS_IPC_CAPABLE = 10,  /* by cuIpcGetMemHandle() */
	CU_ATTRIBUTE_RANGE_START = 11,
	CU_ATTRIBUTE_RANGE_BYTES = 12
};

/* Values of CU_ATTRIBUTE_MEMORY_TYPE; 0 if the driver does not know the memory. */
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

/* Opens an allocation in another process. */
typedef struct {
	char bytes[64];
} cu_ipc_handle;

typedef struct {
	unsigned char bytes[16];
} cu_uuid;

/* Physical memory, which cuMemMap() maps to addresses. */
typedef unsigned long long cu_mem_handle;

typedef struct {
	int type;            /* CU_LOCATION_DEVICE: id is a device */
	int id;
} cu_location;

typedef struct {
	int type;            /* CU_ALLOCATION_PINNED */
	int handle_types;    /* the CU_HANDLE_* it can be exported as */
	cu_location location;
	void *reserved0;
	struct {
		unsigned char compression, rdma_capable;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
} cu_memory_properties;

typedef struct {
	cu_location location;
	int flags;           /* CU_ACCESS_READ_WRITE */
} cu_access;

enum { CU_LOCATION_DEVICE = 1 };
enum { CU_ALLOCATION_PINNED = 1 };
enum { CU_HANDLE_FILE_DESCRIPTOR = 1 };
enum { CU_ACCESS_READ_WRITE = 3 };
enum { CU_RANGE_DMABUF = 1 };
enum { CU_GRANULARITY_MINIMUM = 0 };
enum { CU_IPC_LAZY_PEER_ACCESS = 1 };

enum { CU_NON_BLOCKING_STREAM = 1 };
enum { CU_BLOCKING_EVENT = 1, CU_UNTIMED_EVENT = 2 };

/* Attributes for cuDeviceGetAttribute(). */
enum {
	CU_DEVICE_MULTIPROCESSORS = 16,
	CU_DEVICE_L2_CACHE_BYTES = 38,
	CU_DEVICE_HAS_VMM = 102,
	CU_DEVICE_HAS_FD_HANDLES = 103,
	CU_DEVICE_HAS_RDMA_TO_VMM = 110,                  /* if allocated as rdma_capable */
	CU_DEVICE_RDMA_WRITES_ORDERING = 118,    /* order is kept from this CU_RDMA_ORDERING_* scope on */
	CU_DEVICE_HAS_STREAM_MEM_OPS = 122,    /* 64-bit words too, which streams write and wait for */
	CU_DEVICE_HAS_DMABUF = 124
};
enum { CU_RDMA_ORDERING_OWNER = 100 };

enum { CU_HOST_REGISTER_PORTABLE = 1, CU_HOST_REGISTER_MAPPED = 2 };

/* These addresses name the default streams. */
enum { CU_LEGACY_STREAM = 1, CU_PER_THREAD_STREAM = 2 };

/* Conditions on which a stream waits for a word: (signed) word - value >= 0, or word == value. */
enum { CU_WAIT_VALUE_GEQ = 0, CU_WAIT_VALUE_EQ = 1 };

/* One of several operations on words that a stream executes as one batch, in order. */
typedef union {
	struct {
		int operation;       /* CU_MEM_OP_WRITE_32 */
		cu_pointer word;
		uint64_t value;      /* only the low 32 bits count */
		unsigned int flags;
		cu_pointer reserved0;
	} write;
	uint64_t reserved[6];
} cu_mem_op;

enum { CU_MEM_OP_WRITE_32 = 2, CU_MEM_OPS_MAX = 256 };

/* Capture state of a stream. */
enum { CU_CAPTURE_STATUS_NONE = 0, CU_CAPTURE_STATUS_ACTIVE = 1, CU_CAPTURE_STATUS_INVALIDATED = 2 };

/* Which threads' forbidden calls invalidate a capture. */
enum { CU_CAPTURE_MODE_GLOBAL = 0, CU_CAPTURE_MODE_THREAD_LOCAL = 1, CU_CAPTURE_MODE_RELAXED = 2 };

/* F(name, arguments): every function used, by the name that cuGetProcAddress() knows. */
#define COLLET_CUDA_FUNCTIONS(F)                                                                                       \
	F(cuDriverGetVersion, (int *version))                                                                          \
	F(cuGetErrorName, (cu_result result, const char **name))                                                       \
	F(cuGetErrorString, (cu_result result, const char **sentence))                                                 \
	F(cuDeviceGet, (cu_device * device, int ordinal))                                                              \
	F(cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                                          \
	F(cuDevicePrimaryCtxRelease, (cu_device device))                                                               \
	F(cuCtxPushCurrent, (cu_context context))                                                                      \
	F(cuCtxPopCurrent, (cu_context * context))                                                                     \
	F(cuCtxGetCurrent, (cu_context * context))                                                                     \
	F(cuCtxGetDevice, (cu_device * device))                                                                        \
	F(cuDeviceGetCount, (int *count))                                                                              \
	F(cuDeviceGetUuid, (cu_uuid * uuid, cu_device device))                                                         \
	F(cuDeviceGetAttribute, (int *value, int attribute, cu_device device))                                         \
	F(cuDeviceCanAccessPeer, (int *can, cu_device device, cu_device peer))                                         \
	F(cuCtxEnablePeerAccess, (cu_context peer, unsigned int flags))                                                \
	F(cuMemAlloc, (cu_pointer * pointer, size_t bytes))                                                            \
	F(cuMemFree, (cu_pointer pointer))                                                                             \
	F(cuMemGetAddressRange, (cu_pointer * first, size_t * bytes, cu_pointer pointer))                              \
	F(cuMemGetHandleForAddressRange, (void *handle, cu_pointer pointer, size_t bytes, int type, uint64_t flags))   \
	F(cuIpcGetMemHandle, (cu_ipc_handle * handle, cu_pointer pointer))                                             \
	F(cuIpcOpenMemHandle, (cu_pointer * pointer, cu_ipc_handle handle, unsigned int flags))                        \
	F(cuIpcCloseMemHandle, (cu_pointer pointer))                                                                   \
	F(cuMemGetAllocationGranularity, (size_t * bytes, const cu_memory_properties *properties, int option))         \
	F(cuMemCreate, (cu_mem_handle * memory, size_t bytes, const cu_memory_properties *properties, uint64_t flags)) \
	F(cuMemRelease, (cu_mem_handle memory))                                                                        \
	F(cuMemRetainAllocationHandle, (cu_mem_handle * memory, void *pointer))                                        \
	F(cuMemAddressReserve,                                                                                         \
		(cu_pointer * pointer, size_t bytes, size_t alignment, cu_pointer wanted, uint64_t flags))             \
	F(cuMemAddressFree, (cu_pointer pointer, size_t bytes))                                                        \
	F(cuMemMap, (cu_pointer pointer, size_t bytes, size_t offset, cu_mem_handle memory, uint64_t flags))           \
	F(cuMemUnmap, (cu_pointer pointer, size_t bytes))                                                              \
	F(cuMemSetAccess, (cu_pointer pointer, size_t bytes, const cu_access *access, size_t count))                   \
	F(cuMemExportToShareableHandle, (void *handle, cu_mem_handle memory, int type, uint64_t flags))                \
	F(cuMemImportFromShareableHandle, (cu_mem_handle * memory, void *handle, int type))                            \
	F(cuPointerGetAttributes, (unsigned int count, int *attributes, void **values, cu_pointer pointer))            \
	F(cuMemHostRegister, (void *memory, size_t bytes, unsigned int flags))                                         \
	F(cuMemHostUnregister, (void *memory))                                                                         \
	F(cuMemcpyAsync, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                             \
	F(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                                    \
	F(cuStreamCreateWithPriority, (cu_stream * stream, unsigned int flags, int priority))                          \
	F(cuMemsetD8Async, (cu_pointer first, unsigned char value, size_t bytes, cu_stream stream))                    \
	F(cuEventCreate, (cu_event * event, unsigned int flags))                                                       \
	F(cuEventDestroy, (cu_event event))                                                                            \
	F(cuEventRecord, (cu_event event, cu_stream stream))                                                           \
	F(cuEventQuery, (cu_event event))                                                                              \
	F(cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned int flags))                                   \
	F(cuStreamDestroy, (cu_stream stream))                                                                         \
	F(cuStreamSynchronize, (cu_stream stream))                                                                     \
	F(cuStreamQuery, (cu_stream stream))                                                                           \
	F(cuStreamGetCtx, (cu_stream stream, cu_context * context))                                                    \
	F(cuStreamGetId, (cu_stream stream, unsigned long long *id))                                                   \
	F(cuStreamWaitValue32, (cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags))                \
	F(cuStreamWriteValue32, (cu_stream stream, cu_pointer word, uint32_t value, unsigned int flags))               \
	F(cuStreamBatchMemOp, (cu_stream stream, unsigned int count, cu_mem_op *operations, unsigned int flags))       \
	F(cuLaunchHostFunc, (cu_stream stream, cu_host_function * function, void *data))                               \
	F(cuStreamGetCaptureInfo, (cu_stream stream, int *status, uint64_t *id, cu_graph *graph,                       \
					  const cu_graph_node **nodes, size_t *count))                                 \
	F(cuThreadExchangeStreamCaptureMode, (int *mode))                                                              \
	F(cuMemHostGetDevicePointer, (cu_pointer * pointer, void *memory, unsigned int flags))                         \
	F(cuModuleLoadData, (cu_module * module, const void *image))                                                   \
	F(cuModuleUnload, (cu_module module))                                                                          \
	F(cuModuleGetFunction, (cu_function * function, cu_module module, const char *name))                           \
	F(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                                 \
		(int *blocks, cu_function function, int threads, size_t shared_bytes))                                 \
	F(cuLaunchKernel, (cu_function function, unsigned int columns, unsigned int rows, unsigned int layers,         \
				  unsigned int threads, unsigned int threads_y, unsigned int threads_z,                \
				  unsigned int shared_bytes, cu_stream stream, void **arguments, void **extra))

#endif
