/* GPU memory between processes of one host: what one has allocated, mapped in another.
 *
 * Who wants to show a buffer describes its allocation; the description travels as it is, and whoever gets it opens it.
 * Ordinary allocations are opened by the driver's handle. Memory that was mapped (cuMemMap(), as collet_mem_alloc() and
 * some frameworks' allocators do) has no such handle, only a file descriptor, which has to travel by itself.
 *
 * What has been opened is kept: opening takes the driver a tenth of a millisecond and more. The driver numbers
 * allocations, so one that was freed, and whose address was handed out anew, is not taken for the old one; the old
 * mapping, which keeps the freed memory from the GPU's other users, is then given up. For memory that was mapped that
 * number will not do: it may be of the addresses, which stay reserved while what lies there is unmapped and other
 * memory mapped, as allocators whose segments grow and shrink do. So whoever describes such memory numbers it.
 *
 * Giving one up may wait for all that the GPU has been given. So nothing is while there are streams that wait for
 * whoever would have to wait for them. */
#ifndef COLLET_CUDA_DRIVER_IPC_H
#define COLLET_CUDA_DRIVER_IPC_H

#include <pthread.h>

#include "cuda/driver/driver.h"

enum collet_ipc_kind {
	COLLET_IPC_NONE,             /* cannot be opened elsewhere */
	COLLET_IPC_LEGACY,
	COLLET_IPC_FD
};

/* Of the number of an allocation: in the bits above, which rank has given it, plus one; 0: the driver has. */
enum { COLLET_IPC_RANK_SHIFT = 40 };

/* An allocation; what no other has is (process, allocation). */
struct collet_ipc_handle {
	uint64_t process;            /* who has made it: a card's process_id */
	uint64_t allocation;         /* its number there */
	uint64_t address, bytes;     /* where it lies there */
	uint32_t kind;               /* enum collet_ipc_kind */
	uint32_t reserved0;
	cu_ipc_handle legacy;
};

/* Describes the allocation that memory, a GPU's, is in. With the memory's context current. That it cannot be shared is
 * no error: kind says so. COLLET_IPC_FD: the caller gives it another number, and *mapped is the physical
 * memory, the caller's to release, which no other has the handle of until then; else 0. */
collet_status collet_ipc_handle_get(const struct collet_cuda *cuda, uint64_t process, const void *memory,
	struct collet_ipc_handle *handle, cu_mem_handle *mapped);
/* Of one that is COLLET_IPC_FD: a descriptor of it, the caller's to close. */
collet_status collet_ipc_handle_export_fd(
	const struct collet_cuda *cuda, const struct collet_ipc_handle *handle, int *fd);

/* What this rank has opened; kept in order of use, the latest first. */
struct collet_ipc_mapping {
	struct collet_ipc_mapping *next;
	uint64_t process, allocation, peer_address, bytes;
	cu_pointer address;
	size_t mapped_bytes;         /* COLLET_IPC_FD: of the addresses; else 0 */
	cu_context context;
	uint32_t ref_count;
	bool freed_by_owner;         /* what it was of is no more */
};

struct collet_ipc_cache {
	const struct collet_cuda *cuda;      /* NULL: there is none */
	pthread_mutex_t lock;
	struct collet_ipc_mapping *first;
	uint32_t count, max_count;
	uint64_t bytes, max_bytes;
	uint32_t eviction_pauses;    /* nothing is given up */
};

/* Keeps up to so many allocations, and bytes of them; those in use besides, if there are more. */
void collet_ipc_cache_init(
	struct collet_ipc_cache *cache, const struct collet_cuda *cuda, uint32_t max_count, uint64_t max_bytes);
/* Nothing is in use any more. A zeroed one is fine. */
void collet_ipc_cache_deinit(struct collet_ipc_cache *cache);

/* Is it open? Then it is in use until it is put back, as after collet_ipc_cache_open(). */
struct collet_ipc_mapping *collet_ipc_cache_find(
	struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, cu_context context);
/* Maps it for a GPU's context, which is current; file: its descriptor, which stays the caller's, or -1. Where it is
 * open already, as find. COLLET_ERR_SYSTEM: the driver refuses, and the sentence says how. */
collet_status collet_ipc_cache_open(struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, int fd,
	cu_context context, int device, struct collet_ipc_mapping **mapping);
/* It is no more: what is open of it is given up as soon as may be. */
void collet_ipc_cache_invalidate(struct collet_ipc_cache *cache, uint64_t process, uint64_t allocation);
/* From here on nothing is given up, until all who have asked for that let go. */
void collet_ipc_cache_pause_eviction(struct collet_ipc_cache *cache);
void collet_ipc_cache_resume_eviction(struct collet_ipc_cache *cache);
/* NULL is fine. */
void collet_ipc_cache_release(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping);
/* The same, and nobody will want it again; it is given up, held or not. */
void collet_ipc_cache_close(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping);

#endif
