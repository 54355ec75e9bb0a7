/* What a rank's context has for its GPU: which one that is, its kernels, and other processes' memory. */
#ifndef COLLET_CUDA_DRIVER_DEVICE_H
#define COLLET_CUDA_DRIVER_DEVICE_H

#include "cuda/driver/handle_exchange.h"
#include "cuda/driver/ipc.h"
#include "cuda/kernels/kernel_set.h"
#include "transport/registry.h"

enum {
	COLLET_IPC_CACHE_MAX = 256,  /* of other processes' allocations kept open, */
	COLLET_LOCAL_HANDLES = 64,   /* of this process's, with their descriptions */
	COLLET_RECEIVED_HANDLES = 64 /* descriptors that wait to be asked for */
};
static const uint64_t COLLET_IPC_CACHE_MAX_BYTES = UINT64_C(64) << 30;

/* A descriptor that has come. */
struct collet_received_handle {
	struct collet_handle_note note;
	int fd;                      /* -1: this entry is free */
};

/* What an allocation of this process's is for others. */
struct collet_local_handle {
	struct collet_ipc_handle handle;     /* 0 bytes: this entry is free */
	uint64_t driver_allocation;          /* of its residence */
	cu_mem_handle physical;              /* COLLET_IPC_FD: held, so that no other has this handle */
	uint64_t last_use;
};

struct collet_device {
	const struct collet_cuda *cuda;      /* NULL: there is no driver */
	struct collet_copy_streams *copy_streams;
	const struct collet_log *log;
	uint64_t process_id;                 /* the card's, */
	uint32_t rank;                       /* and its */
	int ordinal;                         /* of the GPU that the context's thread uses; -1: none that it knows */
	cu_context context;                  /* which it uses it by; NULL: by the primary one */
	bool is_leader_only;                 /* ranks that share a GPU have a leader do all of their collectives */
	struct collet_kernel_sets kernels;
	struct collet_ipc_cache ipc_cache;
	struct collet_handle_exchange handle_exchange;
	/* Under the engine's lock. */
	struct collet_received_handle received[COLLET_RECEIVED_HANDLES];
	uint32_t next_received;
	struct collet_local_handle local_handles[COLLET_LOCAL_HANDLES];
	uint64_t use_count, allocations_numbered;
	struct collet_shareable_block *shareable_blocks; /* see shareable_memory.h */
	bool is_leaked;                      /* a GPU may be at something here that nobody can wait for: it stays, */
	struct collet_device_comm *leaked_comms; /* and such with it */
	struct collet_ipc_get *ipc_get;      /* see ipc_get.h */
};

/* Finds the GPU that the calling thread uses, if the program has initialised the driver: that of its current context,
 * or the only one there is. card gets its UUID, for the others to compare. direct: whether ranks of one GPU are to go
 * together at all. That there is no such GPU is no error. */
void collet_device_init(struct collet_device *device, const struct collet_cuda *cuda,
	struct collet_copy_streams *copy_streams, bool use_shared_gpu, struct collet_peer_info *peer_info,
	const struct collet_log *log);
/* Has that rank found such a GPU? */
bool collet_peer_info_has_gpu(const struct collet_peer_info *peer_info);
/* Before the copiers go. A zeroed one is fine. */
void collet_device_deinit(struct collet_device *device);

/* The device of the calling thread, and its context; -1: the program has not initialised the driver, or uses none that
 * can be told. */
int collet_device_current(const struct collet_cuda *cuda, cu_context *context);
/* What this process's memory is for others; found once for each allocation. Under the engine's lock. */
collet_status collet_device_get_handle(struct collet_device *device, const struct collet_pointer_attributes *attributes,
	const void *memory, struct collet_ipc_handle *handle);
/* Likewise, of what has not been described before; *mapped as collet_ipc_handle_get() leaves it. */
collet_status collet_device_create_handle(struct collet_device *device,
	const struct collet_pointer_attributes *attributes, const void *memory, struct collet_ipc_handle *handle,
	cu_mem_handle *mapped);
/* Takes what has come to the desk: descriptors, and word of memory that is no more. Under the engine's lock. */
void collet_device_receive_handles(struct collet_device *device);
/* What is kept of both is let go of: when the context ends. */
void collet_device_drop_local_handles(struct collet_device *device);
void collet_device_drop_received_handles(struct collet_device *device);
/* A descriptor that has come, the caller's then; -1: it has not. Under the engine's lock. */
int collet_device_take_fd(struct collet_device *device, uint64_t process, uint64_t allocation);
/* The same in this process, for the copier's context: open until collet_ipc_cache_release(). COLLET_ERR_SYSTEM and
 * COLLET_ERR_UNSUPPORTED: with the reason. */
collet_status collet_device_open_handle(struct collet_device *device, const struct collet_copy_stream *copy_stream,
	const struct collet_ipc_handle *handle, struct collet_ipc_mapping **mapping);

#endif
