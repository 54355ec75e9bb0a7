/* The GPU state of one library context: its GPU, its kernels, and memory shared with other processes. */
#ifndef COLLET_CUDA_DRIVER_DEVICE_H
#define COLLET_CUDA_DRIVER_DEVICE_H

#include "cuda/driver/handle_exchange.h"
#include "cuda/driver/ipc.h"
#include "cuda/kernels/kernel_set.h"
#include "transport/registry.h"

enum {
	COLLET_IPC_CACHE_MAX = 256,  /* allocations of other processes kept open */
	COLLET_LOCAL_HANDLES = 64,   /* allocations of this process kept with their handles */
	COLLET_RECEIVED_HANDLES = 64 /* descriptors that wait to be asked for */
};
static const uint64_t COLLET_IPC_CACHE_MAX_BYTES = UINT64_C(64) << 30;

/* A descriptor that was received. */
struct collet_received_handle {
	struct collet_handle_note note;
	int fd;                      /* -1 if this entry is free */
};

/* The handle of an allocation of this process. */
struct collet_local_handle {
	struct collet_ipc_handle handle;     /* 0 bytes if this entry is free */
	uint64_t driver_allocation;          /* the allocation number in its pointer attributes */
	cu_mem_handle physical;              /* COLLET_IPC_FD: retained, so that no other memory gets this handle */
	uint64_t last_use;                   /* value of use_count */
};

struct collet_device {
	const struct collet_cuda *cuda;      /* NULL if there is no driver */
	struct collet_copy_streams *copy_streams;
	const struct collet_log *log;
	uint64_t process_id;                 /* as in the rank's peer info */
	uint32_t rank;                       /* as in the rank's peer info */
	int ordinal;                         /* the GPU that the context's thread uses; -1 if unknown */
	cu_context context;                  /* the thread's context on it; NULL for the primary one */
	bool is_leader_only;                 /* Ranks that share a GPU leave all their collectives to a leader. */
	struct collet_kernel_sets kernels;
	struct collet_ipc_cache ipc_cache;
	struct collet_handle_exchange handle_exchange;
	/* The rest is under the engine's lock. */
	struct collet_received_handle received[COLLET_RECEIVED_HANDLES];
	uint32_t next_received;
	struct collet_local_handle local_handles[COLLET_LOCAL_HANDLES];
	uint64_t use_count, allocations_numbered;
	struct collet_shareable_block *shareable_blocks; /* see shareable_memory.h */
	/* A GPU may still use something here that nobody can wait for. Then neither the device nor these are freed. */
	bool is_leaked;
	struct collet_device_comm *leaked_comms;
	struct collet_ipc_get *ipc_get;      /* see ipc_get.h */
};

/* Finds the GPU that the calling thread uses, if the application has initialised the driver: that of its current
 * context, or the only one. Puts its UUID into peer_info for the peers to compare. use_shared_gpu: ranks may use the
 * GPU of another rank. Finding no GPU is no error. */
void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda,
	struct collet_copy_streams *copy_streams, bool use_shared_gpu, struct collet_peer_info *peer_info,
	const struct collet_log *log);
/* True if that rank has found such a GPU. */
bool collet_peer_info_has_gpu(const struct collet_peer_info *peer_info);
/* Call before the copy streams are destroyed. A zeroed object is allowed. */
void collet_device_deinit(struct collet_device *device);

/* Returns the device of the calling thread, and its context. -1: the application has not initialised the driver, or it
 * is unknown which GPU the thread uses. */
int collet_device_current(const struct collet_cuda *cuda, cu_context *context);
/* Gets the handle of an allocation of this process; creates it once per allocation. Needs the engine's lock. */
collet_status collet_device_get_handle(struct collet_device *device, const struct collet_pointer_attributes *attributes,
	const void *memory, struct collet_ipc_handle *handle);
/* Creates a handle that no entry has; *mapped is as collet_ipc_handle_get() leaves it. */
collet_status collet_device_create_handle(struct collet_device *device,
	const struct collet_pointer_attributes *attributes, const void *memory, struct collet_ipc_handle *handle,
	cu_mem_handle *mapped);
/* Receives what the handle exchange has queued: descriptors, and notes of freed memory. Needs the engine's lock. */
void collet_device_receive_handles(struct collet_device *device);
/* Drops all entries when the context ends. */
void collet_device_drop_local_handles(struct collet_device *device);
void collet_device_drop_received_handles(struct collet_device *device);
/* Takes a received descriptor, which the caller then owns; -1 if it has not arrived. Needs the engine's lock. */
int collet_device_take_fd(struct collet_device *device, uint64_t process, uint64_t allocation);
/* Maps another process's allocation into the copy stream's context, until collet_ipc_cache_release(). COLLET_ERR_SYSTEM
 * and COLLET_ERR_UNSUPPORTED come with the reason. */
collet_status collet_device_open_handle(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_ipc_handle *handle, struct collet_ipc_mapping **mapping);

#endif
