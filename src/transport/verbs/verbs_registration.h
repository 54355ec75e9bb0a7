/* verbs: memory that the adapters have registered. */
#ifndef COLLET_TRANSPORT_VERBS_VERBS_REGISTRATION_H
#define COLLET_TRANSPORT_VERBS_VERBS_REGISTRATION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include <collet/transport.h>

#include "verbs_profile.h"

/* Memory that memory_register() has named: registered when it is first used. */
struct verbs_region {
	uintptr_t begin, end;
	uintptr_t max_end;               /* end, of this and all before it in the list */
	struct ibv_mr *mrs[RAILS_MAX];
	uint32_t refcount;
	uint64_t last_used;              /* for eviction */
	int32_t dmabuf;
	uint64_t dmabuf_offset;
	bool is_deregistered;            /* to be freed when the last user lets go */
};

/* A transfer's memory, registered for its time. */
struct verbs_mr_ref {
	struct verbs_region *region;     /* kept, or NULL: */
	struct ibv_mr *own_mrs[RAILS_MAX];
};

collet_status collet_verbs_memory_register(
	struct collet_device *device, const struct collet_memory *memory, void **registration);
void collet_verbs_memory_deregister(struct collet_device *device, void *registration);
enum verbs_access { ACCESS_READ = 0, ACCESS_WRITE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
/* False: it is refused (a warning has said so, once), and the caller goes through its own memory. */
bool collet_verbs_acquire_mr(struct collet_device *device, struct verbs_mr_ref *mr, void *data, uint64_t bytes,
	enum verbs_access access);
/* The same of a GPU's memory. False: none of it is registered there now. knows: would it be true? */
bool collet_verbs_acquire_gpu_mr(
	struct collet_device *device, struct verbs_mr_ref *mr, const void *data, uint64_t bytes);
bool collet_verbs_has_gpu_mr(struct collet_device *device, const void *data, uint64_t bytes);
void collet_verbs_release_mr(struct collet_device *device, struct verbs_mr_ref *mr);
static inline struct ibv_mr *collet_verbs_mr(const struct verbs_mr_ref *mr, uint32_t adapter)
{
	return mr->region ? mr->region->mrs[adapter] : mr->own_mrs[adapter];
}

#endif
