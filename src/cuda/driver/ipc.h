/* Maps GPU memory of one process in another process of the same host.
 *
 * The owner creates a handle of an allocation. The handle travels as plain bytes, and whoever receives it opens it.
 * Ordinary allocations are opened by the driver's IPC handle. Mapped memory (cuMemMap(), which collet_mem_alloc() and
 * some frameworks' allocators use) has only a file descriptor, which travels over the handle exchange.
 *
 * Mappings are cached, since opening one takes the driver 0.1 ms or more. The driver numbers allocations, so new memory
 * at a freed address is not mistaken for the old. The old mapping, which keeps freed memory from the GPU's other users,
 * is then evicted. The driver's number does not work for mapped memory: it may belong to the addresses. These stay
 * reserved while allocators with growing and shrinking segments map other memory there. So whoever creates the handle
 * numbers such memory itself.
 *
 * Closing a mapping may wait for all work on the GPU. So nothing is evicted while streams wait for the thread that
 * would close it. */
#ifndef COLLET_CUDA_DRIVER_IPC_H
#define COLLET_CUDA_DRIVER_IPC_H

#include <pthread.h>

#include "cuda/driver/driver.h"

enum collet_ipc_kind {
	COLLET_IPC_NONE,             /* no other process can open it */
	COLLET_IPC_LEGACY,           /* opened by the driver's IPC handle */
	COLLET_IPC_FD                /* opened by a file descriptor */
};

/* The bits of an allocation number from here up: one plus the rank that gave the number; 0 if the driver did. */
enum { COLLET_IPC_RANK_SHIFT = 40 };

/* Describes an allocation. (process, allocation) is unique. */
struct collet_ipc_handle {
	uint64_t process;            /* the owner's process_id in its peer info */
	uint64_t allocation;         /* its number there */
	uint64_t address, bytes;     /* where it lies in the owner's address space */
	uint32_t kind;               /* enum collet_ipc_kind */
	uint32_t reserved0;
	cu_ipc_handle legacy;
};

/* Describes the allocation that GPU memory is in; its context must be current. Memory that cannot be shared is no
 * error: kind says so. COLLET_IPC_FD: the caller assigns another number, and must release *mapped, the physical memory.
 * No other memory gets the same handle until then. *mapped is 0 for other kinds. */
collet_status collet_ipc_handle_get(const struct collet_cuda *cuda, uint64_t process, const void *memory,
	struct collet_ipc_handle *handle, cu_mem_handle *mapped);
/* Exports a COLLET_IPC_FD allocation as a descriptor, which the caller closes. */
collet_status collet_ipc_handle_export_fd(
	const struct collet_cuda *cuda, const struct collet_ipc_handle *handle, int *fd);

/* An opened allocation; the cache lists them by use, the latest first. */
struct collet_ipc_mapping {
	struct collet_ipc_mapping *next;
	uint64_t process, allocation, peer_address, bytes;
	cu_pointer address;
	size_t mapped_bytes;         /* COLLET_IPC_FD: the reserved range; else 0 */
	cu_context context;
	uint32_t ref_count;
	bool freed_by_owner;         /* the owner has freed the allocation */
};

struct collet_ipc_cache {
	const struct collet_cuda *cuda;      /* NULL if there is no driver */
	pthread_mutex_t lock;
	struct collet_ipc_mapping *first;
	uint32_t count, max_count;
	uint64_t bytes, max_bytes;
	uint32_t eviction_pauses;    /* if not 0, nothing is evicted */
};

/* Keeps up to so many allocations and bytes; those in use are kept beyond that. */
void collet_ipc_cache_init(
	struct collet_ipc_cache *cache, const struct collet_cuda *cuda, uint32_t max_count, uint64_t max_bytes);
/* Requires that nothing is in use any more. A zeroed object is allowed. */
void collet_ipc_cache_deinit(struct collet_ipc_cache *cache);

/* Returns the mapping if the allocation is open, NULL otherwise. The caller must release it, as after
 * collet_ipc_cache_open(). */
struct collet_ipc_mapping *collet_ipc_cache_find(
	struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, cu_context context);
/* Maps the allocation in a context, which must be current. fd is its descriptor, which stays the caller's, or -1.
 * Returns the mapping that exists, if there is one. COLLET_ERR_SYSTEM: the driver refuses, and the sentence says
 * why. */
collet_status collet_ipc_cache_open(struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, int fd,
	cu_context context, int device, struct collet_ipc_mapping **mapping);
/* Marks an allocation as freed by its owner; its mapping is evicted as soon as possible. */
void collet_ipc_cache_invalidate(struct collet_ipc_cache *cache, uint64_t process, uint64_t allocation);
/* Evicts nothing until every pause has been resumed. */
void collet_ipc_cache_pause_eviction(struct collet_ipc_cache *cache);
void collet_ipc_cache_resume_eviction(struct collet_ipc_cache *cache);
/* Ends one use of the mapping. NULL is allowed. */
void collet_ipc_cache_release(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping);
/* Ends one use and closes the mapping if it was the last, even while eviction is paused. */
void collet_ipc_cache_close(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping);

#endif
