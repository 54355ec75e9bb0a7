/* Device memory: pages with two mappings, of which the program's has no access rights. */
#include "fake.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct fake_block *blocks;
static uint64_t ids;

uint64_t fake_new_id(void)
{
	return ++ids;
}

size_t fake_round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static bool is_at_gpus(cu_pointer pointer)
{
	return pointer & FAKE_PINNED_AT;
}

struct fake_block *fake_find(cu_pointer pointer)
{
	const cu_pointer at = pointer & ~FAKE_PINNED_AT;
	for (struct fake_block *block = blocks; block; block = block->next)
		if (at >= block->first && at < block->first + block->bytes)
			return block->kind == FAKE_PINNED || !is_at_gpus(pointer) ? block : NULL;
	return NULL;
}

static void add(struct fake_block *block)
{
	pthread_mutex_lock(&fake_lock);
	if (!block->id)
		block->id = ++ids;
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&fake_lock);
	fake_alive(1);
}

struct fake_block *fake_add(const struct fake_block *like, int file, size_t offset, cu_pointer at)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = fake_round_up(like->bytes, page);
	struct fake_block *block = malloc(sizeof(*block));
	if (!block)
		return NULL;
	const cu_pointer wanted = at ? at : fake_occupy(mapped);
	void *mapping = mmap((void *)(uintptr_t)wanted, mapped, PROT_NONE, MAP_SHARED | (wanted ? MAP_FIXED : 0), file,
		(off_t)offset);
	void *reach = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
	*block = *like; /* with its id, if it has one */
	block->first = (uintptr_t)mapping;
	block->mapped = mapped;
	block->reach = reach;
	if (mapping != MAP_FAILED && reach != MAP_FAILED) {
		add(block);
		return block;
	}
	if (mapping != MAP_FAILED && !at)
		munmap(mapping, mapped);
	if (reach != MAP_FAILED)
		munmap(reach, mapped);
	free(block);
	return NULL;
}

struct fake_block *fake_take(cu_pointer first, enum fake_kind kind)
{
	struct fake_block *found = NULL;
	pthread_mutex_lock(&fake_lock);
	for (struct fake_block **at = &blocks; *at && !found; at = &(*at)->next) {
		if ((*at)->first == first && (*at)->kind == kind) {
			found = *at;
			*at = found->next;
			fake_alive(-1);
			break;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return found;
}

void fake_unlock_all(cu_context context)
{
	pthread_mutex_lock(&fake_lock);
	for (struct fake_block **at = &blocks; *at;) {
		struct fake_block *block = *at;
		if (block->kind == FAKE_PINNED && block->context == context) {
			*at = block->next;
			fake_alive(-1);
			free(block);
		} else {
			at = &block->next;
		}
	}
	pthread_mutex_unlock(&fake_lock);
}

static struct fake_block *take_of(cu_context context)
{
	pthread_mutex_lock(&fake_lock);
	struct fake_block **at = &blocks;
	while (*at && ((*at)->context != context || (*at)->kind == FAKE_PINNED))
		at = &(*at)->next;
	struct fake_block *block = *at;
	if (block) {
		*at = block->next;
		fake_alive(-1);
	}
	pthread_mutex_unlock(&fake_lock);
	return block;
}

void fake_free_all(cu_context context)
{
	for (struct fake_block *block; (block = take_of(context));) {
		fake_unmap(block);
		if (block->kind == FAKE_OPENED)
			fake_forget_opened(block->exporter);
		if (block->file >= 0)
			close(block->file);
		free(block);
	}
	fake_unlock_all(context);
}

pthread_mutex_t fake_unmapping = PTHREAD_MUTEX_INITIALIZER;

void fake_unmap(const struct fake_block *block)
{
	fake_vacate(block->first, block->mapped);
	pthread_mutex_lock(&fake_unmapping);
	munmap(block->reach, block->mapped);
	pthread_mutex_unlock(&fake_unmapping);
}

/* Needs fake_lock. */
static bool ends_within(const struct fake_block *block, cu_pointer pointer, size_t bytes)
{
	return bytes <= block->first + block->bytes - (pointer & ~FAKE_PINNED_AT);
}

char *fake_reach(cu_pointer pointer, size_t bytes)
{
	char *address = is_at_gpus(pointer) ? NULL : (char *)(uintptr_t)pointer;
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	if (block && (!ends_within(block, pointer, bytes) || (block->kind == FAKE_MAPPED && !block->access)))
		address = NULL;
	else if (block && block->kind == FAKE_PINNED)
		address = (char *)(uintptr_t)(pointer & ~FAKE_PINNED_AT);
	else if (block)
		address = block->reach + (pointer - block->first);
	else if (fake_is_vacant(pointer))
		address = NULL;
	pthread_mutex_unlock(&fake_lock);
	return address;
}

bool fake_is_known(cu_pointer pointer, size_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	const bool known = block && ends_within(block, pointer, bytes) &&
		(block->kind != FAKE_PINNED || is_at_gpus(pointer));
	pthread_mutex_unlock(&fake_lock);
	return known;
}

bool fake_is_pageable(cu_pointer pointer)
{
	pthread_mutex_lock(&fake_lock);
	const bool pageable = !fake_find(pointer);
	pthread_mutex_unlock(&fake_lock);
	return pageable;
}

/* Needs fake_lock. */
static bool has_access(const struct fake_block *block, int device)
{
	return block->kind != FAKE_MAPPED || (device >= 0 && block->access >> device & 1);
}

char *fake_reach_to_copy(int device, cu_pointer pointer, size_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	const bool allowed = !block || has_access(block, device);
	pthread_mutex_unlock(&fake_lock);
	return allowed ? fake_reach(pointer, bytes) : NULL;
}

char *fake_reach_from(cu_context context, cu_pointer pointer, size_t bytes)
{
	const int device = fake_context_device(context);
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	const bool known = block && has_access(block, device) &&
		(block->kind != FAKE_DEVICE || fake_peer_reaches(context, block->context)) &&
		(block->kind != FAKE_OPENED || context == block->context) &&
		(block->kind != FAKE_PINNED || is_at_gpus(pointer));
	pthread_mutex_unlock(&fake_lock);
	return known ? fake_reach(pointer, bytes) : NULL;
}

/* ---- Driver functions ---- */

FAKE_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t bytes)
{
	cu_context context;
	cu_result result = fake_enter_unsafe("cuMemAlloc", &context);
	if (result != CU_OK)
		return result;
	if (!bytes)
		return CU_INVALID_VALUE;
	const int file = memfd_create("fake-device-memory", MFD_CLOEXEC);
	const struct fake_block like = { .kind = FAKE_DEVICE, .bytes = bytes, .context = context,
		.device = fake_context_device(context), .file = file };
	struct fake_block *block = NULL;
	if (file >= 0 && ftruncate(file, (off_t)fake_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE))) == 0)
		block = fake_add(&like, file, 0, 0);
	if (!block) {
		if (file >= 0)
			close(file);
		return CU_OUT_OF_MEMORY;
	}
	*pointer = block->first;
	return CU_OK;
}

FAKE_API cu_result cuMemFree_v2(cu_pointer pointer)
{
	cu_context context;
	cu_result result = fake_enter_unsafe("cuMemFree", &context);
	if (result != CU_OK)
		return result;
	fake_land();
	struct fake_block *block = fake_take(pointer, FAKE_DEVICE);
	if (!block)
		return CU_INVALID_VALUE;
	if (getenv("FAKE_CUDA_FREE_WAITS"))
		fake_wait_for_kernels(block->device);
	fake_unmap(block);
	close(block->file);
	free(block);
	return CU_OK;
}

FAKE_API cu_result cuMemGetAddressRange_v2(cu_pointer *first, size_t *bytes, cu_pointer pointer)
{
	cu_context context;
	cu_result result = fake_enter_in_context("cuMemGetAddressRange", &context);
	if (result != CU_OK)
		return result;
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	if (block && first)
		*first = block->first;
	if (block && bytes)
		*bytes = block->bytes;
	result = block ? CU_OK : CU_INVALID_VALUE;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

static size_t locked_most;           /* under fake_lock */

/* Needs fake_lock. */
static void note_locked(void)
{
	size_t locked = 0;
	for (const struct fake_block *block = blocks; block; block = block->next)
		locked += block->kind == FAKE_PINNED ? block->bytes : 0;
	locked_most = locked > locked_most ? locked : locked_most;
}

FAKE_API size_t fakeLockedMost(void)
{
	pthread_mutex_lock(&fake_lock);
	const size_t most = locked_most;
	pthread_mutex_unlock(&fake_lock);
	return most;
}

static cu_result lock_pages(cu_context context, void *memory, size_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	const bool known = fake_find((uintptr_t)memory) || fake_find((uintptr_t)memory + bytes - 1);
	pthread_mutex_unlock(&fake_lock);
	if (known)
		return CU_HOST_MEMORY_ALREADY_REGISTERED;
	struct fake_block *block = calloc(1, sizeof(*block));
	if (!block)
		return CU_OUT_OF_MEMORY;
	*block = (struct fake_block){ .kind = FAKE_PINNED, .first = (uintptr_t)memory, .bytes = bytes,
		.context = context, .device = fake_context_device(context), .file = -1 };
	add(block);
	pthread_mutex_lock(&fake_lock);
	note_locked();
	pthread_mutex_unlock(&fake_lock);
	return CU_OK;
}

FAKE_API cu_result cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	cu_context context;
	cu_result result = fake_enter_unsafe("cuMemHostRegister", &context);
	if (result != CU_OK)
		return result;
	(void)flags;
	return memory && bytes ? lock_pages(context, memory, bytes) : CU_INVALID_VALUE;
}

FAKE_API cu_result cuMemHostUnregister(void *memory)
{
	cu_context context;
	cu_result result = fake_enter_unsafe(__func__, &context);
	if (result != CU_OK)
		return result;
	struct fake_block *block = fake_take((uintptr_t)memory, FAKE_PINNED);
	free(block);
	return block ? CU_OK : CU_HOST_MEMORY_NOT_REGISTERED;
}

/* On pages of its own, so that nothing else is page-locked with it. */
FAKE_API cu_result cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	cu_context context;
	cu_result result = fake_enter_unsafe(__func__, &context);
	if (result != CU_OK)
		return result;
	(void)flags;
	if (!memory || !bytes)
		return CU_INVALID_VALUE;
	void *pages = aligned_alloc(page, fake_round_up(bytes, page));
	result = pages ? lock_pages(context, pages, bytes) : CU_OUT_OF_MEMORY;
	if (result == CU_OK)
		*memory = pages;
	else
		free(pages);
	return result;
}

FAKE_API cu_result cuMemFreeHost(void *memory)
{
	cu_context context;
	cu_result result = fake_enter_unsafe(__func__, &context);
	if (result != CU_OK)
		return result;
	struct fake_block *block = fake_take((uintptr_t)memory, FAKE_PINNED);
	if (!block)
		return CU_INVALID_VALUE;
	free(block);
	free(memory);
	return CU_OK;
}

/* Needs fake_lock. For memory that the driver does not know, every answer is 0 or NULL, without an error. */
static cu_result answer(const struct fake_block *block, int attribute, void *value)
{
	switch (attribute) {
	case CU_ATTRIBUTE_CONTEXT: *(cu_context *)value = block ? block->context : NULL; break;
	case CU_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)value = !block ? 0 : block->kind == FAKE_PINNED ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
		break;
	case CU_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = block ? block->id : 0; break;
	case CU_ATTRIBUTE_IS_MANAGED: *(unsigned int *)value = 0; break;
	case CU_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = block ? block->device : -2; break;
	case CU_ATTRIBUTE_IS_IPC_CAPABLE: *(unsigned int *)value = block && block->kind == FAKE_DEVICE; break;
	case CU_ATTRIBUTE_RANGE_START:
		*(cu_pointer *)value = !block ? 0 : block->range_bytes ? block->range : block->first;
		break;
	case CU_ATTRIBUTE_RANGE_BYTES:
		*(size_t *)value = !block ? 0 : block->range_bytes ? block->range_bytes : block->bytes;
		break;
	default: return CU_INVALID_VALUE;
	}
	return CU_OK;
}

FAKE_API cu_result cuPointerGetAttributes(unsigned int count, int *attributes, void **values, cu_pointer pointer)
{
	cu_result result = fake_enter(__func__);
	pthread_mutex_lock(&fake_lock);
	const struct fake_block *block = fake_find(pointer);
	for (unsigned int i = 0; i < count && result == CU_OK; i++)
		result = answer(block, attributes[i], values[i]);
	pthread_mutex_unlock(&fake_lock);
	return result;
}
