/* verbs: registration of memory with adapters.
 *
 * Registration pins pages and takes from some µs to ms. It is cached only for memory that memory_register() announced,
 * because memory_deregister() will tell when that memory goes away (blocks of collet_mem_alloc, memory of
 * collet_mem_register, the engine's staging). A cached registration of any other memory would be unsafe: if the memory
 * were freed and its addresses reused, adapters would access the old pages. Other memory is therefore registered for
 * each transfer; memory to send read-only, since the process may not be allowed to write it.
 *
 * Regions may overlap and nest. They are sorted by begin, and each stores the greatest end of all up to it. A search
 * backwards can stop as soon as no region before reaches far enough. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "verbs_adapter.h"
#include "verbs_registration.h"

/* ---- The list ----------------------------------------------------------------------------------------------- */

/* Returns the number of regions that begin at or before this address. */
static size_t upper_bound(const struct collet_device *device, uintptr_t first)
{
	size_t low = 0, high = device->region_count;
	while (low < high) {
		const size_t middle = (low + high) / 2;
		if (device->regions[middle]->begin <= first)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void update_max_end(struct collet_device *device, size_t index)
{
	uintptr_t furthest = index ? device->regions[index - 1]->max_end : 0;
	for (; index < device->region_count; index++) {
		struct verbs_region *region = device->regions[index];
		furthest = region->end > furthest ? region->end : furthest;
		region->max_end = furthest;
	}
}

/* Returns a region that contains the whole range, or NULL. */
static struct verbs_region *find_region(const struct collet_device *device, uintptr_t first, uintptr_t end)
{
	for (size_t i = upper_bound(device, first); i > 0 && device->regions[i - 1]->max_end >= end; i--)
		if (device->regions[i - 1]->end >= end)
			return device->regions[i - 1];
	return NULL;
}

/* ---- Adapters ----------------------------------------------------------------------------------------------- */

static void unpin(struct collet_device *device, struct verbs_region *region)
{
	bool was_pinned = false;
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		was_pinned |= region->mrs[i] != NULL;
		if (region->mrs[i])
			ibv_dereg_mr(region->mrs[i]);
		region->mrs[i] = NULL;
	}
	if (was_pinned)
		device->pinned_bytes -= region->end - region->begin;
}

/* Unpins the least recently used regions that no transfer uses, until there is room for this many bytes. */
static void evict(struct collet_device *device, uint64_t bytes)
{
	while (device->pinned_bytes && device->pinned_bytes + bytes > device->options.max_pinned_bytes) {
		struct verbs_region *oldest = NULL;
		for (size_t i = 0; i < device->region_count; i++) {
			struct verbs_region *region = device->regions[i];
			const bool is_idle = region->mrs[0] && region->dmabuf < 0 && !region->refcount;
			if (is_idle && (!oldest || region->last_used < oldest->last_used))
				oldest = region;
		}
		if (!oldest)
			return;
		unpin(device, oldest);
	}
}

static void warn_once(struct collet_device *device, uint64_t bytes, int error)
{
	if (device->has_warned)
		return;
	device->has_warned = true;
	struct rlimit limit = { 0 };
	char limit_text[64] = "";
	if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		snprintf(limit_text, sizeof(limit_text), "; ulimit -l is %llu KiB",
			(unsigned long long)limit.rlim_cur >> 10);
	device->services->log(device->log, COLLET_LOG_WARN,
		"verbs: cannot register %llu bytes: %s%s. Large messages are copied through small buffers, which is "
		"slow; raise the limit of locked memory (ulimit -l unlimited, LimitMEMLOCK=infinity)",
		(unsigned long long)bytes, strerror(error), limit_text);
}

static bool pin_range(struct collet_device *device, struct ibv_mr **registered, void *first, uint64_t bytes,
	enum verbs_access access)
{
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		const struct verbs_adapter *adapter = &device->adapters[i];
		errno = 0;
		if (bytes <= adapter->attributes.max_mr_size)
			registered[i] = ibv_reg_mr(adapter->pd, first, bytes, access);
		if (registered[i])
			continue;
		warn_once(device, bytes, errno ? errno : EFBIG);
		while (i-- > 0) {
			ibv_dereg_mr(registered[i]);
			registered[i] = NULL;
		}
		return false;
	}
	return true;
}

static bool pin_dmabuf(struct collet_device *device, struct verbs_region *region)
{
	const uint64_t bytes = region->end - region->begin;
	for (uint32_t i = 0; i < device->adapter_count; i++) {
		region->mrs[i] = ibv_reg_dmabuf_mr(device->adapters[i].pd, region->dmabuf_offset, bytes, region->begin,
			region->dmabuf, VERBS_ACCESS_WRITE);
		if (!region->mrs[i])
			break;
		if (i + 1 == device->adapter_count) {
			device->pinned_bytes += bytes;
			return true;
		}
	}
	for (uint32_t i = 0; i < device->adapter_count && region->mrs[i]; i++) {
		ibv_dereg_mr(region->mrs[i]);
		region->mrs[i] = NULL;
	}
	return false;
}

static bool pin(struct collet_device *device, struct verbs_region *region)
{
	const uint64_t bytes = region->end - region->begin;
	region->last_used = ++device->use_count;
	if (region->mrs[0])
		return true;
	if (bytes > device->options.max_pinned_bytes)
		return false;
	evict(device, bytes);
	if (device->pinned_bytes + bytes > device->options.max_pinned_bytes ||
		!pin_range(device, region->mrs, (void *)region->begin, bytes, VERBS_ACCESS_WRITE))
		return false;
	device->pinned_bytes += bytes;
	return true;
}

/* Returns the region of GPU memory that contains the range, or NULL. GPU memory cannot be registered without the
 * dma-buf of its region. */
static struct verbs_region *find_gpu_region(const struct collet_device *device, const void *data, uint64_t bytes)
{
	const uintptr_t first = (uintptr_t)data;
	struct verbs_region *region = find_region(device, first, first + bytes);
	return region && region->dmabuf >= 0 ? region : NULL;
}

/* ---- For transfers ------------------------------------------------------------------------------------------ */

bool collet_verbs_acquire_mr(struct collet_device *device, struct verbs_mr_ref *mr, void *data, uint64_t bytes,
	enum verbs_access access)
{
	const uintptr_t first = (uintptr_t)data;
	*mr = (struct verbs_mr_ref){ 0 };
	pthread_mutex_lock(&device->lock);
	struct verbs_region *region = find_region(device, first, first + bytes);
	if (region && pin(device, region)) {
		region->refcount++;
		mr->region = region;
	}
	const bool is_registered = mr->region || pin_range(device, mr->own_mrs, data, bytes, access);
	pthread_mutex_unlock(&device->lock);
	return is_registered;
}

bool collet_verbs_has_gpu_mr(struct collet_device *device, const void *data, uint64_t bytes)
{
	pthread_mutex_lock(&device->lock);
	const bool is_registered = find_gpu_region(device, data, bytes);
	pthread_mutex_unlock(&device->lock);
	return is_registered;
}

bool collet_verbs_acquire_gpu_mr(
	struct collet_device *device, struct verbs_mr_ref *mr, const void *data, uint64_t bytes)
{
	*mr = (struct verbs_mr_ref){ 0 };
	pthread_mutex_lock(&device->lock);
	mr->region = find_gpu_region(device, data, bytes);
	if (mr->region)
		mr->region->refcount++;
	pthread_mutex_unlock(&device->lock);
	return mr->region;
}

static void free_region(struct collet_device *device, struct verbs_region *region)
{
	unpin(device, region);
	free(region);
}

void collet_verbs_release_mr(struct collet_device *device, struct verbs_mr_ref *mr)
{
	pthread_mutex_lock(&device->lock);
	if (mr->region && --mr->region->refcount == 0 && mr->region->is_deregistered)
		free_region(device, mr->region);
	for (uint32_t i = 0; i < device->adapter_count; i++)
		if (mr->own_mrs[i])
			ibv_dereg_mr(mr->own_mrs[i]);
	*mr = (struct verbs_mr_ref){ 0 };
	pthread_mutex_unlock(&device->lock);
}

/* ---- For the engine ----------------------------------------------------------------------------------------- */

static bool insert_region(struct collet_device *device, struct verbs_region *region)
{
	if (device->region_count == device->region_capacity) {
		const size_t capacity = device->region_capacity ? 2 * device->region_capacity : 64;
		struct verbs_region **grown = realloc(device->regions, capacity * sizeof(struct verbs_region *));
		if (!grown)
			return false;
		device->regions = grown;
		device->region_capacity = capacity;
	}
	const size_t index = upper_bound(device, region->begin);
	memmove(device->regions + index + 1, device->regions + index,
		(device->region_count - index) * sizeof(struct verbs_region *));
	device->regions[index] = region;
	device->region_count++;
	update_max_end(device, index);
	return true;
}

collet_status collet_verbs_memory_register(
	struct collet_device *device, const struct collet_memory *memory, void **registration)
{
	struct verbs_region *region = calloc(1, sizeof(*region));
	if (!region)
		return device->services->fail(COLLET_ERR_MEMORY, "verbs: no memory to describe a registration");
	*region = (struct verbs_region){ .begin = (uintptr_t)memory->base,
		.end = (uintptr_t)memory->base + memory->bytes,
		.dmabuf = memory->kind == COLLET_MEMORY_GPU ? memory->dmabuf : -1,
		.dmabuf_offset = memory->dmabuf_offset };
	pthread_mutex_lock(&device->lock);
	/* Registers GPU memory now, because the caller may close its dma-buf after this call. */
	collet_status status = COLLET_OK;
	if (memory->kind == COLLET_MEMORY_GPU) {
		if (memory->dmabuf < 0 || !pin_dmabuf(device, region))
			status = device->services->fail(COLLET_ERR_UNSUPPORTED,
				"verbs: %s does not register %llu bytes of GPU memory by a dma-buf: %s",
				device->adapters[0].name, (unsigned long long)memory->bytes,
				memory->dmabuf < 0 ? "there is none" : strerror(errno));
	}
	if (status == COLLET_OK && !insert_region(device, region))
		status = device->services->fail(COLLET_ERR_MEMORY, "verbs: no memory to describe a registration");
	if (status == COLLET_OK)
		*registration = region;
	else
		free_region(device, region);
	pthread_mutex_unlock(&device->lock);
	return status;
}

void collet_verbs_memory_deregister(struct collet_device *device, void *registration)
{
	struct verbs_region *region = registration;
	pthread_mutex_lock(&device->lock);
	size_t index = upper_bound(device, region->begin);
	while (device->regions[index - 1] != region)
		index--;
	device->region_count--;
	memmove(device->regions + index - 1, device->regions + index,
		(device->region_count + 1 - index) * sizeof(struct verbs_region *));
	update_max_end(device, index - 1);
	if (region->refcount)
		region->is_deregistered = true;
	else
		free_region(device, region);
	pthread_mutex_unlock(&device->lock);
}
