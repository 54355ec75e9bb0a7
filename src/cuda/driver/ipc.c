#include "cuda/driver/ipc.h"

#include <stdlib.h>

#include "core/status.h"

/* ---- This process's memory ---- */

collet_status collet_ipc_handle_get(const struct collet_cuda *cuda, uint64_t process, const void *memory,
	struct collet_ipc_handle *handle, cu_mem_handle *mapped)
{
	static const char what[] = "getting a handle of an allocation";
	const cu_pointer pointer = (uintptr_t)memory;
	unsigned long long id = 0;
	unsigned int capable = 0;
	int asked[] = { CU_ATTRIBUTE_BUFFER_ID, CU_ATTRIBUTE_IS_IPC_CAPABLE };
	void *answers[] = { &id, &capable };
	cu_pointer first = 0;
	size_t bytes = 0;
	*handle = (struct collet_ipc_handle){ .process = process };
	*mapped = 0;
	cu_result result = cuda->cuPointerGetAttributes(sizeof(asked) / sizeof(asked[0]), asked, answers, pointer);
	if (result == CU_OK)
		result = cuda->cuMemGetAddressRange(&first, &bytes, pointer);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	handle->allocation = id;
	handle->address = first;
	handle->bytes = bytes;
	if (capable && cuda->cuIpcGetMemHandle(&handle->legacy, first) == CU_OK) {
		handle->kind = COLLET_IPC_LEGACY;
		return COLLET_OK;
	}
	if (cuda->cuMemRetainAllocationHandle(mapped, (void *)(uintptr_t)first) == CU_OK)
		handle->kind = COLLET_IPC_FD;
	else
		*mapped = 0;
	return COLLET_OK;
}

collet_status collet_ipc_handle_export_fd(
	const struct collet_cuda *cuda, const struct collet_ipc_handle *handle, int *fd)
{
	static const char what[] = "exporting mapped memory as a file descriptor";
	cu_mem_handle mapped;
	cu_result result = cuda->cuMemRetainAllocationHandle(&mapped, (void *)(uintptr_t)handle->address);
	if (result != CU_OK)
		return collet_cuda_fail(cuda, result, what);
	result = cuda->cuMemExportToShareableHandle(fd, mapped, CU_HANDLE_FILE_DESCRIPTOR, 0);
	(void)cuda->cuMemRelease(mapped);
	return result == CU_OK ? COLLET_OK : collet_cuda_fail(cuda, result, what);
}

/* ---- Other processes' memory ---- */

void collet_ipc_cache_init(
	struct collet_ipc_cache *cache, const struct collet_cuda *cuda, uint32_t max_count, uint64_t max_bytes)
{
	*cache = (struct collet_ipc_cache){ .cuda = cuda, .max_count = max_count, .max_bytes = max_bytes };
	pthread_mutex_init(&cache->lock, NULL);
}

static void unmap(const struct collet_cuda *cuda, const struct collet_ipc_mapping *mapping)
{
	if (mapping->mapped_bytes) {
		(void)cuda->cuMemUnmap(mapping->address, mapping->mapped_bytes);
		(void)cuda->cuMemAddressFree(mapping->address, mapping->mapped_bytes);
		return;
	}
	/* Fails if the application has destroyed the context, which closed the handle too. */
	if (collet_cuda_push_context(cuda, mapping->context) == CU_OK) {
		(void)cuda->cuIpcCloseMemHandle(mapping->address);
		collet_cuda_pop_context(cuda);
	}
}

/* Needs the lock, except in deinit. */
static void evict(struct collet_ipc_cache *cache, struct collet_ipc_mapping **at)
{
	struct collet_ipc_mapping *evicted = *at;
	*at = evicted->next;
	cache->count--;
	cache->bytes -= evicted->bytes;
	unmap(cache->cuda, evicted);
	free(evicted);
}

void collet_ipc_cache_deinit(struct collet_ipc_cache *cache)
{
	if (!cache->cuda)
		return;
	while (cache->first)
		evict(cache, &cache->first);
	pthread_mutex_destroy(&cache->lock);
	*cache = (struct collet_ipc_cache){ 0 };
}

/* Evicts down to the limits, the least recently used first. Needs the lock. */
static void evict_unused(struct collet_ipc_cache *cache)
{
	if (cache->eviction_pauses)
		return;
	for (struct collet_ipc_mapping **at = &cache->first; *at;) {
		if ((*at)->freed_by_owner && !(*at)->ref_count)
			evict(cache, at);
		else
			at = &(*at)->next;
	}
	while (cache->count > cache->max_count || cache->bytes > cache->max_bytes) {
		struct collet_ipc_mapping **last = NULL;
		for (struct collet_ipc_mapping **at = &cache->first; *at; at = &(*at)->next)
			if (!(*at)->ref_count)
				last = at;
		if (!last)
			return;
		evict(cache, last);
	}
}

/* True if two different numbers may name one allocation: two ranks of a process may each have numbered it. */
static bool may_be_same_allocation(uint64_t allocation, uint64_t other)
{
	const uint64_t rank = allocation >> COLLET_IPC_RANK_SHIFT, other_rank = other >> COLLET_IPC_RANK_SHIFT;
	return rank && other_rank && rank != other_rank;
}

/* Marks other allocations at the same address as freed. Needs the lock. */
static void mark_freed(const struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle)
{
	for (struct collet_ipc_mapping *old = cache->first; old; old = old->next)
		if (old->process == handle->process && old->allocation != handle->allocation &&
			!may_be_same_allocation(old->allocation, handle->allocation) &&
			old->peer_address < handle->address + handle->bytes &&
			handle->address < old->peer_address + old->bytes)
			old->freed_by_owner = true;
}

/* Moves the mapping to the front and adds a user; NULL if it is not open. Needs the lock. */
static struct collet_ipc_mapping *acquire(
	struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, cu_context context)
{
	struct collet_ipc_mapping **at = &cache->first;
	while (*at && ((*at)->process != handle->process || (*at)->allocation != handle->allocation ||
			      (*at)->context != context))
		at = &(*at)->next;
	struct collet_ipc_mapping *found = *at;
	if (!found)
		return NULL;
	*at = found->next;
	found->next = cache->first;
	cache->first = found;
	found->ref_count++;
	return found;
}

struct collet_ipc_mapping *collet_ipc_cache_find(
	struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, cu_context context)
{
	pthread_mutex_lock(&cache->lock);
	struct collet_ipc_mapping *found = acquire(cache, handle, context);
	pthread_mutex_unlock(&cache->lock);
	return found;
}

static cu_result map_fd(const struct collet_cuda *cuda, int fd, int device, struct collet_ipc_mapping *mapping)
{
	const cu_access access = { { CU_LOCATION_DEVICE, device }, CU_ACCESS_READ_WRITE };
	const size_t bytes = mapping->bytes;
	cu_mem_handle memory;
	cu_result result =
		cuda->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, CU_HANDLE_FILE_DESCRIPTOR);
	if (result != CU_OK)
		return result;
	result = cuda->cuMemAddressReserve(&mapping->address, bytes, 0, 0, 0);
	if (result != CU_OK)
		goto err_release;
	result = cuda->cuMemMap(mapping->address, bytes, 0, memory, 0);
	if (result != CU_OK)
		goto err_free;
	result = cuda->cuMemSetAccess(mapping->address, bytes, &access, 1);
	if (result != CU_OK)
		goto err_unmap;
	(void)cuda->cuMemRelease(memory);  /* the mapping holds a reference */
	mapping->mapped_bytes = bytes;
	return CU_OK;

err_unmap:
	(void)cuda->cuMemUnmap(mapping->address, bytes);
err_free:
	(void)cuda->cuMemAddressFree(mapping->address, bytes);
err_release:
	(void)cuda->cuMemRelease(memory);
	return result;
}

/* Needs the lock. */
static collet_status open_one(struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, int fd,
	cu_context context, int device, struct collet_ipc_mapping **mapping)
{
	struct collet_ipc_mapping *made = calloc(1, sizeof(*made));
	if (!made)
		return collet_fail(COLLET_ERR_MEMORY, "no memory for a peer's allocation");
	made->process = handle->process;
	made->allocation = handle->allocation;
	made->peer_address = handle->address;
	made->bytes = handle->bytes;
	made->context = context;
	const cu_result result = handle->kind == COLLET_IPC_FD ?
		map_fd(cache->cuda, fd, device, made) :
		cache->cuda->cuIpcOpenMemHandle(&made->address, handle->legacy, CU_IPC_LAZY_PEER_ACCESS);
	if (result != CU_OK) {
		free(made);
		return collet_cuda_fail(cache->cuda, result, "opening another process's allocation");
	}
	made->ref_count = 1;
	made->next = cache->first;
	cache->first = made;
	cache->count++;
	cache->bytes += made->bytes;
	*mapping = made;
	return COLLET_OK;
}

collet_status collet_ipc_cache_open(struct collet_ipc_cache *cache, const struct collet_ipc_handle *handle, int fd,
	cu_context context, int device, struct collet_ipc_mapping **mapping)
{
	if (handle->kind == COLLET_IPC_NONE)
		return collet_fail(COLLET_ERR_UNSUPPORTED,
			"cuda: an allocation of %llu bytes was not made so that other processes could open it",
			(unsigned long long)handle->bytes);
	collet_status status = COLLET_OK;
	pthread_mutex_lock(&cache->lock);
	*mapping = acquire(cache, handle, context);
	if (!*mapping && handle->kind == COLLET_IPC_FD && fd < 0)
		status = collet_fail(
			COLLET_ERR_SYSTEM, "cuda: the descriptor of a peer's mapped memory has not arrived");
	if (!*mapping && status == COLLET_OK) {
		mark_freed(cache, handle);
		evict_unused(cache);
		status = open_one(cache, handle, fd, context, device, mapping);
		evict_unused(cache);
	}
	pthread_mutex_unlock(&cache->lock);
	return status;
}

void collet_ipc_cache_invalidate(struct collet_ipc_cache *cache, uint64_t process, uint64_t allocation)
{
	pthread_mutex_lock(&cache->lock);
	for (struct collet_ipc_mapping *old = cache->first; old; old = old->next)
		if (old->process == process && old->allocation == allocation)
			old->freed_by_owner = true;
	evict_unused(cache);
	pthread_mutex_unlock(&cache->lock);
}

void collet_ipc_cache_pause_eviction(struct collet_ipc_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
	cache->eviction_pauses++;
	pthread_mutex_unlock(&cache->lock);
}

void collet_ipc_cache_resume_eviction(struct collet_ipc_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
	cache->eviction_pauses--;
	evict_unused(cache);
	pthread_mutex_unlock(&cache->lock);
}

void collet_ipc_cache_release(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping)
{
	if (!mapping)
		return;
	pthread_mutex_lock(&cache->lock);
	mapping->ref_count--;
	evict_unused(cache);
	pthread_mutex_unlock(&cache->lock);
}

void collet_ipc_cache_close(struct collet_ipc_cache *cache, struct collet_ipc_mapping *mapping)
{
	if (!mapping)
		return;
	pthread_mutex_lock(&cache->lock);
	if (!--mapping->ref_count) {
		struct collet_ipc_mapping **at = &cache->first;
		while (*at != mapping)
			at = &(*at)->next;
		evict(cache, at);
	}
	pthread_mutex_unlock(&cache->lock);
}
