/* verbs: memory that the adapters have registered. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_REGISTRATION_H
#define COLLET_TRANSPORT_VERBS_VERBS_REGISTRATION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "verbs_profile.h"

/* Memory announced by memory_register(). It is registered with the adapters when it is first used. */
struct verbs_region {
	uintptr_t begin, end;
	uintptr_t max_end;               /* greatest end of this region and all before it in the list */
	struct ibv_mr *mrs[VERBS_RAILS_MAX];   /* one for each adapter; NULL while not registered */
	uint32_t refcount;               /* transfers that use it */
	uint64_t last_used;              /* collet_device.use_count at the last use, for eviction */
	int32_t dmabuf;                  /* GPU memory: its dma-buf; else -1 */
	uint64_t dmabuf_offset;
	bool is_deregistered;            /* freed when the last transfer releases it */
};

/* The registered memory of one transfer: a reference to a region, or registrations of its own. */
struct verbs_mr_ref {
	struct verbs_region *region;     /* NULL if own_mrs is used */
	struct ibv_mr *own_mrs[VERBS_RAILS_MAX];
};

collet_status collet_verbs_memory_register(
	struct collet_device *device, const struct collet_memory *memory, void **registration);
void collet_verbs_memory_deregister(struct collet_device *device, void *registration);
enum verbs_access { VERBS_ACCESS_READ = 0, VERBS_ACCESS_WRITE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
/* Registers memory for a transfer. Returns false if that fails, after one warning in the log: the caller then copies
 * through bounce buffers. */
bool collet_verbs_acquire_mr(struct collet_device *device, struct verbs_mr_ref *mr, void *data, uint64_t bytes,
	enum verbs_access access);
/* Acquires GPU memory for a transfer. Returns false if it is not registered now. */
bool collet_verbs_acquire_gpu_mr(
	struct collet_device *device, struct verbs_mr_ref *mr, const void *data, uint64_t bytes);
/* Returns true if this GPU memory is registered now. */
bool collet_verbs_has_gpu_mr(struct collet_device *device, const void *data, uint64_t bytes);
void collet_verbs_release_mr(struct collet_device *device, struct verbs_mr_ref *mr);
static inline struct ibv_mr *collet_verbs_mr(const struct verbs_mr_ref *mr, uint32_t adapter)
{
	return mr->region ? mr->region->mrs[adapter] : mr->own_mrs[adapter];
}

#endif
